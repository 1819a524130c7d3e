//! What operators ask for, as words of a command line or of an HTTP request, and what it means. Pure.
//!
//! Filled by the command line and the admin port, turned into selections for a store. Wrong words are
//! answered with the right ones.

use serde::{Deserialize, Deserializer, Serialize};

use crate::event::EventId;
use crate::failure::Cause;
use crate::store::{DISCARDED, EventState, Selection};
use crate::words::closest;

/// Which events are meant. Everything that is given has to fit; times are durations before now such as
/// `2h`, or RFC 3339 such as `2026-11-30T10:00:00Z`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// One of these ids.
    #[serde(deserialize_with = "numbers", skip_serializing_if = "Vec::is_empty")]
    pub id: Vec<i64>,
    /// In one of these states.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// Of this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// With this ordering key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of this event type; `*` stands for any run of characters.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Whose last failure has this code, such as `record_too_large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Created before this duration ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// Created within this duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer_than: Option<String>,
    /// Created at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Created before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// A word that cannot be understood, or a request that makes no sense; the text says what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

impl Filter {
    /// Whether it leaves out nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether what it means depends on the time.
    pub fn is_relative(&self) -> bool {
        let ago = |text: &Option<String>| {
            text.as_deref().is_some_and(|text| humantime::parse_duration(text).is_ok())
        };
        self.older_than.is_some()
            || self.newer_than.is_some()
            || ago(&self.since)
            || ago(&self.until)
    }

    /// What it means at the moment `now_ms`, in milliseconds since the epoch by the database's clock.
    ///
    /// # Errors
    /// A state, reason or time that is none, two that exclude each other, or a text that no row can hold.
    pub fn selection(&self, now_ms: i64) -> Result<Selection, Misuse> {
        let Self { lane, key, event_type, reason, .. } = self;
        if [lane, key, event_type, reason].into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(Misuse("no row holds a text with the character NUL".into()));
        }
        let since_ms = both(now_ms, ("newer_than", &self.newer_than), ("since", &self.since))?;
        let until_ms = both(now_ms, ("older_than", &self.older_than), ("until", &self.until))?;
        let mut codes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
        codes.push(DISCARDED);
        if let Some(reason) = reason
            && !codes.contains(&reason.as_str())
        {
            return Err(unknown("reason", reason, &codes));
        }
        let mut ids: Vec<EventId> = self.id.iter().copied().map(EventId).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(Selection {
            ids,
            states: self.state.iter().map(|name| state(name)).collect::<Result<_, _>>()?,
            lane: lane.clone(),
            key: key.clone(),
            event_type: event_type.clone(),
            reason: reason.clone(),
            except_reason: None,
            since_ms,
            until_ms,
        })
    }
}

fn state(name: &str) -> Result<EventState, Misuse> {
    let name = name.trim();
    EventState::named(name)
        .ok_or_else(|| unknown("state", name, &EventState::ALL.map(|(name, _)| name)))
}

fn unknown(what: &str, word: &str, known: &[&str]) -> Misuse {
    let meant = closest(word, known.iter().copied())
        .map_or_else(String::new, |word| format!("; did you mean '{word}'?"));
    Misuse(format!("'{word}' is no {what}; there are {}{meant}", known.join(", ")))
}

/// The times that both databases know, in milliseconds since the epoch: the years 1 to 9999.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_000;

/// One of two ways to give the same end of a range.
fn both(
    now_ms: i64,
    (duration_name, duration): (&str, &Option<String>),
    (time_name, time): (&str, &Option<String>),
) -> Result<Option<i64>, Misuse> {
    match (duration, time) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(Misuse(format!("{duration_name} and {time_name} exclude each other")))
        }
        (Some(text), None) => ago(now_ms, text).map(Some).ok_or_else(|| {
            Misuse(format!(
                "{duration_name}: '{text}' is no duration; write one such as 90s, 15m, 2h or 7d"
            ))
        }),
        (None, Some(text)) => instant(now_ms, text).map(Some).ok_or_else(|| {
            Misuse(format!(
                "{time_name}: '{text}' is neither a time since 1970 such as 2026-11-30T10:00:00Z nor a \
                 duration before now such as 2h"
            ))
        }),
    }
}

fn ago(now_ms: i64, text: &str) -> Option<i64> {
    let millis = humantime::parse_duration(text).ok()?.as_millis();
    let at = now_ms.saturating_sub(i64::try_from(millis).unwrap_or(i64::MAX));
    Some(at.clamp(*TIMES_MS.start(), *TIMES_MS.end()))
}

fn instant(now_ms: i64, text: &str) -> Option<i64> {
    if let Some(at) = ago(now_ms, text) {
        return Some(at);
    }
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    let millis = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    i64::try_from(millis).ok()
}

/// A list as JSON writes it, or as a query does: `1,2,3`.
#[derive(Deserialize)]
#[serde(untagged)]
enum List<T> {
    Many(Vec<T>),
    One(T),
    Text(String),
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i64>, D::Error> {
    match List::deserialize(from)? {
        List::Many(many) => Ok(many),
        List::One(one) => Ok(vec![one]),
        List::Text(text) => text
            .split(',')
            .map(|id| id.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| serde::de::Error::custom(format!("'{text}' is no list of ids"))),
    }
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let split = |text: String| text.split(',').map(|word| word.trim().to_owned()).collect();
    Ok(match List::deserialize(from)? {
        List::Many(many) => many,
        List::One(text) | List::Text(text) => split(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_100_000_000;

    #[test]
    fn a_filter_is_understood() {
        let filter: Filter = serde_json::from_str(
            r#"{"id":"3, 4","state":"failed,halted","type":"order.*","reason":"record_too_large",
                "older_than":"2h","since":"2026-11-30T10:00:00Z"}"#,
        )
        .unwrap();
        assert!(filter.is_relative());
        let selection = filter.selection(NOW).unwrap();
        assert_eq!(selection.ids, [EventId(3), EventId(4)]);
        assert_eq!(selection.states, [EventState::Failed, EventState::Halted]);
        assert_eq!(selection.until_ms, Some(NOW - 7_200_000));
        assert_eq!(selection.since_ms, Some(1_796_032_800_000));
        let filter: Filter = serde_json::from_str(r#"{"id":[5,5],"since":"15m"}"#).unwrap();
        let selection = filter.selection(NOW).unwrap();
        assert_eq!(selection.ids, [EventId(5)]);
        assert_eq!(selection.since_ms, Some(NOW - 900_000));
        let long = Filter { older_than: Some("10000y".into()), ..Filter::default() };
        assert_eq!(long.selection(NOW).unwrap().until_ms, Some(-62_135_596_800_000));
        assert!(serde_json::from_str::<Filter>(r#"{"sttae":"failed"}"#).is_err());
    }

    #[test]
    fn wrong_words_are_answered_with_the_right_ones() {
        let misuse = |filter: Filter| filter.selection(NOW).unwrap_err().0;
        let of = |state: &str| Filter { state: vec![state.into()], ..Filter::default() };
        assert!(misuse(of("faild")).contains("did you mean 'failed'?"));
        let reason = Filter { reason: Some("record_to_large".into()), ..Filter::default() };
        assert!(misuse(reason).contains("did you mean 'record_too_large'?"));
        let time = Filter { since: Some("yesterday".into()), ..Filter::default() };
        assert!(misuse(time).contains("2026-11-30T10:00:00Z"));
        let two =
            Filter { older_than: Some("1h".into()), until: Some("1h".into()), ..Filter::default() };
        assert!(misuse(two).contains("exclude each other"));
        let nul = Filter { key: Some("a\0".into()), ..Filter::default() };
        assert!(misuse(nul).contains("NUL"));
        let duration = Filter { newer_than: Some("2 fortnights".into()), ..Filter::default() };
        assert!(misuse(duration).contains("is no duration"));
    }

    #[test]
    fn only_a_filter_that_says_something_is_not_empty() {
        assert!(Filter::default().is_empty());
        assert!(!Filter { key: Some(String::new()), ..Filter::default() }.is_empty());
    }
}
