//! Plugins: WebAssembly components that decide what is published for an event.
//!
//! The only module that knows wasmtime. The composition root calls [`PluginHost::load`]; the relay
//! sees the result through the contracts in `transform.rs` one level up. A plugin is handed events
//! and answers with verdicts; it is given no network, no files and no environment, and what it may
//! use of time, memory and output is limited ([`Limits`]).
//!
//! In reading order: `host` (the folder) → `load` (one file: `inspect`, compile, `manifest`,
//! settings) → `transform` (a plugin as the relay sees it) → `batch` (one verdict per event, and the
//! search for the event at fault) → `instance` (one guest: `imports`, `deadline`, `log`, `convert`).
//! `engine` and `workers` are what they run on; `bindings` is generated from `wit/`.

mod batch;
mod bindings;
mod config;
mod convert;
mod deadline;
mod engine;
mod host;
mod imports;
mod inspect;
mod instance;
mod load;
mod log;
mod manifest;
mod transform;
mod workers;

pub use self::config::{Config, Limits, PluginConfig};
pub use self::host::{PluginHost, StartError};
