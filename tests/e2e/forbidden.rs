//! A topic that the broker's access rules forbid: its events wait with their keys, and nothing else does.

use std::time::Duration;

use haulier_tests::access::{Left, forbid, permit};
use haulier_tests::checker::{Verdict, check};
use haulier_tests::kafka;
use haulier_tests::process::{Setup, eventually};
use haulier_tests::services::variable;
use haulier_tests::workload::Workload;
use serde_json::Value;

use crate::scenario::{Scenario, turn};

const KEYS: usize = 10;
const ROUNDS: usize = 20;

/// A config whose relay logs in, so that access rules hold for it.
fn logged_in(scenario: &Scenario) -> Setup {
    let mut setup = scenario.setup_at(&variable("HAULIER_TEST_KAFKA_SASL"), "");
    setup.config += &format!(
        "[sinks.main.librdkafka]\n\"security.protocol\" = \"sasl_ssl\"\n\"ssl.ca.location\" = \"{}\"\n\
         \"sasl.mechanism\" = \"SCRAM-SHA-512\"\n\"sasl.username\" = \"{}\"\n\
         \"sasl.password\" = {{ env = \"KAFKA_PASSWORD\" }}\n",
        variable("HAULIER_TEST_KAFKA_CA"),
        variable("HAULIER_TEST_KAFKA_USER")
    );
    setup.env.push(("KAFKA_PASSWORD".into(), variable("HAULIER_TEST_KAFKA_PASSWORD")));
    setup
}

/// Waits until `haulier status` shows an open circuit for that topic, and returns it.
async fn circuit(setup: &Setup, topic: &str) -> Value {
    let mut last = Value::Null;
    let shown = eventually(Duration::from_secs(60), async || {
        last = status(setup);
        !open_circuit(&last, topic).is_null()
    })
    .await;
    assert!(shown, "no circuit for {topic}: {last:#}");
    open_circuit(&last, topic)
}

/// What `haulier status` says.
fn status(setup: &Setup) -> Value {
    let (_, text) = setup.command(&["status", "--json"]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn open_circuit(status: &Value, topic: &str) -> Value {
    let circuits = status["sources"][0]["lanes"][0]["open_circuits"].as_array();
    let found = circuits.and_then(|all| all.iter().find(|one| one["destination"] == topic));
    found.cloned().unwrap_or(Value::Null)
}

/// Inserts `ROUNDS` events of each of `KEYS` other keys, for a topic that is open.
async fn insert_free(scenario: &Scenario) {
    let sql = format!(
        "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
         SELECT 'thing.changed', 'free-' || n % {KEYS}, '{}', '{{}}' FROM generate_series(1, {}) n",
        scenario.topic,
        KEYS * ROUNDS
    );
    scenario.database.run(sql).await;
}

fn count(number: usize) -> i64 {
    number.try_into().expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn events_for_a_forbidden_topic_wait_with_their_keys_and_others_flow() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let forbidden = kafka::topic(3, &[]).await;
    forbid(&forbidden, Left::Sight);
    let setup = logged_in(&scenario);
    setup.migrate();
    let pool = &scenario.database.pool;
    let closed = Workload::new(&forbidden, KEYS);
    closed.write(pool, 0, KEYS * ROUNDS / 2).await;
    let instance = setup.start();
    insert_free(&scenario).await;
    closed.write(pool, ROUNDS / 2, KEYS * ROUNDS / 2).await;
    scenario
        .database
        .until("SELECT count(*) FROM outbox WHERE aggregate_id LIKE 'free-%'", 0)
        .await;
    // Each of the keys waits, for a reason that is told, and no event is blamed.
    let held = "SELECT count(*) FROM haulier_held_key WHERE reason = 'topic_unauthorised'";
    scenario.database.until(held, count(KEYS)).await;
    let told = circuit(&setup, &forbidden).await;
    assert_eq!(told["cause"], "topic_unauthorised", "{told:#}");
    let blameless = "SELECT count(*) FROM outbox WHERE attempts = 0 AND status <> 'FAILED'";
    assert_eq!(scenario.database.number(blameless).await, count(KEYS * ROUNDS));
    assert_eq!(kafka::read_count(&forbidden, 0).await.len(), 0);
    permit(&forbidden);
    scenario.drained().await;
    let closed_again = eventually(Duration::from_secs(60), async || {
        open_circuit(&status(&setup), &forbidden).is_null()
    })
    .await;
    assert!(closed_again, "the circuit stays open:\n{}", instance.log());
    let received = kafka::read_count(&forbidden, KEYS * ROUNDS).await;
    assert_eq!(check(&received, KEYS, 0, ROUNDS), Verdict::default());
    let free = kafka::read_count(&scenario.topic, KEYS * ROUNDS).await;
    assert_eq!(free.len(), KEYS * ROUNDS, "nothing of the others came twice");
}
