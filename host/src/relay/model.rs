//! Random events, random plugin outcomes and a random broker through the pipeline, against a simple model.
//!
//! The pipeline is the relay's own: rules and plugins decide, the plan keeps keys in order, receipts become
//! settlements. The table, the plugin and the broker are lists of this file. What must hold:
//!
//! - every event ends published, dropped or parked, exactly once;
//! - published means that every record of one attempt was acknowledged, and they are what the model says;
//! - first publications of a key are in the order of ids, but for events that were parked before;
//! - nothing of a key is handed to the broker behind an event of it that does not go.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use proptest::prelude::*;

use super::circuit::Circuits;
use super::outcome::{self, Destination};
use super::plan::plan;
use super::rules::Rules;
use super::verdict;
use crate::event::{Delivery, Event, KeyChoice, LaneName, Ordering, Outcome, PayloadChoice};
use crate::failure::{Cause, Failure, PluginStamp};
use crate::retry::RetryPolicy;
use crate::routing::{Pattern, Route, Routes};
use crate::sink::Receipt;
use crate::store::Action;
use crate::transform::{FixedPlugins, Transform, Transformed};

const MAX_ATTEMPTS: u32 = 3;
/// More rounds than any event can need.
const MAX_ROUNDS: usize = 500;

/// What the plugin does with an event on one attempt.
#[derive(Debug, Clone)]
enum Act {
    Deliver(Vec<(bool, bool)>),
    Drop,
    Fail(Cause),
}

/// What the broker does with a record.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Acknowledge,
    Refuse,
    Lose,
    Stall,
}

#[derive(Debug, Clone)]
struct Case {
    /// Key and event type of each event; the id is the place.
    events: Vec<(Option<u8>, u8)>,
    /// What the plugin does, attempt by attempt; the last one goes on.
    acts: Vec<Vec<Act>>,
    /// What the broker does, record after record; then it acknowledges.
    fates: Vec<Fate>,
    batch: usize,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => prop::collection::vec((any::<bool>(), any::<bool>()), 0..4).prop_map(Act::Deliver),
        1 => Just(Act::Drop),
        1 => prop_oneof![
            Just(Cause::PluginRejected),
            Just(Cause::PluginRetry),
            Just(Cause::PluginTrap),
            Just(Cause::PluginTimeout),
        ].prop_map(Act::Fail),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Acknowledge),
        1 => Just(Fate::Refuse),
        1 => Just(Fate::Lose),
        1 => Just(Fate::Stall),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    (1..30usize, 1..12usize).prop_flat_map(|(count, batch)| {
        (
            prop::collection::vec((prop::option::weighted(0.9, 0..5u8), 0..3u8), count),
            prop::collection::vec(prop::collection::vec(act(), 1..4), count),
            prop::collection::vec(fate(), 0..120),
            Just(batch),
        )
            .prop_map(|(events, acts, fates, batch)| Case { events, acts, fates, batch })
    })
}

/// The plugin: does what the case says.
struct Script(Vec<Vec<Act>>);

#[async_trait]
impl Transform for Script {
    async fn transform(&self, _: &LaneName, events: &[&Event]) -> Transformed {
        let verdicts = events.iter().map(|event| verdict(&self.0, event)).collect();
        Transformed { verdicts, stamp: stamp(), activation: 1 }
    }
}

fn stamp() -> PluginStamp {
    PluginStamp { name: "script".into(), version: "1".into(), hash: "0123456789abcdef".into() }
}

fn act_of<'a>(acts: &'a [Vec<Act>], event: &Event) -> &'a Act {
    let acts = &acts[usize::try_from(event.id.0).expect("a place")];
    &acts[(event.attempts as usize).min(acts.len() - 1)]
}

fn verdict(acts: &[Vec<Act>], event: &Event) -> Result<Outcome, Failure> {
    match act_of(acts, event) {
        Act::Drop => Ok(Outcome::Drop("no".into())),
        Act::Fail(cause) => Err(Failure::new(*cause, "no")),
        Act::Deliver(list) => {
            let deliveries = list.iter().map(|(own_topic, own_payload)| Delivery {
                topic: own_topic.then(|| "own".to_owned()),
                key: if *own_topic { KeyChoice::Null } else { KeyChoice::Default },
                payload: match own_payload {
                    true => PayloadChoice::Bytes(Bytes::from_static(b"own")),
                    false => PayloadChoice::Unchanged,
                },
                ..Delivery::default()
            });
            Ok(Outcome::Deliver(deliveries.collect()))
        }
    }
}

fn rules(case: &Case) -> Rules {
    let route = |pattern: &str, plugin: Option<&str>| Route {
        patterns: vec![Pattern::new(pattern)],
        blocked: None,
        plugin: plugin.map(str::to_owned),
        ..Route::blocking(pattern.to_owned(), String::new())
    };
    // Types 0 and 1 go to the plugin, type 2 by the row.
    let routes = vec![route("t0", Some("script")), route("t1", Some("script")), route("*", None)];
    let plugin: Arc<dyn Transform> = Arc::new(Script(case.acts.clone()));
    let plugins = Arc::new(FixedPlugins { plugin: Some(plugin), ..FixedPlugins::default() });
    Rules { routes: Routes::new(routes), plugins, troubles: vec![], notes: vec![] }
}

fn table(case: &Case) -> Vec<Event> {
    let events = case.events.iter().enumerate().map(|(id, (key, kind))| Event {
        aggregate_type: "thing".into(),
        aggregate_id: key.map(|key| key.to_string()),
        event_type: format!("t{kind}"),
        topic: Some("row".into()),
        payload: Some(Bytes::from_static(b"row")),
        ..Event::bare(i64::try_from(id).expect("few"))
    });
    events.collect()
}

/// What the model expects of an event's records: topic, whether keyed, payload.
fn expected(case: &Case, event: &Event) -> Vec<(&'static str, bool, &'static [u8])> {
    let keyed = event.aggregate_id.is_some();
    if event.event_type == "t2" {
        return vec![("row", keyed, b"row")];
    }
    let Act::Deliver(list) = act_of(&case.acts, event) else { return Vec::new() };
    let record = |(own_topic, own_payload): &(bool, bool)| {
        let payload: &[u8] = if *own_payload { b"own" } else { b"row" };
        if *own_topic { ("own", false, payload) } else { ("row", keyed, payload) }
    };
    list.iter().map(record).collect()
}

/// Ends of events, in the order in which they came.
#[derive(Default)]
struct Ends {
    published: Vec<i64>,
    /// Published with nothing to publish.
    silent: BTreeSet<i64>,
    dropped: BTreeSet<i64>,
    parked: BTreeSet<i64>,
}

fn run(case: &Case) -> Result<(), TestCaseError> {
    let lane = LaneName { source: "s".into(), lane: "default".into() };
    let rules = rules(case);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let policy = RetryPolicy { max_attempts: MAX_ATTEMPTS, ..RetryPolicy::default() };
    let mut table: BTreeMap<i64, Event> =
        table(case).into_iter().map(|event| (event.id.0, event)).collect();
    let mut fates = case.fates.iter().copied();
    let mut ends = Ends::default();
    for round in 0.. {
        if table.is_empty() {
            break;
        }
        prop_assert!(round < MAX_ROUNDS, "stuck with {table:?}");
        let events: Vec<Event> = table.values().take(case.batch).cloned().collect();
        let mut circuits = Circuits::default();
        let judged = runtime.block_on(verdict::judge(&lane, &events, &rules, None));
        let plan = plan(&lane, Ordering::Key, &events, judged, &mut circuits);
        check_plan(case, &events, &plan.outgoing)?;
        let destinations: Vec<Destination> = plan.outgoing.iter().map(Destination::from).collect();
        let receipts = broker(&plan.outgoing, &mut fates);
        let acknowledged: HashMap<u32, bool> =
            plan.outgoing.iter().zip(&receipts).fold(HashMap::new(), |mut all, (out, receipt)| {
                *all.entry(out.event).or_insert(true) &= matches!(receipt, Receipt::Acknowledged);
                all
            });
        let outcomes = outcome::decide(
            &events,
            Ordering::Key,
            plan.standings,
            &destinations,
            receipts,
            &policy,
            &mut circuits,
        );
        prop_assert_eq!(outcomes.settlements.len(), events.len());
        for ((index, event), settled) in (0u32..).zip(&events).zip(outcomes.settlements) {
            prop_assert_eq!(event.id, settled.id);
            settle(case, &mut table, &mut ends, event, &settled.action, acknowledged.get(&index))?;
        }
    }
    check_ends(case, &ends)
}

/// Hands records over as a sink does: in order within a slot, nothing behind what did not arrive.
fn broker(
    outgoing: &[crate::sink::Outgoing],
    fates: &mut impl Iterator<Item = Fate>,
) -> Vec<Receipt> {
    let mut closed = BTreeSet::new();
    let mut receive = |out: &crate::sink::Outgoing| {
        if closed.contains(&out.slot) {
            return Receipt::Unsent;
        }
        let receipt = match fates.next().unwrap_or(Fate::Acknowledge) {
            Fate::Acknowledge => return Receipt::Acknowledged,
            Fate::Refuse => Receipt::Refused(Failure::new(Cause::RecordRefused, "no")),
            Fate::Lose => Receipt::Unknown(Failure::new(Cause::PublishTimeout, "late")),
            Fate::Stall => Receipt::Unsent,
        };
        closed.insert(out.slot);
        receipt
    };
    outgoing.iter().map(&mut receive).collect()
}

/// What is handed to the broker is what the model expects, and nothing behind an event that does not go.
fn check_plan(
    case: &Case,
    events: &[Event],
    outgoing: &[crate::sink::Outgoing],
) -> Result<(), TestCaseError> {
    let mut stopped = BTreeSet::new();
    for (index, event) in (0u32..).zip(events) {
        let records: Vec<_> = outgoing.iter().filter(|out| out.event == index).collect();
        let fails = event.event_type != "t2" && matches!(act_of(&case.acts, event), Act::Fail(_));
        let behind = event.aggregate_id.as_ref().is_some_and(|key| stopped.contains(key));
        let wanted = if fails || behind { Vec::new() } else { expected(case, event) };
        let found: Vec<_> = records
            .iter()
            .map(|out| {
                let record = &out.record;
                (
                    record.topic.as_str(),
                    record.key.is_some(),
                    record.payload.as_deref().unwrap_or_default(),
                )
            })
            .collect();
        prop_assert_eq!(found, wanted);
        let by_plugin = event.event_type != "t2";
        for out in records {
            let stamped = out.record.headers.iter().any(|header| header.name == "X-Haulier-Plugin");
            prop_assert_eq!(stamped, by_plugin);
        }
        if fails && let Some(key) = &event.aggregate_id {
            stopped.insert(key.clone());
        }
    }
    Ok(())
}

fn settle(
    case: &Case,
    table: &mut BTreeMap<i64, Event>,
    ends: &mut Ends,
    event: &Event,
    action: &Action,
    acknowledged: Option<&bool>,
) -> Result<(), TestCaseError> {
    let id = event.id.0;
    match action {
        Action::Published => {
            let records = expected(case, event).len();
            prop_assert_eq!(acknowledged.copied().unwrap_or(true), true);
            prop_assert_eq!(acknowledged.is_some(), records > 0);
            ends.published.push(id);
            if records == 0 {
                ends.silent.insert(id);
            }
            table.remove(&id);
        }
        Action::Dropped(_) => {
            prop_assert!(matches!(act_of(&case.acts, event), Act::Drop));
            ends.dropped.insert(id);
            table.remove(&id);
        }
        Action::Park(_) => {
            prop_assert_eq!(event.attempts + 1, MAX_ATTEMPTS);
            ends.parked.insert(id);
            table.remove(&id);
        }
        Action::Retry { .. } => {
            prop_assert!(event.attempts + 1 < MAX_ATTEMPTS);
            table.entry(id).and_modify(|event| event.attempts += 1);
        }
        Action::Release => {}
        Action::Wait { .. } | Action::Halt(_) => {
            return Err(TestCaseError::fail(format!("nothing asked for {action:?}")));
        }
    }
    Ok(())
}

fn check_ends(case: &Case, ends: &Ends) -> Result<(), TestCaseError> {
    let published: BTreeSet<i64> = ends.published.iter().copied().collect();
    prop_assert_eq!(published.len(), ends.published.len(), "published twice");
    prop_assert_eq!(published.len() + ends.dropped.len() + ends.parked.len(), case.events.len());
    let mut last: BTreeMap<u8, i64> = BTreeMap::new();
    for id in &ends.published {
        let place = usize::try_from(*id).expect("a place");
        // What publishes nothing has no place in the order.
        if let Some(key) = case.events[place].0
            && !ends.silent.contains(id)
        {
            let before = last.insert(key, *id);
            prop_assert!(
                before.is_none_or(|before| before < *id),
                "key {key}: {id} after {before:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pipeline_does_what_the_model_says(case in case()) {
        run(&case)?;
    }
}
