//! What operators see: the log and the metrics.
//!
//! The command line starts the log; the relay and the assembly count. Nothing here decides.

mod histogram;
mod logging;
mod metrics;
mod plugins;

pub use self::logging::{LogFormat, LoggingError, check_level, init};
pub use self::metrics::{BatchInFlight, LaneMetrics, Metrics};
pub use self::plugins::{PluginChange, PluginMetrics, Shadow};
