//! Topics that are missing or refuse, and brokers that are away or slow.

use std::time::Duration;

use haulier::failure::Cause;
use haulier::sink::kafka::{Config, KafkaSink};
use haulier::sink::{Receipt, Sink as _};
use haulier_tests::process::eventually;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::broker::{
    acknowledged, bootstrap, create, events_in_order, open, outgoing, read, refused, sink, topic,
    unique, unknown,
};

const TIMEOUT: Duration = Duration::from_secs(2);
/// A call that has not returned by then never will.
const LATE: Duration = Duration::from_secs(60);

/// The outcome of a call that must come to an end by itself.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(LATE, call).await.expect("the call returns")
}

fn impatient(bootstrap: &str) -> KafkaSink {
    let config = Config {
        bootstrap_servers: bootstrap.to_owned(),
        publish_timeout: TIMEOUT,
        ..Config::default()
    };
    KafkaSink::new(config, "test").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_stops_its_slots_and_no_other() {
    let missing = unique("missing");
    let there = topic("there", 2, &[]).await;
    let sink = sink();
    let records = vec![
        outgoing(0, 0, &there),
        outgoing(0, 1, &missing),
        outgoing(0, 2, &there),
        outgoing(1, 3, &there),
        outgoing(2, 4, &missing),
        outgoing(2, 5, &missing),
    ];
    let receipts = sink.publish(records.clone(), &open()).await;
    assert_eq!(receipts[0], Receipt::Acknowledged);
    assert_eq!(refused(&receipts[1]), Some(Cause::TopicUnknown));
    assert_eq!(receipts[2], Receipt::Unsent);
    assert_eq!(receipts[3], Receipt::Acknowledged);
    assert_eq!(refused(&receipts[4]), Some(Cause::TopicUnknown));
    assert_eq!(receipts[5], Receipt::Unsent);
    // That it is missing is remembered, but not for long.
    let receipts = sink.publish(vec![outgoing(0, 1, &missing)], &open()).await;
    assert_eq!(refused(&receipts[0]), Some(Cause::TopicUnknown));
    create(&missing, 1, &[]).await;
    let mut receipts = Vec::new();
    let found = eventually(Duration::from_secs(30), async || {
        receipts = sink.publish(vec![outgoing(0, 1, &missing)], &open()).await;
        receipts == [Receipt::Acknowledged]
    })
    .await;
    assert!(found, "{receipts:?}");
    assert_eq!(read(&bootstrap(), &missing).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_topic_refuses_keyless_records_only() {
    let topic = topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let mut records: Vec<_> = (0..30).map(|event| outgoing(event % 3, event, &topic)).collect();
    records[13].record.key = None;
    let receipts = sink().publish(records, &open()).await;
    assert_eq!(refused(&receipts[13]), Some(Cause::TopicRefusesRecord), "{receipts:?}");
    // Slot 1: events 1, 4, 7, 10 went out before.
    assert_eq!(acknowledged(&receipts), 20 + 4);
    events_in_order(&read(&bootstrap(), &topic));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_broker_is_nobodys_fault() {
    let sink = impatient("127.0.0.1:1");
    let records = vec![outgoing(0, 0, "t"), outgoing(0, 1, "t"), outgoing(1, 2, "t")];
    let receipts = in_time(sink.publish(records, &open())).await;
    assert_eq!(unknown(&receipts[0]), Some(Cause::BrokerUnavailable), "{receipts:?}");
    assert_eq!(receipts[1], Receipt::Unsent);
    let failure = sink.ready().await.unwrap_err();
    assert_eq!(failure.cause, Cause::BrokerUnavailable);
    assert!(failure.message.contains("127.0.0.1:1"), "{failure}");
    assert!(failure.message.contains("refused"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_away_and_comes_back() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 2, 1).unwrap();
    let sink = impatient(&cluster.bootstrap_servers());
    let batch =
        |from: u32| (from..from + 20).map(|at| outgoing(at % 4, at, "t")).collect::<Vec<_>>();
    assert_eq!(acknowledged(&sink.publish(batch(0), &open()).await), 20);
    sink.ready().await.unwrap();
    cluster.broker_down(1).unwrap();
    let receipts = in_time(sink.publish(batch(20), &open())).await;
    assert_eq!(acknowledged(&receipts), 0);
    assert!(
        receipts.iter().any(|it| unknown(it) == Some(Cause::BrokerUnavailable)),
        "{receipts:?}"
    );
    assert!(receipts.iter().all(|it| refused(it).is_none()));
    assert!(sink.ready().await.is_err());
    cluster.broker_up(1).unwrap();
    sink.ready().await.unwrap();
    assert_eq!(acknowledged(&sink.publish(batch(20), &open()).await), 20);
    let there = events_in_order(&read(&cluster.bootstrap_servers(), "t"));
    assert_eq!(there.values().map(Vec::len).sum::<usize>(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_broker_is_given_up_in_time() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let sink = impatient(&cluster.bootstrap_servers());
    assert_eq!(acknowledged(&sink.publish(vec![outgoing(0, 0, "t")], &open()).await), 1);
    cluster.broker_round_trip_time(1, Duration::from_secs(30)).unwrap();
    let records = (1..10).map(|at| outgoing(0, at, "t")).collect();
    let receipts = in_time(sink.publish(records, &open())).await;
    assert!(receipts.iter().all(|it| unknown(it).is_some()), "{receipts:?}");
    assert_eq!(unknown(&receipts[0]), Some(Cause::PublishTimeout), "{receipts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_call_returns_soon_and_the_sink_lives_on() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let config = Config { bootstrap_servers: cluster.bootstrap_servers(), ..Config::default() };
    let sink = std::sync::Arc::new(KafkaSink::new(config, "test").unwrap());
    assert_eq!(acknowledged(&sink.publish(vec![outgoing(0, 0, "t")], &open()).await), 1);
    cluster.broker_round_trip_time(1, Duration::from_secs(5)).unwrap();
    let call = {
        let sink = std::sync::Arc::clone(&sink);
        tokio::spawn(async move { sink.publish(vec![outgoing(0, 1, "t")], &open()).await })
    };
    // Nothing tells when the record is on its way, so more than once.
    let returned = eventually(LATE, async || {
        sink.abandon();
        call.is_finished()
    })
    .await;
    assert!(returned);
    let receipts = call.await.unwrap();
    assert_eq!(unknown(&receipts[0]), Some(Cause::ShuttingDown), "{receipts:?}");
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    assert_eq!(acknowledged(&sink.publish(vec![outgoing(0, 2, "t")], &open()).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_close_the_topic_and_spare_the_others() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("closed", 1, 1).unwrap();
    cluster.create_topic("free", 1, 1).unwrap();
    let sink = impatient(&cluster.bootstrap_servers());
    // The first request goes to either topic; both have one record alone on the way.
    let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
    cluster.request_errors(RDKafkaApiKey::Produce, &denied);
    let records: Vec<_> = (0..10).map(|at| outgoing(at, at, "closed")).collect();
    let receipts = sink.publish(records, &open()).await;
    let denied = receipts.iter().filter(|it| refused(it) == Some(Cause::TopicUnauthorised)).count();
    assert_eq!(denied, 10, "{receipts:?}");
    let records: Vec<_> = (0..10).map(|at| outgoing(at, at, "free")).collect();
    assert_eq!(acknowledged(&sink.publish(records, &open()).await), 10);
    assert_eq!(read(&cluster.bootstrap_servers(), "closed").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_errors_are_retried_and_refuse_nothing() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let config = Config { bootstrap_servers: cluster.bootstrap_servers(), ..Config::default() };
    let sink = KafkaSink::new(config, "test").unwrap();
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    let records: Vec<_> = (0..50).map(|at| outgoing(at % 5, at, "t")).collect();
    assert_eq!(acknowledged(&sink.publish(records, &open()).await), 50);
    events_in_order(&read(&cluster.bootstrap_servers(), "t"));
}
