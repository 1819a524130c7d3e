//! The contract between the relay and a broker, and the adapters that keep it.
//!
//! A sink belongs to one lane. It publishes records in parallel across slots and in order within a
//! slot, and says of each record what is known: published means acknowledged.

pub mod kafka;
pub mod stdout;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Moment;
use crate::event::{OrderingKey, Record};
use crate::failure::Failure;

/// How records of one slot follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublishMode {
    /// Many records of a slot in flight, order kept by the rules in the sink.
    #[default]
    Pipelined,
    /// Each event of a slot is acknowledged before the next is handed over.
    PerKeySync,
}

/// One record to publish.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Records of one slot must be appended in the order they are given; slots are independent.
    /// The relay uses one slot per ordering key of the batch.
    pub slot: u32,
    /// The index of the event within the batch. The records of one event stand next to each other
    /// and have no order among themselves across partitions.
    pub event: u32,
    /// What keeps records without a key together: those of one affinity go to one partition. See
    /// [`affinity`].
    pub affinity: u32,
    /// What to publish.
    pub record: Record,
}

/// The affinity of an ordering key: the same in every process and every release.
pub fn affinity(key: &OrderingKey) -> u32 {
    // 32-bit FNV-1a. NULL is told apart from an empty key.
    let start: u32 = if key.0.is_some() { 0x811c_9dc5 } else { 0 };
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    key.0.iter().flatten().fold(start, step)
}

/// What is known about one record afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// All in-sync replicas have it.
    Acknowledged,
    /// It was refused for good, and is not in the topic. An event or a destination failure.
    Refused(Failure),
    /// It may or may not be in the topic, or the sink could not even try. Always an infrastructure
    /// failure.
    Unknown(Failure),
    /// It was not sent: a record before it in its slot, or of its event, did not succeed, or the
    /// fence had closed. (Records of a refused event that went to other partitions may be there.)
    Unsent,
}

/// How long the right to publish lasts. Shared between the relay, which moves the end when it
/// renews a lease, and the sink, which looks before every hand-over.
#[derive(Debug, Clone)]
pub struct Fence(Arc<AtomicU64>);

/// The value of a fence that was closed on purpose.
const CLOSED: u64 = 0;

impl Fence {
    /// A fence that closes at `end`.
    pub fn until(end: Moment) -> Self {
        Self(Arc::new(AtomicU64::new(end.as_millis())))
    }

    /// Moves the end, after a renewal. A fence that was closed stays closed.
    pub fn extend(&self, end: Moment) {
        let open = |now: u64| (now != CLOSED).then(|| end.as_millis());
        let _ = self.0.fetch_update(Memory::AcqRel, Memory::Acquire, open);
    }

    /// Closes the fence at once and for good: nothing more may be handed over.
    pub fn close(&self) {
        self.0.store(CLOSED, Memory::Release);
    }

    /// How much of the right is left.
    pub fn left(&self) -> Duration {
        Moment::from_millis(self.0.load(Memory::Acquire)).left()
    }

    /// Whether a hand-over is allowed that may take as long as `limit` to be decided.
    pub fn allows(&self, limit: Duration) -> bool {
        self.left() > limit
    }
}

/// A broker, as one lane sees it.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Publishes a batch and returns one receipt per record, in the order given.
    ///
    /// Within a slot, no record is appended for the first time before all earlier ones were
    /// acknowledged or handed over ahead of it, and none is handed over after one of its slot
    /// failed. Returns once every record is decided; at the latest when the publish timeout of
    /// the last record handed over has run out.
    async fn publish(&self, records: Vec<Outgoing>, fence: &Fence) -> Vec<Receipt>;

    /// Whether the broker answers at present. Called before a lane goes on after a failure.
    ///
    /// # Errors
    /// An infrastructure failure that says what was tried.
    async fn ready(&self) -> Result<(), Failure>;

    /// Lets go of everything that is in flight: `publish` calls return soon, with
    /// [`Receipt::Unknown`] for what was not decided.
    fn abandon(&self);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn an_affinity_tells_null_from_empty_and_stays_the_same() {
        let of = |key: Option<&'static str>| affinity(&OrderingKey(key.map(Bytes::from)));
        assert_eq!(of(Some("foobar")), 0xbf9c_f968);
        assert_ne!(of(None), of(Some("")));
    }
}
