//! What a good plugin says arrives, and it is given no more than it asked for.

use bytes::Bytes;
use haulier::event::{Delivery, Header, KeyChoice, Outcome, PayloadChoice};
use haulier::failure::Cause;
use haulier::plugin::PluginConfig;
use haulier::transform::Plugins;
use serde_json::json;

use crate::guests::{
    Folder, batch, component, dropped, event, failed, misbehave, misbehaving, run,
};

#[tokio::test]
async fn the_example_plugin_routes_an_order_service() {
    let folder = Folder::new().with("order-events.wasm", component("order_events"));
    let settings = json!({ "topic_prefix": "staging." });
    let config = PluginConfig { settings, ..PluginConfig::default() };
    let host = folder.load_with("order-events", config).await;
    assert_eq!(host.troubles(), Vec::<String>::new());
    assert_eq!(host.wanting("order.created"), ["order-events"]);
    assert_eq!(host.wanting("cart.created"), Vec::<String>::new());

    let mut events = batch(6, &[]);
    let order = br#"{"id":"o-1","customer_id":"c-9","total_cents":1250,"currency":"EUR"}"#;
    for (event, event_type) in events.iter_mut().zip([
        "order.created",
        "order.paid",
        "order.deleted",
        "order.internal.audit",
        "order.unknown",
        "order.created",
    ]) {
        event.event_type = event_type.to_owned();
        event.payload = Some(Bytes::from_static(order));
    }
    events[5].payload = Some(Bytes::from_static(b"{oops"));
    let done = run(&host, "order-events", &events).await;
    assert_eq!((done.stamp.name.as_str(), done.stamp.version.as_str()), ("order-events", "0.1.0"));

    let by_customer = Delivery {
        topic: Some("staging.orders".to_owned()),
        key: KeyChoice::Bytes(Bytes::from_static(b"c-9")),
        ..Delivery::default()
    };
    let invoice = Delivery {
        topic: Some("staging.billing".to_owned()),
        key: KeyChoice::Bytes(Bytes::from_static(b"o-1")),
        payload: PayloadChoice::Bytes(Bytes::from_static(
            br#"{"order_id":"o-1","customer_id":"c-9","amount_cents":1250,"currency":"EUR"}"#,
        )),
        ..Delivery::default()
    };
    let tombstone = Delivery {
        topic: Some("staging.order-snapshots".to_owned()),
        payload: PayloadChoice::Tombstone,
        ..Delivery::default()
    };
    let verdicts = done.verdicts;
    assert_eq!(verdicts[0], Ok(Outcome::Deliver(vec![by_customer.clone()])));
    assert_eq!(verdicts[1], Ok(Outcome::Deliver(vec![by_customer, invoice])));
    assert_eq!(verdicts[2], Ok(Outcome::Deliver(vec![tombstone])));
    assert!(matches!(&verdicts[3], Ok(Outcome::Drop(reason)) if reason.contains("internal")));
    for (verdict, text) in [(&verdicts[4], "order.unknown"), (&verdicts[5], "line 1 column 2")] {
        let failure = verdict.as_ref().expect_err("a rejection");
        assert_eq!(failure.cause, Cause::PluginRejected);
        assert!(failure.message.contains(text), "{failure}");
    }
}

#[tokio::test]
async fn every_outcome_arrives_as_it_was_said() {
    let (_folder, host) = misbehaving(json!({})).await;
    let special = [
        (0, "test.full"),
        (1, "test.fan-out-0"),
        (2, "test.fan-out-2"),
        (3, "test.drop"),
        (4, "test.reject"),
        (5, "test.retry"),
    ];
    let done = run(&host, "misbehave", &batch(7, &special)).await;
    let full = Delivery {
        topic: Some("topic".to_owned()),
        key: KeyChoice::Bytes(Bytes::new()),
        payload: PayloadChoice::Bytes(Bytes::from_static(b"payload")),
        headers: Some(vec![Header::text("a", "1"), Header { name: "b".to_owned(), value: None }]),
        partition: Some(3),
        timestamp_ms: Some(1_700_000_000_000),
    };
    assert_eq!(done.verdicts[0], Ok(Outcome::Deliver(vec![full])));
    assert_eq!(done.verdicts[1], Ok(Outcome::Deliver(Vec::new())));
    assert_eq!(done.verdicts[2], Ok(Outcome::Deliver(vec![Delivery::default(); 2])));
    assert_eq!(done.verdicts[3], Ok(Outcome::Drop("not wanted".to_owned())));
    let causes: Vec<_> = done.verdicts[4..6]
        .iter()
        .map(|verdict| verdict.as_ref().map_err(|failure| failure.cause))
        .collect();
    assert_eq!(causes, [Err(Cause::PluginRejected), Err(Cause::PluginRetry)]);
    assert_eq!(done.verdicts[6], Ok(Outcome::Deliver(vec![Delivery::default()])));
}

#[tokio::test]
async fn an_empty_batch_is_no_work() {
    let (_folder, host) = misbehaving(json!({})).await;
    assert!(run(&host, "misbehave", &[]).await.verdicts.is_empty());
}

#[tokio::test]
async fn a_plugin_is_given_what_it_needs_and_no_more() {
    let (_folder, host) = misbehaving(json!({})).await;
    let done = run(&host, "misbehave", &[event(7, "test.report")]).await;
    assert_eq!(
        dropped(&done),
        "id=7 aggregate=order/o-7 headers=[\"trace\"] payload=Some(\"{\\\"n\\\":1}\") \
         attributes=[\"attempt=1\", \"created-at-ms=1700000000000\", \"source=shop\", \
         \"lane=default\", \"topic=row-topic\"]"
    );

    let folder = Folder::new().with("m.wasm", misbehave("needs-nothing"));
    let host = folder.load().await;
    let done = run(&host, "misbehave", &[event(7, "test.report")]).await;
    assert_eq!(dropped(&done), "id=7 aggregate=order/o-7 headers=[] payload=None attributes=[]");
}

#[tokio::test]
async fn a_plugin_sees_nothing_of_the_world() {
    let (_folder, host) = misbehaving(json!({})).await;
    let done = run(&host, "misbehave", &[event(1, "test.authority")]).await;
    assert_eq!(dropped(&done), "arguments=0 environment=0 input=0");
}

#[tokio::test]
async fn a_batch_that_does_not_fit_into_memory_is_cut_into_calls() {
    let (_folder, host) = misbehaving(json!({})).await;
    let mut events = batch(60, &[(59, "test.reject")]);
    for event in &mut events {
        event.payload = Some(Bytes::from(vec![b'x'; 1 << 20]));
    }
    failed(run(&host, "misbehave", &events).await, &[59], Cause::PluginRejected);
}
