//! From verdicts to records: what may be published of a batch now, and what must wait. Pure.
//!
//! Called by the batch worker between transform and publish. Keeps order: once an event of a key
//! cannot go, no later event of that key in the batch goes either.

use std::collections::HashMap;

use bytes::Bytes;

use crate::event::{Event, LaneName, Ordering, OrderingKey, Outcome};
use crate::failure::Failure;
use crate::routing::{self, Route};
use crate::sink::{Outgoing, affinity};

use super::circuit::Circuits;

/// Where one event of the batch stands before publishing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// Its records are in the plan, this many of them.
    Going(usize),
    /// Nothing to publish: dropped for this reason.
    Dropped(String),
    /// It failed, by itself or for its destination.
    Failed(Failure),
    /// Its destination is known to be unusable; it waits this long.
    Resting {
        /// How long.
        after: std::time::Duration,
        /// For what.
        failure: Failure,
        /// The destination's name, as its circuit has it.
        destination: String,
    },
    /// An earlier event of its key does not go, so neither does it.
    Behind,
}

/// A batch, ready to be published.
#[derive(Debug)]
pub(super) struct Plan {
    /// One standing per event.
    pub(super) standings: Vec<Standing>,
    /// The records of all events that go, in event order.
    pub(super) outgoing: Vec<Outgoing>,
    /// A record key that two ordering keys of this batch share, if there is one: consumers do not
    /// see its records in order.
    pub(super) shared_key: Option<Bytes>,
}

/// One event with the verdict on it and the route it took.
pub(super) struct Judged<'a> {
    pub(super) verdict: Result<Outcome, Failure>,
    pub(super) route: Option<&'a Route>,
    /// Names the plugin version that gave the verdict, if one did.
    pub(super) stamp: Option<Bytes>,
}

/// Lays out a batch. `judged` has one entry per event.
pub(super) fn plan(
    lane: &LaneName,
    ordering: Ordering,
    events: &[Event],
    judged: Vec<Judged<'_>>,
    circuits: &mut Circuits,
) -> Plan {
    let mut standings = Vec::with_capacity(events.len());
    let mut outgoing = Vec::with_capacity(events.len());
    let mut slots: HashMap<OrderingKey, (u32, bool)> = HashMap::new();
    for (index, (event, judged)) in events.iter().zip(judged).enumerate() {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let mut own = (number, false);
        let slot = match ordering {
            // No key, no order.
            Ordering::Key if event.ordering_key().0.is_none() => &mut own,
            Ordering::Key => slots.entry(event.ordering_key()).or_insert((number, false)),
            Ordering::Total => slots.entry(OrderingKey(None)).or_insert((0, false)),
            Ordering::None => &mut own,
        };
        if slot.1 {
            standings.push(Standing::Behind);
            continue;
        }
        let before = outgoing.len();
        let together = affinity(&event.ordering_key());
        let standing = stand(lane, event, judged, circuits, |record| {
            outgoing.push(Outgoing { slot: slot.0, event: number, affinity: together, record });
        });
        match &standing {
            Standing::Going(_) | Standing::Dropped(_) => {}
            Standing::Failed(_) | Standing::Resting { .. } | Standing::Behind => {
                outgoing.truncate(before);
                slot.1 = true;
            }
        }
        standings.push(standing);
    }
    let shared_key = if ordering == Ordering::Key { shared_key(&outgoing, events) } else { None };
    Plan { standings, outgoing, shared_key }
}

/// Looks only at records whose key is not the ordering key itself, which is the rare case.
fn shared_key(outgoing: &[Outgoing], events: &[Event]) -> Option<Bytes> {
    let mut owners: HashMap<(&str, &Bytes), u32> = HashMap::new();
    for out in outgoing {
        let event = events.get(out.event as usize)?;
        let Some(key) = &out.record.key else { continue };
        let own = event.partition_key.as_ref().or(event.aggregate_id.as_ref());
        if own.is_some_and(|own| own.as_bytes() == key) {
            continue;
        }
        let owner = owners.entry((&out.record.topic, key)).or_insert(out.slot);
        if *owner != out.slot {
            return Some(key.clone());
        }
    }
    None
}

fn stand(
    lane: &LaneName,
    event: &Event,
    judged: Judged<'_>,
    circuits: &mut Circuits,
    mut send: impl FnMut(crate::event::Record),
) -> Standing {
    let deliveries = match judged.verdict {
        Ok(Outcome::Deliver(deliveries)) => deliveries,
        Ok(Outcome::Drop(reason)) => return Standing::Dropped(reason),
        Err(failure) => return Standing::Failed(failure),
    };
    let mut records = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        match routing::complete(delivery, judged.route, judged.stamp.as_ref(), event, lane) {
            Ok(record) => records.push(record),
            Err(failure) => return Standing::Failed(failure),
        }
    }
    // All or none: no destination's trial is used up for an event that waits for another.
    let resting = records.iter().find_map(|record| {
        circuits.resting(&record.topic).map(|rest| (rest, record.topic.clone()))
    });
    if let Some(((after, failure), destination)) = resting {
        return Standing::Resting { after, failure, destination };
    }
    let count = records.len();
    for record in records {
        circuits.goes(&record.topic);
        send(record);
    }
    Standing::Going(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Delivery, KeyChoice};
    use crate::failure::Cause;

    fn event(id: i64, key: &str) -> Event {
        Event {
            aggregate_type: "order".into(),
            aggregate_id: Some(key.into()),
            event_type: "order.created".into(),
            topic: Some("orders".into()),
            payload: Some(Bytes::from_static(b"{}")),
            ..Event::bare(id)
        }
    }

    fn deliver(count: usize) -> Judged<'static> {
        Judged {
            verdict: Ok(Outcome::Deliver(vec![Delivery::default(); count])),
            route: None,
            stamp: None,
        }
    }

    fn fail() -> Judged<'static> {
        Judged { verdict: Err(Failure::new(Cause::PluginRejected, "no")), route: None, stamp: None }
    }

    fn lane() -> LaneName {
        LaneName { source: "s".into(), lane: "default".into() }
    }

    #[test]
    fn nothing_overtakes_a_failed_event_of_its_key() {
        let events = [event(1, "a"), event(2, "a"), event(3, "b"), event(4, "a")];
        let judged = vec![deliver(1), fail(), deliver(2), deliver(1)];
        let plan = plan(&lane(), Ordering::Key, &events, judged, &mut Circuits::default());
        assert_eq!(plan.standings[0], Standing::Going(1));
        assert!(matches!(plan.standings[1], Standing::Failed(_)));
        assert_eq!(plan.standings[2], Standing::Going(2));
        assert_eq!(plan.standings[3], Standing::Behind);
        let sent: Vec<_> = plan.outgoing.iter().map(|out| (out.event, out.slot)).collect();
        assert_eq!(sent, [(0, 0), (2, 2), (2, 2)]);
    }

    #[test]
    fn a_record_key_of_two_ordering_keys_is_noticed() {
        let keyed = || {
            let key = KeyChoice::Bytes(Bytes::from_static(b"c"));
            let delivery = Delivery { key, ..Delivery::default() };
            Judged { verdict: Ok(Outcome::Deliver(vec![delivery])), route: None, stamp: None }
        };
        let shared = |keys: [&str; 2], ordering| {
            let events = [event(1, keys[0]), event(2, keys[1])];
            let judged = vec![keyed(), keyed()];
            plan(&lane(), ordering, &events, judged, &mut Circuits::default()).shared_key
        };
        assert_eq!(shared(["a", "b"], Ordering::Key), Some(Bytes::from_static(b"c")));
        assert_eq!(shared(["a", "a"], Ordering::Key), None);
        assert_eq!(shared(["a", "b"], Ordering::Total), None);
    }

    #[test]
    fn events_without_a_key_do_not_wait_for_each_other() {
        let keyless = |id| Event { aggregate_id: None, ..event(id, "") };
        let events = [keyless(1), keyless(2)];
        let plan = plan(
            &lane(),
            Ordering::Key,
            &events,
            vec![fail(), deliver(1)],
            &mut Circuits::default(),
        );
        assert_eq!(plan.standings[1], Standing::Going(1));
    }

    #[test]
    fn total_order_stops_the_whole_lane_and_no_order_stops_nothing() {
        let events = [event(1, "a"), event(2, "b")];
        let total = plan(
            &lane(),
            Ordering::Total,
            &events,
            vec![fail(), deliver(1)],
            &mut Circuits::default(),
        );
        assert_eq!(total.standings[1], Standing::Behind);
        let events = [event(1, "a"), event(2, "a")];
        let none = plan(
            &lane(),
            Ordering::None,
            &events,
            vec![fail(), deliver(1)],
            &mut Circuits::default(),
        );
        assert_eq!(none.standings[1], Standing::Going(1));
    }

    #[test]
    fn events_for_a_resting_topic_wait_and_one_tries_again_later() {
        let mut circuits = Circuits::default();
        let unknown = Failure::new(Cause::TopicUnknown, "no topic 'orders'");
        let (rest, opened) = circuits.failed("orders", &unknown);
        assert!(opened);
        let (left, again) = circuits.failed("orders", &unknown);
        assert!(left <= rest && !again);
        let events = [event(1, "a"), event(2, "a")];
        let plan =
            plan(&lane(), Ordering::Key, &events, vec![deliver(1), deliver(1)], &mut circuits);
        assert!(matches!(plan.standings[0], Standing::Resting { .. }));
        assert_eq!(plan.standings[1], Standing::Behind);
        assert!(plan.outgoing.is_empty());
        assert!(circuits.worked("orders"));
        assert!(circuits.resting("orders").is_none());
    }
}
