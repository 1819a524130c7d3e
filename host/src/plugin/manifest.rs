//! What a plugin says about itself, checked.
//!
//! `load.rs` makes a [`Manifest`] from the answer to `describe`; everything else may rely on it.
//! Pure.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::bindings::exports::haulier::relay::transformer as wit;

/// Longest name and longest version, in bytes.
const MAX_NAME: usize = 64;

/// Most event types, and the longest of them in bytes.
const MAX_EVENT_TYPES: usize = 1000;
const MAX_EVENT_TYPE: usize = 255;

/// A manifest that can be relied on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) event_types: Vec<String>,
    pub(super) needs: Needs,
}

/// Which parts of an event the plugin reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Needs {
    pub(super) payload: bool,
    pub(super) headers: bool,
    pub(super) attributes: bool,
}

/// What is wrong with a manifest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadManifest {
    #[error(
        "its manifest has the name {0:?}; a name is 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, \
         '-', '_' and '.', and starts with a letter or a digit"
    )]
    Name(String),
    #[error(
        "its manifest has the version {0:?}; a version is 1 to {MAX_NAME} bytes of printable text"
    )]
    Version(String),
    #[error("its manifest has {0} event types; {MAX_EVENT_TYPES} are allowed")]
    TooManyEventTypes(usize),
    #[error(
        "its manifest has the event type {0:?}; one is 1 to {MAX_EVENT_TYPE} bytes, with '*' at the \
         end at most"
    )]
    EventType(String),
    #[error("its manifest names the event type {0:?} twice")]
    EventTypeTwice(String),
}

impl Manifest {
    /// Checks what a plugin said.
    pub(super) fn check(said: wit::Manifest) -> Result<Self, BadManifest> {
        let wit::Manifest { name, version, event_types, needs } = said;
        if !is_name(&name) {
            return Err(BadManifest::Name(shortened(name)));
        }
        if version.is_empty() || version.len() > MAX_NAME || version.contains(char::is_control) {
            return Err(BadManifest::Version(shortened(version)));
        }
        if event_types.len() > MAX_EVENT_TYPES {
            return Err(BadManifest::TooManyEventTypes(event_types.len()));
        }
        let mut seen = HashSet::new();
        for event_type in &event_types {
            if !is_pattern(event_type) {
                return Err(BadManifest::EventType(shortened(event_type.clone())));
            }
            if !seen.insert(event_type) {
                return Err(BadManifest::EventTypeTwice(event_type.clone()));
            }
        }
        let needs = Needs {
            payload: needs.contains(wit::Needs::PAYLOAD),
            headers: needs.contains(wit::Needs::HEADERS),
            attributes: needs.contains(wit::Needs::ATTRIBUTES),
        };
        Ok(Self { name, version, event_types, needs })
    }

    /// Whether the plugin wants events of that type without a route saying so.
    pub(super) fn wants(&self, event_type: &str) -> bool {
        self.event_types.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => event_type.starts_with(start),
            None => event_type == wanted,
        })
    }
}

/// A name stands in routes, in metric labels and in the database.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_pattern(event_type: &str) -> bool {
    let start = event_type.strip_suffix('*').unwrap_or(event_type);
    !event_type.is_empty() && event_type.len() <= MAX_EVENT_TYPE && !start.contains('*')
}

/// Enough of a text to recognise it.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_EVENT_TYPE {
        text.truncate(text.floor_char_boundary(MAX_EVENT_TYPE));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, event_types: &[&str]) -> wit::Manifest {
        wit::Manifest {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            event_types: event_types.iter().map(|it| (*it).to_owned()).collect(),
            needs: wit::Needs::PAYLOAD,
        }
    }

    #[test]
    fn bad_names_are_refused() {
        for name in ["", "-x", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(
                matches!(Manifest::check(said(name, &[])), Err(BadManifest::Name(_))),
                "{name:?}"
            );
        }
        let manifest = Manifest::check(said("order-events", &[])).expect("a good name");
        assert_eq!(manifest.needs, Needs { payload: true, ..Needs::default() });
    }

    #[test]
    fn event_types_are_names_or_their_beginnings() {
        let manifest = Manifest::check(said("p", &["order.*", "cart.paid"])).expect("good types");
        for (event_type, wanted) in
            [("order.created", true), ("order", false), ("cart.paid", true), ("cart.paid.x", false)]
        {
            assert_eq!(manifest.wants(event_type), wanted, "{event_type}");
        }
        assert_eq!(
            Manifest::check(said("p", &["a", "a"])),
            Err(BadManifest::EventTypeTwice("a".to_owned()))
        );
        for bad in ["", "a*b", "**"] {
            assert!(matches!(Manifest::check(said("p", &[bad])), Err(BadManifest::EventType(_))));
        }
    }
}
