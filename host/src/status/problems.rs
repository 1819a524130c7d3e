//! What deserves attention in how a source stands. Pure.
//!
//! Every problem is a sentence that says what is wrong and, where it is not plain, what to do.

use super::text::span;
use super::{LaneStatus, Problem, RUNNING, SourceStatus};
use crate::words::counted;

/// A lease that ended so long ago should have been taken by someone.
const TAKEN_WITHIN_MS: u64 = 10_000;

/// The problems of one source, lane by lane.
pub(super) fn of_source(source: &SourceStatus) -> Vec<Problem> {
    let mut problems = Problems { source, found: Vec::new() };
    if let Some(error) = &source.error {
        problems.add(None, "source_unavailable", error.clone());
        return problems.found;
    }
    let running = source.instances.iter().filter(|instance| instance.state == RUNNING);
    let mut someone = false;
    for instance in running {
        someone = true;
        let name = &instance.instance;
        if let Some(why) = &instance.unreadable {
            let text = format!("instance {name}: {why}; the lanes it works on are not known");
            problems.add(None, "report_unreadable", text);
        }
        for trouble in &instance.plugin_troubles {
            problems.add(None, "plugin_trouble", format!("instance {name}: {trouble}"));
        }
    }
    if source.instances.is_empty() {
        let text = "no instance has been seen: start `haulier run`".to_owned();
        problems.add(None, "no_instance", text);
    } else if !someone {
        problems.add(None, "no_instance", "no instance is running: start `haulier run`".to_owned());
    }
    for lane in &source.lanes {
        problems.of_lane(lane, someone);
    }
    problems.found
}

struct Problems<'a> {
    source: &'a SourceStatus,
    found: Vec<Problem>,
}

impl Problems<'_> {
    fn add(&mut self, lane: Option<&LaneStatus>, kind: &'static str, text: String) {
        let lane = lane.map(|lane| lane.lane.clone());
        self.found.push(Problem { source: self.source.source.clone(), lane, kind, text });
    }

    fn of_lane(&mut self, lane: &LaneStatus, someone: bool) {
        let rows = lane.pending + lane.processing;
        let known = if lane.configured { "" } else { "; these settings do not name it" };
        if lane.served_by.is_empty() && rows > 0 {
            let text = format!(
                "{} wait, and no running instance works on this lane{known}",
                counted(rows, "event")
            );
            self.add(Some(lane), "lane_not_served", text);
        } else if lane.served_by.is_empty() && lane.configured && someone {
            let text = "no running instance works on this lane".to_owned();
            self.add(Some(lane), "lane_not_served", text);
        }
        for pause in &lane.paused {
            let text = format!("instance {} waits: {}", pause.instance, pause.reason);
            self.add(Some(lane), "lane_paused", text);
        }
        self.expired(lane);
        if lane.halted_keys > 0 {
            let ids: Vec<String> = lane.halted_events.iter().map(ToString::to_string).collect();
            let more = if lane.halted_keys > ids.len() as u64 { ", \u{2026}" } else { "" };
            let text = format!(
                "{} halted until someone decides on the event: {}{more}",
                counted(lane.halted_keys, "key"),
                ids.join(", ")
            );
            self.add(Some(lane), "keys_halted", text);
        }
        let open = lane.open_circuits.len() as u64 + lane.open_circuits_left_out;
        if open > 0 {
            let text = format!(
                "{} cannot be used at present; events wait for that",
                counted(open, "destination")
            );
            self.add(Some(lane), "circuits_open", text);
        }
        if lane.failed > 0 {
            let text = format!(
                "{} set aside as FAILED; `haulier events list --state failed` says why",
                counted(lane.failed, "event")
            );
            self.add(Some(lane), "events_failed", text);
        }
    }

    fn expired(&mut self, lane: &LaneStatus) {
        let over = |left: i64| if left < 0 { left.unsigned_abs() } else { 0 };
        let of_lane = self.source.leases.iter().filter(|lease| lease.lane == lane.lane);
        let old: Vec<u64> = of_lane
            .map(|lease| over(lease.expires_in_ms))
            .filter(|over| *over > TAKEN_WITHIN_MS)
            .collect();
        let Some(longest) = old.iter().max() else { return };
        let text = format!(
            "{} ran out {}{} ago, and nobody has taken {}",
            counted(old.len() as u64, "lease"),
            if old.len() == 1 { "" } else { "up to " },
            span(*longest),
            if old.len() == 1 { "it" } else { "them" }
        );
        self.add(Some(lane), "leases_expired", text);
    }
}
