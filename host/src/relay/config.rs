//! What a lane may be told: its order, limits and patience. Filled by config, read by the relay.

use std::time::Duration;

use crate::event::Ordering;
use crate::retry::RetryPolicy;

/// One lane's settings.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneConfig {
    /// What order the lane keeps.
    pub ordering: Ordering,
    /// Most events of one batch.
    pub batch_rows: usize,
    /// Most payload bytes of one batch; one larger event still makes a batch of its own.
    pub batch_bytes: usize,
    /// Most batches being worked on at once.
    pub in_flight: usize,
    /// How long a claim lasts without renewal; after a crash its events wait this long.
    pub lease: Duration,
    /// Longest pause between two looks at an idle table.
    pub poll_interval: Duration,
    /// What happens to an event that fails by itself.
    pub retry: RetryPolicy,
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self {
            ordering: Ordering::Key,
            batch_rows: 1000,
            batch_bytes: 8 * 1024 * 1024,
            in_flight: 4,
            // Twice the publish timeout of the Kafka sink, so that a renewal may fail once.
            lease: Duration::from_secs(20),
            poll_interval: Duration::from_millis(200),
            retry: RetryPolicy::default(),
        }
    }
}

/// When published events are deleted. Only for sources that mark them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// How long a published event is kept.
    pub keep: Duration,
    /// Pause between two passes.
    pub interval: Duration,
    /// Most rows of one statement; a pass repeats it until nothing is left.
    pub batch: usize,
}
