//! What operators do about events that are stuck: by command, and over the admin port.

use std::collections::HashMap;

use haulier_tests::kafka::{self, Received};
use haulier_tests::process::{Haulier, Setup};
use serde_json::Value;

use crate::scenario::{Scenario, turn};

const TOKEN: &str = "0123456789abcdef";

/// A command that must succeed, and what it prints as JSON.
fn json(instance: &Haulier, words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let (code, text) = instance.command(&words);
    assert_eq!(code, Some(0), "{words:?}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
}

/// A relay that keeps what it published and gives an event two attempts.
fn keeping(scenario: &Scenario, lane: &str) -> Setup {
    let mut setup = scenario.setup(&format!("max_attempts = 2\nfirst_backoff = \"50ms\"\n{lane}"));
    setup.config = setup.config.replace("[sinks.main]", "settle = \"mark\"\n[sinks.main]");
    setup
}

async fn insert(scenario: &Scenario, key: &str, topic: &str, payload: usize) {
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             VALUES ('thing.changed', '{key}', '{topic}', '{payload}')"
        ))
        .await;
}

async fn statuses(scenario: &Scenario, status: &str, wanted: i64) {
    let sql = format!("SELECT count(*) FROM outbox WHERE status = '{status}'");
    scenario.database.until(&sql, wanted).await;
}

fn payloads(received: &[Received]) -> Vec<String> {
    let text = |one: &Received| String::from_utf8(one.payload.clone().unwrap_or_default());
    received.iter().map(|one| text(one).expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_event_is_found_mended_and_retried() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = kafka::topic(1, &[]).await;
    let setup = keeping(&scenario, "");
    setup.migrate();
    for (payload, topic) in ["no such/topic", &topic, "neither/this"].into_iter().enumerate() {
        insert(&scenario, "k", topic, payload).await;
    }
    let instance = setup.start();
    statuses(&scenario, "FAILED", 2).await;
    let listed = json(&instance, &["events", "list", "--state", "failed", "--key", "k"]);
    let ids: Vec<i64> = listed["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|e| e["id"].as_i64())
        .collect();
    assert_eq!(ids, [1, 3], "{listed}");
    assert_eq!(listed["events"][0]["reason"], "topic_illegal");
    let (code, text) = instance.command(&["events", "show", "1"]);
    assert_eq!(code, Some(0));
    for part in ["topic_illegal", "no such/topic", "state           failed", "attempts        2"] {
        assert!(text.contains(part), "'{part}' is missing: {text}");
    }
    assert_eq!(instance.command(&["events", "show", "1", "--payload"]).1, "0");
    let dry = json(&instance, &["events", "retry", "--reason", "topic_illegal", "--dry-run"]);
    assert_eq!((&dry["changed"], &dry["audit"]), (&2.into(), &Value::Null));
    statuses(&scenario, "FAILED", 2).await;
    scenario.database.run(format!("UPDATE outbox SET topic = '{topic}' WHERE id = 1")).await;
    let done = json(&instance, &["events", "retry", "1", "--note", "mended", "--by", "ada"]);
    assert_eq!(done["changed"], 1, "{done}");
    statuses(&scenario, "PUBLISHED", 2).await;
    let discarded = json(&instance, &["events", "discard", "--state", "failed"]);
    assert_eq!(discarded["changed"], 1);
    let received = kafka::read_count(&topic, 2).await;
    assert_eq!(payloads(&received), ["1", "0"]);
    let mark = received[1].header("X-Haulier-Redelivery").expect("it came late, and says so");
    assert_eq!(mark, format!("retry/{}", done["audit"]));
    assert_eq!(received[0].header("X-Haulier-Redelivery"), None);
    let audit = json(&instance, &["audit"]);
    assert_eq!(audit["audit"][1]["actor"], "ada");
    assert_eq!(audit["audit"][1]["note"], "mended");
    assert_eq!(
        (&audit["audit"][0]["action"], &audit["audit"][0]["events"]),
        (&"discard".into(), &1.into())
    );
    // Wrong words change nothing.
    let (code, text) = instance.command(&["events", "retry"]);
    assert!(code == Some(2) && text.contains("say which events"), "{text}");
    let (code, text) = instance.command(&["events", "discard", "--reason", "topic_illegl"]);
    assert!(code == Some(2) && text.contains("did you mean 'topic_illegal'"), "{text}");
    let (code, text) = instance.command(&["replay", "--state", "pending", "--all"]);
    assert!(code == Some(2) && text.contains("not for pending events"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_key_is_seen_and_released_or_retried() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = kafka::topic(1, &[]).await;
    let setup = keeping(&scenario, "on_failed = \"halt_key\"");
    setup.migrate();
    for key in ["released", "retried"] {
        insert(&scenario, key, "no such/topic", 0).await;
        for payload in 1..4 {
            insert(&scenario, key, &topic, payload).await;
        }
    }
    let instance = setup.start();
    let halted = "SELECT count(*) FROM haulier_held_key WHERE until = 'infinity'";
    scenario.database.until(halted, 2).await;
    let keys = json(&instance, &["keys", "list"]);
    let first = &keys["keys"][0];
    assert_eq!((&first["key"], &first["event"]), (&"released".into(), &1.into()), "{keys}");
    assert_eq!((&first["waiting"], &first["until_in_ms"]), (&4.into(), &Value::Null));
    assert!(instance.command(&["keys", "list"]).1.contains("you decide"));
    let released = json(&instance, &["keys", "release", "released"]);
    assert_eq!(released["changed"], 1);
    statuses(&scenario, "PUBLISHED", 3).await;
    statuses(&scenario, "FAILED", 1).await;
    scenario.database.run(format!("UPDATE outbox SET topic = '{topic}' WHERE id = 5")).await;
    let retried = json(&instance, &["events", "retry", "--key", "retried"]);
    assert_eq!(retried["changed"], 1);
    statuses(&scenario, "PUBLISHED", 7).await;
    let received = kafka::read_count(&topic, 7).await;
    let of = |key: &str| {
        let own = received.iter().filter(|one| one.key.as_deref() == Some(key.as_bytes()));
        payloads(&own.cloned().collect::<Vec<_>>())
    };
    assert_eq!(of("released"), ["1", "2", "3"]);
    assert_eq!(of("retried"), ["0", "1", "2", "3"], "its successors waited for it");
    assert!(received.iter().all(|one| one.header("X-Haulier-Redelivery").is_none()));
    assert!(instance.command(&["keys", "list"]).1.contains("no key is held"));
}

/// Whether the records with that mark come in the order of ids within each key.
fn in_order(received: &[Received], mark: &str) -> usize {
    let mut last: HashMap<Vec<u8>, i64> = HashMap::new();
    let mut count = 0;
    for one in received.iter().filter(|one| one.header("X-Haulier-Redelivery") == Some(mark)) {
        let before = last.insert(one.key.clone().unwrap_or_default(), one.id());
        assert!(before.is_none_or(|before| before < one.id()), "{before:?} before {}", one.id());
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_events_are_replayed_in_order_beside_live_ones() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = keeping(&scenario, "batch_rows = 50");
    setup.migrate();
    let topic = &scenario.topic;
    let insert = |first: usize, last: usize| {
        format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 'thing.changed', 'key-' || (n % 7), '{topic}', n::text::json FROM generate_series({first}, {last}) n"
        )
    };
    scenario.database.run(insert(1, 300)).await;
    let instances = [setup.start(), setup.start()];
    statuses(&scenario, "PUBLISHED", 300).await;
    let dry = json(&instances[0], &["replay", "--type", "thing.*", "--dry-run"]);
    assert_eq!((&dry["changed"], dry["events"].as_array().map(Vec::len)), (&300.into(), Some(20)));
    let words =
        ["replay", "--key", "key-3", "--since", "1h", "--state", "published", "--rate", "20"];
    let one_key = json(&instances[0], &words);
    assert_eq!(one_key["changed"], 43, "{one_key}");
    let all = json(&instances[0], &["replay", "--type", "thing.changed", "--newer-than", "1h"]);
    scenario.database.run(insert(301, 400)).await;
    statuses(&scenario, "PUBLISHED", 400).await;
    let replayed = usize::try_from(all["changed"].as_u64().expect("a number")).expect("few");
    let total = 400 + 43 + replayed;
    let received = kafka::read_count(topic, total).await;
    assert_eq!(received.len(), total);
    let mark = |done: &Value| format!("replay/{}", done["audit"]);
    assert_eq!(
        in_order(&received, &mark(&one_key)) + in_order(&received, &mark(&all)),
        43 + replayed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_port_does_the_same_for_who_has_the_token() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = kafka::topic(1, &[]).await;
    let mut setup = keeping(&scenario, "");
    setup.migrate();
    insert(&scenario, "k", "no such/topic", 0).await;
    let off = setup.start();
    statuses(&scenario, "FAILED", 1).await;
    let (status, text) = off.get("/api/events").await.expect("an answer");
    assert!(status == 403 && text.contains("operations = true"), "{status} {text}");
    drop(off);
    setup.admin = format!("token = \"{TOKEN}\"\noperations = true\n");
    let instance = setup.start();
    instance.ready().await;
    for token in ["", "0123456789abcdee"] {
        let (status, _) = instance.call("GET", "/api/events", token, "").await.expect("an answer");
        assert_eq!(status, 401);
    }
    let ask = async |method: &str, path: &str, body: &str, wanted: u16| -> Value {
        let (status, text) = instance.call(method, path, TOKEN, body).await.expect("an answer");
        assert_eq!(status, wanted, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    };
    let listed = ask("GET", "/api/events?state=failed&reason=topic_illegal&limit=5", "", 200).await;
    assert_eq!(listed["events"][0]["id"], 1, "{listed}");
    assert_eq!(ask("GET", "/api/events/1", "", 200).await["payload"], Value::Null);
    assert_eq!(ask("GET", "/api/events/1?payload=true", "", 200).await["payload"], "0");
    ask("GET", "/api/events/99", "", 404).await;
    ask("GET", "/api/events?state=faild", "", 400).await;
    ask("GET", "/api/events?stat=failed", "", 400).await;
    ask("POST", "/api/events/retry", "{}", 400).await;
    ask("POST", "/api/events/retry", "[", 400).await;
    let dry = ask("POST", "/api/events/retry", r#"{"id":[1],"dry_run":true}"#, 200).await;
    assert_eq!((&dry["changed"], &dry["dry_run"]), (&1.into(), &true.into()));
    scenario.database.run(format!("UPDATE outbox SET topic = '{topic}'")).await;
    let done = ask("POST", "/api/events/retry", r#"{"key":"k","by":"bob"}"#, 200).await;
    assert_eq!(done["changed"], 1);
    statuses(&scenario, "PUBLISHED", 1).await;
    let replay = ask("POST", "/api/replay", r#"{"id":"1","rate":10}"#, 202).await;
    assert_eq!(kafka::read_count(&topic, 2).await.len(), 2);
    let keys = ask("GET", "/api/keys", "", 200).await;
    assert_eq!(keys["keys"], Value::Array(vec![]));
    assert_eq!(ask("POST", "/api/keys/release", r#"{"all":true}"#, 200).await["changed"], 0);
    assert_eq!(ask("POST", "/api/events/discard", r#"{"id":[7]}"#, 200).await["changed"], 0);
    let audit = ask("GET", "/api/audit", "", 200).await;
    let records = audit["audit"].as_array().expect("a list");
    let of = |id: &Value| records.iter().find(|one| one["id"] == *id).expect("a record");
    assert_eq!(
        (&of(&done["audit"])["actor"], &of(&done["audit"])["via"]),
        (&"bob".into(), &"api".into())
    );
    assert_eq!(of(&replay["audit"])["action"], "replay");
    assert!(!instance.log().contains(TOKEN));
}
