//! Publishing to Kafka: in order per slot, acknowledged by all in-sync replicas.
//!
//! This folder is the only place that knows librdkafka. The relay sees the `Sink` contract; the
//! config module fills [`Config`] and asks [`validate`].
//!
//! How order is kept with many records in flight:
//! 1. `check` refuses what cannot be sent before anything of its event is.
//! 2. `schedule` hands records of a slot over in order, and lets them overlap only on their way to
//!    one partition through one producer, where the broker keeps their sequence.
//! 3. `producer` sends one record to a partition and waits for its acknowledgement before it sends
//!    more there; with that the broker has the state to refuse a batch that would leave a gap.
//! 4. When a record is refused, the producer is spoiled (librdkafka's gapless mode stops it), what
//!    is undecided comes back, and is sent again through a second, careful producer: one record a
//!    partition and slot at a time. A refusal there is the fault of that record; innocents get
//!    through. What was on the wire may be repeated by this, and is never skipped.
//! 5. When a record is undecided for `publish_timeout`, the whole producer is purged and replaced,
//!    and everything undecided is reported as unknown.

mod call;
mod check;
mod classify;
mod context;
mod destination;
mod gates;
mod lane;
mod options;
mod partition;
mod probe;
mod producer;
mod schedule;
mod token;
mod topics;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::KafkaError;

use crate::failure::Failure;
use crate::sink::{Fence, Outgoing, PublishMode, Receipt, Sink};

use call::Call;
use lane::Lane;

pub use options::validate;
pub use probe::known_topics;

/// How a lane publishes to Kafka.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The brokers to ask first, `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// How records of one key follow each other.
    pub mode: PublishMode,
    /// The longest a record may stay undecided once it is handed over. It must cover a leader
    /// election, and a lease must be longer.
    pub publish_timeout: Duration,
    /// The largest record, with key, headers and overhead, uncompressed. Must not exceed what the
    /// broker takes (`message.max.bytes` there is 1,048,588 by default).
    pub max_record_bytes: usize,
    /// How long a topic's number of partitions is trusted.
    pub metadata_refresh: Duration,
    /// Options of librdkafka, passed through: TLS, SASL, compression, batching. Those that order
    /// or acknowledgement rest on are refused.
    pub options: BTreeMap<String, String>,
}

/// Long enough for a leader election, short enough that a lease covers it several times.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Below what a broker takes by default, with room for its own overhead.
const MAX_RECORD_BYTES: usize = 1_000_000;
/// A topic seldom grows; a question costs a round trip.
const METADATA_REFRESH: Duration = Duration::from_secs(30);

impl Default for Config {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            mode: PublishMode::default(),
            publish_timeout: PUBLISH_TIMEOUT,
            max_record_bytes: MAX_RECORD_BYTES,
            metadata_refresh: METADATA_REFRESH,
            options: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            let secret = options::is_secret(name);
            (name.clone(), if secret { "…".to_owned() } else { value.clone() })
        };
        let shown: BTreeMap<_, _> = self.options.iter().map(shown).collect();
        f.debug_struct("Config")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("mode", &self.mode)
            .field("publish_timeout", &self.publish_timeout)
            .field("max_record_bytes", &self.max_record_bytes)
            .field("metadata_refresh", &self.metadata_refresh)
            .field("options", &shown)
            .finish()
    }
}

/// Why there is no sink.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The config is wrong; each line names an option or a field.
    #[error("the Kafka sink's config is wrong: {0}")]
    Config(String),
    /// librdkafka made no producer.
    #[error("no Kafka producer: {0}")]
    Client(String),
    /// A producer's thread did not start.
    #[error("no thread for the Kafka producer")]
    Thread(#[source] io::Error),
}

impl SinkError {
    fn client(error: &KafkaError) -> Self {
        Self::Client(options::describe(error))
    }
}

/// The Kafka sink of one lane.
pub struct KafkaSink {
    lane: Lane,
}

impl KafkaSink {
    /// A sink for the lane called `label`, which names its threads and log lines. Reads
    /// certificates and starts to connect, but does not wait for a broker.
    ///
    /// # Errors
    /// If the config is wrong, or librdkafka does not take it.
    pub fn new(config: Config, label: &str) -> Result<Self, SinkError> {
        let problems = validate(&config);
        if problems.is_empty() {
            return Ok(Self { lane: Lane::start(config, label)? });
        }
        let lines = problems.iter().map(|(name, problem)| format!("{name}: {problem}"));
        Err(SinkError::Config(lines.collect::<Vec<_>>().join("; ")))
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn publish(&self, records: Vec<Outgoing>, fence: &Fence) -> Vec<Receipt> {
        self.lane.tidy();
        match self.lane.producer(producer::Kind::Pipelined).await {
            Ok(producer) => Call::new(&self.lane, producer, records, fence).run().await,
            // Nothing was handed over, and the failure has to be said once.
            Err(failure) => {
                let mut receipts = vec![Receipt::Unsent; records.len()];
                if let Some(first) = receipts.first_mut() {
                    *first = Receipt::Unknown(failure);
                }
                receipts
            }
        }
    }

    async fn ready(&self) -> Result<(), Failure> {
        self.lane.ready().await
    }

    /// The sink can be used again afterwards: the next call starts a new producer.
    fn abandon(&self) {
        self.lane.abandon();
    }
}
