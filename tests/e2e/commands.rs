//! The command line: migrate, check, bad settings, the admin port.

use haulier_tests::database::Database;
use haulier_tests::kafka;
use haulier_tests::process::Setup;

use crate::scenario::{Scenario, turn};

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_are_all_named_and_touch_nothing() {
    let setup = Setup::new(
        "[sources.orders]\nurl = \"postgres://u:TOPSECRET@127.0.0.1:1/x\"\ntabel = \"outbox\"\n\
         [lanes.default]\nlease = \"soon\"\nsink = \"mian\"\n\
         [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"127.0.0.1:9\"\n[sinks.main.librdkafka]\nacks = \"1\"\n\"no.such.option\" = 1\n",
    );
    for words in [["run"].as_slice(), &["check"], &["migrate"]] {
        let (code, text) = setup.command(words);
        assert_eq!(code, Some(78), "{text}");
        for part in [
            "haulier.toml:3",
            "tabel",
            "'table'",
            "haulier.toml:5",
            "lease",
            "mian",
            "'main'",
            "acks",
            "no.such.option",
        ] {
            assert!(text.contains(part), "{words:?} does not name {part}:\n{text}");
        }
        assert!(!text.contains("TOPSECRET"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tries_what_the_settings_name() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let (code, text) = scenario.setup("").command(&["check"]);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("haulier migrate"), "{text}");
    scenario.setup("").migrate();
    let (code, text) = scenario.setup("").command(&["check"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = scenario.setup_at("127.0.0.1:9", "").command(&["check"]);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("sink main") && text.contains("127.0.0.1:9"), "{text}");
    let (code, text) = scenario.setup_at("127.0.0.1:9", "").command(&["check", "--offline"]);
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_migration_can_be_run_by_hand() {
    let database = Database::fresh().await;
    let setup = Setup::new(format!(
        "[sources.orders]\nurl = \"{}\"\ntable = 'app.\"Outbox\"'\n[sinks.out]\ntype = \"stdout\"\n",
        database.url
    ));
    let (code, sql) = setup.command(&["migrate", "--print"]);
    assert_eq!(code, Some(0), "{sql}");
    database.run(sql).await;
    setup.migrate();
    let (code, text) = setup.command(&["check"]);
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_come_from_the_environment_too() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let mut setup =
        Setup::new("[sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"nowhere:1\"\n");
    setup.env = vec![
        ("HAULIER__SOURCES__ORDERS__URL".into(), scenario.database.url.clone()),
        ("HAULIER__SINKS__MAIN__BOOTSTRAP_SERVERS".into(), kafka::address()),
        ("HAULIER__SINKS__MAIN__LIBRDKAFKA__LINGER_MS".into(), "2".into()),
    ];
    setup.migrate();
    let _instance = setup.start();
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!("INSERT INTO outbox (event_type, topic) VALUES ('t', '{topic}')"))
        .await;
    assert_eq!(kafka::read_count(topic, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_named_until_it_is_there() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    let instance = setup.start();
    instance.unready(&["outbox", "haulier migrate"]).await;
    instance.logged("haulier migrate").await;
    setup.migrate();
    instance.ready().await;
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!("INSERT INTO outbox (event_type, topic) VALUES ('t', '{topic}')"))
        .await;
    assert_eq!(kafka::read_count(topic, 1).await.len(), 1);
    let (_, metrics) = instance.get("/metrics").await.expect("metrics");
    for name in [
        "haulier_claim_seconds",
        "haulier_publish_seconds",
        "haulier_event_wait_seconds",
        "haulier_event_work_seconds",
        "haulier_events_published_total",
        "haulier_events_dropped_total",
        "haulier_events_failed_total",
        "haulier_events_retried_total",
        "haulier_lease_losses_total",
        "haulier_pending",
        "haulier_oldest_due_age_seconds",
    ] {
        assert!(metrics.contains(name), "{name} is among the metrics");
    }
    assert!(metrics.contains("source=\"orders\"") && metrics.contains("lane=\"default\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_deletes_published_rows_only() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let mut setup = scenario.setup("max_attempts = 1");
    setup.config = setup.config.replacen(
        "[sinks.main]",
        "settle = \"mark\"\nretention = \"1s\"\nretention_interval = \"1s\"\nretention_batch = 10\n[sinks.main]",
        1,
    );
    setup.migrate();
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, topic) SELECT 't', '{topic}' FROM generate_series(1, 100); \
             INSERT INTO outbox (event_type, topic) VALUES ('t', 'il/legal'); \
             INSERT INTO outbox (event_type, topic, available_at) VALUES ('t', '{topic}', now() + interval '1 hour')"
        ))
        .await;
    let _instance = setup.start();
    scenario.database.until("SELECT count(*) FROM outbox", 2).await;
    assert_eq!(
        scenario
            .database
            .number("SELECT count(*) FROM outbox WHERE status IN ('FAILED', 'PENDING')")
            .await,
        2
    );
}
