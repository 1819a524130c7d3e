//! Haulier: a relay for the transactional outbox, with WebAssembly plugins.
//!
//! A map, in reading order.

pub mod clock;
pub mod event;
pub mod failure;
pub mod plugin;
pub mod sink;
pub mod store;
pub mod transform;
