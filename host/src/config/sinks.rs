//! `[sinks.NAME]`: the brokers. Read by config, used by the sink adapters.
//!
//! It checks shapes and ranges; what a client option means is the adapter's business.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::{Meaning, Secret, Section};
use crate::sink::{PublishMode, kafka};

/// Long enough for a leader election, short enough for a lease.
const DEFAULT_PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
const PUBLISH_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(600);

/// What a broker takes without being configured, less its own overhead for a batch.
const DEFAULT_MAX_RECORD_BYTES: usize = 1_000_000;
/// The most a broker can be configured to take is an `i32`; the client stops at 10⁹.
const MAX_RECORD_BYTES: RangeInclusive<usize> = 1_000..=1_000_000_000;

const INTRO: &str = "Where they go: one section per broker.";

/// What the keys mean, for the reference.
const MEANINGS: [Meaning; 5] = [
    Meaning::new("type", "`\"stdout\"` prints records as lines of JSON and takes no further key"),
    Meaning::new("bootstrap_servers", "`host:port` of one or more brokers"),
    Meaning::new(
        "publish_timeout",
        "how long the broker may take to acknowledge a record; a lane's `lease` is at least twice that",
    ),
    Meaning::new("max_record_bytes", "with key and headers; the broker must take as much"),
    Meaning::new(
        "librdkafka",
        "any option of librdkafka, such as `\"security.protocol\"`; those that order or \
         acknowledgement rest on are refused, with the reason",
    ),
];

/// One sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSettings {
    /// Its name in the settings.
    pub name: Arc<str>,
    /// What it is.
    pub kind: SinkKind,
}

/// The sorts of sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkKind {
    /// A Kafka cluster, or what speaks its protocol.
    Kafka(KafkaSettings),
    /// JSON lines on standard output, for trying things out.
    Stdout,
}

/// A Kafka cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `host:port`, with commas between several.
    pub bootstrap_servers: String,
    /// How long the broker may take to acknowledge a record.
    pub publish_timeout: Duration,
    /// Largest record, as the topic's `max.message.bytes` counts it.
    pub max_record_bytes: usize,
    /// Options for the client, as they were written; secret because some of them are.
    pub librdkafka: BTreeMap<String, Secret>,
}

#[derive(Clone, Copy)]
enum Type {
    Kafka,
    Stdout,
}

impl SinkSettings {
    /// How long a record may take, where the sink has such a limit.
    pub fn publish_timeout(&self) -> Option<Duration> {
        match &self.kind {
            SinkKind::Kafka(kafka) => Some(kafka.publish_timeout),
            SinkKind::Stdout => None,
        }
    }

    /// Reads one sink and ends its section.
    pub(super) fn read(name: &str, section: Section<'_>) -> Option<Self> {
        section.document(INTRO, &MEANINGS);
        if !section.has("type") {
            section.missing("type", "write type = \"kafka\" or type = \"stdout\"");
        }
        let types = [("kafka", Type::Kafka), ("stdout", Type::Stdout)];
        let kind = match section.optional_choice("type", &types) {
            Some(Type::Stdout) => Some(SinkKind::Stdout),
            Some(Type::Kafka) => KafkaSettings::read(&section).map(SinkKind::Kafka),
            None if section.has("type") => {
                // Which keys it may have depends on the type.
                section.abandon();
                return None;
            }
            // Most are, and so the rest can be looked at.
            None => KafkaSettings::read(&section).map(SinkKind::Kafka),
        };
        section.finish();
        Some(Self { name: name.into(), kind: kind? })
    }
}

impl KafkaSettings {
    fn read(section: &Section<'_>) -> Option<Self> {
        const EXAMPLE: &str = "bootstrap_servers = \"localhost:9092\"";
        if !section.has("bootstrap_servers") {
            section.missing("bootstrap_servers", format!("write {EXAMPLE}"));
        }
        let servers = section.strings("bootstrap_servers");
        let blank = |server: &String| server.trim().is_empty();
        if servers.as_ref().is_some_and(|servers| servers.is_empty() || servers.iter().any(blank)) {
            section.error("bootstrap_servers", format!("is empty; an example is {EXAMPLE}"));
        }
        let publish_timeout =
            section.duration("publish_timeout", PUBLISH_TIMEOUT, DEFAULT_PUBLISH_TIMEOUT);
        let max_record_bytes =
            section.size("max_record_bytes", MAX_RECORD_BYTES, DEFAULT_MAX_RECORD_BYTES);
        let librdkafka = section.options("librdkafka");
        let settings = Self {
            bootstrap_servers: servers?.join(","),
            publish_timeout,
            max_record_bytes,
            librdkafka,
        };
        for (name, problem) in kafka::validate(&settings.adapted(PublishMode::default())) {
            if settings.librdkafka.contains_key(&name) {
                section.section("librdkafka").error(&name, problem);
            } else if name != "bootstrap_servers" {
                section.error(&name, problem);
            }
        }
        Some(settings)
    }

    /// The adapter's config, for a lane that publishes in this mode.
    pub fn adapted(&self, mode: PublishMode) -> kafka::Config {
        let options = self.librdkafka.iter();
        kafka::Config {
            bootstrap_servers: self.bootstrap_servers.clone(),
            mode,
            publish_timeout: self.publish_timeout,
            max_record_bytes: self.max_record_bytes,
            options: options
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
            ..kafka::Config::default()
        }
    }
}
