//! A topic that is missing among others, and a record that is larger than its topic takes.

use std::time::Duration;

use haulier_tests::database::unique;
use haulier_tests::history::{self, Findings};
use haulier_tests::kafka::{self, Received};
use haulier_tests::ledger;
use haulier_tests::process::{Haulier, Setup};
use haulier_tests::workload::Workload;

use crate::scenario::{Scenario, turn};

/// How long a rate is looked at.
const WINDOW: Duration = Duration::from_secs(6);
/// Events a second offered for the topic that is there.
const OFFERED: usize = 500;

/// Writes a steady stream for the window, and tells which part of it has been published at its end.
/// A part, because a busy machine may offer a little less in one window than in another.
async fn published_within_the_window(scenario: &Scenario, first: usize) -> f64 {
    let workload = Workload::new(&scenario.topic, 10);
    let offered = scenario.offer(&workload, first, OFFERED, WINDOW).await;
    1.0 - scenario.unsettled().await.len() as f64 / offered as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_leaves_other_keys_their_rate_and_is_seen_and_recovers() {
    const KEYS: usize = 50;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 2\nfirst_backoff = \"50ms\"");
    scenario.with_ledger(&setup).await;
    let instance = setup.start();
    let missing = unique("missing");
    let database = &scenario.database;
    let alone = published_within_the_window(&scenario, 0).await;
    database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'waits-' || n % {KEYS}, '{missing}', '{{}}' FROM generate_series(1, {KEYS} * 20) n"
        ))
        .await;
    let held = "SELECT count(*) FROM haulier_held_key WHERE key LIKE 'waits-%'::bytea";
    database.until(held, KEYS as i64).await;
    let beside = published_within_the_window(&scenario, 1_000_000).await;
    assert!(beside >= alone * 0.95, "alone {alone}, beside a missing topic {beside}");
    // Those that wait are visible, with what they wait for, and no attempt was used.
    assert_eq!(database.number(held).await, KEYS as i64);
    instance.reaches("haulier_held_keys", KEYS as f64).await;
    let (_, status) = instance.command(&["status"]);
    assert!(status.contains(&missing) && status.contains("topic_unknown"), "{status}");
    let used = "SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'FAILED'";
    assert_eq!(database.number(used).await, 0);
    // Nothing spins: while only they are left, a claim is taken when one is due, and not before.
    let claims = async || instance.metric("haulier_claim_seconds_count").await.unwrap_or_default();
    let (before, waited) = (claims().await, Duration::from_secs(5));
    tokio::time::sleep(waited).await;
    let taken = claims().await - before;
    assert!(taken <= 2.0 * KEYS as f64, "{taken} claims in {waited:?} for {KEYS} held keys");
    kafka::create(&missing, 3, &[]).await;
    scenario.drained().await;
    let received = kafka::read_count(&missing, KEYS * 20).await;
    let committed = ledger::committed(&database.pool, &missing).await;
    assert_eq!(history::check(&committed, &[], &received), Findings::default());
    assert_eq!(scenario.findings().await, Findings::default());
}

/// The records of that key that have arrived so far.
async fn of_key(scenario: &Scenario, key: &str) -> Vec<Received> {
    let all = kafka::read(&scenario.topic, Duration::from_millis(500), |_| false).await;
    all.into_iter().filter(|one| one.key.as_deref() == Some(key.as_bytes())).collect()
}

/// A topic that takes small records, and a large one at the head of a key with 20 behind it, among
/// events of other keys.
async fn large_at_the_head(lane: &str) -> (Scenario, Setup, Haulier) {
    let mut scenario = Scenario::new().await;
    scenario.topic = kafka::topic(3, &[("max.message.bytes", "3000")]).await;
    let setup = scenario.setup(lane);
    scenario.with_ledger(&setup).await;
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'large', '{topic}', to_json(string_agg(md5(n::text), '')) FROM generate_series(1, 200) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'large', '{topic}', '1' FROM generate_series(1, 20) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'other-' || n % 50, '{topic}', '2' FROM generate_series(1, 500) n"
        ))
        .await;
    let instance = setup.start();
    (scenario, setup, instance)
}

const HEAD: &str = "SELECT min(id) FROM committed WHERE key = 'large'";

async fn none_overtakes_until_it_is_parked() {
    let patient = "first_backoff = \"200ms\"\nmax_backoff = \"1s\"\nmax_attempts";
    let (scenario, _, mut instance) = large_at_the_head(&format!("{patient} = 1000")).await;
    let database = &scenario.database;
    // It is refused again and again, and all others are through: none of the 20 has overtaken.
    instance.reaches("haulier_events_retried_total", 3.0).await;
    database.until("SELECT count(*) FROM outbox", 21).await;
    assert_eq!(of_key(&scenario, "large").await.len(), 0);
    instance.terminate().await;
    let _instance = scenario.setup(&format!("{patient} = 3")).start();
    database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    assert_eq!(of_key(&scenario, "large").await.len(), 20, "they come when the first is parked");
    let head = database.number(HEAD).await;
    let findings = scenario.findings().await;
    // Innocents of its produce batch may come twice; they are not parked.
    assert!(findings.is_clean_but_for(&[head].into()), "{findings:?}");
    let cause =
        "SELECT count(*) FROM outbox WHERE failure_kind = 'record_too_large' AND attempts > 3";
    assert_eq!(database.number(cause).await, 1);
}

async fn none_comes_while_its_key_is_halted() {
    let (scenario, setup, mut first) =
        large_at_the_head("max_attempts = 2\nfirst_backoff = \"200ms\"\non_failed = \"halt_key\"")
            .await;
    let database = &scenario.database;
    let halted = "SELECT count(*) FROM haulier_held_key WHERE until = 'infinity'";
    database.until(halted, 1).await;
    let left = "SELECT count(*) FROM outbox";
    database.until(left, 21).await;
    first.terminate().await;
    let _instances = [setup.start(), setup.start()];
    // Rounds of other events show that both instances look, through more than one full look.
    for round in 1..=3 {
        let topic = &scenario.topic;
        database
            .run(format!(
                "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
                 SELECT 't', 'other-' || n, '{topic}', '3' FROM generate_series(1, 50) n"
            ))
            .await;
        database.until(left, 21).await;
        assert_eq!(of_key(&scenario, "large").await.len(), 0, "round {round}");
    }
    assert_eq!(database.number(halted).await, 1);
    let behind = format!(
        "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 0 AND id > ({HEAD})"
    );
    assert_eq!(database.number(behind).await, 20);
    let findings = scenario.findings().await;
    let stuck = scenario.unsettled().await;
    let repeated = findings.repeated.clone();
    assert_eq!(findings, Findings { stuck, repeated, ..Findings::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_overtakes_a_record_that_is_too_large_until_the_policy_says_so() {
    let _turn = turn().await;
    tokio::join!(none_overtakes_until_it_is_parked(), none_comes_while_its_key_is_halted());
}
