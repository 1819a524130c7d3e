//! What the tests of the sink need of a broker: topics, a reader, and records to send.
//!
//! Used by every module of this test binary. It talks to the broker that the environment names,
//! or to librdkafka's mock cluster, and never starts or stops one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier::clock::Moment;
use haulier::event::{Header, Record};
use haulier::sink::kafka::{Config, KafkaSink};
use haulier::sink::{Fence, Outgoing, Receipt};
use haulier_tests::process::eventually;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// The value of an environment variable that `tests/services env` prints.
pub(crate) fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; start the services and run: eval \"$(tests/services env)\"")
    })
}

pub(crate) fn bootstrap() -> String {
    setting("HAULIER_TEST_KAFKA")
}

pub(crate) fn config() -> Config {
    Config { bootstrap_servers: bootstrap(), ..Config::default() }
}

pub(crate) fn sink() -> KafkaSink {
    KafkaSink::new(config(), "test").unwrap()
}

/// A right to publish that lasts for the whole test.
pub(crate) fn open() -> Fence {
    Fence::until(Moment::now().plus(Duration::from_secs(600)))
}

pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

/// A new topic on the test broker.
pub(crate) async fn topic(name: &str, partitions: i32, settings: &[(&str, &str)]) -> String {
    let name = unique(name);
    create(&name, partitions, settings).await;
    name
}

pub(crate) async fn create(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        topic = topic.set(name, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    for result in admin().create_topics(&[topic], &options).await.unwrap() {
        result.unwrap();
    }
}

fn admin() -> AdminClient<rdkafka::client::DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap()).create().unwrap()
}

/// Adds partitions to a topic, up to that number, and waits until the broker shows them.
pub(crate) async fn grow(topic: &str, partitions: usize) {
    let wish = NewPartitions::new(topic, partitions);
    for result in admin().create_partitions(&[wish], &AdminOptions::new()).await.unwrap() {
        result.unwrap();
    }
    shows(topic, partitions).await;
}

/// Deletes a topic, and waits until the broker shows it no more.
pub(crate) async fn delete(topic: &str) {
    for result in admin().delete_topics(&[topic], &AdminOptions::new()).await.unwrap() {
        result.unwrap();
    }
    shows(topic, 0).await;
}

async fn shows(topic: &str, partitions: usize) {
    let admin = admin();
    let shown = eventually(Duration::from_secs(30), async || {
        let metadata = admin.inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        let found = metadata.topics().iter().find(|it| it.name() == topic);
        found.map_or(0, |topic| topic.partitions().len()) == partitions
    })
    .await;
    assert!(shown, "{topic} has not {partitions} partitions");
}

/// A record as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) key: Option<Bytes>,
    pub(crate) payload: Option<Bytes>,
    pub(crate) headers: Vec<Header>,
    pub(crate) timestamp_ms: Option<i64>,
}

impl Read {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.payload.clone().unwrap().to_vec()).unwrap()
    }
}

/// Everything that is in a topic, each partition in order.
pub(crate) fn read(bootstrap: &str, topic: &str) -> Vec<Read> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "unused")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut assignment = TopicPartitionList::new();
    let mut missing = 0;
    for partition in metadata.topics()[0].partitions() {
        assignment.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), PATIENCE).unwrap();
        missing += high - low;
    }
    consumer.assign(&assignment).unwrap();
    let mut records = Vec::new();
    let end = Instant::now() + PATIENCE;
    while missing > 0 {
        assert!(Instant::now() < end, "{missing} records could not be read");
        let Some(message) = consumer.poll(Duration::from_millis(200)) else {
            continue;
        };
        let message = message.unwrap();
        missing -= 1;
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            let own = |header: rdkafka::message::Header<'_, &[u8]>| Header {
                name: header.key.to_owned(),
                value: header.value.map(Bytes::copy_from_slice),
            };
            headers.iter().map(own).collect()
        });
        records.push(Read {
            partition: message.partition(),
            key: message.key().map(Bytes::copy_from_slice),
            payload: message.payload().map(Bytes::copy_from_slice),
            headers,
            timestamp_ms: message.timestamp().to_millis(),
        });
    }
    records
}

/// A record of `slot` whose key names the slot and whose payload names the event.
pub(crate) fn outgoing(slot: u32, event: u32, topic: &str) -> Outgoing {
    let record = Record {
        topic: topic.to_owned(),
        key: Some(format!("key-{slot}").into()),
        payload: Some(format!("{slot} {event}").into()),
        headers: Vec::new(),
        partition: None,
        timestamp_ms: None,
    };
    Outgoing { slot, event, affinity: slot, record }
}

/// The same, with a payload of `size` bytes that no codec makes smaller.
pub(crate) fn bulky(slot: u32, event: u32, topic: &str, size: usize) -> Outgoing {
    let mut outgoing = outgoing(slot, event, topic);
    let mut payload = vec![0; size];
    rand::fill(&mut payload[..]);
    outgoing.record.payload = Some(payload.into());
    outgoing
}

pub(crate) fn acknowledged(receipts: &[Receipt]) -> usize {
    receipts.iter().filter(|receipt| **receipt == Receipt::Acknowledged).count()
}

/// The cause of a refusal, if it is one.
pub(crate) fn refused(receipt: &Receipt) -> Option<haulier::failure::Cause> {
    match receipt {
        Receipt::Refused(failure) => Some(failure.cause),
        Receipt::Acknowledged | Receipt::Unknown(_) | Receipt::Unsent => None,
    }
}

/// The cause of an unknown outcome, if it is one.
pub(crate) fn unknown(receipt: &Receipt) -> Option<haulier::failure::Cause> {
    match receipt {
        Receipt::Unknown(failure) => Some(failure.cause),
        Receipt::Acknowledged | Receipt::Refused(_) | Receipt::Unsent => None,
    }
}

/// Checks that the first appearances of each slot's events are in order, and returns the events
/// that are there, by slot.
pub(crate) fn events_in_order(records: &[Read]) -> std::collections::BTreeMap<u32, Vec<u32>> {
    let mut seen: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
    for record in records {
        let text = record.text();
        let (slot, event) = text.split_once(' ').unwrap();
        let (slot, event): (u32, u32) = (slot.parse().unwrap(), event.parse().unwrap());
        let events = seen.entry(slot).or_default();
        if !events.contains(&event) {
            assert!(
                events.last().is_none_or(|last| *last < event),
                "slot {slot}: {events:?} {event}"
            );
            events.push(event);
        }
    }
    seen
}
