//! Events, held keys and audit records as text for people. Pure.
//!
//! What comes from rows and brokers is shown without control characters, so that it cannot speak to the
//! terminal.

use std::fmt::Write as _;
use std::time::Duration;

use crate::operations::{Action, Done, SHOWN, time};
use crate::store::{Audited, DueIn, EventSeen, EventState, EventWhole, HeldKey, MOST_BEHIND};
use crate::words::{counted, number, plain};

/// Longest text of a failure in a list.
const TEXT_WIDTH: usize = 96;
/// Longest selection of an audit record.
const SELECTION_WIDTH: usize = 400;
/// Widest column.
const COLUMN_WIDTH: usize = 36;
/// Bytes of a payload that are shown.
const PAYLOAD_SHOWN: usize = 4096;

/// Lines with columns, the header first; the last column is not padded.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn short(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// A duration in its largest whole unit.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn due(state: EventState, due: DueIn) -> String {
    match (state, due) {
        (EventState::Published | EventState::Failed | EventState::Processing, _) => "-".into(),
        (_, DueIn::Now) => "now".into(),
        (_, DueIn::After(after)) => format!("in {}", span(after)),
        (_, DueIn::Never) => "never".into(),
    }
}

fn key(key: Option<&str>) -> String {
    match key {
        None => "NULL".into(),
        Some("") => "''".into(),
        Some(key) => short(key, COLUMN_WIDTH),
    }
}

/// A list of events.
pub(super) fn events(seen: &[EventSeen], next: Option<i64>) -> String {
    if seen.is_empty() {
        return "no events\n".into();
    }
    let head = ["ID", "STATE", "LANE", "KEY", "TYPE", "ATTEMPTS", "CREATED", "DUE"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(seen.iter().map(|event| {
        vec![
            event.id.to_string(),
            event.state.name().to_owned(),
            short(&event.lane, COLUMN_WIDTH),
            key(event.key.as_deref()),
            short(&event.event_type, COLUMN_WIDTH),
            event.attempts.to_string(),
            time(event.created_at_ms),
            due(event.state, event.due),
        ]
    }));
    let mut lines = table(&rows).into_iter();
    let mut out = lines.next().unwrap_or_default() + "\n";
    for (line, event) in lines.zip(seen) {
        let _ = writeln!(out, "{line}");
        match (&event.reason, &event.error) {
            (Some(reason), error) => {
                let text = error.as_deref().unwrap_or_default();
                let _ = writeln!(out, "    {reason}: {}", short(text, TEXT_WIDTH));
            }
            (None, Some(error)) => {
                let _ = writeln!(out, "    {}", short(error, TEXT_WIDTH));
            }
            (None, None) => {}
        }
    }
    if let Some(next) = next {
        let _ = writeln!(out, "there may be more: --after {next}");
    }
    out
}

/// One event with everything.
pub(super) fn event(whole: &EventWhole) -> String {
    let seen = &whole.seen;
    let mut out = String::new();
    let mut say = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<15} {}", plain(value));
    };
    say("id", &seen.id.to_string());
    say("state", seen.state.name());
    say("due", &due(seen.state, seen.due));
    say("lane", &seen.lane);
    say("key", seen.key.as_deref().map_or("NULL", |key| if key.is_empty() { "''" } else { key }));
    say("type", &seen.event_type);
    say("aggregate type", &seen.aggregate_type);
    say("aggregate id", seen.aggregate_id.as_deref().unwrap_or("NULL"));
    say("topic", seen.topic.as_deref().unwrap_or("NULL"));
    say("created", &time(seen.created_at_ms));
    if let Some(published) = seen.published_at_ms {
        say("published", &time(published));
    }
    say("attempts", &seen.attempts.to_string());
    if let Some(reason) = &seen.reason {
        say("last failure", reason);
    }
    if let Some(error) = &seen.error {
        say("", error);
    }
    if let Some(plugin) = &seen.plugin {
        say("in plugin", &plugin.to_string());
    }
    if let Some(redelivery) = &seen.redelivery {
        say("redelivery", redelivery);
    }
    if whole.holds_key {
        say("holds its key", "later events of the key wait for this one");
    }
    if let Some(owner) = &whole.owner {
        say("in flight", &format!("{owner} may be working on it"));
    }
    say("headers", whole.headers.as_deref().unwrap_or("NULL"));
    let size = whole.payload.as_ref().map(|payload| number(payload.len() as u64));
    say("payload", &size.map_or("NULL".into(), |size| format!("{size} bytes")));
    if let Some(payload) = &whole.payload {
        let text = String::from_utf8_lossy(&payload[..payload.len().min(PAYLOAD_SHOWN)]);
        let lines = text.lines().map(|line| format!("    {}\n", plain(line)));
        out.extend(lines);
        if payload.len() > PAYLOAD_SHOWN {
            out.push_str("    … (all of it: --payload)\n");
        }
    }
    out
}

/// A list of held keys.
pub(super) fn keys(held: &[HeldKey], limit: usize) -> String {
    if held.is_empty() {
        return "no key is held\n".into();
    }
    let head = ["LANE", "KEY", "EVENT", "REASON", "HELD FOR", "UNTIL", "WAITING"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(held.iter().map(|one| {
        let waiting = i64::try_from(one.waiting).is_ok_and(|waiting| waiting >= MOST_BEHIND);
        let until = match one.until {
            DueIn::Never => "you decide".to_owned(),
            until => due(EventState::Waiting, until),
        };
        vec![
            short(&one.lane, COLUMN_WIDTH),
            key(Some(&one.key)),
            if one.event_pending { one.event.to_string() } else { format!("{} (gone)", one.event) },
            one.reason.clone(),
            span(one.held_for),
            until,
            number(one.waiting) + if waiting { " or more" } else { "" },
        ]
    }));
    let mut out = table(&rows).join("\n") + "\n";
    if held.len() >= limit {
        out.push_str("there may be more: --limit\n");
    }
    out
}

/// What became of an order.
pub(super) fn done(action: Action, done: &Done) -> String {
    let (did, would) = match action {
        Action::Retry => ("made due", "would be made due"),
        Action::Discard => ("discarded", "would be discarded"),
        Action::Replay(_) => ("to be published again", "would be published again"),
        Action::Release => {
            ("set aside as failed; their keys go on", "would be set aside as failed")
        }
    };
    let mut out = match done.audit {
        Some(audit) => {
            format!("{} {did} (audit record {})\n", counted(done.changed, "event"), audit.0)
        }
        None => format!("dry run: {} {would}\n", counted(done.changed, "event")),
    };
    if done.let_go > 0 {
        let _ = writeln!(out, "{} let go, whose event was gone", number(done.let_go));
    }
    for (why, count) in &done.left {
        let _ = writeln!(out, "left: {}: {why}", counted(*count, "event"));
    }
    if !done.shown.is_empty() {
        out.push_str(&events(&done.shown, None));
        if done.changed > SHOWN as u64 {
            let _ = writeln!(out, "and {} more", number(done.changed - SHOWN as u64));
        }
    }
    out
}

/// The audit records.
pub(super) fn audit(records: &[Audited]) -> String {
    if records.is_empty() {
        return "nobody has changed anything\n".into();
    }
    let head = ["ID", "AT", "WHO", "VIA", "WHAT", "EVENTS", "IDS", "ENDED"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(records.iter().map(|record| {
        vec![
            record.id.0.to_string(),
            time(record.at_ms),
            short(&record.actor, COLUMN_WIDTH),
            record.via.clone(),
            record.action.clone(),
            number(record.events),
            record.range.map_or("-".into(), |(low, high)| format!("{low} to {high}")),
            record.ended_at_ms.map_or("not".into(), time),
        ]
    }));
    let mut lines = table(&rows).into_iter();
    let mut out = lines.next().unwrap_or_default() + "\n";
    for (line, record) in lines.zip(records) {
        let _ = writeln!(out, "{line}\n    {}", short(&record.selection, SELECTION_WIDTH));
        if let Some(note) = &record.note {
            let _ = writeln!(out, "    {}", plain(note));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;
    use crate::store::AuditId;

    fn halted() -> EventSeen {
        EventSeen {
            id: EventId(7),
            lane: "default".into(),
            state: EventState::Halted,
            key: Some("customer-1\x1b[2J".into()),
            aggregate_type: "order".into(),
            aggregate_id: Some("customer-1".into()),
            event_type: "order.created".into(),
            topic: None,
            attempts: 3,
            created_at_ms: 1_796_032_800_000,
            published_at_ms: None,
            due: DueIn::Never,
            reason: Some("record_too_large".into()),
            error: Some("too large\nby far".into()),
            plugin: None,
            redelivery: None,
            payload_bytes: Some(3),
        }
    }

    #[test]
    fn a_list_says_what_each_event_waits_for() {
        let text = events(&[halted()], Some(7));
        assert!(
            text.contains("7   halted  default  customer-1\u{fffd}[2J  order.created  3"),
            "{text}"
        );
        assert!(text.contains("\n    record_too_large: too large\u{fffd}by far\n"), "{text}");
        assert!(text.ends_with("there may be more: --after 7\n"), "{text}");
        assert_eq!(events(&[], None), "no events\n");
    }

    #[test]
    fn a_payload_of_any_bytes_is_shown() {
        let whole = EventWhole {
            seen: halted(),
            headers: Some(r#"{"a":1}"#.into()),
            payload: Some([vec![0xff, b'a', b'\n', 7], vec![b'x'; 5000]].concat()),
            holds_key: true,
            owner: None,
        };
        let text = event(&whole);
        assert!(
            text.contains("payload         5,004 bytes\n    \u{fffd}a\n    \u{fffd}xxx"),
            "{text}"
        );
        assert!(text.ends_with("… (all of it: --payload)\n"), "{text}");
    }

    #[test]
    fn what_was_done_and_what_was_left_is_said() {
        let mut one = Done { audit: Some(AuditId(4)), changed: 1, ..Done::default() };
        one.left.insert("gone meanwhile", 2);
        assert_eq!(
            done(Action::Retry, &one),
            "1 event made due (audit record 4)\nleft: 2 events: gone meanwhile\n"
        );
        let dry = Done { changed: 30, shown: vec![halted()], ..Done::default() };
        let text = done(Action::Discard, &dry);
        assert!(text.starts_with("dry run: 30 events would be discarded\nID"), "{text}");
        assert!(text.ends_with("and 10 more\n"), "{text}");
    }
}
