//! Ids that applications write as text or as numbers.
//!
//! Plugins use it as the type of a payload's field. It never parses a number, so that no digit of a
//! long one is lost.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

/// A JSON text or number, as the text it stands for: `"c-7"` is `c-7`, and `12345678901234567890` is
/// those digits. Copied only if the text has escapes. Anything else is an error when it is read.
///
/// Reads from JSON that outlives it, as [`Event::json`](crate::Event::json) gives it. A field of this
/// type needs `#[serde(borrow)]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id<'a>(Cow<'a, str>);

impl Id<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A record key: `Delivery::to("orders").key(order.id)`.
impl From<Id<'_>> for Vec<u8> {
    fn from(id: Id<'_>) -> Self {
        id.0.into_owned().into_bytes()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        match raw.as_bytes() {
            [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => {
                Ok(Self(Cow::Borrowed(&raw[1..raw.len() - 1])))
            }
            [b'"', ..] => {
                serde_json::from_str(raw).map(|text| Self(Cow::Owned(text))).map_err(Error::custom)
            }
            [b'-' | b'0'..=b'9', ..] => Ok(Self(Cow::Borrowed(raw))),
            _ => Err(Error::custom("expected a text or a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(json: &str) -> Option<Id<'_>> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn text_and_numbers_are_ids() {
        let text = |json: &'static str| id(json).map(|id| id.as_str().to_owned());
        assert_eq!(text(r#" "c-é" "#).as_deref(), Some("c-é"));
        assert_eq!(text(r#""a\"\u00e9""#).as_deref(), Some("a\"é"));
        assert_eq!(text("12345678901234567890123").as_deref(), Some("12345678901234567890123"));
        assert_eq!(text("-1.50").as_deref(), Some("-1.50"));
        assert_eq!(text(r#""""#).as_deref(), Some(""));
    }

    #[test]
    fn nothing_else_is() {
        for json in ["null", "true", "[1]", r#"{"id":1}"#, r#""\ud800""#] {
            assert_eq!(id(json), None, "{json}");
        }
    }
}
