//! Plugins through the whole relay: the example guest, and files that are no plugins.

use haulier_tests::database::Database;
use haulier_tests::kafka::{self, Received};

use crate::scenario::{Scenario, turn};

async fn insert(database: &Database, event_type: &str, key: &str, payload: &str) {
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1, $2, $3::json)",
    )
    .bind(key)
    .bind(event_type)
    .bind(payload)
    .execute(&database.pool)
    .await
    .expect("inserts");
}

fn of_type<'a>(received: &'a [Received], event_type: &str) -> &'a Received {
    received
        .iter()
        .find(|one| one.header("X-Event-Type") == Some(event_type))
        .unwrap_or_else(|| panic!("{event_type} arrives"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_plugin_routes_keys_rewrites_and_splits() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let prefix = haulier_tests::database::unique("p");
    let (orders, billing) = (format!("{prefix}.orders"), format!("{prefix}.billing"));
    let snapshots = format!("{prefix}.order-snapshots");
    kafka::create(&snapshots, 3, &[("cleanup.policy", "compact")]).await;
    kafka::create(&orders, 3, &[]).await;
    kafka::create(&billing, 3, &[]).await;
    let mut setup = scenario.setup("max_attempts = 1").guest("order_events");
    setup.config += &format!(
        "[plugins.order-events]\nsettings = {{ topic_prefix = \"{prefix}.\" }}\n\
         [[routes]]\nevent_type = \"order.*\"\nplugin = \"order-events\"\n"
    );
    setup.migrate();
    let instance = setup.start();
    let order = r#"{"id":"o-1","customer_id":"c-7","total_cents":1250,"currency":"EUR","reason":"late","secret":"x"}"#;
    for event_type in
        ["order.created", "order.paid", "order.cancelled", "order.deleted", "order.internal.note"]
    {
        insert(&scenario.database, event_type, "o-1", order).await;
    }
    insert(&scenario.database, "order.created", "o-2", "17").await;
    scenario.database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    let received = kafka::read_count(&orders, 3).await;
    assert_eq!(received.len(), 3, "{received:?}\n{}", instance.log());
    let created = of_type(&received, "order.created");
    assert_eq!(
        (created.key.as_deref(), created.payload.as_deref()),
        (Some(&b"c-7"[..]), Some(order.as_bytes()))
    );
    let deleted = kafka::read_count(&snapshots, 1).await;
    assert_eq!(
        (deleted[0].key.as_deref(), &deleted[0].payload),
        (Some(&b"o-1"[..]), &None),
        "a tombstone"
    );
    assert!(
        !String::from_utf8_lossy(
            of_type(&received, "order.cancelled").payload.as_deref().unwrap_or_default()
        )
        .contains("secret")
    );
    assert_eq!(kafka::read_count(&billing, 1).await.len(), 1, "one type becomes two deliveries");
    // The event the plugin rejects is parked with who rejected it.
    let parked = scenario
        .database
        .number("SELECT count(*) FROM outbox WHERE failure_kind = 'plugin_rejected' AND failure_plugin = 'order-events' AND length(failure_hash) = 64")
        .await;
    assert_eq!(parked, 1);
    assert_eq!(instance.metric("haulier_events_dropped_total").await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_plugins_hold_their_events_and_nothing_else() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = &scenario.topic;
    let mut setup = scenario.setup("").guest("other_world");
    setup.config += &format!(
        "[[routes]]\nevent_type = \"order.*\"\nplugin = \"order-events\"\n\
         [[routes]]\nevent_type = \"*\"\ntopic = \"{topic}\"\n"
    );
    setup.migrate();
    for event_type in ["order.created", "other.thing"] {
        insert(&scenario.database, event_type, event_type, "{}").await;
    }
    let (folder, _) = setup.folder();
    drop(std::fs::remove_dir_all(folder));
    let instance = setup.start();
    instance.unready(&["other_world.wasm", "order-events"]).await;
    assert_eq!(kafka::read_count(topic, 1).await.len(), 1, "everything else runs");
    scenario
        .database
        .until("SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 0 AND failure_kind = 'plugin_unavailable'", 1)
        .await;
    assert_eq!(instance.get("/healthz").await.map(|answer| answer.0), Some(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trapping_event_fails_alone() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let topic = &scenario.topic;
    let mut setup = scenario.setup("max_attempts = 1").guest("misbehave");
    setup.config +=
        &format!("[[routes]]\nevent_type = \"*\"\nplugin = \"misbehave\"\ntopic = \"{topic}\"\n");
    setup.migrate();
    for n in 0..60 {
        let event_type = match n {
            20 => "test.panic",
            40 => "test.loop",
            _ => "test.pass",
        };
        insert(&scenario.database, event_type, &format!("k-{n}"), "{}").await;
    }
    let instance = setup.start();
    scenario.database.until("SELECT count(*) FROM outbox WHERE status <> 'FAILED'", 0).await;
    assert_eq!(kafka::read_count(topic, 58).await.len(), 58, "{}", instance.log());
    for kind in ["plugin_trap", "plugin_timeout"] {
        assert_eq!(
            scenario
                .database
                .number(format!("SELECT count(*) FROM outbox WHERE failure_kind = '{kind}'"))
                .await,
            1
        );
    }
}
