//! Instances that join, leave, and stand still beyond their lease.

use std::collections::BTreeSet;
use std::time::Duration;

use haulier_tests::history::Findings;
use haulier_tests::kafka::{self, Received};
use haulier_tests::process::Haulier;
use haulier_tests::proxy::{Proxy, Way};
use haulier_tests::services::variable;
use haulier_tests::traffic::{Plan, Traffic};
use sqlx::Row as _;

use crate::scenario::{Scenario, turn};

async fn at_work(instances: &[Haulier]) {
    for instance in instances {
        instance.reaches("haulier_events_published_total", 1.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_join_and_leave_under_load() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    // Eight of them on two cores are slow; nobody is to lose a lease for that here.
    let setup = scenario.patient_setup("batch_rows = 50");
    scenario.with_ledger(&setup).await;
    let traffic = Traffic::start(&scenario.database.pool, &Plan::new(&scenario.topic));
    let mut instances: Vec<Haulier> = Vec::new();
    for number in [1, 4, 2, 8] {
        while instances.len() > number {
            let status = instances.remove(0).terminate().await;
            assert!(status.success(), "{status}");
        }
        while instances.len() < number {
            instances.push(setup.start());
        }
        at_work(&instances).await;
    }
    traffic.stop().await;
    scenario.drained().await;
    for instance in &mut instances {
        assert!(instance.terminate().await.success());
    }
    assert_eq!(scenario.findings().await, Findings::default(), "not even repeats");
}

/// All that the relay keeps of the events and their claims, but for what makes a batch suspect: that
/// an instance which is alive after all takes back.
async fn snapshot(scenario: &Scenario) -> Vec<String> {
    let leases = "(SELECT shard, token, owner, expires_at, taken, highest_id, published \
         FROM haulier_lease WHERE highest_id > 0)";
    let mut rows = Vec::new();
    for table in ["outbox", "haulier_held_key", leases] {
        let sql = format!("SELECT t::text FROM {table} t ORDER BY 1");
        let found = sqlx::query(sqlx::AssertSqlSafe(sql))
            .fetch_all(&scenario.database.pool)
            .await
            .expect("rows");
        rows.extend(found.iter().map(|row| row.get::<String, _>(0)));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_stood_still_beyond_its_lease_writes_nothing() {
    const BATCH: usize = 40;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup(&format!("batch_rows = {BATCH}\nin_flight = 1"));
    scenario.with_ledger(&setup).await;
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'key', '{topic}', '{{}}' FROM generate_series(1, {BATCH}) n"
        ))
        .await;
    // All of one shard: the second takes all that the first had. The first has published its batch and stands still before it settles. When it goes on it may
    // do all that belongs to this batch, and stands still again before it claims anything else.
    let first = setup.failing("published=stop@1;claim=stop@2").start();
    first.stands_still().await;
    let batch: BTreeSet<i64> = scenario.arrived().await.iter().map(Received::id).collect();
    assert_eq!(batch.len(), BATCH);
    // The second takes the lease over when it has expired, and stands still as well.
    let second = setup.failing("claimed=stop@1").start();
    second.stands_still().await;
    let before = snapshot(&scenario).await;
    first.signal("CONT");
    first.logged("a claim was lost before its outcomes were settled").await;
    first.stands_still().await;
    let after = snapshot(&scenario).await;
    let changed: Vec<&String> = after.iter().filter(|row| !before.contains(row)).collect();
    assert!(after.len() == before.len() && changed.is_empty(), "it has written: {changed:?}");
    let suspect = "SELECT count(*) FROM haulier_lease WHERE losses > 0 OR suspect_id IS NOT NULL";
    assert_eq!(scenario.database.number(suspect).await, 0, "it had not died");
    // The second has outlived its lease with all its events still to be handed over.
    let free = "SELECT count(*) FROM haulier_lease \
         WHERE token IS NOT NULL AND expires_at > clock_timestamp()";
    scenario.database.until(free, 0).await;
    second.go_on().await;
    first.go_on().await;
    first.reaches("haulier_settles_lost_events_total", batch.len() as f64).await;
    scenario.drained().await;
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
    assert!(findings.repeated.is_subset(&batch) && !findings.repeated.is_empty());
    // Each came from the first, and from whoever had the lease then: not from one that had lost it.
    let arrived = scenario.arrived().await;
    for id in &batch {
        let times = arrived.iter().filter(|one| one.id() == *id).count();
        assert!(times <= 2, "event {id} came {times} times");
    }
}

/// How many records of the first instance have arrived.
async fn from_first(scenario: &Scenario) -> usize {
    let all = kafka::read(&scenario.topic, Duration::from_millis(700), |_| false).await;
    all.iter().filter(|one| one.header("from") == Some("first")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_stood_still_sends_at_most_what_was_accepted_and_one_record() {
    const EVENTS: usize = 300;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let address = variable("HAULIER_TEST_KAFKA_PROXY");
    let proxy = Proxy::start(&address, variable("HAULIER_TEST_KAFKA_PROXIED")).await;
    let mut setup = scenario.setup("in_flight = 1");
    scenario.with_ledger(&setup).await;
    let topic = &scenario.topic;
    // Of one key and waiting for each acknowledgement: the producer has accepted one at a time.
    let mut slow = scenario.setup_at(&address, "publish = \"per_key_sync\"\nin_flight = 1");
    for (setup, name) in [(&mut slow, "first"), (&mut setup, "second")] {
        setup.config += &format!(
            "[[routes]]\nevent_type = \"*\"\ntopic = \"{topic}\"\nheaders = {{ from = \"{name}\" }}\n"
        );
    }
    proxy.set(Way::Delay(Duration::from_millis(100)));
    let first = slow.start();
    first.ready().await;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'key', '{topic}', '{{}}' FROM generate_series(1, {EVENTS}) n"
        ))
        .await;
    let some = kafka::read(topic, Duration::from_secs(60), |received| received.len() >= 5).await;
    first.stop().await;
    assert_eq!(some.len(), 5, "{}", first.log());
    // What the proxy still holds arrives; from here on the first has nothing on its way.
    proxy.set(Way::Open);
    let _second = setup.start();
    scenario.drained().await;
    let before = from_first(&scenario).await;
    assert!(before < EVENTS, "it was stopped in the middle");
    first.go_on().await;
    first.reaches("haulier_settles_lost_events_total", EVENTS as f64).await;
    let after = from_first(&scenario).await;
    assert!(after <= before + 2, "{before} before, {after} after: one accepted, and one more");
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
    assert!(findings.repeated.len() <= after, "{findings:?}");
}
