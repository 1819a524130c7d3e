//! JSON, token by token, without building a value: what is not looked at keeps its bytes.
//!
//! `lib.rs` walks a payload with it. It is strict (RFC 8259), keeps no text and calls nothing
//! recursively, so that no payload is nested too deeply for the stack.

/// The text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotJson;

/// What the walk comes by. Text is raw, as it stands in the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// The start of an object or array.
    Open,
    /// Its end.
    Close,
    /// The name of a field, quotes included; its value is next.
    Key(&'a str),
    /// Any other value.
    Scalar(&'a str),
}

/// What may come next.
#[derive(Clone, Copy)]
enum Expect {
    Value,
    FirstKey,
    FirstElement,
    /// A comma or the end of whatever is open.
    Next,
}

/// A walk through a JSON text.
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    expect: Expect,
    /// What is open: the byte that closes each.
    open: Vec<u8>,
}

impl<'a> Tokens<'a> {
    /// The start of the walk.
    pub(crate) const fn of(text: &'a str) -> Self {
        Self { text, at: 0, expect: Expect::Value, open: Vec::new() }
    }

    /// The next token; none at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, NotJson> {
        self.blanks();
        let expect = self.expect;
        match expect {
            Expect::Value => self.value().map(Some),
            Expect::FirstKey if self.take(b'}') => Ok(Some(self.close())),
            Expect::FirstKey => self.key().map(Some),
            Expect::FirstElement if self.take(b']') => Ok(Some(self.close())),
            Expect::FirstElement => self.value().map(Some),
            Expect::Next => match self.open.last().copied() {
                None if self.at == self.text.len() => Ok(None),
                None => Err(NotJson),
                Some(end) if self.take(end) => Ok(Some(self.close())),
                Some(end) => {
                    self.need(b',')?;
                    self.blanks();
                    if end == b'}' { self.key() } else { self.value() }.map(Some)
                }
            },
        }
    }

    /// The bytes of the value that comes after a key, however large it is, from where to where.
    pub(crate) fn whole_value(&mut self) -> Result<(usize, usize), NotJson> {
        self.blanks();
        let (start, depth) = (self.at, self.open.len());
        loop {
            self.next()?;
            if self.open.len() == depth {
                return Ok((start, self.at));
            }
        }
    }

    fn value(&mut self) -> Result<Token<'a>, NotJson> {
        let start = self.at;
        let (end, expect) = match self.peek() {
            Some(b'{') => (b'}', Expect::FirstKey),
            Some(b'[') => (b']', Expect::FirstElement),
            first => {
                match first {
                    Some(b'"') => self.string()?,
                    Some(b't') => self.literal("true")?,
                    Some(b'f') => self.literal("false")?,
                    Some(b'n') => self.literal("null")?,
                    _ => self.number()?,
                }
                self.expect = Expect::Next;
                return Ok(Token::Scalar(&self.text[start..self.at]));
            }
        };
        self.at += 1;
        self.open.push(end);
        self.expect = expect;
        Ok(Token::Open)
    }

    fn key(&mut self) -> Result<Token<'a>, NotJson> {
        let start = self.at;
        self.string()?;
        let key = &self.text[start..self.at];
        self.blanks();
        self.need(b':')?;
        self.expect = Expect::Value;
        Ok(Token::Key(key))
    }

    fn close(&mut self) -> Token<'a> {
        self.open.pop();
        self.expect = Expect::Next;
        Token::Close
    }

    fn string(&mut self) -> Result<(), NotJson> {
        self.need(b'"')?;
        loop {
            // Most bytes are plain ones: finding the next other is what the time goes into.
            let rest = &self.text.as_bytes()[self.at..];
            let other = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            let other = other.ok_or(NotJson)?;
            self.at += other + 1;
            match rest[other] {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ => return Err(NotJson),
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotJson> {
        let byte = self.peek().ok_or(NotJson)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(NotJson)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(()).ok_or(NotJson)
            }
            _ => Err(NotJson),
        }
    }

    fn number(&mut self) -> Result<(), NotJson> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    /// One or more.
    fn digits(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(NotJson) } else { Ok(()) }
    }

    fn literal(&mut self, word: &str) -> Result<(), NotJson> {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(()).ok_or(NotJson)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Whether it was there.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, byte: u8) -> Result<(), NotJson> {
        self.take(byte).then_some(()).ok_or(NotJson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(text: &str) -> Result<usize, NotJson> {
        let mut tokens = Tokens::of(text);
        let mut count = 0;
        while tokens.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn json_is_walked() {
        assert_eq!(walk(r#" {"a" : [1, -0.5e+3, "\u00e9\\", {}], "b": null} "#), Ok(12));
        for text in ["0", "-1E9", "true", "[]", "[[],[]]", r#""""#, "1e999"] {
            assert!(walk(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_nearly_json_is_not() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "[1 2]",
            "01",
            "-",
            "1.",
            "1e",
            ".5",
            "+1",
            "tru",
            "nul",
            r#"""#,
            r#""\x""#,
            r#""\u12g4""#,
            "\"\n\"",
            "1 1",
            "[}",
            "{]",
            "{1:2}",
            "]",
            r#""\u1"#,
            "\u{feff}1",
        ] {
            assert_eq!(walk(text), Err(NotJson), "{text:?}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = ["[".repeat(1_000_000), "]".repeat(1_000_000)].concat();
        assert_eq!(walk(&deep), Ok(2_000_000));
    }
}
