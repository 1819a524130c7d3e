//! Order within a slot, with many records in flight and with refusals in the middle.

use std::time::Duration;

use haulier::failure::Cause;
use haulier::sink::kafka::KafkaSink;
use haulier::sink::{Outgoing, PublishMode, Receipt, Sink as _};

use crate::broker::{
    acknowledged, bootstrap, bulky, config, events_in_order, open, outgoing, read, refused, sink,
    topic,
};

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_pipelined_in_order() {
    let topic = topic("pipelined", 4, &[]).await;
    let sink = sink();
    for batch in 0..5 {
        let records: Vec<_> =
            (0..2000).map(|at| outgoing(at % 50, batch * 2000 + at, &topic)).collect();
        assert_eq!(acknowledged(&sink.publish(records, &open()).await), 2000);
    }
    let events = events_in_order(&read(&bootstrap(), &topic));
    assert_eq!(events.values().map(Vec::len).sum::<usize>(), 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn per_key_sync_keeps_order_too() {
    let topic = topic("sync", 4, &[]).await;
    let mut config = config();
    config.mode = PublishMode::PerKeySync;
    let sink = KafkaSink::new(config, "test").unwrap();
    let records: Vec<_> = (0..500).map(|at| outgoing(at % 50, at, &topic)).collect();
    assert_eq!(acknowledged(&sink.publish(records, &open()).await), 500);
    let events = events_in_order(&read(&bootstrap(), &topic));
    assert_eq!(events.values().map(Vec::len).sum::<usize>(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_alternate_between_topics_stay_in_order() {
    let (one, two) = (topic("one", 3, &[]).await, topic("two", 3, &[]).await);
    let mut records = Vec::new();
    for event in 0..60 {
        let slot = event % 3;
        records.push(outgoing(slot, event, if event % 2 == 0 { &one } else { &two }));
        if event % 5 == 0 {
            records.push(outgoing(slot, event, &two));
        }
    }
    let receipts = sink().publish(records.clone(), &open()).await;
    assert_eq!(receipts, vec![Receipt::Acknowledged; records.len()]);
    events_in_order(&read(&bootstrap(), &one));
    events_in_order(&read(&bootstrap(), &two));
}

/// Slots of `events` events each, of which those in `faulty` are too large for the topic.
pub(crate) fn with_faults(
    topic: &str,
    slots: u32,
    events: u32,
    faulty: &[(u32, u32)],
) -> Vec<Outgoing> {
    let mut records = Vec::new();
    for event in 0..events {
        for slot in 0..slots {
            records.push(if faulty.contains(&(slot, event)) {
                bulky(slot, event, topic, 5000)
            } else {
                outgoing(slot, event, topic)
            });
        }
    }
    records
}

/// Checks that exactly the faulty events are refused, what follows them in their slot is unsent,
/// everything else is acknowledged, and the topic holds just that, in order.
pub(crate) fn check_faults(
    topic: &str,
    records: &[Outgoing],
    receipts: &[Receipt],
    faulty: &[(u32, u32)],
) {
    let mut expected = std::collections::BTreeMap::<u32, Vec<u32>>::new();
    for (sent, receipt) in records.iter().zip(receipts) {
        let first =
            faulty.iter().filter(|(slot, _)| *slot == sent.slot).map(|(_, event)| *event).min();
        match first {
            Some(fault) if sent.event == fault => {
                assert_eq!(
                    refused(receipt),
                    Some(Cause::RecordTooLarge),
                    "{} {receipt:?}",
                    sent.slot
                );
            }
            Some(fault) if sent.event > fault => {
                assert_eq!(*receipt, Receipt::Unsent, "{} {}", sent.slot, sent.event);
            }
            Some(_) | None => {
                assert_eq!(*receipt, Receipt::Acknowledged, "{} {}", sent.slot, sent.event);
                expected.entry(sent.slot).or_default().push(sent.event);
            }
        }
    }
    assert_eq!(events_in_order(&read(&bootstrap(), topic)), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_overtakes_a_record_that_the_broker_refuses() {
    let topic = topic("refusal", 2, &[("max.message.bytes", "2000")]).await;
    let faulty = [(3, 7), (4, 0), (5, 29)];
    let records = with_faults(&topic, 20, 30, &faulty);
    let receipts = sink().publish(records.clone(), &open()).await;
    check_faults(&topic, &records, &receipts, &faulty);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_overtakes_with_many_small_batches_in_flight() {
    let topic = topic("batches", 1, &[("max.message.bytes", "2000")]).await;
    let mut config = config();
    config.options.insert("batch.num.messages".into(), "3".into());
    config.options.insert("linger.ms".into(), "0".into());
    let sink = KafkaSink::new(config, "test").unwrap();
    let faulty = [(0, 100), (1, 55), (2, 140)];
    let records = with_faults(&topic, 3, 150, &faulty);
    let receipts = sink.publish(records.clone(), &open()).await;
    check_faults(&topic, &records, &receipts, &faulty);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_producer_survives_refusals_batch_after_batch() {
    let topic = topic("refusals", 3, &[("max.message.bytes", "2000")]).await;
    let other = crate::broker::topic("bystander", 3, &[]).await;
    let sink = sink();
    for round in 0..4 {
        let mut records = Vec::new();
        for event in 0..10 {
            for slot in 0..10 {
                let event = round * 10 + event;
                records.push(if (slot, event % 10) == (round, 4) {
                    bulky(slot, event, &topic, 5000)
                } else {
                    outgoing(slot, event, &topic)
                });
                records.push(outgoing(100 + slot, event, &other));
            }
        }
        let receipts = sink.publish(records, &open()).await;
        assert_eq!(receipts.iter().filter_map(refused).count(), 1);
        assert_eq!(acknowledged(&receipts), 200 - 6);
    }
    events_in_order(&read(&bootstrap(), &topic));
    let there = events_in_order(&read(&bootstrap(), &other));
    assert_eq!(there.values().map(Vec::len).sum::<usize>(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_suffer_no_loss_from_each_others_refusals() {
    let poor = topic("poor", 2, &[("max.message.bytes", "2000")]).await;
    let good = topic("good", 2, &[]).await;
    let sink = sink();
    let fence = open();
    let calls = (0..6_u32).map(|call| {
        let mut records = Vec::new();
        for event in 0..100 {
            for slot in call * 10..call * 10 + 5 {
                records.push(if call % 2 == 0 && event == 50 {
                    bulky(slot, event, &poor, 5000)
                } else {
                    outgoing(slot, event, if call % 2 == 0 { &poor } else { &good })
                });
            }
        }
        sink.publish(records, &fence)
    });
    for (call, receipts) in futures::future::join_all(calls).await.into_iter().enumerate() {
        let expected = if call % 2 == 0 { 250 } else { 500 };
        assert_eq!(acknowledged(&receipts), expected, "call {call}: {receipts:?}");
    }
    let there = events_in_order(&read(&bootstrap(), &good));
    assert_eq!(there.values().map(Vec::len).sum::<usize>(), 1500);
    let there = events_in_order(&read(&bootstrap(), &poor));
    assert_eq!(there.values().map(Vec::len).sum::<usize>(), 750);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_waits_and_keeps_order() {
    let topic = topic("full", 2, &[]).await;
    let mut config = config();
    config.options.insert("queue.buffering.max.messages".into(), "50".into());
    let sink = KafkaSink::new(config, "test").unwrap();
    let records: Vec<_> = (0..3000).map(|at| outgoing(at % 7, at, &topic)).collect();
    assert_eq!(acknowledged(&sink.publish(records, &open()).await), 3000);
    events_in_order(&read(&bootstrap(), &topic));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_its_check_is_not_sent_and_stops_its_slot() {
    let topic = topic("checks", 2, &[]).await;
    let mut records: Vec<_> = (0..6).map(|event| outgoing(0, event, &topic)).collect();
    records[3] = bulky(0, 3, &topic, 1_000_001);
    records.push(outgoing(1, 6, &topic));
    let receipts = sink().publish(records, &open()).await;
    assert_eq!(acknowledged(&receipts), 4);
    assert_eq!(refused(&receipts[3]), Some(Cause::RecordTooLarge));
    assert_eq!(receipts[4..6], [Receipt::Unsent, Receipt::Unsent]);
    assert_eq!(read(&bootstrap(), &topic).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_closes_stops_the_hand_over() {
    let topic = topic("fence", 1, &[]).await;
    let sink = sink();
    let fence = open();
    fence.close();
    let records: Vec<_> = (0..3).map(|event| outgoing(0, event, &topic)).collect();
    assert_eq!(sink.publish(records.clone(), &fence).await, vec![Receipt::Unsent; 3]);
    // Less is left than a hand-over may take.
    let near =
        haulier::clock::Moment::now().plus(config().publish_timeout - Duration::from_secs(1));
    let fence = haulier::sink::Fence::until(near);
    assert_eq!(sink.publish(records, &fence).await, vec![Receipt::Unsent; 3]);
    assert_eq!(read(&bootstrap(), &topic).len(), 0);
}
