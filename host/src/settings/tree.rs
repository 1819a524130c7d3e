//! The settings as a tree in which every key and value knows where it was written.
//!
//! Made from a TOML document, changed by the environment's overrides, read by sections. It never
//! prints a value: nothing here implements `Debug` or `Display`.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem};

/// A value and where it was written.
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

pub(super) enum Value {
    Text(String),
    /// Values beyond `i128` are saturated, which no range admits.
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    List(Vec<Node>),
    Table(Table),
    /// From a variable: a text that each getter reads in its own way.
    Raw {
        text: String,
        /// The same text as a TOML list or inline table, if it is one.
        literal: Option<Box<Node>>,
    },
}

/// A key's place and its value.
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) node: Node,
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: BTreeMap<String, Entry>,
}

impl Table {
    /// Entries in the order in which they were written.
    pub(super) fn in_order(&self) -> Vec<(&str, &Entry)> {
        let mut entries: Vec<_> =
            self.entries.iter().map(|(key, entry)| (key.as_str(), entry)).collect();
        entries.sort_by(|(_, left), (_, right)| left.place.cmp(&right.place));
        entries
    }

    /// Whether this stands for a secret kept elsewhere: `{ env = … }` or `{ file = … }`.
    pub(super) fn is_reference(&self) -> bool {
        !self.entries.is_empty() && self.entries.keys().all(|key| key == "env" || key == "file")
    }
}

impl Value {
    /// What sort of value it is, without saying what it holds.
    pub(super) fn sort(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Raw { .. } => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime(_) => "a date or time",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Turns byte offsets into lines and columns.
struct Positions<'a> {
    file: Arc<str>,
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Positions<'a> {
    fn new(file: Arc<str>, text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(breaks).collect();
        Self { file, text, line_starts }
    }

    fn at(&self, offset: usize) -> Place {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        Place::Position { file: self.file.clone(), line, column: before.chars().count() + 1 }
    }
}

/// A document as far as it could be read.
pub(super) struct Parsed {
    pub(super) root: Table,
    pub(super) problems: Vec<Problem>,
    /// The lines whose structure cannot be trusted: what looks like a key there may be the content
    /// of a broken string.
    pub(super) damage: Option<RangeInclusive<usize>>,
}

/// The parser's words for a key that is written twice; the rest of the document is then sound.
const DUPLICATE: &str = "duplicate key";

/// Reads a TOML document, as much of it as possible.
pub(super) fn parse(file: &Arc<str>, text: &str) -> Parsed {
    let positions = Positions::new(file.clone(), text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let sound = errors.iter().all(|error| error.message() == DUPLICATE);
    let mut problems = Vec::new();
    for error in &errors {
        let place = match error.span() {
            Some(span) => positions.at(span.start),
            None => Place::Document(file.clone()),
        };
        // Only the parser's own words: its snippet would show the line, which may hold a secret.
        let message = match (error.message(), sound) {
            (DUPLICATE, true) => format!("{DUPLICATE}{}", name_at(text, error.span())),
            (message, _) => format!("not valid TOML: {message}"),
        };
        problems.push(Problem::error(place, "", message));
    }
    let damage = if sound { None } else { Some(damage(text, &problems)) };
    Parsed { root: table(document.get_ref(), &|span| positions.at(span.start)), problems, damage }
}

/// The lines from the first to the last mistake; all of them where a string may span lines, as it
/// may then have begun or ended anywhere.
fn damage(text: &str, problems: &[Problem]) -> RangeInclusive<usize> {
    let line = |problem: &Problem| match &problem.place {
        Place::Position { line, .. } => Some(*line),
        Place::Document(_) | Place::Variable(_) => None,
    };
    let lines = || problems.iter().map(line);
    let long_strings = ["\"\"\"", "'''"].iter().any(|quotes| text.contains(quotes));
    match (lines().min().flatten(), lines().max().flatten()) {
        (Some(first), Some(last)) if !long_strings => first..=last,
        _ => 0..=usize::MAX,
    }
}

fn name_at(text: &str, span: Option<Range<usize>>) -> String {
    let name = span.and_then(|span| text.get(span)).unwrap_or_default();
    format!(" '{}'", name.trim_matches(['"', '\'']))
}

/// Reads a variable's text as a TOML list or inline table, all of it at `place`.
pub(super) fn literal(text: &str, place: &Place) -> Option<Node> {
    text.trim_start().starts_with(['[', '{']).then_some(())?;
    value(text, place)
}

/// Reads a variable's text as any TOML value.
pub(super) fn value(text: &str, place: &Place) -> Option<Node> {
    let parsed = DeValue::parse(text.trim()).ok()?;
    Some(node(&parsed, &|_| place.clone()))
}

fn table(parsed: &DeTable<'_>, at: &dyn Fn(Range<usize>) -> Place) -> Table {
    let entries = parsed.iter().map(|(key, value)| {
        let entry = Entry { place: at(key.span()), node: node(value, at) };
        (key.get_ref().to_string(), entry)
    });
    Table { entries: entries.collect() }
}

fn node(parsed: &Spanned<DeValue<'_>>, at: &dyn Fn(Range<usize>) -> Place) -> Node {
    let value = match parsed.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(digits) => Value::Integer(integer(digits.as_str(), digits.radix())),
        DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(value) => Value::Datetime(value.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(item, at)).collect()),
        DeValue::Table(inner) => Value::Table(table(inner, at)),
    };
    Node { place: at(parsed.span()), value }
}

fn integer(digits: &str, radix: u32) -> i128 {
    let beyond = if digits.starts_with('-') { i128::MIN } else { i128::MAX };
    i128::from_str_radix(digits, radix).unwrap_or(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(String, String)> {
        let parsed = parse(&"f".into(), text);
        let line = |problem: &Problem| (problem.place.to_string(), problem.message.clone());
        parsed.problems.iter().map(line).collect()
    }

    #[test]
    fn places_are_lines_and_characters() {
        let parsed = parse(&"f".into(), "é = 1\r\n[t]\n  \"ü\" = { k = [2] }\n");
        let place = |entry: &Entry| entry.place.to_string();
        let Some(t) = parsed.root.entries.get("t") else { panic!("no table") };
        assert_eq!(place(t), "f:2:2");
        let Value::Table(t) = &t.node.value else { panic!("not a table") };
        assert_eq!(place(&t.entries["ü"]), "f:3:3");
        let Value::Table(inner) = &t.entries["ü"].node.value else { panic!("not a table") };
        assert_eq!(place(&inner.entries["k"]), "f:3:11");
    }

    #[test]
    fn a_duplicate_key_is_named_and_the_rest_is_read() {
        let text = "[a]\nx = 1\nx = 2\n[a]\ny = 1\n[b]\nz = 1\n";
        let parsed = parse(&"f".into(), text);
        assert_eq!(parsed.damage, None);
        assert!(parsed.root.entries.contains_key("b"));
        let expected = [("f:3:1", "duplicate key 'x'"), ("f:4:2", "duplicate key 'a'")];
        let expected = expected.map(|(place, message)| (place.to_owned(), message.to_owned()));
        assert_eq!(lines(text), expected);
    }

    #[test]
    fn all_syntax_errors_are_found_and_none_shows_the_line() {
        let text = "a = MARKER\nb = 1\nc = \"MARKER\nd = 2\n";
        let parsed = parse(&"f".into(), text);
        assert_eq!(parsed.damage, Some(1..=3));
        assert!(parsed.root.entries.contains_key("b"));
        let found = lines(text);
        assert!(found.iter().any(|(place, _)| place.starts_with("f:1:")));
        assert!(found.iter().any(|(place, _)| place.starts_with("f:3:")));
        assert!(!format!("{found:?}").contains("MARKER"));
    }

    #[test]
    fn no_text_makes_it_panic() {
        let pieces =
            ["[", "]", "[[a]]", "[a]", "a", ".", "=", "{", "}", "\"", "'", "\n", ",", "1", "é"];
        let mut seed = 7_usize;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(seed >> 33) % pieces.len()]);
            }
            parse(&"f".into(), &text);
            value(&text, &Place::Document("f".into()));
        }
    }
}
