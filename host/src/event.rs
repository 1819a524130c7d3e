//! The words of the domain: events, deliveries, records and keys.
//!
//! Every other module speaks in these types. Nothing here does I/O, and nothing here knows a
//! database, a broker or a plugin runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// The identity of one row of an outbox table; also its place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub i64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The value whose events must reach the broker in order: `partition_key`, else `aggregate_id`.
///
/// `None` is SQL NULL in both columns: such events have no order, and none waits for another. It is not
/// the same as an empty key. Bytes are compared, never collated text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OrderingKey(pub Option<Bytes>);

/// One record header. `value: None` is a Kafka header with a NULL value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Header name, UTF-8, at most what the sink allows.
    pub name: String,
    /// Header value, any bytes.
    pub value: Option<Bytes>,
}

impl Header {
    /// A header with a text value.
    pub fn text(name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: Some(value.into()) }
    }
}

/// One row of an outbox table, as it was claimed.
#[derive(Debug, Clone)]
pub struct Event {
    /// The row's id.
    pub id: EventId,
    /// The shard the row's ordering key hashes to; 0 where the lane has no shards.
    pub shard: i32,
    /// Kind of the business object the event is about, such as `order`.
    pub aggregate_type: String,
    /// Identity of that object.
    pub aggregate_id: Option<String>,
    /// What happened, such as `order.created`; routes match on it.
    pub event_type: String,
    /// The row's own partition key, if it has one. Empty is a key, NULL is none.
    pub partition_key: Option<String>,
    /// The row's own topic, if it has one.
    pub topic: Option<String>,
    /// The row's headers in the order they were written, duplicates kept.
    pub headers: Vec<Header>,
    /// The payload exactly as the table holds it; `None` is SQL NULL, a tombstone.
    pub payload: Option<Bytes>,
    /// How many attempts have been used up so far.
    pub attempts: u32,
    /// When the row was created, milliseconds since the epoch, by the database's clock.
    pub created_at_ms: i64,
    /// How long the row had been due when it was claimed, by the database's clock.
    pub waited: Duration,
    /// What brought the event back after it was parked or published, such as `replay/17`: consumers are
    /// told by a header.
    pub redelivery: Option<String>,
    /// Whether a held key names this event as the one it waits for.
    pub holds_key: bool,
    /// Why the row cannot be used as it stands (unreadable headers, for example).
    pub defect: Option<String>,
}

impl Event {
    /// The ordering key of this row.
    pub fn ordering_key(&self) -> OrderingKey {
        let text = self.partition_key.as_ref().or(self.aggregate_id.as_ref());
        OrderingKey(text.map(|key| Bytes::copy_from_slice(key.as_bytes())))
    }

    /// Payload bytes held in memory for this event.
    pub fn payload_len(&self) -> usize {
        self.payload.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
impl Event {
    /// An event of type `t` with this id and nothing else, for unit tests to build upon.
    pub(crate) fn bare(id: i64) -> Self {
        Self {
            id: EventId(id),
            shard: 0,
            aggregate_type: String::new(),
            aggregate_id: None,
            event_type: "t".to_owned(),
            partition_key: None,
            topic: None,
            headers: Vec::new(),
            payload: None,
            attempts: 0,
            created_at_ms: 0,
            waited: Duration::ZERO,
            redelivery: None,
            holds_key: false,
            defect: None,
        }
    }
}

/// Which record key a delivery asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeyChoice {
    /// What the route says, else the ordering key.
    #[default]
    Default,
    /// A NULL key, on purpose.
    Null,
    /// These bytes; may be empty.
    Bytes(Bytes),
}

/// Which payload a delivery asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PayloadChoice {
    /// The row's payload, byte for byte.
    #[default]
    Unchanged,
    /// A NULL payload.
    Tombstone,
    /// These bytes; may be empty.
    Bytes(Bytes),
}

/// What a plugin or a route wants published for one event; gaps are filled from route and row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Topic; `None` takes the route's, else the row's.
    pub topic: Option<String>,
    /// Record key.
    pub key: KeyChoice,
    /// Record payload.
    pub payload: PayloadChoice,
    /// Headers in place of the row's own; `None` keeps those.
    pub headers: Option<Vec<Header>>,
    /// An explicit partition; `None` lets the partitioner choose by key.
    pub partition: Option<i32>,
    /// Record timestamp in milliseconds since the epoch; `None` is the time of publishing.
    pub timestamp_ms: Option<i64>,
}

/// A verdict on one event that may be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Publish these deliveries, all or none of which count as the event being published.
    Deliver(Vec<Delivery>),
    /// Publish nothing and count the event as handled, for this reason.
    Drop(String),
}

/// One record, complete and ready for a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Topic name; not yet checked by the sink.
    pub topic: String,
    /// Key bytes; `None` is a NULL key, empty is an empty key.
    pub key: Option<Bytes>,
    /// Payload bytes; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
    /// An explicit partition.
    pub partition: Option<i32>,
    /// Timestamp in milliseconds since the epoch.
    pub timestamp_ms: Option<i64>,
}

/// A lane of one source: the unit that has its own loop, budget, leases, producer and circuits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneName {
    /// The source's name in the config.
    pub source: Arc<str>,
    /// The value of the row's `lane` column.
    pub lane: Arc<str>,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.lane)
    }
}

/// What order a lane keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordering {
    /// In order per ordering key, by shard leases.
    #[default]
    Key,
    /// No order, by row claims: the most parallelism.
    None,
    /// One order for the whole lane, by a single lease.
    Total,
}
