//! How a source stands: heartbeats, leases, lanes that have rows, halted keys.

use std::time::Duration;

use haulier::event::Ordering;
use haulier::store::{
    Action, Expiry, Heartbeat, LeaseStanding, Life, MOST_HALTED_NAMED, Outbox, Part,
};
use haulier_tests::process::eventually;

use crate::harness::{
    AN_INSTANT, BY_KEY, BY_ROW, Harness, NewEvent, USUAL, Wish, claim, failure, lane, of_key,
    publish, settle,
};

fn beat<'a>(instance: &'a str, report: &'a str) -> Heartbeat<'a> {
    Heartbeat {
        source: "orders",
        instance,
        running_for: Duration::from_secs(90),
        life: Life::Running,
        report,
    }
}

fn of_lane(lane: &'static str, key: &str) -> NewEvent {
    NewEvent { lane, ..of_key(key) }
}

async fn names(outbox: &dyn Outbox) -> Vec<String> {
    let seen = outbox.instances().await.expect("looks");
    seen.into_iter().map(|one| one.instance).collect()
}

pub(crate) async fn instances_are_remembered_for_a_day<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    assert!(names(&*outbox).await.is_empty());
    for instance in ["a", "b", "c"] {
        outbox.heartbeat(&beat(instance, "{}")).await.expect("notes");
    }
    harness.age_instance("a", 20.0).await;
    harness.age_instance("b", 86_300.0).await;
    harness.age_instance("c", 86_500.0).await;
    outbox.heartbeat(&Heartbeat { life: Life::Stopped, ..beat("d", "{}") }).await.expect("notes");
    assert_eq!(
        names(&*outbox).await,
        ["d", "a", "b"],
        "c is forgotten; the last heard of is first"
    );
    let seen = outbox.instances().await.expect("looks");
    assert!(seen[1].seen_ago >= Duration::from_secs(20) && seen[1].stopped_ago.is_none());
    assert!(seen[0].started_ago >= Duration::from_secs(90));
    assert!(seen[0].stopped_ago.is_some(), "it has stopped");
    // One that starts again under its name runs again.
    let again = Heartbeat { running_for: Duration::from_secs(1), ..beat("d", "{}") };
    outbox.heartbeat(&again).await.expect("notes");
    let seen = outbox.instances().await.expect("looks");
    assert_eq!((seen[0].instance.as_str(), seen[0].stopped_ago), ("d", None));
    assert!(seen[0].started_ago < Duration::from_secs(90));
}

pub(crate) async fn a_report_is_kept_as_it_is<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    let long = format!("{{\"version\":9,\"x\":\"'\u{1f600}{}\"}}", "y".repeat(20_000));
    for report in ["", "no json", &long] {
        outbox.heartbeat(&beat("one", report)).await.expect("notes");
        assert_eq!(outbox.instances().await.expect("looks")[0].report, report);
    }
}

pub(crate) async fn lanes_with_rows_are_found_whoever_knows_them<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    let found = async || {
        let mut lanes: Vec<(String, Ordering)> = outbox
            .lanes_with_rows()
            .await
            .expect("looks")
            .into_iter()
            .map(|found| (found.lane.to_string(), found.ordering))
            .collect();
        lanes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        lanes
    };
    assert_eq!(found().await, []);
    harness
        .insert(&[
            of_lane("waiting", "k"),
            of_lane("waiting", "l"),
            NewEvent { due_in: 3600.0, ..of_lane("Later", "k") },
            of_lane("parked", "k"),
            of_lane("claimed", "k"),
            of_lane("", "k"),
            of_key("published"),
        ])
        .await;
    let parked = claim(&*outbox, Wish { lane: "parked", ..BY_KEY }).await.expect("work");
    settle_in(&*outbox, "parked", &parked, &Action::Park(failure())).await;
    let done = claim(&*outbox, BY_KEY).await.expect("work");
    publish(&*outbox, &done).await;
    claim(&*outbox, Wish { lane: "claimed", ..BY_ROW }).await.expect("work");
    let expected = [
        ("", Ordering::Key),
        ("Later", Ordering::Key),
        ("claimed", Ordering::None),
        ("parked", Ordering::Key),
        ("waiting", Ordering::Key),
    ];
    assert_eq!(found().await, expected.map(|(name, ordering)| (name.to_owned(), ordering)));
}

async fn settle_in(
    outbox: &dyn Outbox,
    name: &str,
    batch: &haulier::store::Batch,
    action: &Action,
) {
    let settlements: Vec<haulier::store::Settlement> = batch
        .events
        .iter()
        .map(|event| haulier::store::Settlement {
            id: event.id,
            shard: event.shard,
            key: event.ordering_key(),
            holds_key: event.holds_key,
            action: action.clone(),
        })
        .collect();
    outbox.settle(&lane(name), &batch.claim(), &settlements).await.expect("settles");
}

pub(crate) async fn a_lane_nobody_opened_is_counted_like_any_other<H: Harness>() {
    let harness = H::make(USUAL).await;
    harness
        .insert(&[
            of_lane("forgotten", "a"),
            of_lane("forgotten", "b"),
            NewEvent { due_in: 3600.0, ..of_lane("forgotten", "c") },
        ])
        .await;
    let stats = harness.store().stats(&lane("forgotten"), Ordering::Key).await.expect("stats");
    assert_eq!((stats.pending, stats.processing), (3, 0));
    assert!(stats.oldest_due.is_some());
}

async fn leases(outbox: &dyn Outbox) -> Vec<LeaseStanding> {
    outbox.leases().await.expect("looks")
}

pub(crate) async fn leases_are_listed_until_they_are_given_back<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    harness.insert(&[of_key("a"), of_key("a"), of_lane("whole", "a")]).await;
    let batch = claim(&*outbox, BY_KEY).await.expect("work");
    let whole = Wish { lane: "whole", ordering: Ordering::Total, lease: AN_INSTANT, ..BY_KEY };
    claim(&*outbox, whole).await.expect("work");
    let mut listed = Vec::new();
    let expired = eventually(Duration::from_secs(30), async || {
        listed = leases(&*outbox).await;
        matches!(listed[..], [_, LeaseStanding { expiry: Expiry::Ago(_), .. }])
    })
    .await;
    assert!(expired, "{listed:?}");
    let [by_key, whole] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&*by_key.lane, by_key.part), ("default", Part::Shard(batch.shards[0])));
    assert_eq!((by_key.owner.as_str(), by_key.events), ("test", 2));
    assert!(
        matches!(by_key.expiry, Expiry::In(left) if left > Duration::ZERO && left <= BY_KEY.lease)
    );
    assert_eq!((&*whole.lane, whole.part, whole.events), ("whole", Part::Lane, 1));
    publish(&*outbox, &batch).await;
    assert_eq!(leases(&*outbox).await.len(), 1);
}

pub(crate) async fn row_claims_are_listed_by_batch<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    harness.insert(&[of_key("a"), of_key("b"), of_key("c")]).await;
    let first = claim(&*outbox, Wish { rows: 2, ..BY_ROW }).await.expect("work");
    let second = claim(&*outbox, BY_ROW).await.expect("work");
    let mut events: Vec<u64> = leases(&*outbox)
        .await
        .iter()
        .filter(|one| one.part == Part::Rows)
        .map(|one| one.events)
        .collect();
    events.sort_unstable();
    assert_eq!(events, [1, 2]);
    publish(&*outbox, &first).await;
    publish(&*outbox, &second).await;
    assert_eq!(leases(&*outbox).await, []);
}

pub(crate) async fn halted_keys_are_told_with_their_events<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    let halted = async || outbox.halted_keys(&lane("default")).await.expect("looks");
    assert_eq!(halted().await.keys, 0);
    let keys: Vec<NewEvent> = (0..8).map(|n| of_key(&format!("k-{n}"))).collect();
    let inserted = harness.insert(&keys).await;
    let batch = claim(&*outbox, BY_KEY).await.expect("work");
    settle(&*outbox, &batch, |event| {
        // One is in back-off, which ends by itself.
        if event.id.0 == inserted[0] {
            Action::Retry { after: Duration::from_secs(3600), failure: failure() }
        } else {
            Action::Halt(failure())
        }
    })
    .await;
    let told = halted().await;
    assert_eq!(told.keys, 7);
    let events: Vec<i64> = told.events.iter().map(|id| id.0).collect();
    assert_eq!(events, inserted[1..=MOST_HALTED_NAMED]);
    let stats = outbox.stats(&lane("default"), Ordering::Key).await.expect("stats");
    assert_eq!(stats.held_keys, 8);
}

pub(crate) async fn pending_rows_can_be_looked_at_without_claiming_them<H: Harness>() {
    let harness = H::make(USUAL).await;
    let outbox = harness.outbox();
    let later = NewEvent { due_in: 3600.0, ..of_key("b") };
    let ids = harness.insert(&[of_key("a"), later, of_lane("other", "c"), of_key("d")]).await;
    let peeked = async |limit| -> Vec<i64> {
        let events = outbox.peek(&lane("default"), limit).await.expect("looks");
        events.iter().map(|event| event.id.0).collect()
    };
    assert_eq!(peeked(10).await, [ids[0], ids[1], ids[3]], "due or not, in the order of ids");
    assert_eq!(peeked(2).await, ids[..2]);
    let events = outbox.peek(&lane("default"), 1).await.expect("looks");
    assert_eq!(events[0].payload.as_deref(), Some(&b"{}"[..]));
    assert_eq!(events[0].aggregate_id.as_deref(), Some("a"));
    // Nothing was claimed by that, and what is claimed can be looked at.
    let store = harness.store();
    store.open_lane(&lane("default"), Ordering::Key).await.expect("opens");
    let claimed = claim(&*store, BY_KEY).await.expect("there is work");
    assert_eq!(claimed.events.len(), 2);
    assert_eq!(peeked(10).await.len(), 3);
}
