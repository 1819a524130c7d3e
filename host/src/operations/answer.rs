//! Events, held keys and audit records as JSON, the same for commands and for the admin port. Pure.
//!
//! Times are RFC 3339 in UTC, durations milliseconds. A payload that is not UTF-8 is left to `--payload`.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::store::{Audited, DueIn, EventSeen, EventWhole, HeldKey};

/// A moment in milliseconds since the epoch, as RFC 3339.
pub fn time(millis: i64) -> String {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| {
        // Later than the year 9999 nothing can be written.
        let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        humantime::format_rfc3339_millis(time.min(last)).to_string()
    })
}

fn due(due: DueIn) -> Value {
    match due {
        DueIn::Now => json!(0),
        DueIn::After(after) => json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        DueIn::Never => Value::Null,
    }
}

/// An event, without headers and payload.
pub fn event(seen: &EventSeen) -> Value {
    let plugin = seen.plugin.as_ref().map(
        |plugin| json!({ "name": plugin.name, "version": plugin.version, "hash": plugin.hash }),
    );
    json!({
        "id": seen.id.0,
        "lane": seen.lane,
        "state": seen.state.name(),
        "key": seen.key,
        "aggregate_type": seen.aggregate_type,
        "aggregate_id": seen.aggregate_id,
        "event_type": seen.event_type,
        "topic": seen.topic,
        "attempts": seen.attempts,
        "created_at": time(seen.created_at_ms),
        "published_at": seen.published_at_ms.map(time),
        "due_in_ms": due(seen.due),
        "reason": seen.reason,
        "error": seen.error,
        "plugin": plugin,
        "redelivery": seen.redelivery,
        "payload_bytes": seen.payload_bytes,
    })
}

/// An event with everything; the payload as text, if it is some.
pub fn whole(whole: &EventWhole) -> Value {
    let mut event = event(&whole.seen);
    if let Value::Object(fields) = &mut event {
        fields.insert("headers".into(), json!(whole.headers));
        let text = whole.payload.as_deref().map(std::str::from_utf8);
        fields.insert("payload".into(), json!(text.and_then(Result::ok)));
        fields.insert("holds_key".into(), json!(whole.holds_key));
        fields.insert("may_be_in_flight_at".into(), json!(whole.owner));
    }
    event
}

/// A held key.
pub fn held_key(held: &HeldKey) -> Value {
    json!({
        "lane": held.lane,
        "key": held.key,
        "event": held.event.0,
        "event_pending": held.event_pending,
        "reason": held.reason,
        "until_in_ms": due(held.until),
        "held_for_ms": u64::try_from(held.held_for.as_millis()).unwrap_or(u64::MAX),
        "waiting": held.waiting,
    })
}

/// An audit record.
pub fn audited(record: &Audited) -> Value {
    // It was written by us; whoever changed it since gets it back as text.
    let selection = serde_json::from_str(&record.selection)
        .unwrap_or_else(|_| Value::String(record.selection.clone()));
    json!({
        "id": record.id.0,
        "at": time(record.at_ms),
        "ended_at": record.ended_at_ms.map(time),
        "actor": record.actor,
        "via": record.via,
        "action": record.action,
        "selection": selection,
        "note": record.note,
        "events": record.events,
        "lowest_id": record.range.map(|(low, _)| low.0),
        "highest_id": record.range.map(|(_, high)| high.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_whatever_the_row_says() {
        assert_eq!(time(1_796_032_800_123), "2026-11-30T10:00:00.123Z");
        assert_eq!(time(-5), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(i64::MAX), "9999-12-31T23:59:59.000Z");
    }
}
