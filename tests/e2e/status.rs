//! `haulier status`: what it tells of running, stopped and missing instances, and of what waits.

use std::process::Stdio;
use std::time::Duration;

use haulier_tests::build;
use haulier_tests::database::unique;
use haulier_tests::folder::Folder;
use haulier_tests::kafka;
use haulier_tests::process::{Setup, eventually};
use haulier_tests::snapshot;
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::scenario::{Scenario, turn};

/// A topic that no broker of the tests has.
const NOWHERE: &str = "no-such-topic-of-status";

/// What `haulier status --json` says, and its exit code.
fn json(setup: &Setup) -> (Option<i32>, Value) {
    let (code, text) = setup.command(&["status", "--json"]);
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (code, value)
}

/// Asks until the answer is as wanted.
async fn until(setup: &Setup, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let reached = eventually(Duration::from_secs(120), async || {
        last = json(setup).1;
        wanted(&last)
    })
    .await;
    assert!(reached, "the status never was as wanted, last: {last:#}");
    last
}

fn lane<'a>(status: &'a Value, name: &str) -> &'a Value {
    let lanes = status["sources"][0]["lanes"].as_array().map_or(&[][..], Vec::as_slice);
    lanes.iter().find(|lane| lane["lane"] == name).unwrap_or(&Value::Null)
}

fn instance<'a>(status: &'a Value, name: &str) -> &'a Value {
    let seen = status["sources"][0]["instances"].as_array().map_or(&[][..], Vec::as_slice);
    seen.iter().find(|one| one["instance"] == name).unwrap_or(&Value::Null)
}

fn problems(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = status["problems"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().map(|one| (text(&one["lane"]), text(&one["kind"]))).collect()
}

/// The text without what differs from run to run.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        if let Some((before, hash)) = line.rsplit_once(" (")
            && hash.len() == 13
        {
            line = format!("{before} (HASH)");
        }
        // Whether the other instance has tried it too, and when the next one will, is chance.
        if line.contains(", seen by ") {
            line = "      NEXT TRIAL".to_owned();
        }
        // What was published may have been more than a minute ago by now.
        if line.starts_with("  default ")
            && let Some((before, due)) = line.rsplit_once(' ')
        {
            let before = before.trim_end().trim_end_matches(|c: char| c.is_ascii_digit());
            line = format!("{before}N {due}");
        }
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let unit = word.trim_end_matches(',');
            let number = words.last().is_some_and(|last| last.parse::<u64>().is_ok());
            if number && ["ms", "s", "min", "h", "d"].contains(&unit) {
                words.pop();
                // Two units are one span; padding before it depends on its length.
                while words.last().is_some_and(|last| last == "SPAN" || last.is_empty()) {
                    words.pop();
                }
                words.push(word.replacen(unit, "SPAN", 1));
            } else {
                words.push(word.to_owned());
            }
        }
        steady.push_str(&words.join(" "));
        steady.push('\n');
    }
    steady
}

async fn insert(scenario: &Scenario, lane: &str, event_type: &str, topic: Option<&str>) {
    sqlx::query(
        "INSERT INTO outbox (lane, aggregate_type, aggregate_id, event_type, topic, payload) \
         VALUES ($1, 'order', $2, $3, $4, '{\"id\":\"o-1\",\"customer_id\":\"c-7\",\"total_cents\":1,\"currency\":\"EUR\"}')",
    )
    .bind(lane)
    .bind(unique("k"))
    .bind(event_type)
    .bind(topic)
    .execute(&scenario.database.pool)
    .await
    .expect("inserts");
}

fn named(setup: &Setup, instance: &str) -> Setup {
    let mut setup = setup.clone();
    setup.config += &format!("[relay]\ninstance = \"{instance}\"\n");
    setup
}

/// A lane that parks, one that halts, and the example plugin with topics of its own.
async fn two_lanes(scenario: &Scenario) -> Setup {
    let prefix = unique("p");
    kafka::create(&format!("{prefix}.orders"), 3, &[]).await;
    let mut setup = scenario.setup("max_attempts = 1").guest("order_events");
    setup.config += &format!(
        "[lanes.strict]\nlease = \"4s\"\nmax_attempts = 1\non_failed = \"halt_key\"\n\
         [plugins.order-events]\nsettings = {{ topic_prefix = \"{prefix}.\" }}\n\
         [[routes]]\nevent_type = \"order.*\"\nplugin = \"order-events\"\n"
    );
    setup
}

/// Two events that are published, one that waits, one to park, one that halts, three in no lane.
async fn some_of_everything(scenario: &Scenario) {
    for _ in 0..2 {
        insert(scenario, "default", "order.created", None).await;
    }
    insert(scenario, "default", "other", Some(NOWHERE)).await;
    insert(scenario, "default", "other", Some("il/legal")).await;
    insert(scenario, "strict", "other", Some("il/legal")).await;
    for _ in 0..3 {
        insert(scenario, "forgotten", "other", Some(&scenario.topic)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_what_runs_and_what_waits() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = two_lanes(&scenario).await;
    setup.migrate();
    let (code, none) = json(&setup);
    assert_eq!(code, Some(0));
    assert_eq!(problems(&none), [(String::new(), "no_instance".to_owned())]);

    let mut first = named(&setup, "relay-a").start();
    let mut second = named(&setup, "relay-b").start();
    first.ready().await;
    second.ready().await;
    some_of_everything(&scenario).await;
    let halted = scenario.database.number("SELECT id FROM outbox WHERE lane = 'strict'").await;

    until(&setup, |status| lane(status, "default")["published_last_minute"] == 2).await;
    let seen = until(&setup, |status| {
        let default = lane(status, "default");
        default["pending"] == 1
            && default["processing"] == 0
            && default["held_keys"] == 1
            && default["failed"] == 1
            && default["open_circuits"][0]["destination"] == NOWHERE
            && lane(status, "strict")["halted_keys"] == 1
            && lane(status, "strict")["served_by"] == serde_json::json!(["relay-a", "relay-b"])
    })
    .await;
    let default = lane(&seen, "default");
    assert_eq!(default["served_by"], serde_json::json!(["relay-a", "relay-b"]));
    assert_eq!(default["open_circuits"][0]["cause"], "topic_unknown");
    assert_eq!(default["oldest_due_ms"], Value::Null, "what is held is not due");
    let strict = lane(&seen, "strict");
    assert_eq!(strict["halted_events"], serde_json::json!([halted]));
    let forgotten = lane(&seen, "forgotten");
    assert_eq!((&forgotten["pending"], &forgotten["configured"]), (&3.into(), &false.into()));
    assert!(forgotten["oldest_due_ms"].is_u64());
    let plugin = &instance(&seen, "relay-a")["plugins"][0];
    assert_eq!(plugin["name"], "order-events");
    assert_eq!(plugin["hash"].as_str().map(str::len), Some(64));
    let expected = [
        ("default", "circuits_open"),
        ("default", "events_failed"),
        ("strict", "keys_halted"),
        ("forgotten", "lane_not_served"),
    ];
    assert_eq!(problems(&seen), expected.map(|(lane, kind)| (lane.to_owned(), kind.to_owned())));

    // The waiting event is tried now and then, and is under a lease for that long.
    let mut text = String::new();
    eventually(Duration::from_secs(60), async || {
        let (code, printed) = setup.command(&["status"]);
        assert_eq!(code, Some(0), "{printed}");
        text = printed;
        text.contains(NOWHERE) && !text.contains("  leases\n")
    })
    .await;
    assert!(!text.contains("haulier:haulier@"), "{text}");
    snapshot::check("status", &steady(&text));

    // One stops in good order, the other dies.
    assert!(second.terminate().await.success());
    let seen = until(&setup, |status| instance(status, "relay-b")["state"] == "stopped").await;
    assert_eq!(lane(&seen, "default")["served_by"], serde_json::json!(["relay-a"]));
    first.kill();
    let seen = until(&setup, |status| instance(status, "relay-a")["state"] == "gone").await;
    assert!(problems(&seen).contains(&(String::new(), "no_instance".to_owned())));
    assert!(problems(&seen).contains(&("default".to_owned(), "lane_not_served".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_takes_is_told() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    scenario
        .database
        .run(
            "INSERT INTO haulier_lease (source, lane, shard, token, owner, expires_at, taken) VALUES \
             ('orders', 'default', 3, gen_random_uuid(), 'relay-x', now() - interval '5 min', 7), \
             ('orders', 'default', 4, gen_random_uuid(), 'relay-y', now() + interval '5 min', 2)",
        )
        .await;
    let (_, seen) = json(&setup);
    let leases = &seen["sources"][0]["leases"];
    assert_eq!((&leases[0]["owner"], &leases[0]["shard"]), (&"relay-x".into(), &3.into()));
    assert!(leases[0]["expires_in_ms"].as_i64() < Some(-299_000), "{leases}");
    assert!(leases[1]["expires_in_ms"].as_i64() > Some(0), "{leases}");
    assert!(problems(&seen).contains(&("default".to_owned(), "leases_expired".to_owned())));
    let (_, text) = setup.command(&["status"]);
    for part in ["relay-x: 1 shard, 7 events, expired 5 min", "1 lease ran out 5 min"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// A source in a file, and one that may not be there; all that is published goes to standard output.
fn embedded(folder: &Folder, more: &str) -> Setup {
    let file = folder.path().join("shop.db");
    Setup::new(format!(
        "[sources.shop]\nurl = \"sqlite://{}\"\n{more}[sinks.out]\ntype = \"stdout\"\n\
         [[routes]]\nevent_type = \"*\"\ntopic = \"things\"\n",
        file.display()
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_looked_at_hides_no_other() {
    let folder = Folder::new();
    let fine = embedded(&folder, "");
    let (code, text) = fine.command(&["status"]);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("haulier migrate") && text.contains("shop.db"), "{text}");
    fine.migrate();
    let setup =
        embedded(&folder, "[sources.away]\nurl = \"postgres://u:TOPSECRET@127.0.0.1:1/x\"\n");
    let (code, text) = setup.command(&["status"]);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("source away") && text.contains("unavailable"), "{text}");
    assert!(text.contains("shop: no instance has been seen"), "{text}");
    assert!(!text.contains("TOPSECRET"), "{text}");
    let (code, text) = setup.command(&["status", "--source", "shop"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("away"), "{text}");
    let (code, text) = setup.command(&["status", "--source", "nobody"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no source 'nobody'"), "{text}");
    let (code, _) = Setup::new("[sources.x]\n").command(&["status"]);
    assert_eq!(code, Some(78));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_source_is_watched_line_by_line() {
    let folder = Folder::new();
    let setup = named(&embedded(&folder, ""), "one");
    setup.migrate();
    let running = setup.start();
    running.ready().await;
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("shop.db"))
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePool::connect_with(options).await.expect("opens");
    sqlx::query("INSERT INTO outbox (event_type, aggregate_id) VALUES ('t', 'a'), ('t', 'b')")
        .execute(&pool)
        .await
        .expect("inserts");
    sqlx::query("INSERT INTO outbox (event_type, lane) VALUES ('t', 'forgotten')")
        .execute(&pool)
        .await
        .expect("inserts");
    let (config, _) = setup.folder();
    let mut watching = tokio::process::Command::new(build::haulier())
        .args(["status", "--json", "--watch", "1"])
        .current_dir(&config)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("haulier starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    let last = loop {
        let line = lines.next_line().await.expect("reads").expect("it goes on");
        let status: Value = serde_json::from_str(&line).expect("a document a line");
        if lane(&status, "default")["published_last_minute"] == 2 {
            break status;
        }
    };
    assert_eq!(lane(&last, "default")["pending"], 0);
    assert_eq!(lane(&last, "forgotten")["pending"], 1);
    assert!(lane(&last, "forgotten")["oldest_due_ms"].is_u64());
    assert_eq!(instance(&last, "one")["state"], "running");
    let id = watching.id().expect("it runs").to_string();
    let told = std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
    assert!(told.success());
    assert_eq!(watching.wait().await.expect("it ends").code(), Some(0));
}
