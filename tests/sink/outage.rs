//! The broker is stopped, killed and started again while a relay-like loop publishes.
//!
//! It takes the broker away from every other test, so `tests/run` runs it apart from them:
//! `cargo test --workspace --test sink outage`.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Memory};
use std::time::Duration;

use haulier::sink::kafka::{Config, KafkaSink};
use haulier::sink::{Receipt, Sink as _};
use haulier_tests::process::eventually;

use crate::broker::{config, events_in_order, open, outgoing, read, refused, setting, topic};

const SLOTS: u32 = 40;
const WINDOW: u32 = 25;

/// What the loops share with the test.
#[derive(Default)]
struct Run {
    end: AtomicBool,
    acknowledged: AtomicUsize,
}

impl Run {
    /// Waits until every loop can have published another few windows.
    async fn progress(&self) {
        let wanted = self.acknowledged.load(Memory::Acquire) + 3 * (SLOTS * WINDOW) as usize;
        let on = eventually(Duration::from_secs(120), async || {
            self.acknowledged.load(Memory::Acquire) >= wanted
        })
        .await;
        assert!(on, "nothing is acknowledged any more");
    }
}

/// Publishes window after window of each slot's events, as the relay would: what is not
/// acknowledged is sent again from the first such event of its slot on.
async fn carry(sink: Arc<KafkaSink>, topic: String, slots: std::ops::Range<u32>, run: Arc<Run>) {
    let mut next: Vec<u32> = slots.clone().map(|_| 0).collect();
    while !run.end.load(Memory::Acquire) {
        let mut records = Vec::new();
        for event in 0..WINDOW {
            for (at, slot) in slots.clone().enumerate() {
                records.push(outgoing(slot, next[at] + event, &topic));
            }
        }
        let receipts = sink.publish(records.clone(), &open()).await;
        assert!(receipts.iter().all(|receipt| refused(receipt).is_none()), "{receipts:?}");
        let mut failed = false;
        for (at, slot) in slots.clone().enumerate() {
            let of_slot = records.iter().zip(&receipts).filter(|(record, _)| record.slot == slot);
            let done =
                of_slot.take_while(|(_, receipt)| **receipt == Receipt::Acknowledged).count();
            next[at] += u32::try_from(done).unwrap();
            failed |= done < WINDOW as usize;
            run.acknowledged.fetch_add(done, Memory::AcqRel);
        }
        while failed && sink.ready().await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn services(arguments: &[&str]) -> Output {
    Command::new(setting("HAULIER_TEST_SERVICES")).args(arguments).output().unwrap()
}

/// Sends the broker a signal that `tests/services` has no word for.
fn signal(name: &str) {
    let status = String::from_utf8(services(&["status"]).stdout).unwrap();
    let line = status.lines().find(|line| line.starts_with("kafka:")).unwrap();
    let pid = line.split("pid=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_of_the_broker_costs_neither_order_nor_events() {
    let topic = topic("outage", 6, &[]).await;
    let config = Config { publish_timeout: Duration::from_secs(4), ..config() };
    let sink = Arc::new(KafkaSink::new(config, "test").unwrap());
    let run = Arc::new(Run::default());
    let calls: Vec<_> = (0..4)
        .map(|call| {
            let slots = call * SLOTS / 4..(call + 1) * SLOTS / 4;
            tokio::spawn(carry(Arc::clone(&sink), topic.clone(), slots, Arc::clone(&run)))
        })
        .collect();
    for round in 0..3 {
        run.progress().await;
        signal("-STOP");
        // How long the fault lasts: once shorter than the publish timeout, then longer.
        tokio::time::sleep(Duration::from_secs(if round == 0 { 2 } else { 7 })).await;
        signal("-CONT");
        run.progress().await;
        for action in ["kill", "start"] {
            let output = services(&[action, "kafka"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    run.progress().await;
    run.end.store(true, Memory::Release);
    for call in calls {
        call.await.unwrap();
    }
    let records = read(&crate::broker::bootstrap(), &topic);
    let there = events_in_order(&records);
    let different: usize = there.values().map(Vec::len).sum();
    assert!(different >= run.acknowledged.load(Memory::Acquire));
    for (slot, events) in there {
        // In order and without a gap.
        assert!(events.iter().zip(0..).all(|(event, at)| *event == at), "slot {slot}");
    }
}
