//! The words for how a source stands: instances that report, leases, lanes that have rows.
//!
//! The relay sends heartbeats; `haulier status` asks for the rest. Times are ages and remainders by
//! the database's clock, so that nobody compares two clocks.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{EventId, Ordering};

/// Most lanes that [`Outbox::lanes_with_rows`](super::Outbox::lanes_with_rows) finds.
pub const MOST_LANES_FOUND: usize = 200;
/// Most leases that [`Outbox::leases`](super::Outbox::leases) lists.
pub const MOST_LEASES: usize = 10_000;
/// Most instances that [`Outbox::instances`](super::Outbox::instances) lists.
pub const MOST_INSTANCES: usize = 1000;
/// Most events that [`HaltedKeys`] names.
pub const MOST_HALTED_NAMED: usize = 5;

/// Instances that were not heard of for so long are forgotten.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(86_400);
/// Most rows under row claims that are looked at; a batch has its rows next to each other.
pub(super) const MOST_CLAIMED_ROWS: usize = 100_000;

/// Whether an instance goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It has stopped in good order; this is its last word.
    Stopped,
}

/// What an instance has the database note about it.
#[derive(Debug, Clone)]
pub struct Heartbeat<'a> {
    /// The source it is about.
    pub source: &'a str,
    /// The instance's name.
    pub instance: &'a str,
    /// How long the process has been running.
    pub running_for: Duration,
    /// Whether it goes on.
    pub life: Life,
    /// What it says of itself; the store does not read it.
    pub report: &'a str,
}

/// An instance, as the database remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceSeen {
    /// Its name.
    pub instance: String,
    /// How long ago it started.
    pub started_ago: Duration,
    /// How long ago it was last heard of.
    pub seen_ago: Duration,
    /// How long ago it stopped in good order, if it did.
    pub stopped_ago: Option<Duration>,
    /// What it last said of itself.
    pub report: String,
}

/// A lane that has rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFound {
    /// The value of the rows' `lane` column.
    pub lane: Arc<str>,
    /// By row claims where rows are under one, else by key.
    pub ordering: Ordering,
}

/// What a lease covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One shard of the lane.
    Shard(i32),
    /// The whole lane, which is one order.
    Lane,
    /// Single rows, claimed together.
    Rows,
}

/// When a lease ends or ended, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// So long from now.
    In(Duration),
    /// So long ago, and nobody has taken it since.
    Ago(Duration),
}

impl Expiry {
    /// From the milliseconds that are left, negative once they are over.
    pub(super) fn of_millis_left(left: i64) -> Self {
        let span = Duration::from_millis(left.unsigned_abs());
        if left > 0 { Self::In(span) } else { Self::Ago(span) }
    }
}

/// A lease or row claim that was not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStanding {
    /// The lane it is of.
    pub lane: Arc<str>,
    /// What it covers.
    pub part: Part,
    /// The instance that took it.
    pub owner: String,
    /// Events in its batch.
    pub events: u64,
    /// When it ends.
    pub expiry: Expiry,
}

/// Keys that are held until someone decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HaltedKeys {
    /// How many there are.
    pub keys: u64,
    /// The events that halt them, lowest ids first, at most [`MOST_HALTED_NAMED`].
    pub events: Vec<EventId>,
}

/// A signed number of milliseconds as an age: what seems to lie ahead is now.
pub(super) fn age(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
