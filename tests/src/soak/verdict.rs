//! The verdict on a soak: which invariants were checked on how much, and whether they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::bed::Bed;
use super::fault::Kind;
use crate::history;
use crate::kafka;
use crate::ledger;
use crate::traffic::Counts;

/// What no row may be set aside for, other than what was made to fail.
const INNOCENT: &str = "SELECT count(*) FROM outbox WHERE status = 'FAILED' AND NOT \
     (topic = 'no such/topic' AND failure_kind = 'topic_illegal' \
      OR length(payload::text) > 40000 AND failure_kind = 'record_too_large' \
      OR event_type = 'deadly' AND failure_kind = 'process_crash')";
/// What must have been set aside and is not.
const SPARED: &str = "SELECT count(*) FROM committed c WHERE \
     (topic = 'no such/topic' OR length(payload) > 40000 OR event_type = 'deadly') \
     AND NOT EXISTS (SELECT FROM outbox o WHERE o.id = c.id AND o.status = 'FAILED')";
/// What must be over when all relays have ended in good order.
const CLAIMED: &str = "SELECT (SELECT count(*) FROM outbox WHERE status = 'PROCESSING') \
     + (SELECT count(*) FROM haulier_lease WHERE token IS NOT NULL)";
/// Keys that wait although nothing of them is left to wait for.
const HELD: &str = "SELECT count(*) FROM haulier_held_key";

/// A soak that held.
#[derive(Debug, Clone)]
pub struct Report {
    /// Faults by kind.
    pub faults: BTreeMap<Kind, usize>,
    /// Relays that a supervisor started again because an event had killed them.
    pub deaths: usize,
    /// Relays that were started in all.
    pub relays: usize,
    /// What the writers did.
    pub written: Counts,
    /// Events that were committed, by the ledger.
    pub events: usize,
    /// Events that arrived more than once.
    pub repeated: usize,
    /// Events that were set aside, as they had to be.
    pub parked: usize,
    /// How many times each invariant was checked.
    pub invariants: Vec<(&'static str, usize)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().sum();
        writeln!(f, "faults injected: {faults}")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {:<18}{count}", format!("{kind:?}"))?;
        }
        writeln!(
            f,
            "relays started: {}, of them after a deadly event: {}",
            self.relays, self.deaths
        )?;
        let Counts { rolled_back, late, refused, .. } = self.written;
        writeln!(
            f,
            "events committed: {}; transactions rolled back: {rolled_back}, late: {late}, refused: {refused}",
            self.events
        )?;
        writeln!(f, "events repeated: {}, parked on purpose: {}", self.repeated, self.parked)?;
        writeln!(f, "invariants that hold, and how many times each was checked:")?;
        for (invariant, count) in &self.invariants {
            writeln!(f, "  {invariant:<60}{count}")?;
        }
        Ok(())
    }
}

/// Judges a soak whose relays have ended.
///
/// # Panics
/// When an invariant does not hold.
pub(super) async fn judge(bed: &Bed, written: Counts) -> Report {
    let mut violations = Vec::new();
    let mut repeated = BTreeSet::new();
    let mut events = 0;
    for topic in &bed.topics {
        let received = kafka::read(topic, Duration::from_secs(3), |_| false).await;
        let committed = ledger::committed(bed.pool(), topic).await;
        let left = ledger::left(bed.pool(), topic).await;
        let found = history::check(&committed, &left, &received);
        if !found.is_clean_but_for(&found.parked) {
            violations.push(format!("{topic}: {found:?}"));
        }
        repeated.extend(found.repeated);
        events += committed.len();
    }
    let database = &bed.database;
    for (what, sql) in [
        ("events are parked that had done nothing", INNOCENT),
        ("events are not parked that cannot be published", SPARED),
        ("claims are left", CLAIMED),
        ("keys are held", HELD),
    ] {
        let found = database.number(sql).await;
        if found > 0 {
            violations.push(format!("{what}: {found}"));
        }
    }
    for relay in &bed.gone {
        let log = relay.log();
        for word in ["panicked", "a batch died"] {
            violations.extend(log.contains(word).then(|| format!("{word}:\n{log}")));
        }
    }
    assert!(violations.is_empty(), "the soak found:\n{}", violations.join("\n"));
    let parked = database.number("SELECT count(*) FROM outbox WHERE status = 'FAILED'").await;
    Report {
        faults: bed.counts.clone(),
        deaths: bed.deaths,
        relays: bed.gone.len(),
        written,
        events,
        repeated: repeated.len(),
        parked: usize::try_from(parked).unwrap_or_default(),
        invariants: vec![
            ("no committed event is lost", events),
            ("no event arrives that was not committed", events),
            ("first arrivals are in the order of their key", events),
            ("no event is left waiting", events),
            ("only what cannot be published is parked, and all of it", events),
            ("no claim and no held key is left", bed.gone.len()),
            ("no relay panics", bed.gone.len()),
        ],
    }
}
