//! Topics of a test's own, and reading them back as a consumer would.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use crate::database::unique;
use crate::services::variable;

/// One record as a consumer sees it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its payload.
    pub payload: Option<Vec<u8>>,
    /// Its headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Received {
    /// The text of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| known == name)?;
        std::str::from_utf8(value.as_deref()?).ok()
    }

    /// The outbox id the relay stamped.
    ///
    /// # Panics
    /// When there is none.
    pub fn id(&self) -> i64 {
        self.header("X-Outbox-Id")
            .and_then(|id| id.parse().ok())
            .expect("records carry their outbox id")
    }
}

/// The broker's address.
pub fn address() -> String {
    variable("HAULIER_TEST_KAFKA")
}

/// Creates a topic with a name of its own and these settings.
///
/// # Panics
/// When the broker refuses.
pub async fn topic(partitions: i32, settings: &[(&str, &str)]) -> String {
    let name = unique("topic");
    create(&name, partitions, settings).await;
    name
}

/// Creates a topic of that name.
///
/// # Panics
/// When the broker refuses.
pub async fn create(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", address()).create().expect("a client");
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    let created = admin
        .create_topics(
            [&topic],
            &AdminOptions::new().operation_timeout(Some(Duration::from_secs(30))),
        )
        .await
        .expect("Kafka answers");
    for one in created {
        one.expect("the topic is created");
    }
}

/// The names of all topics.
///
/// # Panics
/// When the broker does not answer.
pub fn names() -> Vec<String> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", address()).create().expect("a consumer");
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(30)).expect("metadata");
    metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
}

/// Reads a topic from its beginning until `enough` says so or nothing came for `quiet`.
///
/// # Panics
/// When the broker cannot be read.
pub async fn read(
    topic: &str,
    quiet: Duration,
    enough: impl FnMut(&[Received]) -> bool + Send + 'static,
) -> Vec<Received> {
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || read_blocking(&topic, quiet, enough))
        .await
        .expect("the reader ends")
}

/// Reads until `count` records have come, or none for a minute; then once more until it is quiet
/// for a moment, so that repeats are seen.
///
/// # Panics
/// When the broker cannot be read.
pub async fn read_count(topic: &str, count: usize) -> Vec<Received> {
    read(topic, Duration::from_secs(60), move |received| received.len() >= count).await;
    read(topic, Duration::from_secs(2), |_| false).await
}

fn read_blocking(
    topic: &str,
    quiet: Duration,
    mut enough: impl FnMut(&[Received]) -> bool,
) -> Vec<Received> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address())
        .set("group.id", "haulier-tests")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(30)).expect("metadata");
    let mut assignment = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        assignment
            .add_partition_offset(topic, partition.id(), Offset::Beginning)
            .expect("a partition");
    }
    consumer.assign(&assignment).expect("assigns");
    let mut received = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < quiet && !enough(&received) {
        let Some(polled) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let Ok(message) = polled else { continue };
        last = Instant::now();
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers
                .iter()
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect()
        });
        received.push(Received {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers,
        });
    }
    received
}
