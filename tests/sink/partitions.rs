//! Partitions are added to a topic, or it is made anew, while records are on their way to it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haulier::failure::Cause;
use haulier::sink::kafka::{Config, KafkaSink};
use haulier::sink::{Outgoing, Receipt, Sink as _};
use haulier_tests::process::eventually;
use tracing_subscriber::fmt::MakeWriter;

use crate::broker::{
    Read, acknowledged, bootstrap, bulky, config, delete, events_in_order, grow, open, outgoing,
    read, refused, topic,
};

const KEYS: u32 = 24;
/// Events of a key in one call.
const WINDOW: u32 = 20;
/// How long the sink may take to see a change: it asks every second in these tests.
const SOON: Duration = Duration::from_secs(60);

/// What the sink logs on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn holds(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(text)
    }

    /// Collects until the guard is dropped.
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let collector =
            tracing_subscriber::fmt().with_ansi(false).with_writer(self.clone()).finish();
        tracing::subscriber::set_default(collector)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn attentive() -> Config {
    Config { metadata_refresh: Duration::from_secs(1), ..config() }
}

/// Asks by itself only when the test is long over.
fn patient() -> Config {
    Config { metadata_refresh: Duration::from_secs(3600), ..config() }
}

/// The next window of some keys.
fn window(topic: &str, slots: std::ops::Range<u32>, round: u32) -> Vec<Outgoing> {
    let events = round * WINDOW..(round + 1) * WINDOW;
    events.flat_map(|event| slots.clone().map(move |slot| outgoing(slot, event, topic))).collect()
}

/// Two calls at once, each with keys of its own, as two batches of a lane have.
async fn publish_round(sink: &KafkaSink, topic: &str, round: u32) {
    let fence = open();
    let half = KEYS / 2;
    let (one, two) = tokio::join!(
        sink.publish(window(topic, 0..half, round), &fence),
        sink.publish(window(topic, half..KEYS, round), &fence)
    );
    for receipts in [one, two] {
        assert_eq!(acknowledged(&receipts), (half * WINDOW) as usize, "{receipts:?}");
    }
}

type Places = BTreeMap<u32, BTreeMap<u32, i32>>;

/// Where the events of each key lie: by slot, the partition of each event in order.
fn places(records: &[Read]) -> Places {
    let mut places = Places::new();
    for record in records {
        let text = record.text();
        let (slot, event) = text.split_once(' ').unwrap();
        let (slot, event) = (slot.parse().unwrap(), event.parse().unwrap());
        places.entry(slot).or_default().entry(event).or_insert(record.partition);
    }
    places
}

/// Checks that each key changed its partition at most once, and only between two calls: the first
/// call had returned, and so all it had sent was acknowledged, before the next one began. Returns how
/// many changed.
fn check_moves(places: &Places, events: u32) -> usize {
    let mut moved = 0;
    for (slot, places) in places {
        assert_eq!(places.keys().copied().collect::<Vec<_>>(), (0..events).collect::<Vec<_>>());
        let order: Vec<i32> = places.values().copied().collect();
        let moves: Vec<usize> = (1..order.len()).filter(|at| order[at - 1] != order[*at]).collect();
        assert!(moves.len() <= 1, "slot {slot} went to and fro: {order:?}");
        assert!(moves.iter().all(|at| at % WINDOW as usize == 0), "slot {slot}: {order:?}");
        moved += moves.len();
    }
    moved
}

// On one thread, so that the log can be collected.
#[tokio::test]
async fn keys_change_to_added_partitions_between_two_calls() {
    let log = Log::default();
    let _collecting = log.start();
    let topic = topic("grown", 3, &[]).await;
    let sink = KafkaSink::new(attentive(), "test").unwrap();
    let mut round = 0;
    while round < 5 {
        publish_round(&sink, &topic, round).await;
        round += 1;
    }
    grow(&topic, 12).await;
    let noticed = eventually(SOON, async || {
        publish_round(&sink, &topic, round).await;
        round += 1;
        log.holds("partitions were added") && log.holds("was=3 now=12")
    })
    .await;
    assert!(noticed, "after {round} rounds");
    for _ in 0..3 {
        publish_round(&sink, &topic, round).await;
        round += 1;
    }
    let records = read(&bootstrap(), &topic);
    assert_eq!(records.len(), (KEYS * WINDOW * round) as usize, "nothing is lost or repeated");
    let places = places(&records);
    assert_eq!(places.len(), KEYS as usize);
    let moved = check_moves(&places, round * WINDOW);
    assert!(moved >= KEYS as usize / 2, "{moved} of {KEYS} keys have changed");
    // Three of four partitions are new, and those who went there went for good.
    assert!(records.iter().any(|record| record.partition >= 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_may_name_a_partition_that_was_just_added() {
    let topic = topic("named-new", 3, &[]).await;
    let sink = KafkaSink::new(patient(), "test").unwrap();
    assert_eq!(acknowledged(&sink.publish(window(&topic, 0..4, 0), &open()).await), 80);
    grow(&topic, 12).await;
    // What the sink remembers is good for another hour, and the record knows better.
    let mut receipts = Vec::new();
    let taken = eventually(SOON, async || {
        let mut record = outgoing(9, 0, &topic);
        record.record.partition = Some(11);
        receipts = sink.publish(vec![record], &open()).await;
        receipts == [Receipt::Acknowledged]
    })
    .await;
    assert!(taken, "{receipts:?}");
    let mut record = outgoing(9, 1, &topic);
    record.record.partition = Some(12);
    let receipts = sink.publish(vec![record], &open()).await;
    assert_eq!(refused(&receipts[0]), Some(Cause::PartitionIllegal));
}

/// Refusals have made the topic one that is sent to carefully; the producer for that asked about it
/// when it still had three partitions.
#[tokio::test(flavor = "multi_thread")]
async fn a_careful_producer_learns_of_added_partitions() {
    let topic = topic("careful", 3, &[("max.message.bytes", "2000")]).await;
    let sink = KafkaSink::new(patient(), "test").unwrap();
    let mut records = window(&topic, 0..12, 0);
    records.extend((100..112).map(|slot| bulky(slot, 0, &topic, 5000)));
    let receipts = sink.publish(records, &open()).await;
    assert_eq!(acknowledged(&receipts), 12 * WINDOW as usize);
    assert_eq!(receipts.iter().filter_map(refused).count(), 12);
    grow(&topic, 12).await;
    // Makes the sink ask about the topic, by the other producer.
    let mut receipts = Vec::new();
    let asked = eventually(SOON, async || {
        let mut beyond = outgoing(200, 0, &topic);
        beyond.record.partition = Some(11);
        receipts = sink.publish(vec![beyond], &open()).await;
        receipts == [Receipt::Acknowledged]
    })
    .await;
    assert!(asked, "{receipts:?}");
    let receipts = sink.publish(window(&topic, 0..12, 1), &open()).await;
    assert_eq!(acknowledged(&receipts), 12 * WINDOW as usize, "{receipts:?}");
    let records = read(&bootstrap(), &topic);
    let mut places = places(&records);
    places.remove(&200);
    assert!(check_moves(&places, 2 * WINDOW) >= 6, "{places:?}");
}

// On one thread, so that the log can be collected.
#[tokio::test]
async fn a_topic_that_is_made_anew_with_fewer_partitions_is_told_and_goes_on() {
    let log = Log::default();
    let _collecting = log.start();
    let topic = topic("anew", 6, &[]).await;
    let sink = KafkaSink::new(attentive(), "test").unwrap();
    publish_round(&sink, &topic, 0).await;
    delete(&topic).await;
    crate::broker::create(&topic, 2, &[]).await;
    let mut receipts = Vec::new();
    let back = eventually(SOON, async || {
        receipts = sink.publish(window(&topic, 0..KEYS, 1), &open()).await;
        let causes: Vec<_> = receipts.iter().filter_map(refused).collect();
        assert!(causes.iter().all(|cause| *cause == Cause::TopicUnknown), "{receipts:?}");
        acknowledged(&receipts) == (KEYS * WINDOW) as usize
    })
    .await;
    assert!(back, "{receipts:?}");
    assert!(log.holds("fewer partitions") && log.holds("was=6 now=2"));
    events_in_order(&read(&bootstrap(), &topic));
}
