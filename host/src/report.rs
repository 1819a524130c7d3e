//! What an instance says of itself: the text of its heartbeat. Pure.
//!
//! The relay writes one for each of its sources every few seconds, the database keeps it as it is,
//! and `haulier status` reads it, perhaps in another version of the program. Holds no secret and no
//! data of events but the names of their destinations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The version of [`Report`]; grows when a reader of the old one would misunderstand the new one.
pub const VERSION: u32 = 1;
/// Pause between two heartbeats of an instance.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// An instance that was not heard of for so long, three heartbeats, counts as gone.
pub const GONE_AFTER: Duration = Duration::from_secs(15);
/// Most circuits of a lane, and most troubles with plugins, that a report names; the rest is counted.
pub const MOST_NAMED: usize = 20;
/// Longest text in a report, in bytes: it is written every few seconds.
const MOST_TEXT_BYTES: usize = 400;

/// What one instance says of itself to one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`] at the time of writing.
    pub version: u32,
    /// The program's version.
    pub haulier: String,
    /// The plugins in use, by name.
    pub plugins: Vec<PluginReport>,
    /// What keeps plugins from running, a line each.
    pub plugin_troubles: Vec<String>,
    /// The lanes of this source that it works on.
    pub lanes: Vec<LaneReport>,
}

/// One plugin in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginReport {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its file, lower-case hex.
    pub hash: String,
    /// What it is there for: `current`, `kept` in place of a version that cannot be used, or `candidate`.
    /// Reports of programs that knew no others have none.
    #[serde(default)]
    pub standing: String,
}

/// One lane as an instance works on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// The lane's name.
    pub lane: String,
    /// What keeps this instance from working on it at present, if anything.
    pub paused: Option<String>,
    /// Events this instance published in the minute before.
    pub published_last_minute: u64,
    /// Destinations whose events wait, by name; at most [`MOST_NAMED`].
    pub circuits: Vec<CircuitReport>,
    /// How many more there are.
    pub circuits_left_out: u64,
}

/// One destination whose events wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitReport {
    /// The topic, or a text that names the missing plugin or route.
    pub destination: String,
    /// The stable name of the failure's cause.
    pub cause: String,
    /// What happened, for people.
    pub failure: String,
    /// Time until an event may try it again, in milliseconds; 0 is with the next event.
    pub next_trial_ms: u64,
}

/// Why a report cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is of another version.
    #[error("its report has version {0}, and this program reads version {VERSION}")]
    Version(u64),
    /// It is not a report.
    #[error("its report cannot be read")]
    Damaged,
}

impl Report {
    /// The text to store.
    pub fn to_text(&self) -> String {
        // Texts, numbers and lists of them always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Report::to_text`] wrote.
    ///
    /// # Errors
    /// When it is of another version, or damaged.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(|_| Unreadable::Damaged)?;
        if head.version != u64::from(VERSION) {
            return Err(Unreadable::Version(head.version));
        }
        serde_json::from_str(text).map_err(|_| Unreadable::Damaged)
    }
}

/// `text` without NUL, which no database stores, and short enough for a report.
pub fn short(text: &str) -> String {
    let mut end = text.len().min(MOST_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut kept = text[..end].replace('\0', "\u{fffd}");
    if end < text.len() {
        kept.push('\u{2026}');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = Report {
            version: VERSION,
            haulier: "0.1.0".into(),
            plugins: vec![PluginReport {
                name: "p".into(),
                version: "1.0.0".into(),
                hash: "ab".into(),
                standing: "current".into(),
            }],
            plugin_troubles: vec!["a file".into()],
            lanes: vec![LaneReport {
                lane: "default".into(),
                paused: None,
                published_last_minute: 7,
                circuits: vec![CircuitReport {
                    destination: "t".into(),
                    cause: "topic_unknown".into(),
                    failure: "no".into(),
                    next_trial_ms: 12,
                }],
                circuits_left_out: 0,
            }],
        };
        assert_eq!(Report::read(&report.to_text()), Ok(report));
    }

    #[test]
    fn other_versions_and_damage_are_told_apart() {
        assert_eq!(Report::read(r#"{"version":2,"x":[]}"#), Err(Unreadable::Version(2)));
        for damaged in ["", "{}", "[]", r#"{"version":1}"#, r#"{"version":-1}"#] {
            assert_eq!(Report::read(damaged), Err(Unreadable::Damaged), "{damaged}");
        }
    }

    #[test]
    fn texts_are_cut_at_a_character_and_hold_no_nul() {
        assert_eq!(short("a\0b"), "a\u{fffd}b");
        let long = "\u{e9}".repeat(MOST_TEXT_BYTES);
        let cut = short(&long);
        assert!(cut.ends_with('\u{2026}') && cut.len() <= MOST_TEXT_BYTES + 3);
    }
}
