//! Services that go away and come back, and events that fail by themselves.

use std::time::Duration;

use haulier_tests::checker::{Verdict, check};
use haulier_tests::kafka;
use haulier_tests::process::eventually;
use haulier_tests::proxy::Proxy;
use haulier_tests::services::{control, variable};
use haulier_tests::workload::Workload;

use crate::scenario::{Scenario, turn};

const KEYS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_and_comes_back_costs_no_attempts() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 2\nfirst_backoff = \"50ms\"");
    setup.migrate();
    let instance = setup.start();
    let workload = Workload::new(&scenario.topic, KEYS);
    workload.write(&scenario.database.pool, 0, 1000).await;
    scenario.drained().await;
    control(&["kill", "kafka"]);
    workload.write(&scenario.database.pool, 50, 1000).await;
    instance.logged("lane waits").await;
    instance.unready(&["broker"]).await;
    control(&["start", "kafka"]);
    scenario.drained().await;
    instance.ready().await;
    let received = kafka::read_count(&scenario.topic, 2000).await;
    let verdict = check(&received, KEYS, 0, 100);
    // A broker that was killed may have appended what it did not acknowledge any more.
    assert_eq!(verdict, Verdict { repeated: verdict.repeated, ..Verdict::default() });
    assert_eq!(instance.metric("haulier_events_retried_total").await.unwrap_or_default(), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_and_comes_back_costs_nothing() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    let instance = setup.start();
    let workload = Workload::new(&scenario.topic, KEYS);
    workload.write(&scenario.database.pool, 0, 1000).await;
    control(&["kill", "postgres"]);
    instance.logged("database").await;
    control(&["start", "postgres"]);
    let back = eventually(Duration::from_secs(60), async || {
        sqlx::raw_sql("SELECT 1").execute(&scenario.database.pool).await.is_ok()
    })
    .await;
    assert!(back, "the database is back");
    workload.write(&scenario.database.pool, 50, 1000).await;
    scenario.drained().await;
    let received = kafka::read_count(&scenario.topic, 2000).await;
    let verdict = check(&received, KEYS, 0, 100);
    assert_eq!(verdict, Verdict { repeated: verdict.repeated, ..Verdict::default() });
    instance.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_is_open_while_the_broker_is_waited_for() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let address = variable("HAULIER_TEST_KAFKA_PROXY");
    let _proxy = Proxy::delaying(
        &address,
        variable("HAULIER_TEST_KAFKA_PROXIED"),
        Duration::from_millis(1500),
    )
    .await;
    let setup = scenario.setup_at(&address, "");
    setup.migrate();
    let _instance = setup.start();
    let mut seen_publishing = 0;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'haulier' \
         AND datname = current_database() AND state LIKE 'idle in transaction%' \
         AND state_change < clock_timestamp() - interval '200 milliseconds'";
    let publishing = "SELECT count(*) FROM haulier_lease WHERE token IS NOT NULL";
    for seq in 0..5 {
        Workload::new(&scenario.topic, KEYS).write(&scenario.database.pool, seq, KEYS).await;
        eventually(Duration::from_secs(30), async || {
            assert_eq!(scenario.database.number(open).await, 0, "a transaction is open");
            seen_publishing += i64::from(scenario.database.number(publishing).await > 0);
            scenario.database.number("SELECT count(*) FROM outbox").await == 0
        })
        .await;
    }
    assert!(seen_publishing > 10, "the broker was being waited for while it was looked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_event_holds_its_key_and_is_parked_while_others_flow() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 3\nfirst_backoff = \"100ms\"");
    setup.migrate();
    let topic = &scenario.topic;
    // 200 poison events at the head: their topic's name is not one a broker can have.
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'bad-' || n, 'no such/topic', '1' FROM generate_series(1, 200) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'bad-' || n, '{topic}', '2' FROM generate_series(1, 200) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'good-' || n, '{topic}', '3' FROM generate_series(1, 200) n"
        ))
        .await;
    let instance = setup.start();
    scenario.database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    assert_eq!(scenario.database.number("SELECT count(*) FROM outbox WHERE status = 'FAILED' AND attempts = 3 AND failure_kind = 'topic_illegal' AND last_error LIKE '%no such/topic%'").await, 200);
    let received = kafka::read_count(topic, 400).await;
    assert_eq!(received.len(), 400);
    let last_good = received.iter().filter(|one| one.payload.as_deref() == Some(b"3")).count();
    assert_eq!(last_good, 200);
    assert_eq!(scenario.database.number("SELECT count(*) FROM haulier_held_key").await, 0);
    assert_eq!(instance.metric("haulier_events_failed_total").await, Some(200.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_events_flow_while_200_poison_events_are_in_their_retries() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    // The second attempt is far away, so that none is parked while this looks.
    let setup = scenario.setup("max_attempts = 3\nfirst_backoff = \"300s\"\nbatch_rows = 50");
    setup.migrate();
    let topic = &scenario.topic;
    // The poison has the lowest ids, and a healthy event behind each has to wait for it.
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic) \
             SELECT 't', 'bad-' || n, 'no such/topic' FROM generate_series(1, 200) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'bad-' || n, '{topic}', '2' FROM generate_series(1, 200) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'good-' || n, '{topic}', '3' FROM generate_series(1, 200) n"
        ))
        .await;
    let _instance = setup.start();
    let received = kafka::read_count(topic, 200).await;
    assert!(received.iter().all(|one| one.payload.as_deref() == Some(b"3")));
    assert_eq!(received.len(), 200);
    let in_retries = "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 1";
    scenario.database.until(in_retries, 200).await;
    assert_eq!(scenario.database.number("SELECT count(*) FROM haulier_held_key").await, 200);
    assert_eq!(scenario.database.number("SELECT count(*) FROM outbox").await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_for_an_unknown_topic_wait_for_it_and_others_flow() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 2\nfirst_backoff = \"50ms\"");
    setup.migrate();
    let missing = haulier_tests::database::unique("later");
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic) SELECT 't', 'a-' || n, '{missing}' FROM generate_series(1, 50) n; \
             INSERT INTO outbox (event_type, aggregate_id, topic) SELECT 't', 'b-' || n, '{topic}' FROM generate_series(1, 50) n"
        ))
        .await;
    let _instance = setup.start();
    assert_eq!(kafka::read_count(topic, 50).await.len(), 50);
    scenario
        .database
        .until(
            "SELECT count(*) FROM outbox WHERE failure_kind = 'topic_unknown' AND attempts = 0",
            50,
        )
        .await;
    kafka::create(&missing, 3, &[]).await;
    scenario.drained().await;
    assert_eq!(kafka::read_count(&missing, 50).await.len(), 50);
}
