//! From receipts to settlements: what becomes of each event of a batch. Pure.
//!
//! Called by the batch worker after publishing. Published means acknowledged: an event counts as
//! published only when every one of its records is.

use std::collections::HashSet;
use std::time::Duration;

use crate::event::{Event, Ordering, OrderingKey};
use crate::failure::{Failure, FailureKind};
use crate::retry::{NextStep, RetryPolicy};
use crate::sink::{Outgoing, Receipt};
use crate::store::{Action, Settlement};

use super::circuit::Circuits;
use super::plan::Standing;

/// An event never comes back at once from waiting for a destination.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// What a batch came to.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// One settlement per event.
    pub(super) settlements: Vec<Settlement>,
    /// The first infrastructure failure, if there was one: the lane has to pause.
    pub(super) trouble: Option<Failure>,
    /// Records acknowledged.
    pub(super) acknowledged: u64,
    /// Circuits that opened, with how long they rest.
    pub(super) opened: Vec<(Failure, Duration)>,
    /// Topics that work again.
    pub(super) closed: Vec<String>,
    /// Events acknowledged although an earlier one of their key was not: it cannot be undone.
    pub(super) overtaken: u64,
}

/// Decides a batch. Behind an event that is put off, all that was not published goes back as it is: with a time
/// of its own it could be due later than what comes after it, which only the first of a key holds back.
/// `receipts` has one entry per record of `outgoing`, whose topics are `topics`.
pub(super) fn decide(
    events: &[Event],
    ordering: Ordering,
    standings: Vec<Standing>,
    destinations: &[Destination],
    receipts: Vec<Receipt>,
    policy: &RetryPolicy,
    circuits: &mut Circuits,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut open = HashSet::new();
    let mut received = destinations.iter().zip(receipts).peekable();
    for (index, (event, standing)) in events.iter().zip(standings).enumerate() {
        let mut own = Vec::new();
        while let Some(entry) = received.next_if(|(to, _)| to.event as usize == index) {
            own.push(entry);
        }
        let key = event.ordering_key();
        let order = order(ordering, &key);
        let behind = order.as_ref().is_some_and(|order| open.contains(order));
        let action = match standing {
            Standing::Behind => Action::Release,
            Standing::Dropped(reason) => Action::Dropped(reason),
            Standing::Resting { .. } | Standing::Failed(_) if behind => Action::Release,
            // Its trial, an event before this one, has gone through.
            Standing::Resting { destination, .. } if circuits.resting(&destination).is_none() => {
                Action::Release
            }
            Standing::Resting { after, failure, .. } => Action::Wait { after, failure },
            Standing::Failed(failure) => {
                // A missing plugin or route: the text names it.
                let destination = failure.to_string();
                failed(event, failure, &destination, policy, circuits, &mut outcomes)
            }
            Standing::Going(_) => match receive(event, own, policy, circuits, &mut outcomes) {
                Action::Published => Action::Published,
                _ if behind => Action::Release,
                action => action,
            },
        };
        let action = match action {
            // Without a key there is nothing to halt, and nobody would see that it waits.
            Action::Halt(failure) if order.is_none() => Action::Park(failure),
            action => action,
        };
        if let Some(order) = order {
            note_order(&action, order, &mut open, &mut outcomes);
        }
        outcomes.settlements.push(Settlement {
            id: event.id,
            shard: event.shard,
            key,
            holds_key: event.holds_key,
            action,
        });
    }
    outcomes
}

/// Where a record went, kept while the record itself is with the sink.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) event: u32,
    pub(super) topic: String,
}

impl From<&Outgoing> for Destination {
    fn from(outgoing: &Outgoing) -> Self {
        Self { event: outgoing.event, topic: outgoing.record.topic.clone() }
    }
}

fn receive(
    event: &Event,
    own: Vec<(&Destination, Receipt)>,
    policy: &RetryPolicy,
    circuits: &mut Circuits,
    outcomes: &mut Outcomes,
) -> Action {
    let mut refused = None;
    let mut undecided = false;
    for (to, receipt) in own {
        match receipt {
            Receipt::Acknowledged => {
                outcomes.acknowledged += 1;
                if circuits.worked(&to.topic) {
                    outcomes.closed.push(to.topic.clone());
                }
            }
            Receipt::Refused(failure) => {
                refused.get_or_insert((failure, to.topic.as_str()));
            }
            Receipt::Unknown(failure) => {
                undecided = true;
                outcomes.trouble.get_or_insert(failure);
            }
            Receipt::Unsent => undecided = true,
        }
    }
    match refused {
        Some((failure, topic)) => failed(event, failure, topic, policy, circuits, outcomes),
        None if undecided => Action::Release,
        None => Action::Published,
    }
}

/// The one place where a failure's kind becomes what happens next.
fn failed(
    event: &Event,
    failure: Failure,
    destination: &str,
    policy: &RetryPolicy,
    circuits: &mut Circuits,
    outcomes: &mut Outcomes,
) -> Action {
    match failure.kind() {
        FailureKind::Event => match policy.next(event.attempts) {
            NextStep::Again(after) => Action::Retry { after, failure },
            NextStep::Park => Action::Park(failure),
            NextStep::HaltKey => Action::Halt(failure),
        },
        FailureKind::Destination => {
            let (rest, opened) = circuits.failed(destination, &failure);
            if opened {
                outcomes.opened.push((failure.clone(), rest));
            }
            Action::Wait { after: rest.max(SHORTEST_WAIT), failure }
        }
        FailureKind::Infrastructure => {
            outcomes.trouble.get_or_insert(failure);
            Action::Release
        }
    }
}

/// The order that an event stands in, if it stands in one.
fn order(ordering: Ordering, key: &OrderingKey) -> Option<OrderingKey> {
    match ordering {
        Ordering::Key => key.0.is_some().then(|| key.clone()),
        // The one order of the lane.
        Ordering::Total => Some(OrderingKey(None)),
        Ordering::None => None,
    }
}

fn note_order(
    action: &Action,
    order: OrderingKey,
    open: &mut HashSet<OrderingKey>,
    outcomes: &mut Outcomes,
) {
    match action {
        Action::Published => outcomes.overtaken += u64::from(open.contains(&order)),
        Action::Dropped(_) | Action::Park(_) => {}
        Action::Retry { .. } | Action::Wait { .. } | Action::Halt(_) | Action::Release => {
            open.insert(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Cause;

    fn event(id: i64, attempts: u32) -> Event {
        Event { shard: 3, aggregate_id: Some("k".into()), attempts, ..Event::bare(id) }
    }

    fn to(event: u32) -> Destination {
        Destination { event, topic: "t".into() }
    }

    fn decided(
        events: &[Event],
        standings: Vec<Standing>,
        to: &[Destination],
        receipts: Vec<Receipt>,
    ) -> Outcomes {
        let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
        decide(events, Ordering::Key, standings, to, receipts, &policy, &mut Circuits::default())
    }

    #[test]
    fn an_event_is_published_only_when_all_its_records_are() {
        let events = [event(1, 0), event(2, 0)];
        let unknown = Receipt::Unknown(Failure::new(Cause::PublishTimeout, "late"));
        let outcomes = decided(
            &events,
            vec![Standing::Going(2), Standing::Going(2)],
            &[to(0), to(0), to(1), to(1)],
            vec![Receipt::Acknowledged, Receipt::Acknowledged, Receipt::Acknowledged, unknown],
        );
        assert_eq!(outcomes.settlements[0].action, Action::Published);
        assert_eq!(outcomes.settlements[1].action, Action::Release);
        assert_eq!(outcomes.acknowledged, 3);
        assert_eq!(outcomes.trouble.unwrap().cause, Cause::PublishTimeout);
    }

    #[test]
    fn attempts_are_used_by_the_event_s_own_failures_only() {
        let broker = Failure::new(Cause::BrokerUnavailable, "down");
        let outcomes = decided(
            &[event(1, 9)],
            vec![Standing::Going(1)],
            &[to(0)],
            vec![Receipt::Unknown(broker)],
        );
        assert_eq!(outcomes.settlements[0].action, Action::Release);
        let topic = Failure::new(Cause::TopicUnknown, "no such topic");
        let outcomes = decided(
            &[event(1, 9)],
            vec![Standing::Going(1)],
            &[to(0)],
            vec![Receipt::Refused(topic)],
        );
        assert!(matches!(outcomes.settlements[0].action, Action::Wait { .. }));
        assert!(outcomes.trouble.is_none());
        let large = Failure::new(Cause::RecordTooLarge, "too large");
        let outcomes = decided(
            &[event(1, 2)],
            vec![Standing::Going(1)],
            &[to(0)],
            vec![Receipt::Refused(large.clone())],
        );
        assert_eq!(outcomes.settlements[0].action, Action::Park(large));
    }

    #[test]
    fn an_event_without_records_is_published() {
        let outcomes = decided(&[event(1, 0)], vec![Standing::Going(0)], &[], vec![]);
        assert_eq!(outcomes.settlements[0].action, Action::Published);
    }

    #[test]
    fn behind_an_event_that_is_put_off_none_is_put_off_further() {
        let failure = || Failure::new(Cause::TopicUnknown, "no such topic");
        let rejected = || Standing::Failed(Failure::new(Cause::PluginRejected, "no"));
        let resting = || Standing::Resting {
            after: Duration::from_secs(60),
            failure: failure(),
            destination: "t".into(),
        };
        for (ordering, key) in [(Ordering::Key, "k"), (Ordering::Total, "other")] {
            let last = Event { aggregate_id: Some(key.into()), ..event(3, 0) };
            let outcomes = decide(
                &[event(1, 0), event(2, 0), last],
                ordering,
                vec![Standing::Going(1), resting(), rejected()],
                &[to(0)],
                vec![Receipt::Refused(failure())],
                &RetryPolicy::default(),
                &mut Circuits::default(),
            );
            let actions: Vec<_> = outcomes.settlements.into_iter().map(|one| one.action).collect();
            assert!(matches!(actions[0], Action::Wait { .. }));
            // The first holds the key for its own time, and a later one must be due with it.
            assert_eq!(actions[1..], [Action::Release, Action::Release]);
        }
    }

    #[test]
    fn what_waited_for_a_trial_that_went_through_is_due_at_once() {
        let failure = Failure::new(Cause::TopicUnknown, "no such topic");
        let resting = || Standing::Resting {
            after: Duration::from_secs(15),
            failure: failure.clone(),
            destination: "t".into(),
        };
        let other = Event { aggregate_id: Some("other".into()), ..event(2, 0) };
        for (receipt, released) in
            [(Receipt::Acknowledged, true), (Receipt::Refused(failure.clone()), false)]
        {
            let mut circuits = Circuits::default();
            circuits.failed("t", &failure);
            circuits.goes("t");
            let outcomes = decide(
                &[event(1, 0), other.clone()],
                Ordering::Key,
                vec![Standing::Going(1), resting()],
                &[to(0)],
                vec![receipt],
                &RetryPolicy::default(),
                &mut circuits,
            );
            let action = &outcomes.settlements[1].action;
            assert_eq!(*action == Action::Release, released, "{action:?}");
        }
    }

    #[test]
    fn an_acknowledgement_behind_an_undecided_event_is_noticed() {
        let unknown = Receipt::Unknown(Failure::new(Cause::PublishTimeout, "late"));
        let outcomes = decided(
            &[event(1, 0), event(2, 0)],
            vec![Standing::Going(1), Standing::Going(1)],
            &[to(0), to(1)],
            vec![unknown, Receipt::Acknowledged],
        );
        assert_eq!(outcomes.overtaken, 1);
        assert_eq!(outcomes.settlements[1].action, Action::Published);
    }
}
