//! Deletes published events that have been kept long enough, in bounded statements.
//!
//! One task per source that marks its events, owned by the relay. Never deletes anything that is
//! not PUBLISHED.

use super::Retention;

/// Runs until it is dropped.
pub(super) async fn run(retention: Retention) {
    loop {
        run_once(&retention).await;
        tokio::time::sleep(retention.config.interval).await;
    }
}

/// One pass; returns how many rows were deleted.
async fn run_once(retention: &Retention) -> u64 {
    let config = &retention.config;
    let mut total = 0;
    loop {
        match retention.store.delete_published(config.keep, config.batch).await {
            Ok(deleted) => {
                total += deleted;
                (retention.deleted)(deleted);
                if deleted < config.batch as u64 {
                    return total;
                }
                // Let the application's statements in between.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::warn!(source = %retention.source, error = %super::chain(&error),
                    "published events could not be deleted");
                return total;
            }
        }
    }
}
