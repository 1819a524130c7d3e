//! What the database committed against what the consumer received. Pure.
//!
//! The demo fills it and prints the verdict. It knows which topics the example plugin sends an event
//! to, and nothing else of plugins, databases or brokers.

use std::collections::{HashMap, HashSet};

/// The topics of the example plugin, by the names it gives them, without a prefix.
pub(super) const TOPICS: [&str; 3] = ["orders", "billing", "order-snapshots"];

/// Where the example plugin sends events of this type: indexes into [`TOPICS`].
fn destinations(event_type: &str) -> &'static [usize] {
    match event_type {
        "order.created" | "order.cancelled" => &[0],
        "order.paid" => &[0, 1],
        "order.snapshot" | "order.deleted" => &[2],
        _ => &[],
    }
}

/// An event that was committed, as the application's own log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Committed {
    /// Its id in the outbox.
    pub(super) id: i64,
    /// Its ordering key.
    pub(super) key: String,
    pub(super) event_type: String,
}

/// A record, in the order in which the consumer received those of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// Index into [`TOPICS`].
    pub(super) topic: usize,
    pub(super) partition: i32,
    /// The outbox id in its header.
    pub(super) id: i64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Events in the database's log.
    pub committed: usize,
    /// Of those, events all of whose records arrived.
    pub delivered: usize,
    /// Of those, events of which a record is missing.
    pub lost: usize,
    /// Records that came again.
    pub duplicated: usize,
    /// Records that stand behind a younger one of their key in the same partition.
    pub out_of_order: usize,
    /// Records of events that were never committed, or in a topic where they do not belong.
    pub phantom: usize,
}

impl Verdict {
    /// Compares.
    pub(super) fn of(committed: &[Committed], received: &[Received]) -> Self {
        let events: HashMap<i64, &Committed> =
            committed.iter().map(|event| (event.id, event)).collect();
        let mut verdict = Self { committed: committed.len(), ..Self::default() };
        let mut seen = HashSet::new();
        let mut last: HashMap<(usize, i32, &str), i64> = HashMap::new();
        for record in received {
            let event = events
                .get(&record.id)
                .filter(|event| destinations(&event.event_type).contains(&record.topic));
            let Some(event) = event else {
                verdict.phantom += 1;
                continue;
            };
            if !seen.insert((record.id, record.topic)) {
                verdict.duplicated += 1;
                continue;
            }
            let last =
                last.entry((record.topic, record.partition, event.key.as_str())).or_default();
            if record.id < *last {
                verdict.out_of_order += 1;
            }
            *last = record.id.max(*last);
        }
        let arrived = |event: &&Committed| {
            destinations(&event.event_type).iter().all(|topic| seen.contains(&(event.id, *topic)))
        };
        verdict.delivered = committed.iter().filter(arrived).count();
        verdict.lost = verdict.committed - verdict.delivered;
        verdict
    }

    /// Whether the demo showed what it promises.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.out_of_order == 0 && self.phantom == 0
    }
}

impl std::fmt::Display for Verdict {
    /// The last line of the demo.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { committed, delivered, lost, duplicated, out_of_order, .. } = self;
        write!(
            f,
            "demo: committed={committed} delivered={delivered} lost={lost} duplicated={duplicated} out_of_order={out_of_order}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> Vec<Committed> {
        let event = |id, key: &str, event_type: &str| Committed {
            id,
            key: key.to_owned(),
            event_type: event_type.to_owned(),
        };
        vec![
            event(1, "a", "order.created"),
            event(2, "b", "order.created"),
            event(3, "a", "order.paid"),
            event(4, "o-1", "order.snapshot"),
        ]
    }

    const ALL: [(usize, i64); 5] = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 4)];

    fn verdict(records: &[(usize, i64)]) -> Verdict {
        let received: Vec<_> = records
            .iter()
            .map(|(topic, id)| Received { topic: *topic, partition: 0, id: *id })
            .collect();
        Verdict::of(&committed(), &received)
    }

    #[test]
    fn all_there_is_clean() {
        let clean = verdict(&ALL);
        assert!(clean.is_clean());
        assert_eq!(
            clean.to_string(),
            "demo: committed=4 delivered=4 lost=0 duplicated=0 out_of_order=0"
        );
        // Keys have no order among each other, and neither have topics.
        assert!(verdict(&[(2, 4), (1, 3), (0, 2), (0, 1), (0, 3)]).is_clean());
    }

    #[test]
    fn each_fault_is_counted_as_what_it_is() {
        let without_one_of_two = verdict(&[(0, 1), (0, 2), (0, 3), (2, 4)]);
        assert_eq!((without_one_of_two.delivered, without_one_of_two.lost), (3, 1));
        assert_eq!(verdict(&[&ALL[..], &[(1, 3)]].concat()).duplicated, 1);
        assert_eq!(verdict(&[(0, 3), (0, 1), (0, 2), (1, 3), (2, 4)]).out_of_order, 1);
        // Never committed; in a topic where it does not belong.
        assert_eq!(verdict(&[&ALL[..], &[(0, 9), (1, 1)]].concat()).phantom, 2);
        for faulty in [&ALL[1..], &[&ALL[..], &ALL[..1]].concat(), &[(0, 9)]] {
            assert!(!verdict(faulty).is_clean());
        }
    }
}
