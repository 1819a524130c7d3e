//! The plugin's settings: `[plugins.order-events.settings]` in the host's configuration, as JSON.
//!
//! `configure` calls this once per instance. A setting that is not known is refused, so that a
//! misspelt one is found when the host starts and not in production traffic.

use serde::Deserialize;

/// What an operator may set.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Put before every topic name, such as `staging.`; empty by default.
    pub(crate) topic_prefix: String,
}

impl Settings {
    /// Reads the JSON that the host hands over.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| format!("settings: {error}"))
    }

    /// The full name of a topic.
    pub(crate) fn topic(&self, name: &str) -> String {
        [&self.topic_prefix, name].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_settings_are_settings() {
        assert_eq!(Settings::parse("{}"), Ok(Settings::default()));
    }

    #[test]
    fn a_misspelt_setting_is_refused_by_name() {
        let error = Settings::parse(r#"{"topic_perfix":"x."}"#).expect_err("no such setting");
        assert!(error.contains("topic_perfix"), "{error}");
    }
}
