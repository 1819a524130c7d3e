//! From receipts to settlements: what becomes of each event of a batch. Pure.
//!
//! Called by the batch worker after publishing. Published means acknowledged: an event counts as
//! published only when every one of its records is.

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

/// Decides a batch. `receipts` has one entry per record of `outgoing`, whose topics are `topics`.
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
    let mut open = std::collections::HashSet::new();
    let mut received = destinations.iter().zip(receipts).peekable();
    for (index, (event, standing)) in events.iter().zip(standings).enumerate() {
        let mut own = Vec::new();
        while let Some(entry) = received.next_if(|(to, _)| to.event as usize == index) {
            own.push(entry);
        }
        let action = match standing {
            Standing::Behind => Action::Release,
            Standing::Dropped(reason) => Action::Dropped(reason),
            Standing::Resting(after, failure) => Action::Wait { after, failure },
            Standing::Failed(failure) => {
                // A missing plugin or route: the text names it.
                let destination = failure.to_string();
                failed(event, failure, &destination, policy, circuits, &mut outcomes)
            }
            Standing::Going(_) => receive(event, own, policy, circuits, &mut outcomes),
        };
        let key = event.ordering_key();
        let action = in_turn(action, &key, ordering, &mut open, &mut outcomes);
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

/// Nothing is put off behind an event of its key that is not done with: it would be due later than
/// that one, and the events between them and the end of the key's hold would overtake it.
fn in_turn(
    action: Action,
    key: &OrderingKey,
    ordering: Ordering,
    open: &mut std::collections::HashSet<OrderingKey>,
    outcomes: &mut Outcomes,
) -> Action {
    let domain = match ordering {
        Ordering::None => return action,
        Ordering::Key if key.0.is_none() => return action,
        Ordering::Key => key.clone(),
        Ordering::Total => OrderingKey(None),
    };
    let behind = open.contains(&domain);
    match action {
        Action::Published => {
            outcomes.overtaken += u64::from(behind);
            action
        }
        Action::Dropped(_) => action,
        Action::Park(_) if !behind => action,
        Action::Retry { .. } | Action::Wait { .. } | Action::Halt(_) | Action::Release
            if !behind =>
        {
            open.insert(domain);
            action
        }
        // Its turn comes when those before it are done.
        Action::Retry { .. }
        | Action::Wait { .. }
        | Action::Park(_)
        | Action::Halt(_)
        | Action::Release => Action::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;
    use crate::failure::Cause;

    fn event(id: i64, attempts: u32) -> Event {
        Event {
            id: EventId(id),
            shard: 3,
            aggregate_type: String::new(),
            aggregate_id: Some("k".into()),
            event_type: "t".into(),
            partition_key: None,
            topic: None,
            headers: vec![],
            payload: None,
            attempts,
            created_at_ms: 0,
            waited: Duration::ZERO,
            holds_key: false,
            defect: None,
        }
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

    /// An event that is put off behind one that comes back sooner would be overtaken by the next.
    #[test]
    fn nothing_is_put_off_behind_an_event_that_is_not_done_with() {
        let unknown = Failure::new(Cause::TopicUnknown, "no such topic");
        let rejected = Failure::new(Cause::PluginRejected, "never");
        let long = Duration::from_secs(15);
        for later in [
            Standing::Resting(long, unknown.clone()),
            Standing::Failed(rejected.clone()),
            Standing::Failed(Failure::new(Cause::PluginUnavailable, "not loaded")),
        ] {
            for attempts in [0, 9] {
                let outcomes = decided(
                    &[event(1, 0), event(2, attempts)],
                    vec![Standing::Going(1), later.clone()],
                    &[to(0)],
                    vec![Receipt::Refused(unknown.clone())],
                );
                assert!(matches!(outcomes.settlements[0].action, Action::Wait { .. }));
                assert_eq!(outcomes.settlements[1].action, Action::Release, "{later:?}");
            }
        }
        // Once the first is done with, it is the next one's turn.
        let outcomes = decided(
            &[event(1, 0), event(2, 0)],
            vec![Standing::Going(1), Standing::Resting(long, unknown.clone())],
            &[to(0)],
            vec![Receipt::Acknowledged],
        );
        assert_eq!(outcomes.settlements[1].action, Action::Wait { after: long, failure: unknown });
    }
}
