//! The getters for single values: what each sort of setting may look like, and what is said when
//! it does not.
//!
//! A value in the file must have its own type; a variable's text is read leniently. No getter shows
//! a value of a file that is not valid TOML; secrets have getters of their own in `secret`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Number, Value as Json};

use super::problem::Problem;
use super::section::Section;
use super::tree::{Node, Value, value};
use super::units::{self, DURATION_FORM, SIZE_FORM, show_duration, show_size};
use crate::words::closest;

/// How much of a value a message shows.
const MAX_SHOWN_CHARS: usize = 60;

impl Section<'_> {
    /// A text.
    pub fn string(&self, key: &str) -> Option<String> {
        self.describe(key, || "text".to_owned(), || None);
        let node = self.look(key)?;
        let text = text(node);
        if text.is_none() {
            self.wrong(key, node, "a string");
        }
        text.map(str::to_owned)
    }

    /// A text, or `default`.
    pub fn string_or(&self, key: &str, default: &str) -> String {
        self.describe(key, || "text".to_owned(), || Some(format!("{default:?}")));
        self.string(key).unwrap_or_else(|| default.to_owned())
    }

    /// A text that must be there and not empty; `example` shows one.
    pub fn required_string(&self, key: &str, example: &str) -> Option<String> {
        if !self.has(key) {
            self.missing(key, format!("write {key} = \"{example}\""));
        }
        let text = self.string(key)?;
        if text.trim().is_empty() {
            self.error(key, format!("is empty; an example is \"{example}\""));
            return None;
        }
        Some(text)
    }

    /// A whole number within `range`.
    pub fn integer<T>(&self, key: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: Copy + PartialOrd + Display + TryFrom<i128>,
    {
        self.describe(
            key,
            || format!("integer, {} to {}", range.start(), range.end()),
            || Some(default.to_string()),
        );
        let Some(node) = self.look(key) else {
            return default;
        };
        let found = match &node.value {
            Value::Integer(number) => Some(*number),
            Value::Raw { text, .. } => text.trim().replace('_', "").parse().ok(),
            _ => None,
        };
        let Some(number) = found else {
            self.wrong(key, node, &format!("an integer such as {default}"));
            return default;
        };
        match T::try_from(number) {
            Ok(number) if range.contains(&number) => number,
            _ => {
                let (low, high) = (range.start(), range.end());
                self.error(key, format!("must be from {low} to {high}"));
                default
            }
        }
    }

    /// A truth value.
    pub fn boolean(&self, key: &str, default: bool) -> bool {
        self.describe(key, || "`true` or `false`".to_owned(), || Some(default.to_string()));
        let Some(node) = self.look(key) else {
            return default;
        };
        let found = match &node.value {
            Value::Boolean(value) => Some(*value),
            Value::Raw { text, .. } => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(true),
                "false" | "no" | "off" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        found.unwrap_or_else(|| {
            self.wrong(key, node, "true or false");
            default
        })
    }

    /// A duration within `range`.
    pub fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let found = self.optional_duration(key, range);
        self.describe_default(key, || format!("\"{}\"", show_duration(default)));
        found.unwrap_or(default)
    }

    /// A duration within `range`, if there is one.
    pub fn optional_duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let shown = |end: &Duration| show_duration(*end);
        self.describe(
            key,
            || format!("duration, {} to {}", shown(range.start()), shown(range.end())),
            || None,
        );
        let node = self.look(key)?;
        let Some(text) = text(node) else {
            self.wrong(key, node, DURATION_FORM);
            return None;
        };
        let Some(duration) = units::duration(text) else {
            self.error(key, format!("{} is not {DURATION_FORM}", self.shown(text)));
            return None;
        };
        if range.contains(&duration) {
            return Some(duration);
        }
        let (low, high) = (show_duration(*range.start()), show_duration(*range.end()));
        self.error(key, format!("must be from {low} to {high}"));
        None
    }

    /// A number of bytes within `range`.
    pub fn size(&self, key: &str, range: RangeInclusive<usize>, default: usize) -> usize {
        let shown = |bytes: &usize| show_size(u64::try_from(*bytes).unwrap_or(u64::MAX));
        self.describe(
            key,
            || format!("size, {} to {}", shown(range.start()), shown(range.end())),
            || match shown(&default).strip_suffix(" bytes") {
                Some(bytes) => Some(bytes.to_owned()),
                None => Some(format!("\"{}\"", shown(&default))),
            },
        );
        let Some(node) = self.look(key) else {
            return default;
        };
        let bytes = match &node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => match text(node) {
                Some(text) => units::size(text),
                None => {
                    self.wrong(key, node, SIZE_FORM);
                    return default;
                }
            },
        };
        let Some(bytes) = bytes else {
            self.error(key, format!("is not {SIZE_FORM}"));
            return default;
        };
        match usize::try_from(bytes) {
            Ok(bytes) if range.contains(&bytes) => bytes,
            _ => {
                let (low, high) = (shown(range.start()), shown(range.end()));
                self.error(key, format!("must be from {low} to {high}"));
                default
            }
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy + PartialEq>(&self, key: &str, options: &[(&str, T)], default: T) -> T {
        let found = self.optional_choice(key, options);
        if let Some((word, _)) = options.iter().find(|(_, option)| *option == default) {
            self.describe_default(key, || format!("\"{word}\""));
        }
        found.unwrap_or(default)
    }

    /// One of a few words, if there is one.
    pub fn optional_choice<T: Copy>(&self, key: &str, options: &[(&str, T)]) -> Option<T> {
        let words = || options.iter().map(|(word, _)| *word);
        let form = || words().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
        self.describe(key, form, || None);
        let node = self.look(key)?;
        let listed = words().map(|word| format!("\"{word}\"")).collect::<Vec<_>>();
        let listed = listed.join(", ");
        let Some(text) = text(node) else {
            self.wrong(key, node, &format!("one of {listed}"));
            return None;
        };
        let found = options.iter().find(|(word, _)| *word == text.trim());
        if found.is_none() {
            let message = format!("{} is none of {listed}", self.shown(text));
            self.error_suggesting(key, message, closest(text, words()));
        }
        found.map(|(_, option)| *option)
    }

    /// A text or a list of texts; in a variable, texts with commas between them.
    pub fn strings(&self, key: &str) -> Option<Vec<String>> {
        self.describe(key, || "text or list of texts".to_owned(), || None);
        let node = self.look(key)?;
        let items = match &node.value {
            Value::Text(text) => return Some(vec![text.clone()]),
            Value::List(items) => items,
            Value::Raw { text, literal } => match literal.as_deref() {
                Some(Node { value: Value::List(items), .. }) => items,
                _ => return Some(text.split(',').map(|item| item.trim().to_owned()).collect()),
            },
            _ => {
                self.wrong(key, node, "a string or a list of strings");
                return None;
            }
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match text(item) {
                Some(text) => texts.push(text.to_owned()),
                None => self.wrong(key, item, "a list of strings"),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// A table of texts, in the order in which they were written.
    pub fn string_map(&self, key: &str) -> Vec<(String, String)> {
        self.describe(key, || "table of texts".to_owned(), || None);
        let section = self.section(key);
        let entries = section.entries().into_iter().filter_map(|(name, _)| {
            let text = section.string(name)?;
            Some((name.to_owned(), text))
        });
        let map = entries.collect();
        section.finish();
        map
    }

    /// Any value, as JSON. Numbers, booleans, lists and tables in variables are recognised.
    pub fn json(&self, key: &str) -> Option<Json> {
        self.describe(key, || "any value".to_owned(), || None);
        let node = self.look(key)?;
        let json = json(node);
        if let Err(node) = json {
            let message = "JSON has no such number: infinite, not a number, or too large";
            let problem = Problem::error(node.place.clone(), self.path_of(key), message);
            self.context.note(problem);
        }
        json.ok()
    }

    /// `text` as a message shows it: quoted and cut; not at all where it may be something else.
    fn shown(&self, text: &str) -> String {
        if self.context.damaged() {
            return "the value".to_owned();
        }
        match text.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        }
    }
}

fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Text(text) | Value::Raw { text, .. } => Some(text),
        _ => None,
    }
}

/// The value as JSON, or the node that JSON cannot express.
fn json(node: &Node) -> Result<Json, &Node> {
    Ok(match &node.value {
        Value::Text(text) | Value::Datetime(text) => Json::String(text.clone()),
        Value::Integer(number) => Json::Number(Number::from_i128(*number).ok_or(node)?),
        Value::Float(number) => Json::Number(Number::from_f64(*number).ok_or(node)?),
        Value::Boolean(value) => Json::Bool(*value),
        Value::List(items) => Json::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        Value::Table(table) => {
            let mut members = serde_json::Map::new();
            for (key, entry) in table.in_order() {
                members.insert(key.to_owned(), json(&entry.node)?);
            }
            Json::Object(members)
        }
        Value::Raw { text, .. } => return raw_json(node, text),
    })
}

fn raw_json<'n>(node: &'n Node, text: &str) -> Result<Json, &'n Node> {
    if let Ok(found) = serde_json::from_str(text) {
        return Ok(found);
    }
    match value(text, &node.place) {
        Some(found) => json(&found).map_err(|_| node),
        None => Ok(Json::String(text.to_owned())),
    }
}
