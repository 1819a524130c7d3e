//! Hides personal fields of customer events: their values become `"***"`, at any depth.
//!
//! The host calls it for `customer.*`. All other bytes of the payload stay as they are, and a payload
//! without such fields is not copied. What it does is what `jobs/redact.jsonl` says, as in every
//! other language.

mod json;

use haulier_sdk::{Delivery, Event, Manifest, Needs, Outcome, Plugin, Settings, Verdict, reject};
use serde::Deserialize;

use crate::json::{NotJson, Token, Tokens};

const HIDDEN: &str = r#""***""#;

/// The plugin is its settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redact {
    /// The names of the fields whose values are hidden; case matters.
    fields: Vec<String>,
}

impl Default for Redact {
    fn default() -> Self {
        Self { fields: ["name", "email", "phone", "iban"].map(str::to_owned).to_vec() }
    }
}

impl Plugin for Redact {
    fn manifest() -> Manifest {
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .event_types(["customer.*"])
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse()
    }

    fn transform(&self, event: &Event) -> Verdict {
        let Some(payload) = &event.payload else { return Ok(Outcome::unchanged()) };
        let text = str::from_utf8(payload).map_err(|_| NotJson);
        match text.and_then(|text| self.redacted(text)) {
            Ok(None) => Ok(Outcome::unchanged()),
            Ok(Some(payload)) => Ok(Delivery::unchanged().payload(payload).into()),
            Err(NotJson) => Err(reject("payload is not JSON")),
        }
    }
}

impl Redact {
    /// The text without what is to be hidden; none if there was nothing to hide.
    fn redacted(&self, text: &str) -> Result<Option<String>, NotJson> {
        let mut changed = String::new();
        let mut copied = 0;
        let mut tokens = Tokens::of(text);
        while let Some(token) = tokens.next()? {
            let Token::Key(key) = token else { continue };
            if !self.hides(key) {
                continue;
            }
            let (start, end) = tokens.whole_value()?;
            // That there is nothing may be known.
            if !["null", HIDDEN].contains(&&text[start..end]) {
                changed.reserve(text.len());
                changed.push_str(&text[copied..start]);
                changed.push_str(HIDDEN);
                copied = end;
            }
        }
        if copied == 0 {
            return Ok(None);
        }
        changed.push_str(&text[copied..]);
        Ok(Some(changed))
    }

    /// Whether the key, in quotes, is the name of a field to hide.
    fn hides(&self, key: &str) -> bool {
        if key.contains('\\') {
            let plain = serde_json::from_str::<String>(key);
            return plain.is_ok_and(|plain| self.fields.contains(&plain));
        }
        let plain = &key[1..key.len() - 1];
        self.fields.iter().any(|field| field == plain)
    }
}

haulier_sdk::export!(Redact);

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(payload: &str) -> Verdict {
        Redact::default().transform(&Event::new("customer.moved").with_payload(payload))
    }

    #[test]
    fn only_hidden_values_change() {
        let expected =
            Delivery::unchanged().payload(r#"{"a":1.10, "x":[{"name" : "***"}],"name":null}"#);
        let payload = r#"{"a":1.10, "x":[{"name" : {"name":[1]}}],"name":null}"#;
        assert_eq!(redacted(payload), Ok(expected.into()));
    }

    #[test]
    fn a_name_is_the_same_however_it_is_written() {
        let expected = Delivery::unchanged().payload(r#"{"na\u006de":"***"}"#);
        assert_eq!(redacted(r#"{"na\u006de":1}"#), Ok(expected.into()));
        assert_eq!(redacted(r#"{"\ud800":1}"#), Ok(Outcome::unchanged()));
    }

    #[test]
    fn what_needs_no_change_is_not_copied() {
        for payload in [r#"{"name":"***"}"#, r#"{"Name":1}"#, r#"["name"]"#, r#""name""#] {
            assert_eq!(redacted(payload), Ok(Outcome::unchanged()), "{payload}");
        }
    }

    #[test]
    fn an_unknown_setting_is_refused_by_name() {
        let text = Redact::new(Settings::from(r#"{"field":[]}"#)).expect_err("unknown");
        assert!(text.contains("`field`"), "{text}");
    }
}
