//! The plugin's settings, as the operator wrote them in `[plugins.<name>.settings]`.
//!
//! `Plugin::new` gets them. Nothing is filled in here: defaults are serde's (`#[serde(default)]`).

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A JSON object; `{}` if the operator wrote none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings(String);

impl Settings {
    /// The settings as a `T`. Give it `#[serde(deny_unknown_fields)]`, so that a misspelt setting is
    /// found when the host starts and not in production traffic.
    ///
    /// # Errors
    /// What is wrong, naming the setting (`settings: retries.max: invalid type: …`).
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        let mut json = serde_json::Deserializer::from_str(&self.0);
        let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let text = error.into_inner().to_string();
            // An unknown or missing setting is named by the text already; `.` is the whole.
            let last = path.rsplit('.').next().unwrap_or_default();
            if last.is_empty() || text.contains(&format!("`{last}`")) {
                format!("settings: {text}")
            } else {
                format!("settings: {path}: {text}")
            }
        })?;
        json.end().map_err(|error| format!("settings: {error}"))?;
        Ok(parsed)
    }

    /// The JSON text itself.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }
}

/// From JSON text, in tests and from the host.
impl<T: Into<String>> From<T> for Settings {
    fn from(json: T) -> Self {
        Self(json.into())
    }
}

/// For a plugin that has no settings: `settings.parse::<NoSettings>()` refuses any, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        prefix: String,
        inner: Option<Inner>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        max: u32,
    }

    fn refusal(json: &str) -> String {
        Settings::from(json).parse::<Outer>().expect_err("wrong")
    }

    #[test]
    fn right_settings_are_read() {
        let expected = Outer { prefix: "x".to_owned(), inner: Some(Inner { max: 3 }) };
        assert_eq!(Settings::from(r#"{"prefix":"x","inner":{"max":3}}"#).parse(), Ok(expected));
        assert_eq!(Settings::from("{}").parse(), Ok(NoSettings {}));
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let text = refusal(r#"{"perfix":"x"}"#);
        assert!(text.starts_with("settings: unknown field `perfix`, expected"), "{text}");
        let text = refusal(r#"{"prefix":3}"#);
        assert!(text.starts_with("settings: prefix: invalid type: integer `3`"), "{text}");
        let text = refusal(r#"{"inner":{"max":-1}}"#);
        assert!(text.starts_with("settings: inner.max: invalid value"), "{text}");
        let text = refusal(r#"{"inner":{}}"#);
        assert!(text.starts_with("settings: inner: missing field `max`"), "{text}");
        let text = Settings::from(r#"{"a":1}"#).parse::<NoSettings>().expect_err("unknown");
        assert!(text.contains("`a`"), "{text}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(refusal("3").starts_with("settings: invalid type"));
        assert!(refusal("{} x").starts_with("settings: trailing characters"));
    }
}
