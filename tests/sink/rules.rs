//! The rules of publishing in order, one by one, where they are hardest to keep.

use std::sync::Arc;
use std::time::Duration;

use haulier::failure::Cause;
use haulier::sink::kafka::{Config, KafkaSink};
use haulier::sink::{Outgoing, PublishMode, Receipt, Sink as _};
use haulier_tests::process::eventually;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::broker::{
    acknowledged, bootstrap, bulky, config, events_in_order, open, outgoing, read, refused, sink,
    topic,
};
use crate::order::{check_faults, with_faults};

const NO_LARGE_ONES: (&str, &str) = ("max.message.bytes", "2000");

/// Every record travels in a batch of its own, so that as many batches as can be are on the way.
fn single_batches() -> Config {
    let mut config = config();
    config.options.insert("batch.num.messages".into(), "1".into());
    config.options.insert("linger.ms".into(), "0".into());
    config
}

/// For each of so many partitions a slot, whose record `first` is too large, with others behind it.
fn faulty_heads(topic: &str, partitions: u32, first: u32) -> Vec<Outgoing> {
    let mut records = Vec::new();
    for event in first..first + 40 {
        for slot in 0..partitions {
            let mut one = if event == first {
                bulky(slot, event, topic, 5000)
            } else {
                outgoing(slot, event, topic)
            };
            one.record.partition = Some(i32::try_from(slot).unwrap());
            records.push(one);
        }
    }
    records
}

/// Checks that of records of [`faulty_heads`] the heads are refused and nothing else was sent.
fn check_heads(receipts: &[Receipt], partitions: usize) {
    for (at, receipt) in receipts.iter().enumerate() {
        if at < partitions {
            assert_eq!(refused(receipt), Some(Cause::RecordTooLarge), "{at}: {receipt:?}");
        } else {
            assert_eq!(*receipt, Receipt::Unsent, "{at}");
        }
    }
}

/// A broker without state for a producer takes any first sequence: what came behind a refused first
/// record would be appended. One partition, so that all that may be on the way at once is of it; and
/// several times, since it is a race.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_fresh_producer_nothing_follows_the_first_record_unanswered() {
    for _ in 0..8 {
        let topic = topic("heads", 1, &[NO_LARGE_ONES]).await;
        let sink = KafkaSink::new(single_batches(), "test").unwrap();
        let receipts = sink.publish(faulty_heads(&topic, 1, 0), &open()).await;
        check_heads(&receipts, 1);
        assert_eq!(read(&bootstrap(), &topic).len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_producer_proves_each_partition_again() {
    let spoiling = topic("spoiling", 1, &[NO_LARGE_ONES]).await;
    for _ in 0..8 {
        let topic = topic("reproved", 1, &[NO_LARGE_ONES]).await;
        let sink = KafkaSink::new(single_batches(), "test").unwrap();
        let warm: Vec<_> = faulty_heads(&topic, 1, 0).split_off(1);
        assert_eq!(acknowledged(&sink.publish(warm, &open()).await), 39);
        // A refusal elsewhere: the producer that had proved the partition is given up.
        let receipts = sink.publish(vec![bulky(0, 0, &spoiling, 5000)], &open()).await;
        assert_eq!(refused(&receipts[0]), Some(Cause::RecordTooLarge));
        let receipts = sink.publish(faulty_heads(&topic, 1, 100), &open()).await;
        check_heads(&receipts, 1);
        assert_eq!(read(&bootstrap(), &topic).len(), 39);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_overtakes_a_refused_record_across_a_full_queue() {
    let topic = topic("full-refusal", 2, &[NO_LARGE_ONES]).await;
    let mut config = config();
    config.options.insert("queue.buffering.max.messages".into(), "15".into());
    config.options.insert("batch.num.messages".into(), "4".into());
    let sink = KafkaSink::new(config, "test").unwrap();
    let faulty = [(0, 60), (3, 0), (5, 199), (6, 100)];
    let records = with_faults(&topic, 8, 200, &faulty);
    let receipts = sink.publish(records.clone(), &open()).await;
    check_faults(&topic, &records, &receipts, &faulty);
}

/// What a broker says of a producer whose sequence it has lost or refuses. librdkafka takes some of
/// these for fatal. The in-process cluster keeps no sequences, so one batch is on the way at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_fatal_error_of_the_producer_costs_neither_order_nor_records() {
    for fatal in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
    ] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let mut config = Config { bootstrap_servers: cluster.bootstrap_servers(), ..config() };
        config.options.insert("max.in.flight".into(), "1".into());
        config.options.insert("batch.num.messages".into(), "5".into());
        let sink = KafkaSink::new(config, "test").unwrap();
        let batch = |from: u32| (from..from + 120).map(|at| outgoing(at % 4, at, "t")).collect();
        assert_eq!(acknowledged(&sink.publish(batch(0), &open()).await), 120);
        let fine = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
        cluster.request_errors(RDKafkaApiKey::Produce, &[fine, fine, fine, fatal]);
        let receipts = sink.publish(batch(120), &open()).await;
        assert_eq!(acknowledged(&receipts), 120, "{fatal:?}: {receipts:?}");
        let receipts = sink.publish(batch(240), &open()).await;
        assert_eq!(acknowledged(&receipts), 120, "{fatal:?}: {receipts:?}");
        let there = events_in_order(&read(&cluster.bootstrap_servers(), "t"));
        assert_eq!(there.values().map(Vec::len).sum::<usize>(), 360, "{fatal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_closes_midway_stops_the_rest() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    // Slow enough that the fence closes long before the last record's turn.
    cluster.broker_round_trip_time(1, Duration::from_millis(100)).unwrap();
    let bootstrap = cluster.bootstrap_servers();
    let config =
        Config { bootstrap_servers: bootstrap.clone(), mode: PublishMode::PerKeySync, ..config() };
    let sink = Arc::new(KafkaSink::new(config, "test").unwrap());
    let fence = open();
    let call = {
        let (sink, fence) = (Arc::clone(&sink), fence.clone());
        let records = (0..500).map(|event| outgoing(0, event, "t")).collect();
        tokio::spawn(async move { sink.publish(records, &fence).await })
    };
    let begun = eventually(Duration::from_secs(60), async || {
        let bootstrap = bootstrap.clone();
        tokio::task::spawn_blocking(move || !read(&bootstrap, "t").is_empty()).await.unwrap()
    })
    .await;
    assert!(begun);
    fence.close();
    let receipts = call.await.unwrap();
    let done = acknowledged(&receipts);
    assert!(done < 500 && receipts[..done].iter().all(|it| *it == Receipt::Acknowledged));
    assert!(receipts[done..].iter().all(|it| *it == Receipt::Unsent), "{receipts:?}");
    assert_eq!(read(&bootstrap, "t").len(), done);
}

#[tokio::test(flavor = "multi_thread")]
async fn illegal_topics_are_refused_before_anything_of_their_event_is_sent() {
    let topic = topic("legal", 1, &[]).await;
    let long = "x".repeat(250);
    let illegal = ["", ".", "..", "a b", "a/b", "\u{e9}", "a\0b", "a\nb", long.as_str()];
    let mut records = Vec::new();
    for (slot, name) in (0_u32..).zip(illegal) {
        // Two records of one event, of which the first could be sent.
        records.extend([
            outgoing(slot, 0, &topic),
            outgoing(slot, 0, name),
            outgoing(slot, 1, &topic),
        ]);
    }
    records.push(outgoing(99, 0, &topic));
    let receipts = sink().publish(records, &open()).await;
    for of_slot in receipts[..illegal.len() * 3].chunks(3) {
        assert_eq!(of_slot[0], Receipt::Unsent);
        assert_eq!(refused(&of_slot[1]), Some(Cause::TopicIllegal));
        assert_eq!(of_slot[2], Receipt::Unsent);
    }
    assert_eq!(receipts.last(), Some(&Receipt::Acknowledged));
    assert_eq!(read(&bootstrap(), &topic).len(), 1);
}
