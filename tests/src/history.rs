//! The checker over a whole history: what was committed, what arrived, and what is left.
//!
//! Knows nothing of how the relay works. An event is known by its outbox id, which its record
//! carries; repeats carry the same one. Tests say which findings are right for their scenario.

use std::collections::{BTreeMap, BTreeSet};

use crate::kafka::Received;
use crate::ledger::{Committed, Standing};

/// What the checker found, by event id.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Committed, not in the outbox any more, and never arrived.
    pub lost: BTreeSet<i64>,
    /// Arrived without having been committed, or not as it was committed.
    pub phantom: BTreeSet<i64>,
    /// Arrived more than once.
    pub repeated: BTreeSet<i64>,
    /// Arrived for the first time after a later one of its key had arrived.
    pub out_of_order: BTreeSet<i64>,
    /// Still waiting in the outbox.
    pub stuck: BTreeSet<i64>,
    /// Set aside as FAILED.
    pub parked: BTreeSet<i64>,
}

impl Findings {
    /// Nothing wrong but for repeats, which a crash or a lost claim may cause.
    pub fn is_clean_but_for_repeats(&self) -> bool {
        *self == Self { repeated: self.repeated.clone(), ..Self::default() }
    }

    /// Nothing wrong but for repeats, and exactly these events are parked.
    pub fn is_clean_but_for(&self, parked: &BTreeSet<i64>) -> bool {
        let expected =
            Self { repeated: self.repeated.clone(), parked: parked.clone(), ..Self::default() };
        *self == expected
    }
}

/// Compares the records of one topic with what was committed for it and what is left of that.
pub fn check(committed: &[Committed], left: &[(i64, Standing)], received: &[Received]) -> Findings {
    let ledger: BTreeMap<i64, &Committed> = committed.iter().map(|one| (one.id, one)).collect();
    let mut findings = Findings::default();
    let mut arrived = BTreeSet::new();
    let mut highest: BTreeMap<&Option<String>, i64> = BTreeMap::new();
    let mut received: Vec<&Received> = received.iter().collect();
    received.sort_by_key(|one| (one.partition, one.offset));
    for one in received {
        let id = one.id();
        let Some(event) = ledger.get(&id).filter(|event| is_the_same(event, one)) else {
            findings.phantom.insert(id);
            continue;
        };
        if !arrived.insert(id) {
            findings.repeated.insert(id);
            continue;
        }
        // Events without a key have no order.
        if event.key.is_some() {
            let highest = highest.entry(&event.key).or_insert(id);
            if id < *highest {
                findings.out_of_order.insert(id);
            }
            *highest = id.max(*highest);
        }
    }
    let left: BTreeMap<i64, Standing> = left.iter().copied().collect();
    for id in ledger.keys() {
        match left.get(id) {
            Some(Standing::Open) => findings.stuck.insert(*id),
            Some(Standing::Parked) => findings.parked.insert(*id),
            None if !arrived.contains(id) => findings.lost.insert(*id),
            None => false,
        };
    }
    findings
}

/// Whether the record has the event's key and payload.
fn is_the_same(event: &Committed, record: &Received) -> bool {
    record.key.as_deref() == event.key.as_deref().map(str::as_bytes)
        && record.payload.as_deref() == event.payload.as_deref().map(str::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(id: i64, key: &str) -> Committed {
        Committed { id, key: Some(key.into()), topic: None, payload: Some(id.to_string()) }
    }

    fn record(id: i64, key: &str, offset: i64) -> Received {
        Received {
            partition: 0,
            offset,
            key: Some(key.as_bytes().to_vec()),
            payload: Some(id.to_string().into_bytes()),
            headers: vec![("X-Outbox-Id".to_owned(), Some(id.to_string().into_bytes()))],
        }
    }

    fn found(left: &[(i64, Standing)], received: &[Received]) -> Findings {
        let ledger = [committed(1, "a"), committed(2, "a"), committed(3, "b"), committed(4, "a")];
        check(&ledger, left, received)
    }

    fn ids(ids: &[i64]) -> BTreeSet<i64> {
        ids.iter().copied().collect()
    }

    fn good() -> Vec<Received> {
        // Between keys there is no order.
        vec![record(3, "b", 0), record(1, "a", 1), record(2, "a", 2), record(4, "a", 3)]
    }

    #[test]
    fn a_good_history_is_clean() {
        assert_eq!(found(&[], &good()), Findings::default());
    }

    #[test]
    fn what_never_arrives_is_lost_unless_it_is_still_there() {
        let received = &good()[1..];
        assert_eq!(found(&[], received), Findings { lost: ids(&[3]), ..Findings::default() });
        let stuck = found(&[(3, Standing::Open)], received);
        assert_eq!(stuck, Findings { stuck: ids(&[3]), ..Findings::default() });
        let parked = found(&[(3, Standing::Parked)], received);
        assert_eq!(parked, Findings { parked: ids(&[3]), ..Findings::default() });
        assert!(parked.is_clean_but_for(&ids(&[3])) && !parked.is_clean_but_for_repeats());
    }

    #[test]
    fn what_arrives_and_is_not_settled_is_stuck() {
        let stuck = found(&[(4, Standing::Open)], &good());
        assert_eq!(stuck, Findings { stuck: ids(&[4]), ..Findings::default() });
    }

    #[test]
    fn what_nobody_committed_is_a_phantom() {
        let mut received = good();
        received.push(record(9, "a", 9));
        received.push(record(2, "b", 10));
        received.push(Received { payload: None, ..record(4, "a", 11) });
        let findings = found(&[], &received);
        assert_eq!(findings, Findings { phantom: ids(&[2, 4, 9]), ..Findings::default() });
    }

    #[test]
    fn repeats_are_told_apart_from_disorder() {
        let mut received = good();
        received.push(record(1, "a", 9));
        let findings = found(&[], &received);
        assert_eq!(findings, Findings { repeated: ids(&[1]), ..Findings::default() });
        assert!(findings.is_clean_but_for_repeats());
    }

    #[test]
    fn a_first_arrival_behind_a_later_one_is_out_of_order() {
        let received = [record(3, "b", 0), record(2, "a", 1), record(1, "a", 2), record(4, "a", 3)];
        let findings = found(&[], &received);
        assert_eq!(findings, Findings { out_of_order: ids(&[1]), ..Findings::default() });
        assert!(!findings.is_clean_but_for_repeats());
    }
}
