//! What must hold of publications, and of everything at the end.
//!
//! Called by the broker for each record that arrives and by the driver when the run is over. Writes nothing but
//! violations.

use super::broker::Sent;
use super::checks::Known;
use super::scenario::Script;
use super::world::World;
use crate::event::Ordering;
use crate::store::Status;

/// A time that is never reached.
const NEVER: i64 = i64::MAX / 4;

impl World {
    /// A record is appended to its topic.
    pub(super) fn check_append(&mut self, sent: &Sent) {
        let Sent { claim: number, event: id, part, version, .. } = *sent;
        let process = self.checks.claims[&number].process;
        if version > 0 {
            let newest = self.checks.newest.entry(process).or_default();
            let before = std::mem::replace(newest, version.max(*newest));
            if version < before {
                self.violated(format!(
                    "event {id} is published by version {version} after {before}"
                ));
            }
        }
        let lost = self.checks.is_lost(number, id);
        let twice = !self
            .checks
            .claims
            .get_mut(&number)
            .is_some_and(|claim| claim.arrived.insert((id, part)));
        let Some(known) = self.checks.events.get_mut(&id) else {
            return self.violated(format!("event {id} is published and was not committed"));
        };
        let first = known.arrived.insert(part);
        let published = known.published_by;
        if twice {
            self.violated(format!("event {id} is published twice under claim {number}"));
        }
        if let Some(by) = published
            && !lost
        {
            self.violated(format!("event {id} is published again after claim {by} has settled it"));
        }
        if first {
            self.check_order(id);
        }
    }

    /// Everything before it in its order has arrived, or has been set aside.
    fn check_order(&mut self, id: i64) {
        let domain = self.checks.events[&id].domain;
        if domain.is_none() {
            return;
        }
        let earlier = self.checks.events.range(..id).filter(|(_, known)| known.domain == domain);
        let mut missing = earlier.filter(|(id, known)| !self.is_behind_us(**id, known));
        if let Some((missing, _)) = missing.next() {
            let what =
                format!("event {id} is published before {missing}, which is of the same key");
            self.violated(what);
        }
    }

    fn is_behind_us(&self, id: i64, known: &Known) -> bool {
        let parked = || self.table.rows.get(&id).is_some_and(|row| row.status == Status::Failed);
        let silent = matches!(known.script, Script::Drop | Script::Deliver(0));
        let records = known.script.records();
        silent || known.scheduled || (records > 0 && known.arrived.len() == records) || parked()
    }

    /// What is still to be done, if anything is.
    pub(super) fn unfinished(&self) -> Option<String> {
        let waiting = self.table.rows.values().find(|row| match row.status {
            Status::Published | Status::Failed => false,
            Status::Processing => true,
            Status::Pending => row.available_at < NEVER && !self.is_halted(row.event.id.0),
        });
        if let Some(row) = waiting {
            let (id, due) = (row.event.id, row.available_at);
            return Some(format!("event {id} is {:?}, due at {due}", row.status));
        }
        let leased = self.table.leases.iter().find(|(_, lease)| lease.token.is_some());
        if let Some((shard, lease)) = leased {
            return Some(format!("shard {shard} has a lease until {}", lease.expires_at));
        }
        None
    }

    /// Whether an event before it in its order halts it; one that its writer has put off can be halted by
    /// any.
    fn is_halted(&self, id: i64) -> bool {
        let Some(known) = self.checks.events.get(&id) else { return false };
        let halts = |event: i64| {
            let by = self.checks.events.get(&event).and_then(|known| known.domain);
            by == known.domain && (event < id || known.scheduled)
        };
        known.domain.is_some()
            && self.table.held.values().any(|held| held.until >= NEVER && halts(held.event_id))
    }

    /// What must hold once everything is quiet.
    pub(super) fn check_end(&mut self) {
        let mut wrong = Vec::new();
        let most = self.scenario.lane.retry.max_attempts;
        for (id, known) in &self.checks.events {
            let Some(row) = self.table.rows.get(id) else {
                wrong.push(format!("event {id} is gone"));
                continue;
            };
            let arrived = known.arrived.len();
            let fine = match row.status {
                Status::Published => arrived == known.script.records(),
                Status::Failed if row.failure == Some("process_crash") => {
                    known.script == Script::Kill || known.lone_losses >= 3
                }
                Status::Failed => known.failures >= most,
                Status::Pending => known.failures >= most || self.is_halted(*id),
                Status::Processing => false,
            };
            if !fine {
                wrong.push(format!(
                    "event {id} ends as {:?} with {arrived} records: {known:?}",
                    row.status
                ));
            }
            if row.status == Status::Published && known.script == Script::Kill {
                wrong.push(format!("event {id} kills and was published"));
            }
        }
        for (key, held) in &self.table.held {
            let waits = self.table.rows.get(&held.event_id).map(|row| row.status);
            if waits != Some(Status::Pending) || self.scenario.lane.ordering == Ordering::None {
                wrong.push(format!(
                    "key {key:?} is held for event {}, which is {waits:?}",
                    held.event_id
                ));
            }
        }
        wrong.into_iter().for_each(|what| self.violated(what));
    }
}
