//! What rows and plugins may hold that no broker takes: it is parked with its reason, and nothing else.

use haulier_tests::kafka;
use sqlx::AssertSqlSafe;

use crate::scenario::{Scenario, turn};

/// Events that are parked at once, and one of another key that has to arrive all the same.
async fn parked(scenario: &Scenario, rows: usize) {
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             VALUES ('test.pass', 'healthy', '{topic}', '1')"
        ))
        .await;
    scenario.database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    let failed = "SELECT count(*) FROM outbox WHERE status = 'FAILED'";
    assert_eq!(scenario.database.number(failed).await, rows as i64);
}

async fn count(scenario: &Scenario, kind: &str) -> i64 {
    let sql = "SELECT count(*) FROM outbox WHERE failure_kind = $1 AND last_error <> '' \
         AND octet_length(last_error) <= 4096";
    let found = sqlx::query_scalar(sql).bind(kind).fetch_one(&scenario.database.pool).await;
    found.expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn illegal_topic_names_and_odd_headers_are_the_events_own_fault() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 1");
    setup.migrate();
    let topic = &scenario.topic;
    let long = "x".repeat(250);
    let names = ["", &long, "/", "a/b", ".", "..", " ", "a b", "a\nb", "\u{e9}", "a\u{202e}b"];
    for name in names {
        sqlx::query("INSERT INTO outbox (event_type, aggregate_id, topic) VALUES ('t', 'bad', $1)")
            .bind(name)
            .execute(&scenario.database.pool)
            .await
            .expect("inserts");
    }
    let no_headers = ["[1, 2]", "\"text\"", "17", "true"];
    let large = format!(r#"{{"large": "{}"}}"#, "y".repeat(100_000));
    let odd = [
        r#"{"n": -1.5e300, "deep": {"a": [{}, null]}, "b": false}"#,
        r#"{"": "no name"}"#,
        r#"{"a": 1, "a": "two", "a": null}"#,
        &large,
        "{}",
        "null",
    ];
    for headers in no_headers.iter().chain(&odd) {
        sqlx::query(AssertSqlSafe(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, headers) \
             VALUES ('t', 'headers', '{topic}', $1::json)"
        )))
        .bind(headers)
        .execute(&scenario.database.pool)
        .await
        .expect("inserts");
    }
    let instance = setup.start();
    parked(&scenario, names.len() + no_headers.len()).await;
    let topics = count(&scenario, "topic_illegal").await + count(&scenario, "topic_missing").await;
    assert_eq!(topics, names.len() as i64, "{}", instance.log());
    let headers =
        count(&scenario, "header_invalid").await + count(&scenario, "row_unreadable").await;
    assert_eq!(headers, no_headers.len() as i64, "{}", instance.log());
    let received = kafka::read_count(topic, odd.len() + 1).await;
    assert_eq!(received.len(), odd.len() + 1);
    let own = |index: usize| {
        let first = names.len() + no_headers.len() + 1;
        let id = i64::try_from(first + index).expect("few rows");
        let one = received.iter().find(|one| one.id() == id).expect("it arrives");
        let texts = one.headers.iter().map(|(name, value)| {
            (name.clone(), value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned()))
        });
        // Behind what the relay puts there.
        texts.filter(|(name, _)| !name.starts_with("X-")).collect::<Vec<_>>()
    };
    let header = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let deep =
        [header("n", "-1.5e300"), header("deep", r#"{"a": [{}, null]}"#), header("b", "false")];
    assert_eq!(own(0), deep, "as they are written");
    assert_eq!(own(1), [header("", "no name")]);
    assert_eq!(own(2), [header("a", "1"), header("a", "two"), ("a".to_owned(), None)]);
    assert_eq!(own(3), [header("large", &"y".repeat(100_000))]);
    assert_eq!((own(4), own(5)), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_megabytes_are_parked_or_delivered_as_the_limits_say() {
    let _turn = turn().await;
    let large = "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
         SELECT 't', 'large', $1, to_json(repeat('0123456789', 1000000))";
    let mut scenario = Scenario::new().await;
    scenario.topic = kafka::topic(3, &[("max.message.bytes", "20000000")]).await;
    let mut setup = scenario.setup("max_attempts = 1");
    setup.migrate();
    let insert = async || {
        let pool = &scenario.database.pool;
        sqlx::query(large).bind(&scenario.topic).execute(pool).await.expect("inserts");
    };
    insert().await;
    let mut instance = setup.start();
    parked(&scenario, 1).await;
    assert_eq!(count(&scenario, "record_too_large").await, 1, "{}", instance.log());
    instance.terminate().await;
    // With both limits raised it goes.
    let sink = "publish_timeout = \"2s\"\n";
    assert!(setup.config.contains(sink));
    setup.config = setup.config.replace(sink, &format!("{sink}max_record_bytes = \"20MB\"\n"));
    insert().await;
    let instance = setup.start();
    parked(&scenario, 1).await;
    let received = kafka::read_count(&scenario.topic, 3).await;
    let longest = received.iter().filter_map(|one| Some(one.payload.as_ref()?.len())).max();
    assert_eq!(longest, Some(10_000_002), "{}", instance.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn error_texts_are_stored_whatever_they_hold() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = &scenario.topic;
    let mut setup = scenario.setup("max_attempts = 1").guest("misbehave");
    // With room for a text of a mebibyte; by default that is too much for one call.
    setup.config += &format!(
        "[plugins.misbehave]\noutput_base = \"8MiB\"\n\
         [[routes]]\nevent_type = \"*\"\nplugin = \"misbehave\"\ntopic = \"{topic}\"\n"
    );
    setup.migrate();
    let events = [
        "test.reject-long",
        "test.reject-utf8",
        "test.utf8-topic",
        "test.utf8-header",
        "test.control-topic",
        "test.control-header",
    ];
    // After a success of the version every failure is the event's own.
    let list = events.map(|event| format!("('{event}', '{event}', '1')")).join(", ");
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, payload) VALUES ('test.pass', 'first', '1'); \
             INSERT INTO outbox (event_type, aggregate_id, payload) VALUES {list}"
        ))
        .await;
    let instance = setup.start();
    parked(&scenario, events.len()).await;
    let stored =
        "SELECT count(*) FROM outbox WHERE last_error <> '' AND octet_length(last_error) <= 4096";
    assert_eq!(scenario.database.number(stored).await, events.len() as i64);
    let rejected = "SELECT count(*) FROM outbox WHERE event_type = 'test.reject-long' \
         AND failure_kind = 'plugin_rejected' AND last_error LIKE '%never%' AND failure_plugin = 'misbehave'";
    assert_eq!(scenario.database.number(rejected).await, 1, "{}", instance.log());
    let unprintable =
        "SELECT count(*) FROM outbox WHERE last_error ~ '[\\x01-\\x09\\x0b-\\x1f\\x7f]'";
    assert_eq!(scenario.database.number(unprintable).await, 0);
    // A text that is none does not cross the boundary: it is the guest's failure.
    let none = "SELECT count(*) FROM outbox WHERE event_type LIKE 'test.utf8-%' AND failure_kind = 'plugin_output' \
         OR event_type = 'test.reject-utf8' AND failure_kind = 'plugin_output'";
    assert_eq!(scenario.database.number(none).await, 3, "{}", instance.log());
    let (code, text) = instance.command(&["status"]);
    assert!(code.is_some() && text.contains("default"), "{text}");
    // The log is still text in lines, and no control character of the guest's is in it.
    let log = std::fs::read(instance.folder.join("log")).expect("a log");
    let log = String::from_utf8(log).expect("the log is UTF-8");
    let found: Vec<char> = log.chars().filter(|c| c.is_control() && *c != '\n').collect();
    assert!(found.is_empty(), "control characters reach the log: {found:?}");
}
