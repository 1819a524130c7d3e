//! Looks at a lane every few seconds, for metrics and readiness.
//!
//! One task per lane, owned by the relay. Never claims and never writes.

use std::sync::Arc;
use std::time::Duration;

use super::LaneContext;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until it is dropped.
pub(super) async fn run(lane: Arc<LaneContext>) {
    loop {
        run_once(&lane).await;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// One look. An error leaves the last figures in place: the lane's loop reports the database.
async fn run_once(lane: &LaneContext) {
    match lane.store.stats(&lane.name, lane.config.ordering).await {
        Ok(stats) => {
            lane.metrics.stands(&stats);
            lane.health.stats(stats);
        }
        Err(error) => {
            tracing::debug!(lane = %lane.name, error = %super::chain(&error), "a lane could not be looked at");
        }
    }
}
