//! Order per key across instances, and the proof that the checker can see disorder.

use std::time::Duration;

use haulier_tests::checker::{Verdict, check};
use haulier_tests::kafka;
use haulier_tests::proxy::Proxy;
use haulier_tests::services::variable;
use haulier_tests::workload::Workload;

use crate::scenario::{Scenario, turn};

const KEYS: usize = 50;
const EVENTS: usize = 10_000;

/// Four instances work on 10,000 events of 50 keys, while the way to the broker takes a random time.
async fn four_instances(lane: &str) -> Verdict {
    let scenario = Scenario::new().await;
    let address = variable("HAULIER_TEST_KAFKA_PROXY");
    let _proxy = Proxy::delaying(
        &address,
        variable("HAULIER_TEST_KAFKA_PROXIED"),
        Duration::from_millis(30),
    )
    .await;
    let setup = scenario.setup_at(&address, &format!("batch_rows = 100\n{lane}"));
    setup.migrate();
    let instances: Vec<_> = (0..4).map(|_| setup.start()).collect();
    Workload::new(&scenario.topic, KEYS).write(&scenario.database.pool, 0, EVENTS).await;
    scenario.drained().await;
    let received = kafka::read_count(&scenario.topic, EVENTS).await;
    drop(instances);
    check(&received, KEYS, 0, EVENTS / KEYS)
}

#[tokio::test(flavor = "multi_thread")]
async fn four_instances_keep_order_per_key() {
    let _turn = turn().await;
    for publish in ["pipelined", "per_key_sync"] {
        let verdict = four_instances(&format!("publish = \"{publish}\"")).await;
        assert_eq!(verdict, Verdict::default(), "{publish}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_order_the_checker_sees_inversions() {
    let _turn = turn().await;
    let verdict = four_instances("ordering = \"none\"").await;
    assert!(verdict.out_of_order > 0, "{verdict:?}");
    assert_eq!((verdict.lost, verdict.repeated, verdict.phantom), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn total_order_is_the_order_of_ids() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = kafka::topic(1, &[]).await;
    let setup = scenario.setup("ordering = \"total\"\nbatch_rows = 50");
    setup.migrate();
    let _instances = [setup.start(), setup.start()];
    for _ in 0..10 {
        let sql = format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'key-' || (n % 7), '{topic}', '{{}}' FROM generate_series(1, 100) n"
        );
        scenario.database.run(sql).await;
    }
    let received = kafka::read_count(&topic, 1000).await;
    let ids: Vec<i64> = received.iter().map(kafka::Received::id).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.is_sorted(), "one order for the whole lane");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_commit_with_a_lower_id_is_published() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    let _instance = setup.start();
    let pool = &scenario.database.pool;
    let insert = format!(
        "INSERT INTO outbox (event_type, aggregate_id, topic) VALUES ('t', 'k', '{}') RETURNING id",
        scenario.topic
    );
    let mut late = pool.begin().await.expect("begins");
    let low: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(insert.clone()))
        .fetch_one(&mut *late)
        .await
        .expect("inserts");
    let high: i64 =
        sqlx::query_scalar(sqlx::AssertSqlSafe(insert)).fetch_one(pool).await.expect("inserts");
    let before = kafka::read_count(&scenario.topic, 1).await;
    assert_eq!(before.iter().map(kafka::Received::id).collect::<Vec<_>>(), [high]);
    late.commit().await.expect("commits");
    let after = kafka::read_count(&scenario.topic, 2).await;
    assert_eq!(after.iter().map(kafka::Received::id).collect::<Vec<_>>(), [high, low]);
}
