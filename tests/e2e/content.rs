//! What arrives, byte for byte: payloads, keys, headers.

use haulier_tests::kafka::{self, Received};
use haulier_tests::process::Setup;

use crate::scenario::{Scenario, turn};

fn by_id(received: &[Received], id: i64) -> &Received {
    received.iter().find(|one| one.id() == id).unwrap_or_else(|| panic!("event {id} arrives"))
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_arrive_byte_for_byte() {
    let _turn = turn().await;
    for (payload_type, payloads) in [
        (
            "json",
            vec![
                br#"{"b":1.00,  "a":[],"n":null,"b":2}"#.to_vec(),
                "\"\\u0000 \u{1f600}\"".as_bytes().to_vec(),
            ],
        ),
        ("text", vec!["\u{1f600} text".as_bytes().to_vec(), Vec::new()]),
        ("bytea", vec![b"\0\x01\xff\0".to_vec(), Vec::new(), vec![0xfe; 300_000]]),
    ] {
        let scenario = Scenario::new().await;
        let setup = scenario.setup("");
        let (code, text) = setup.command(&["migrate", "--payload-type", payload_type]);
        assert_eq!(code, Some(0), "{text}");
        let _instance = setup.start();
        let mut sent = Vec::new();
        let cast = match payload_type {
            "bytea" => "$2",
            "json" => "convert_from($2, 'UTF8')::json",
            _ => "convert_from($2, 'UTF8')",
        };
        for payload in payloads.into_iter().map(Some).chain([None]) {
            let sql = format!(
                "INSERT INTO outbox (event_type, topic, payload) VALUES ('t', $1, {cast}) RETURNING id"
            );
            let id: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .bind(&scenario.topic)
                .bind(&payload)
                .fetch_one(&scenario.database.pool)
                .await
                .expect("inserts");
            sent.push((id, payload));
        }
        let received = kafka::read_count(&scenario.topic, sent.len()).await;
        assert_eq!(received.len(), sent.len());
        for (id, payload) in sent {
            assert_eq!(by_id(&received, id).payload, payload, "{payload_type} {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_headers_arrive_as_they_are() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    let _instance = setup.start();
    let topic = &scenario.topic;
    let headers = r#"{"traceparent":"00-a","n":1.50,"z":null,"o":{"k":1},"traceparent":"00-b"}"#;
    for (aggregate, partition) in
        [("NULL", "NULL"), ("''", "NULL"), ("'a'", "NULL"), ("'a'", "''"), ("'a'", "'pé'")]
    {
        scenario
            .database
            .run(format!(
                "INSERT INTO outbox (event_type, aggregate_type, aggregate_id, partition_key, topic, headers) \
                 VALUES ('order.created', 'order', {aggregate}, {partition}, '{topic}', '{headers}')"
            ))
            .await;
    }
    let received = kafka::read_count(topic, 5).await;
    let keys = [None, Some(""), Some("a"), Some(""), Some("pé")];
    for (id, key) in (1..).zip(keys) {
        let one = by_id(&received, id);
        assert_eq!(one.key.as_deref(), key.map(str::as_bytes), "event {id}");
        let text = |name: &str, value: &str| (name.to_owned(), Some(value.as_bytes().to_vec()));
        assert_eq!(
            one.headers,
            [
                text("X-Event-Type", "order.created"),
                text("X-Aggregate-Type", "order"),
                text("X-Outbox-Id", &id.to_string()),
                text("traceparent", "00-a"),
                text("n", "1.50"),
                ("z".to_owned(), None),
                text("o", r#"{"k":1}"#),
                text("traceparent", "00-b"),
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_choose_topic_key_and_headers() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let (topic, other) = (&scenario.topic, kafka::topic(3, &[]).await);
    let mut setup = scenario.setup("");
    setup.config += &format!(
        "[[routes]]\nevent_type = \"invoice.*\"\ntopic = \"{other}\"\nkey = \"/customer/id\"\nheaders = {{ env = \"test\" }}\n\
         [[routes]]\nevent_type = [\"a\", \"*.deleted\"]\nkey = \"null\"\ntopic = \"{{topic}}\"\n"
    );
    setup.migrate();
    let _instance = setup.start();
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) VALUES \
             ('invoice.sent', 'x', NULL, '{{\"customer\":{{\"id\":17}}}}'), \
             ('thing.deleted', 'x', '{topic}', NULL), ('thing.made', 'x', '{topic}', '1')"
        ))
        .await;
    let invoice = kafka::read_count(&other, 1).await;
    assert_eq!(
        (invoice[0].key.as_deref(), invoice[0].header("env")),
        (Some(&b"17"[..]), Some("test"))
    );
    let things = kafka::read_count(topic, 2).await;
    assert_eq!(by_id(&things, 2).key, None);
    assert_eq!(by_id(&things, 3).key.as_deref(), Some(&b"x"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stdout_sink_writes_a_line_a_record() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = Setup::new(format!(
        "[sources.orders]\nurl = \"{}\"\nsettle = \"mark\"\n[sinks.out]\ntype = \"stdout\"\n",
        scenario.database.url
    ));
    setup.migrate();
    scenario
        .database
        .run("INSERT INTO outbox (event_type, aggregate_id, topic, payload) VALUES ('t', 'k', 'some-topic', '{\"a\": 1}')")
        .await;
    let instance = setup.start();
    scenario.database.until("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", 1).await;
    let log = instance.log();
    let line = log.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(
        (&record["topic"], &record["key"], &record["payload"]),
        (&"some-topic".into(), &"k".into(), &"{\"a\": 1}".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_application_publishes_what_it_commits() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = &scenario.topic;
    let mut setup = scenario.setup("");
    setup.config += &format!("[[routes]]\nevent_type = \"order.*\"\ntopic = \"{topic}\"\n");
    setup.migrate();
    let orders = haulier_tests::build::haulier().with_file_name("orders");
    // Run again, it goes on where it stopped; and a rate may be given.
    for words in [&["50"][..], &["50", "1000"]] {
        let output = std::process::Command::new(&orders)
            .args(words)
            .env("DATABASE_URL", &scenario.database.url)
            .output()
            .expect("the example runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("committed 45 orders of 50"), "{text}");
    }
    let _instance = setup.start();
    let received = kafka::read_count(topic, 90).await;
    assert_eq!(received.len(), 90, "and nothing of what was rolled back");
}
