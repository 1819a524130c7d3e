//! A histogram of durations that takes many observations under one lock.
//!
//! The relay observes every event twice; the library's own histogram would lock for each. Used by
//! the metrics only.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in seconds; the last one is infinity.
pub(super) const BOUNDS: [f64; 16] = [
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
    600.0,
    f64::INFINITY,
];

/// Counts of durations by size. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram(Arc<Mutex<Counts>>);

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    sum: f64,
    count: u64,
    buckets: [u64; BOUNDS.len()],
}

impl Histogram {
    /// Counts each of `durations`.
    pub(super) fn observe(&self, durations: impl IntoIterator<Item = Duration>) {
        // A panic of the iterator leaves counts that are merely incomplete.
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for duration in durations {
            let seconds = duration.as_secs_f64();
            let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
            counts.sum += seconds;
            counts.count += 1;
            if let Some(count) = counts.buckets.get_mut(bucket) {
                *count += 1;
            }
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buckets = [(0.0, 0); BOUNDS.len()];
        for (bucket, pair) in buckets.iter_mut().zip(BOUNDS.into_iter().zip(counts.buckets)) {
            *bucket = pair;
        }
        encoder.encode_histogram::<NoLabelSet>(counts.sum, counts.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
