//! The demo's broker: a Kafka cluster inside this process, or the one that was named; and a consumer.
//!
//! Used by the demo only. The cluster in the process is librdkafka's own: real connections and the real
//! protocol, but records are kept in memory, and old ones go after a few megabytes a partition, so the
//! consumer reads along from the start.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};

use super::ledger::{Received, TOPICS};
use super::shop::now_ms;

/// Brokers of the cluster in this process.
const BROKERS: i32 = 3;
/// Partitions of each topic.
const PARTITIONS: i32 = 6;
/// How long the broker may take to answer a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The broker and the demo's topics on it.
pub(super) struct Broker {
    /// The one in this process, which goes with this.
    cluster: Option<MockCluster<'static, DefaultProducerContext>>,
    pub(super) servers: String,
    /// What stands before the names of the topics.
    pub(super) prefix: String,
}

impl Broker {
    /// A cluster in this process.
    pub(super) fn in_process() -> Result<Self, KafkaError> {
        let cluster = MockCluster::new(BROKERS)?;
        for topic in TOPICS {
            cluster.create_topic(topic, PARTITIONS, BROKERS)?;
        }
        let servers = cluster.bootstrap_servers();
        Ok(Self { cluster: Some(cluster), servers, prefix: String::new() })
    }

    /// The broker at `servers`, with topics of the demo's own.
    pub(super) async fn at(servers: &str, prefix: String) -> Result<Self, KafkaError> {
        let broker = Self { cluster: None, servers: servers.to_owned(), prefix };
        let names: Vec<String> = broker.topics().collect();
        let topics: Vec<NewTopic<'_>> = names
            .iter()
            .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(-1)))
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_LIMIT));
        for created in broker.admin()?.create_topics(&topics, &options).await? {
            created.map_err(|(_, code)| KafkaError::AdminOp(code))?;
        }
        Ok(broker)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, KafkaError> {
        self.client().create()
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("socket.connection.setup.timeout.ms", "5000")
            .set_log_level(RDKafkaLogLevel::Emerg);
        config
    }

    /// Whether the cluster is in this process.
    pub(super) fn is_in_process(&self) -> bool {
        self.cluster.is_some()
    }

    /// The names of the topics, in the order of [`TOPICS`].
    pub(super) fn topics(&self) -> impl Iterator<Item = String> {
        TOPICS.iter().map(|topic| format!("{}{topic}", self.prefix))
    }

    /// Deletes the demo's topics.
    pub(super) async fn delete_topics(&self) -> Result<(), KafkaError> {
        let names: Vec<String> = self.topics().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_LIMIT));
        for deleted in self.admin()?.delete_topics(&names, &options).await? {
            deleted.map_err(|(_, code)| KafkaError::AdminOp(code))?;
        }
        Ok(())
    }

    /// A consumer of all the topics from their start.
    pub(super) fn consumer(&self) -> Result<Consumer, KafkaError> {
        let client: BaseConsumer = self
            .client()
            .set("group.id", "haulier-demo")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "10")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        let topics: Vec<String> = self.topics().collect();
        for topic in &topics {
            for partition in 0..PARTITIONS {
                assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
            }
        }
        client.assign(&assignment)?;
        Ok(Consumer { client, topics, positions: BTreeMap::new() })
    }
}

/// One record, for people to look at.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) key: String,
    pub(super) event_type: String,
    pub(super) payload: String,
}

/// What was polled.
pub(super) struct Polled {
    pub(super) received: Received,
    /// Milliseconds since the application wrote the event, if the record says when that was.
    pub(super) lag_ms: Option<u64>,
    pub(super) sample: Sample,
}

/// Reads the demo's topics; blocks its thread while it does.
pub(super) struct Consumer {
    client: BaseConsumer,
    topics: Vec<String>,
    /// The offset after the last record, by topic and partition.
    positions: BTreeMap<(usize, i32), i64>,
}

impl Consumer {
    /// The next record, or `None` when none came within `limit`. Trouble with the broker is not told:
    /// the client goes on by itself, and what does not arrive counts as lost in the end.
    pub(super) fn poll(&mut self, limit: Duration) -> Option<Polled> {
        let message = self.client.poll(limit)?.ok()?;
        let topic = self.topics.iter().position(|topic| topic == message.topic())?;
        self.positions.insert((topic, message.partition()), message.offset() + 1);
        let text = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "NULL".to_owned(),
        };
        let payload = message.payload();
        let fields: Option<serde_json::Value> =
            payload.and_then(|payload| serde_json::from_slice(payload).ok());
        Some(Polled {
            // A record without an id was not published by the relay: no event has this one.
            received: Received {
                topic,
                partition: message.partition(),
                id: header(&message, "X-Outbox-Id").and_then(|id| id.parse().ok()).unwrap_or(-1),
            },
            lag_ms: fields
                .and_then(|fields| fields.get("placed_at_ms")?.as_u64())
                .map(|placed| now_ms().saturating_sub(placed)),
            sample: Sample {
                topic: message.topic().to_owned(),
                partition: message.partition(),
                key: text(message.key()),
                event_type: header(&message, "X-Event-Type").unwrap_or_default().to_owned(),
                payload: text(payload),
            },
        })
    }

    /// Whether everything that is in the topics has been read.
    pub(super) fn is_at_end(&self) -> Result<bool, KafkaError> {
        for (topic, name) in self.topics.iter().enumerate() {
            for partition in 0..PARTITIONS {
                let (low, high) = self.client.fetch_watermarks(name, partition, ANSWER_LIMIT)?;
                let read = self.positions.get(&(topic, partition)).copied().unwrap_or(low);
                if read < high {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn header<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m str> {
    let header = message.headers()?.iter().find(|header| header.key == name)?;
    std::str::from_utf8(header.value?).ok()
}

/// What to look at when the broker does not do as asked.
pub(super) const ADVICE: &str = "is it at the address given with --kafka, without authentication, and may topics be created there?";
