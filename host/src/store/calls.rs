//! One call to a database: its time limit, and what its errors mean to the caller.
//!
//! Used by the adapters, which say how their driver's errors are to be taken. Names no driver.

use std::error::Error;
use std::time::Duration;

use super::StoreError;

/// How long a call waits for a connection before the database counts as unavailable.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one call to the database may take before it counts as unavailable: a dead network path
/// gives no error of its own. Far above a settle of the largest batch.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What an error of the driver means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// The same call may succeed later.
    Passing,
    /// The tables are not there, or not as they should be.
    Schema,
    /// The statement itself was refused.
    Lasting,
}

/// Runs a call with a time limit and turns what goes wrong into the contract's words.
pub(super) async fn bounded<T, E: Error + Send + Sync + 'static>(
    source: &str,
    doing: &'static str,
    nature: impl FnOnce(&E) -> Nature,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    let source_name = source.to_owned();
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(cause)) => Err(match nature(&cause) {
            Nature::Passing => {
                StoreError::Unavailable { source_name, doing, cause: Box::new(cause) }
            }
            Nature::Schema => unfit(source, format!("{cause}: run `haulier migrate`")),
            Nature::Lasting => StoreError::Refused { source_name, doing, cause: Box::new(cause) },
        }),
        Err(elapsed) => {
            Err(StoreError::Unavailable { source_name, doing, cause: Box::new(elapsed) })
        }
    }
}

/// The tables are not what they must be; `problem` says what to do.
pub(super) fn unfit(source: &str, problem: String) -> StoreError {
    StoreError::Schema { source_name: source.to_owned(), problem }
}
