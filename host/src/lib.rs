//! Haulier: a relay for the transactional outbox, with WebAssembly plugins.
//!
//! A map, in reading order.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod config;
pub mod event;
pub mod failure;
pub mod json;
pub mod relay;
pub mod retry;
pub mod routing;
pub mod settings;
pub mod sink;
pub mod store;
pub mod telemetry;
pub mod transform;
