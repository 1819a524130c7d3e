//! Plugins and rules that change while events flow, as an operator changes them.

use std::collections::BTreeSet;
use std::fs;

use haulier_tests::checker::{self, Verdict};
use haulier_tests::guest::{misbehave, version};
use haulier_tests::kafka::{self, Received};
use haulier_tests::process::Haulier;
use haulier_tests::workload::Workload;
use sha2::{Digest as _, Sha256};

use crate::scenario::{Scenario, turn};

const ACTIVATED: &str = "haulier_plugin_changes_total{result=\"activated\"}";
const REFUSED: &str = "haulier_plugin_changes_total{result=\"refused\"}";
const ROLLED_BACK: &str = "haulier_plugin_changes_total{result=\"rolled_back\"}";

/// The beginning of a file's hash, as the stamp of a record has it.
fn short_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash in a record's stamp.
fn stamp(record: &Received) -> &str {
    let stamp = record.header("X-Haulier-Plugin").expect("a plugin decided");
    stamp.strip_prefix("misbehave 1.0.0 ").expect("it names the plugin and its version")
}

/// A file that cannot be used, each time in another way.
fn broken(kind: usize, number: usize) -> Vec<u8> {
    let whole = version(misbehave("plain"), number);
    match kind % 5 {
        0 => whole[..whole.len() / 2].to_vec(),
        1 => fs::read(haulier_tests::build::guest("other_world")).expect("a built guest"),
        2 => version(misbehave("trap"), number),
        3 => version(misbehave("loop"), number),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_replacements_under_load_lose_repeat_and_reorder_nothing() {
    const KEYS: usize = 50;
    const EACH: usize = 4;
    const REPLACEMENTS: usize = 50;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    // One partition: its offsets are the order in which the instance has published.
    let topic = kafka::topic(1, &[]).await;
    let mut setup = scenario.setup("");
    setup.config +=
        &format!("[[routes]]\nevent_type = \"*\"\nplugin = \"misbehave\"\ntopic = \"{topic}\"\n");
    setup.migrate();
    let instance = setup.start();
    let mut good = vec![version(misbehave("plain"), 1000)];
    instance.put("plugins/m.wasm", &good[0]);
    instance.reaches(ACTIVATED, 1.0).await;
    let workload = Workload::new(&topic, KEYS);
    let pool = scenario.database.pool.clone();
    let (mut activated, mut refused, mut rolled_back) = (1.0, 0.0, 0.0);
    for number in 0..REPLACEMENTS {
        let writing = workload.write(&pool, number * EACH, KEYS * EACH);
        let replacing = async {
            match (number % 5 == 4, number / 5 % 5) {
                (false, _) => {
                    let bytes = version(misbehave("plain"), number);
                    instance.put("plugins/m.wasm", &bytes);
                    good.push(bytes);
                    activated += 1.0;
                    instance.reaches(ACTIVATED, activated).await;
                }
                // Fails on everything, which only events can show.
                (true, 4) => {
                    instance.put("plugins/m.wasm", &version(misbehave("fails"), number));
                    activated += 1.0;
                    instance.reaches(ACTIVATED, activated).await;
                }
                (true, kind) => {
                    instance.put("plugins/m.wasm", &broken(kind, number));
                    refused += 1.0;
                    instance.reaches(REFUSED, refused).await;
                }
            }
        };
        let fails_all = number % 25 == 24;
        if fails_all {
            replacing.await;
            writing.await;
            rolled_back += 1.0;
            activated += 1.0;
            instance.reaches(ROLLED_BACK, rolled_back).await;
            instance.reaches(ACTIVATED, activated).await;
        } else {
            tokio::join!(writing, replacing);
        }
        // A rolled-back version is refused when the folder is looked at again.
        refused = instance.metric(REFUSED).await.expect("it is counted");
    }
    scenario.drained().await;
    let received = kafka::read_count(&topic, KEYS * EACH * REPLACEMENTS).await;
    let found = checker::check(&received, KEYS, 0, EACH * REPLACEMENTS);
    assert_eq!(found, Verdict::default(), "{}", instance.log());

    let hashes: Vec<String> = good.iter().map(|bytes| short_hash(bytes)).collect();
    let mut last = 0;
    let mut seen = BTreeSet::new();
    for record in &received {
        let hash = stamp(record);
        let place = hashes.iter().position(|known| known == hash);
        let place = place.unwrap_or_else(|| panic!("a bad version has published: {hash}"));
        assert!(place >= last, "version {place} published after version {last}");
        last = place;
        seen.insert(place);
    }
    assert!(seen.len() > REPLACEMENTS / 4, "only {} versions were ever used", seen.len());
    assert_eq!(instance.metric("haulier_events_failed_total").await, Some(0.0));
}

async fn one_event(scenario: &Scenario, key: &str, topic: &str) {
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) \
         VALUES ('thing', $1, 'thing.changed', $2, '{}'::json)",
    )
    .bind(key)
    .bind(topic)
    .execute(&scenario.database.pool)
    .await
    .expect("inserts");
}

/// A running instance with the first version of the plugin, and that version's file.
async fn started(scenario: &Scenario, more: &str) -> (Haulier, Vec<u8>) {
    let mut setup = scenario.setup("");
    setup.config += more;
    setup.migrate();
    let instance = setup.start();
    let first = version(misbehave("plain"), 1);
    instance.put("plugins/m.wasm", &first);
    instance.reaches(ACTIVATED, 1.0).await;
    (instance, first)
}

const PLUGIN_ROUTE: &str = "[[routes]]\nevent_type = \"*\"\nplugin = \"misbehave\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn rollback_removal_and_forgetting_by_the_command_line() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = scenario.topic.as_str();
    let (instance, first) = started(&scenario, "").await;
    let second = version(misbehave("plain"), 2);
    instance.put("plugins/m.wasm", &second);
    instance.reaches(ACTIVATED, 2.0).await;
    let (code, text) = instance.command(&["plugin", "rollback", "misbehave"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&short_hash(&first)) && text.contains(&short_hash(&second)), "{text}");
    instance.reaches(ROLLED_BACK, 1.0).await;
    let (_, text) = instance.command(&["plugin", "versions", "misbehave"]);
    assert!(text.contains("not used: rolled back by hand"), "{text}");
    instance.ready().await;
    let (_, status) = instance.command(&["check"]);
    assert!(status.contains("rolled back by hand"), "{status}");

    let (code, text) = instance.command(&["plugin", "rollback", "misbehave", "--undo"]);
    assert_eq!(code, Some(0), "{text}");
    instance.reaches(ACTIVATED, 4.0).await;

    fs::remove_file(instance.folder.join("plugins/m.wasm")).expect("it goes");
    instance.unready(&["haulier plugin forget misbehave"]).await;
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) \
         VALUES ('thing', 'k', 'test.pass', $1, '{}'::json)",
    )
    .bind(topic)
    .execute(&scenario.database.pool)
    .await
    .expect("inserts");
    scenario
        .database
        .until("SELECT count(*) FROM outbox WHERE failure_kind = 'plugin_unavailable' AND attempts = 0", 1)
        .await;
    let (code, text) = instance.command(&["plugin", "forget", "misbehave"]);
    assert_eq!(code, Some(0), "{text}");
    scenario.drained().await;
    let received = kafka::read_count(topic, 1).await;
    assert_eq!(received[0].header("X-Haulier-Plugin"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_change_by_file_by_signal_and_by_the_admin_port() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let (one, two) = (kafka::topic(1, &[]).await, kafka::topic(1, &[]).await);
    let mut setup = scenario.setup("");
    setup.migrate();
    let token = "0123456789abcdef-token";
    setup.env.push(("HAULIER__ADMIN__TOKEN".into(), token.into()));
    let instance = setup.start();
    instance.ready().await;
    let route =
        |topic: &str| format!("[[routes]]\nevent_type = \"thing.*\"\ntopic = \"{topic}\"\n");

    // A file in the routes folder, found by itself.
    instance.put("routes/things.toml", route(&one).as_bytes());
    instance.logged("the routes have changed").await;
    one_event(&scenario, "a", "nowhere").await;
    assert_eq!(kafka::read_count(&one, 1).await.len(), 1);

    // A bad one: the old rules go on, and it is said.
    instance.put("routes/things.toml", b"[[routes]]\nevent_typ = \"x\"\n");
    instance.reaches("haulier_plugin_refusals", 1.0).await;
    instance.ready().await;
    one_event(&scenario, "b", "nowhere").await;
    assert_eq!(kafka::read_count(&one, 2).await.len(), 2);

    // By the admin port, which needs the token.
    instance.put("routes/things.toml", route(&two).as_bytes());
    assert_eq!(instance.post("/reload", "wrong").await.map(|answer| answer.0), Some(401));
    let (code, body) = instance.post("/reload", token).await.expect("an answer");
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("\"troubles\":[]"), "{body}");
    one_event(&scenario, "c", "nowhere").await;
    assert_eq!(kafka::read_count(&two, 1).await.len(), 1);
    assert!(!instance.log().contains(token), "the token is secret");

    // The settings file itself, by signal; other sections are said to need another start.
    let settings = fs::read_to_string(instance.folder.join("haulier.toml")).expect("settings");
    let changed = settings.replace("lease = \"4s\"", "lease = \"5s\"") + &route(&one);
    instance.put("haulier.toml", changed.as_bytes());
    instance.signal("HUP");
    instance.logged("at the next start only").await;
    one_event(&scenario, "d", "nowhere").await;
    assert_eq!(
        kafka::read_count(&one, 3).await.len(),
        3,
        "the settings file comes before the folder"
    );

    // Settings that are refused.
    instance.put("haulier.toml", (changed + "nonsense = 1\n").as_bytes());
    instance.signal("HUP");
    instance.reaches("haulier_plugin_refusals", 1.0).await;
    one_event(&scenario, "e", "nowhere").await;
    assert_eq!(kafka::read_count(&one, 4).await.len(), 4);
    let (_, status) = instance.command(&["plugin", "versions", "nobody"]);
    assert!(status.contains("nonsense") || status.contains("nobody"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_share_of_keys_and_a_shadow_is_only_compared() {
    const KEYS: usize = 200;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = scenario.topic.as_str();
    let canary = format!("{PLUGIN_ROUTE}topic = \"{topic}\"\ncanary = \"25%\"\n");
    let (instance, first) = started(&scenario, &canary).await;
    let candidate = version(misbehave("plain"), 2);
    instance.put("plugins/m.candidate.wasm", &candidate);
    instance.reaches(ACTIVATED, 2.0).await;
    let workload = Workload::new(topic, KEYS);
    workload.write(&scenario.database.pool, 0, KEYS * 5).await;
    let received = kafka::read_count(topic, KEYS * 5).await;
    assert_eq!(checker::check(&received, KEYS, 0, 5), Verdict::default());
    let keys_of = |hash: &str| -> BTreeSet<Vec<u8>> {
        let records = received.iter().filter(|record| stamp(record) == hash);
        records.filter_map(|record| record.key.clone()).collect()
    };
    let (current, canary) = (keys_of(&short_hash(&first)), keys_of(&short_hash(&candidate)));
    assert!(current.is_disjoint(&canary), "a key has one version");
    assert!((20..=80).contains(&canary.len()), "{} of {KEYS} keys", canary.len());
    assert_eq!(current.len() + canary.len(), KEYS);

    // In the shadow, a version that fails on everything does no harm and is counted.
    let settings = fs::read_to_string(instance.folder.join("haulier.toml")).expect("settings");
    instance.put("plugins/m.candidate.wasm", &version(misbehave("fails"), 3));
    instance.put("haulier.toml", settings.replace("canary = \"25%\"", "shadow = true").as_bytes());
    instance.signal("HUP");
    instance.logged("the routes have changed").await;
    instance.reaches(ACTIVATED, 3.0).await;
    workload.write(&scenario.database.pool, 5, KEYS).await;
    let received = kafka::read_count(topic, KEYS * 6).await;
    assert_eq!(checker::check(&received, KEYS, 0, 6), Verdict::default());
    instance.reaches("haulier_plugin_shadowed_events_total", KEYS as f64).await;
    let of = async |result: &str| {
        let series = "haulier_plugin_shadowed_events_total{plugin=\"misbehave\",result=";
        instance.metric(&format!("{series}\"{result}\"}}")).await.unwrap_or_default()
    };
    let (failed, skipped) = (of("failed").await, of("skipped").await);
    assert_eq!((of("same").await, failed + skipped), (0.0, KEYS as f64));
    assert!(failed > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_explained_and_planned_without_a_running_relay() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let mut setup = scenario.setup("").guest("misbehave").guest("order_events");
    setup.config += "[plugins.misbehave]\nsettings = { spin_ms = 0 }\n\
                     [[routes]]\nevent_type = \"thing.*\"\nplugin = \"misbehave\"\ntopic = \"things\"\n\
                     [[routes]]\nevent_type = \"raw.*\"\ntopic = \"raw.{aggregate_type}\"\nkey = \"/id\"\n";
    setup.migrate();
    let explained = |event_type: &str| setup.command(&["routes", "explain", event_type]);
    let (code, text) = explained("thing.changed");
    assert_eq!(code, Some(0), "{text}");
    for part in ["routes[0]", "thing.*", "decides: plugin misbehave", "misbehave 1.0.0", "things"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let (_, text) = explained("raw.thing");
    for part in ["routes[1]", "no plugin", "raw.{aggregate_type}", "the payload's /id"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let (_, text) = explained("order.paid");
    assert!(text.contains("order-events, since its manifest wants the event type"), "{text}");
    let (code, text) = explained("nobody.knows");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("waits:") && text.contains("add a [[routes]] entry"), "{text}");

    let insert = "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES \
                  ('thing', 'k-1', 'thing.changed', '{\"a\":1}'), \
                  ('thing', 'k-2', 'raw.thing', '{\"id\":42}'), \
                  ('thing', 'k-3', 'raw.thing', '{\"no\":1}'), \
                  ('thing', 'k-4', 'nobody.knows', '{}')";
    scenario.database.run(insert).await;
    let (code, text) = setup.command(&["plan", "--from-db", "--limit", "100"]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "to things key k-1 payload {\"a\":1}",
        "to raw.thing key 42 payload",
        "would fail, key_unreadable",
        "would fail, route_missing",
        "4 events: 2 would be published as 2 records, 0 dropped, 2 would fail",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let (_, text) = setup.command(&["plan", "--from-db", "--limit", "1", "--json"]);
    assert!(text.starts_with("{\"source\":\"orders\"") && text.lines().count() == 1, "{text}");
    let untouched = "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 0";
    assert_eq!(scenario.database.number(untouched).await, 4);
}
