//! What arrives is what was sent, where the Java client would have sent it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use bytes::Bytes;
use haulier::event::Header;
use haulier::failure::Cause;
use haulier::sink::{Receipt, Sink as _};

use crate::broker::{acknowledged, open, outgoing, read, refused, setting, sink, topic};

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_arrives_and_null_is_not_empty() {
    let topic = topic("bytes", 1, &[]).await;
    let all: Vec<u8> = (0..=255).collect();
    let values: Vec<Option<Bytes>> = vec![
        None,
        Some(Bytes::new()),
        Some(Bytes::from_static(b"\0")),
        Some(Bytes::from_static(b"a\0b")),
        Some("{\"n\": 1.0, \"s\":\"\u{1f69a}\"}".into()),
        Some(all.into()),
    ];
    let mut records = Vec::new();
    for key in &values {
        for payload in &values {
            let mut one = outgoing(0, u32::try_from(records.len()).unwrap(), &topic);
            one.record.key = key.clone();
            one.record.payload = payload.clone();
            one.record.timestamp_ms = Some(1_700_000_000_000);
            one.record.headers = vec![
                Header::text("X-Event-Type", "order.created"),
                Header { name: "same".into(), value: None },
                Header { name: "same".into(), value: Some(Bytes::new()) },
                Header { name: "same".into(), value: payload.clone() },
                Header::text("\u{1f69a}", "name"),
            ];
            records.push(one);
        }
    }
    let receipts = sink().publish(records.clone(), &open()).await;
    assert_eq!(receipts, vec![Receipt::Acknowledged; records.len()]);
    let arrived = read(&crate::broker::bootstrap(), &topic);
    assert_eq!(arrived.len(), records.len());
    for (sent, got) in records.iter().zip(&arrived) {
        assert_eq!(sent.record.key, got.key);
        assert_eq!(sent.record.payload, got.payload);
        assert_eq!(sent.record.headers, got.headers);
        assert_eq!(sent.record.timestamp_ms, got.timestamp_ms);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_go_where_the_java_client_sends_them() {
    const PARTITIONS: i32 = 7;
    let topic = topic("java", PARTITIONS, &[]).await;
    let mut keys: Vec<Vec<u8>> = (0..40_u8)
        .map(|length| (0..length).map(|at| at.wrapping_mul(37) ^ length).collect())
        .collect();
    keys.extend((0..200).map(|number| format!("order-{number}").into_bytes()));
    keys.push("\u{1f69a}\0".into());
    let records = keys.iter().zip(0..).map(|(key, slot)| {
        let mut one = outgoing(slot, slot, &topic);
        one.record.key = Some(key.clone().into());
        one
    });
    let receipts = sink().publish(records.collect(), &open()).await;
    assert_eq!(acknowledged(&receipts), keys.len());
    let expected = java_partitions(&keys, PARTITIONS);
    for record in read(&crate::broker::bootstrap(), &topic) {
        let slot: usize = record.text().split_once(' ').unwrap().0.parse().unwrap();
        assert_eq!(record.partition, expected[slot], "{:?}", keys[slot]);
    }
}

fn java_partitions(keys: &[Vec<u8>], partitions: i32) -> Vec<i32> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/sink/Partitions.java");
    let mut java = Command::new("java")
        .args(["-cp", &format!("{}/*", setting("HAULIER_TEST_KAFKA_LIBS")), program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = java.stdin.take().unwrap();
    for key in keys {
        for byte in key {
            write!(input, "{byte:02x}").unwrap();
        }
        writeln!(input, " {partitions}").unwrap();
    }
    drop(input);
    let output = java.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers.len(), keys.len());
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_may_name_its_partition_but_only_one_that_exists() {
    let topic = topic("named", 3, &[]).await;
    let mut records: Vec<_> = (0..4).map(|slot| outgoing(slot, slot, &topic)).collect();
    for (record, partition) in records.iter_mut().zip([2, 0, 3, 1]) {
        record.record.partition = Some(partition);
    }
    let receipts = sink().publish(records, &open()).await;
    assert_eq!(acknowledged(&receipts), 3);
    assert_eq!(refused(&receipts[2]), Some(Cause::PartitionIllegal));
    for record in read(&crate::broker::bootstrap(), &topic) {
        let slot = &record.text()[..1];
        assert_eq!(
            record.partition,
            if slot == "0" {
                2
            } else if slot == "1" {
                0
            } else {
                1
            }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keyless_records_of_one_affinity_stay_together_and_others_spread() {
    let topic = topic("keyless", 6, &[]).await;
    let mut records = Vec::new();
    for event in 0..120 {
        let mut one = outgoing(event % 12, event, &topic);
        one.record.key = None;
        records.push(one);
    }
    // Another call, another batch: the slot's number may differ, the affinity does not.
    let mut later = outgoing(99, 1000, &topic);
    later.record.key = None;
    later.affinity = 5;
    let sink = sink();
    assert_eq!(acknowledged(&sink.publish(records, &open()).await), 120);
    assert_eq!(acknowledged(&sink.publish(vec![later], &open()).await), 1);
    let mut places = std::collections::BTreeMap::new();
    for record in read(&crate::broker::bootstrap(), &topic) {
        assert_eq!(record.key, None);
        let slot: u32 = record.text().split_once(' ').unwrap().0.parse().unwrap();
        let affinity = if slot == 99 { 5 } else { slot };
        assert_eq!(*places.entry(affinity).or_insert(record.partition), record.partition);
    }
    let used: std::collections::BTreeSet<_> = places.values().collect();
    assert!(used.len() >= 3, "{places:?}");
}
