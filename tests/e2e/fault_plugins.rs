//! What arrives when plugins say "later" or "drop", and when one of several deliveries is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haulier_tests::database::unique;
use haulier_tests::kafka::{self, Received};
use haulier_tests::process::Setup;

use crate::scenario::{Scenario, turn};

/// All events go through the misbehaving guest.
fn misbehaving(scenario: &Scenario, lane: &str) -> Setup {
    let mut setup = scenario.setup(lane).guest("misbehave");
    let topic = &scenario.topic;
    setup.config +=
        &format!("[[routes]]\nevent_type = \"*\"\nplugin = \"misbehave\"\ntopic = \"{topic}\"\n");
    setup
}

async fn insert(scenario: &Scenario, event_type: &str, key: &str, payload: &str) -> i64 {
    sqlx::query_scalar(
        "INSERT INTO outbox (event_type, aggregate_id, payload) VALUES ($1, $2, $3::json) RETURNING id",
    )
    .bind(event_type)
    .bind(key)
    .bind(payload)
    .fetch_one(&scenario.database.pool)
    .await
    .expect("inserts")
}

fn ids(received: &[Received]) -> Vec<i64> {
    received.iter().map(Received::id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_holds_its_key_until_it_is_parked_and_drop_is_no_failure() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let patient = "first_backoff = \"200ms\"\nmax_backoff = \"1s\"\nmax_attempts";
    let setup = misbehaving(&scenario, &format!("{patient} = 1000"));
    setup.migrate();
    // A version that has had a success has no free tries left: from here on attempts count.
    let first = insert(&scenario, "test.pass", "first", "{}").await;
    let mut instance = setup.start();
    scenario.drained().await;
    let later = insert(&scenario, "test.retry", "a", "{}").await;
    let behind = [
        insert(&scenario, "test.pass", "a", "{}").await,
        insert(&scenario, "test.pass", "a", "{}").await,
    ];
    let dropped = insert(&scenario, "test.drop", "b", "{}").await;
    let others = [
        insert(&scenario, "test.pass", "b", "{}").await,
        insert(&scenario, "test.pass", "c", "{}").await,
    ];
    // It is tried again and again: events of other keys flow, and those of its own key wait.
    instance.reaches("haulier_events_retried_total", 3.0).await;
    let left = "SELECT count(*) FROM outbox";
    scenario.database.until(left, 3).await;
    assert_eq!(instance.metric("haulier_events_dropped_total").await, Some(1.0));
    let arrived: BTreeSet<i64> =
        ids(&kafka::read_count(&scenario.topic, 3).await).into_iter().collect();
    assert_eq!(arrived, BTreeSet::from([first, others[0], others[1]]));
    instance.terminate().await;
    // With fewer attempts it is parked, and its key goes on. The new process has to see the version
    // work before it counts attempts against it.
    let last = insert(&scenario, "test.pass", "last", "{}").await;
    let instance = misbehaving(&scenario, &format!("{patient} = 3")).start();
    scenario.database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    let mut arrived = ids(&kafka::read_count(&scenario.topic, 6).await);
    arrived.sort_unstable();
    let expected = [first, behind[0], behind[1], others[0], others[1], last];
    assert_eq!(arrived, expected, "each once, without {later} and {dropped}\n{}", instance.log());
    let parked = format!(
        "SELECT count(*) FROM outbox WHERE id = {later} AND failure_kind = 'plugin_retry' \
         AND attempts > 3 AND last_error LIKE '%later%'"
    );
    assert_eq!(scenario.database.number(parked).await, 1);
}

/// How often each event arrived in a topic.
async fn counted(topic: &str) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for id in ids(&kafka::read(topic, Duration::from_secs(2), |_| false).await) {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_of_a_fan_out_repeats_until_all_of_it_is_taken_or_it_is_parked() {
    const ATTEMPTS: usize = 3;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup =
        misbehaving(&scenario, &format!("max_attempts = {ATTEMPTS}\nfirst_backoff = \"100ms\""));
    setup.migrate();
    let (one, two) = (kafka::topic(3, &[]).await, kafka::topic(3, &[]).await);
    let small = kafka::topic(3, &[("max.message.bytes", "2000")]).await;
    let missing = unique("missing");
    let _instance = setup.start();
    let names = |third: &str, filler: usize| {
        serde_json::json!({"topics": [one, two, third], "filler": random_text(filler)}).to_string()
    };
    let parked = insert(&scenario, "test.each-topic", "p", &names(&small, 4000)).await;
    let after_parked = insert(&scenario, "test.each-topic", "p", &names(&small, 10)).await;
    let waits = insert(&scenario, "test.each-topic", "w", &names(&missing, 10)).await;
    let after_waits = insert(&scenario, "test.each-topic", "w", &names(&small, 10)).await;
    let open = "SELECT count(*) FROM outbox WHERE status <> 'FAILED'";
    scenario.database.until(open, 2).await;
    scenario
        .database
        .until(
            "SELECT count(*) FROM outbox WHERE failure_kind = 'topic_unknown' AND attempts = 0",
            1,
        )
        .await;
    assert!(!counted(&one).await.contains_key(&after_waits), "later events of its key wait");
    kafka::create(&missing, 3, &[]).await;
    scenario.database.until(open, 0).await;
    // One of three was refused by the broker for good: what it had acknowledged came with each
    // attempt, and the third never.
    for topic in [&one, &two] {
        let counts = counted(topic).await;
        assert!(counts[&parked] >= ATTEMPTS, "{counts:?}");
        assert!(counts[&waits] >= 1, "{counts:?}");
        assert!(counts[&after_parked] >= 1 && counts[&after_waits] >= 1, "{counts:?}");
        let arrived = ids(&kafka::read(topic, Duration::from_secs(1), |_| false).await);
        let first = |id| arrived.iter().position(|one| *one == id);
        let last = |id| arrived.iter().rposition(|one| *one == id);
        // Keys are in one partition each, so offsets tell: not one overtook.
        assert!(last(parked) < first(after_parked), "{arrived:?}");
        assert!(last(waits) < first(after_waits), "{arrived:?}");
    }
    let third = counted(&small).await;
    assert_eq!(third.get(&parked), None, "it never fitted");
    assert_eq!(third[&after_parked], 1);
    assert_eq!(counted(&missing).await, BTreeMap::from([(waits, 1)]));
    let set_aside = format!(
        "SELECT count(*) FROM outbox WHERE id = {parked} AND failure_kind = 'record_too_large' \
         AND attempts = {ATTEMPTS}"
    );
    assert_eq!(scenario.database.number(set_aside).await, 1);
}

/// A text that compression does not make short.
fn random_text(length: usize) -> String {
    use rand::Rng as _;
    rand::rng().sample_iter(rand::distr::Alphanumeric).take(length).map(char::from).collect()
}
