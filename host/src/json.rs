//! Reading single facts out of JSON text without changing it: row headers, and keys by pointer.
//!
//! Used by stores (headers) and by routing (keys). Numbers keep the digits they were written with,
//! and duplicate members are kept where that matters. Never re-serialises a payload.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::event::Header;

/// The value a JSON pointer leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A string, number or boolean as text.
    Text(String),
    /// JSON null.
    Null,
}

/// Follows an RFC 6901 pointer such as `/customer/id`.
///
/// # Errors
/// A text that says why there is no scalar at that place.
pub fn at_pointer(payload: &[u8], pointer: &str) -> Result<Found, String> {
    let text = std::str::from_utf8(payload).map_err(|_| "the payload is not UTF-8".to_owned())?;
    let mut here: &RawValue =
        serde_json::from_str(text).map_err(|error| format!("the payload is not JSON: {error}"))?;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        here =
            child(here, &step).ok_or_else(|| format!("the payload has nothing at '{pointer}'"))?;
    }
    match scalar(here) {
        Some(Scalar::Null) => Ok(Found::Null),
        Some(Scalar::Text(text)) => Ok(Found::Text(text)),
        None => Err(format!(
            "the payload has an object or array at '{pointer}', a key must be a scalar"
        )),
    }
}

/// Reads a row's headers: a JSON object, or an array of `[name, value]` pairs for those who need
/// an order with repeats. Strings become their bytes, null a NULL header, numbers and booleans
/// their text, nested values their JSON text.
///
/// # Errors
/// A text that says what is wrong with them.
pub fn headers(text: &str) -> Result<Vec<Header>, String> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| format!("headers are not JSON: {error}"))?;
    let found = match raw.get().as_bytes().first() {
        Some(b'{') => members(raw).map(|members| {
            members.into_iter().map(|(name, value)| header(name.into_owned(), value)).collect()
        }),
        Some(b'[') => elements(raw).and_then(|pairs| pairs.into_iter().map(pair).collect()),
        _ if raw.get() == "null" => Some(Vec::new()),
        _ => None,
    };
    found.ok_or_else(|| {
        "headers must be a JSON object or an array of [name, value] pairs".to_owned()
    })
}

fn pair(raw: &RawValue) -> Option<Header> {
    match elements(raw)?.as_slice() {
        [name, value] => match scalar(name)? {
            Scalar::Text(name) => Some(header(name, value)),
            Scalar::Null => None,
        },
        _ => None,
    }
}

fn header(name: String, value: &RawValue) -> Header {
    let value = match scalar(value) {
        Some(Scalar::Null) => None,
        Some(Scalar::Text(text)) => Some(Bytes::from(text)),
        None => Some(Bytes::copy_from_slice(value.get().as_bytes())),
    };
    Header { name, value }
}

enum Scalar {
    Null,
    Text(String),
}

/// `None` for objects and arrays, and for strings that no text can hold (a lone surrogate).
fn scalar(raw: &RawValue) -> Option<Scalar> {
    match raw.get().as_bytes().first()? {
        b'{' | b'[' => None,
        b'"' => serde_json::from_str::<String>(raw.get()).ok().map(Scalar::Text),
        b'n' => Some(Scalar::Null),
        _ => Some(Scalar::Text(raw.get().to_owned())),
    }
}

fn child<'a>(raw: &'a RawValue, step: &str) -> Option<&'a RawValue> {
    match raw.get().as_bytes().first()? {
        // The last of several equal members wins, as in most parsers.
        b'{' => {
            members(raw)?.into_iter().rev().find(|(name, _)| name == step).map(|(_, value)| value)
        }
        b'[' => {
            let plain =
                step == "0" || (!step.starts_with('0') && step.bytes().all(|b| b.is_ascii_digit()));
            let index: usize = plain.then(|| step.parse().ok())??;
            elements(raw)?.into_iter().nth(index)
        }
        _ => None,
    }
}

fn members(raw: &RawValue) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(Members).ok()
}

fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Elements).ok()
}

/// A member's name, borrowed where it holds no escape.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Name(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(members)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(payload: &str, pointer: &str) -> Result<Found, String> {
        at_pointer(payload.as_bytes(), pointer)
    }

    #[test]
    fn pointers_keep_the_digits_of_numbers() {
        let payload = r#"{"a/b":{"n":12345678901234567890123,"f":1.50,"t":true}}"#;
        assert_eq!(text(payload, "/a~1b/n"), Ok(Found::Text("12345678901234567890123".into())));
        assert_eq!(text(payload, "/a~1b/f"), Ok(Found::Text("1.50".into())));
        assert_eq!(text(payload, "/a~1b/t"), Ok(Found::Text("true".into())));
    }

    #[test]
    fn pointers_tell_empty_null_and_missing_apart() {
        let payload = r#"{"e":"","n":null,"o":{},"a":["x"],"z":"\u0000"}"#;
        assert_eq!(text(payload, "/e"), Ok(Found::Text(String::new())));
        assert_eq!(text(payload, "/n"), Ok(Found::Null));
        assert_eq!(text(payload, "/a/0"), Ok(Found::Text("x".into())));
        assert_eq!(text(payload, "/z"), Ok(Found::Text("\0".into())));
        for missing in ["/none", "/o", "/a/1", "/a/00", "/a/-", "/e/x", ""] {
            assert!(text(payload, missing).is_err(), "{missing}");
        }
        assert!(text("not json", "/a").is_err());
        assert!(at_pointer(b"\xff", "/a").is_err());
    }

    #[test]
    fn the_last_of_equal_members_wins() {
        assert_eq!(text(r#"{"k":1,"k":2}"#, "/k"), Ok(Found::Text("2".into())));
    }

    #[test]
    fn headers_of_every_sort_are_kept() {
        let found =
            headers(r#"{"s":"x","n":1.0,"b":false,"z":null,"o":{"k":[1, 2]},"s":"y"}"#).unwrap();
        let names: Vec<_> = found.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["s", "n", "b", "z", "o", "s"]);
        let values: Vec<_> = found.iter().map(|header| header.value.as_deref()).collect();
        let expected: [Option<&[u8]>; 6] =
            [Some(b"x"), Some(b"1.0"), Some(b"false"), None, Some(br#"{"k":[1, 2]}"#), Some(b"y")];
        assert_eq!(values, expected);
    }

    #[test]
    fn headers_may_be_pairs() {
        let found = headers(r#"[["a","1"],["a",null]]"#).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].value, None);
        for wrong in ["1", "\"x\"", "[1]", "[[1]]", "[[\"a\",\"b\",\"c\"]]", "{"] {
            assert!(headers(wrong).is_err(), "{wrong}");
        }
        assert_eq!(headers("null"), Ok(Vec::new()));
    }
}
