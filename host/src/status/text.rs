//! The status as text for people, at most about a hundred columns wide. Pure.
//!
//! Always in the same order. What comes from rows and brokers is shown without control characters,
//! so that it cannot speak to the terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    GONE, InstanceStatus, LaneStatus, LeaseStatus, RUNNING, STOPPED, SourceStatus, Status,
};
use crate::words::{counted, number, plain};

/// Most entries of a list; the rest is counted.
const MOST_ENTRIES: usize = 20;
/// Longest line that is not a name's fault.
const WIDTH: usize = 100;
/// Hex digits of a hash that are shown.
const HASH_DIGITS: usize = 12;

/// The status as text, with a line break at its end.
pub fn render(status: &Status) -> String {
    let mut out = String::new();
    for source in &status.sources {
        render_source(&mut out, source, status.counted_up_to);
        out.push('\n');
    }
    if status.problems.is_empty() {
        out.push_str("no problems\n");
        return out;
    }
    out.push_str("problems\n");
    for problem in &status.problems {
        let place = match &problem.lane {
            Some(lane) => format!("{}/{lane}", problem.source),
            None => problem.source.clone(),
        };
        line(&mut out, &format!("  {}: ", plain(&place)), &problem.text, Cut::Never);
    }
    out
}

fn render_source(out: &mut String, source: &SourceStatus, limit: u64) {
    let _ = writeln!(out, "source {}, table {}", plain(&source.source), plain(&source.table));
    if let Some(error) = &source.error {
        line(out, "  cannot be looked at: ", error, Cut::Never);
        return;
    }
    lane_table(out, source, limit);
    section(out, "leases", &lease_lines(&source.leases), source.leases_left_out);
    section(out, "waiting for their destination", &circuit_lines(&source.lanes), false);
    if source.instances.is_empty() {
        out.push_str("  no instance has been seen\n");
    }
    section(out, "instances", &instance_lines(&source.instances), false);
}

fn section(out: &mut String, title: &str, entries: &[Vec<(String, String)>], more: bool) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(out, "  {title}");
    for (prefix, text) in entries.iter().take(MOST_ENTRIES).flatten() {
        line(out, prefix, text, Cut::Line);
    }
    let left_out = entries.len().saturating_sub(MOST_ENTRIES) as u64;
    match (left_out, more) {
        (0, false) => {}
        (0, true) => out.push_str("    and more\n"),
        (_, false) => line(out, "    ", &and_more(left_out), Cut::Never),
        (_, true) => line(out, "    ", &format!("{} or more", and_more(left_out)), Cut::Never),
    }
}

/// Whether a long text may be cut.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Line,
    Never,
}

fn line(out: &mut String, prefix: &str, text: &str, cut: Cut) {
    let text = plain(text);
    let room = WIDTH.saturating_sub(prefix.chars().count()).max(20);
    if cut == Cut::Line && text.chars().count() > room {
        let kept: String = text.chars().take(room - 1).collect();
        let _ = writeln!(out, "{prefix}{kept}\u{2026}");
    } else {
        let _ = writeln!(out, "{prefix}{text}");
    }
}

const HEADINGS: [&str; 10] = [
    "lane",
    "order",
    "served",
    "pending",
    "processing",
    "failed",
    "held",
    "circuits",
    "last min",
    "oldest due",
];
/// Columns of texts, which start at the left; numbers end at the right.
const TEXT_COLUMNS: usize = 2;

fn lane_table(out: &mut String, source: &SourceStatus, limit: u64) {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(source.lanes.iter().map(|lane| lane_cells(lane, limit)));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    for row in &rows {
        let mut text = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at < TEXT_COLUMNS {
                true => write!(text, "  {cell:<width$}"),
                false => write!(text, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    if source.lanes_left_out {
        out.push_str("    and more lanes\n");
    }
}

fn lane_cells(lane: &LaneStatus, limit: u64) -> [String; 10] {
    let up_to = |count: u64, of: u64| match of >= limit {
        true => format!("{}+", number(count)),
        false => number(count),
    };
    [
        plain(&lane.lane),
        lane.ordering.unwrap_or("-").to_owned(),
        if lane.served_by.is_empty() {
            "nobody".into()
        } else {
            number(lane.served_by.len() as u64)
        },
        up_to(lane.pending, lane.pending + lane.processing),
        number(lane.processing),
        up_to(lane.failed, lane.failed),
        number(lane.held_keys),
        number(lane.open_circuits.len() as u64 + lane.open_circuits_left_out),
        number(lane.published_last_minute),
        lane.oldest_due_ms.map_or_else(|| "-".to_owned(), span),
    ]
}

/// One entry per lane and owner.
fn lease_lines(leases: &[LeaseStatus]) -> Vec<Vec<(String, String)>> {
    let mut groups: BTreeMap<(&str, &str), Vec<&LeaseStatus>> = BTreeMap::new();
    for lease in leases {
        groups.entry((&lease.lane, &lease.owner)).or_default().push(lease);
    }
    let entries = groups.into_iter().map(|((lane, owner), group)| {
        let events = group.iter().map(|lease| lease.events).sum();
        let what = match group[0].kind {
            "shard" => counted(group.len() as u64, "shard"),
            "lane" => "the whole lane".to_owned(),
            _ => counted(group.len() as u64, "batch"),
        };
        let expired = group.iter().filter(|lease| lease.expires_in_ms <= 0).count();
        let left = group.iter().map(|lease| lease.expires_in_ms).filter(|left| *left > 0).min();
        let longest = group.iter().map(|lease| lease.expires_in_ms).min().unwrap_or(0);
        let mut when = Vec::new();
        if let Some(left) = left {
            let first = if group.len() - expired > 1 { "the first " } else { "" };
            when.push(format!("{first}expires in {}", span(left.unsigned_abs())));
        }
        if expired > 0 {
            let some = if expired < group.len() { format!("{expired} ") } else { String::new() };
            when.push(format!("{some}expired {} ago", span(longest.unsigned_abs())));
        }
        let owner = plain(owner);
        let text = format!("{what}, {}, {}", counted(events, "event"), when.join(", "));
        vec![(format!("    {}  {owner}: ", plain(lane)), text)]
    });
    entries.collect()
}

fn circuit_lines(lanes: &[LaneStatus]) -> Vec<Vec<(String, String)>> {
    let mut entries = Vec::new();
    for lane in lanes {
        let prefix = format!("    {}  ", plain(&lane.lane));
        for open in &lane.open_circuits {
            let next = match open.next_trial_ms {
                0 => "tried with the next event".to_owned(),
                left => format!("next trial in {}", span(left)),
            };
            let seen = counted(open.instances.len() as u64, "instance");
            let same = open.destination.starts_with(&open.cause);
            let (name, rest) = if same { ("", "") } else { ("topic ", open.cause.as_str()) };
            let colon = if same { "" } else { ": " };
            let first = format!("{name}{}{colon}{rest}", open.destination);
            let mut entry = vec![(prefix.clone(), first)];
            if !same {
                entry.push(("      ".to_owned(), open.failure.clone()));
            }
            entry.push(("      ".to_owned(), format!("{next}, seen by {seen}")));
            entries.push(entry);
        }
        if lane.open_circuits_left_out > 0 {
            entries.push(vec![(prefix, and_more(lane.open_circuits_left_out))]);
        }
    }
    entries
}

fn instance_lines(instances: &[InstanceStatus]) -> Vec<Vec<(String, String)>> {
    let entry = |one: &InstanceStatus| {
        let ran = one.started_ago_ms.saturating_sub(one.seen_ago_ms);
        let state = match one.state {
            RUNNING => format!(
                "running for {}, seen {} ago",
                span(one.started_ago_ms),
                span(one.seen_ago_ms)
            ),
            GONE => format!("gone: not seen for {}, ran for {}", span(one.seen_ago_ms), span(ran)),
            _ => format!("stopped {} ago, ran for {}", span(one.seen_ago_ms), span(ran)),
        };
        let mut entry = vec![(format!("    {}: ", plain(&one.instance)), state)];
        if one.state == STOPPED {
            return entry;
        }
        let below = || "      ".to_owned();
        match (&one.unreadable, &one.haulier) {
            (Some(why), _) => entry.push((below(), why.clone())),
            (None, version) => {
                let version = version.as_deref().unwrap_or("?");
                let lanes = one.lanes.join(", ");
                entry.push((below(), format!("haulier {version}, works on {lanes}")));
            }
        }
        for plugin in &one.plugins {
            let hash: String = plugin.hash.chars().take(HASH_DIGITS).collect();
            let note = match plugin.standing.as_str() {
                "" | "current" => String::new(),
                "kept" => ", an earlier version: see the problems".to_owned(),
                other => format!(", {other}"),
            };
            let text = format!("plugin {} {} ({hash}){note}", plugin.name, plugin.version);
            entry.push((below(), text));
        }
        entry
    };
    instances.iter().map(entry).collect()
}

/// How many more there are, as an entry of a list.
fn and_more(left_out: u64) -> String {
    format!("and {} more", number(left_out))
}

/// A span of milliseconds in its two largest units.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {smaller}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests;
