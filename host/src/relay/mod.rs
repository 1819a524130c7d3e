//! The relay: one loop per lane that claims, transforms, publishes and settles.
//!
//! It sees the contracts only: no database, broker or plugin runtime is named below this module.

mod config;

pub use config::LaneConfig;
