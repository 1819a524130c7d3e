//! Plugins: WebAssembly components that decide what is published for an event.
//!
//! The only module that knows wasmtime. The composition root calls [`PluginHost::load`]; the relay
//! sees the result through the contracts in `transform.rs` one level up. A plugin is handed events
//! and answers with verdicts; it is given no network, no files and no environment, and what it may
//! use of time, memory and output is limited ([`Limits`]).
//!
//! In reading order: `host` (what there is) → `assembly` (from the files of the `folder` to the versions
//! in use, the `registry`; `versions` remembers earlier ones) → `load` (one file: `inspect`, compile or
//! take from the `cache`, `manifest`, settings, `selftest` on its `sample`s) → `transform` (a version as
//! the relay sees it) → `batch` (one verdict per event, and the search for the event at fault) →
//! `instance` (one guest: `imports`, `deadline`, `log`, `convert`). `engine` and `workers` are what they
//! run on, `state` is the folder for what outlives the process; `bindings` is generated from `wit/`.
//! `workbench` is for authors, `history` for operators who go back to an earlier version.

mod assembly;
mod batch;
mod bindings;
mod cache;
mod config;
mod convert;
mod deadline;
mod engine;
mod expect;
mod folder;
mod history;
mod host;
mod imports;
mod inspect;
mod instance;
mod load;
mod log;
mod manifest;
mod registry;
mod sample;
mod selftest;
mod state;
mod transform;
mod versions;
mod workbench;
mod workers;

pub use self::assembly::Changes;
pub use self::config::{Config, Keeping, Limits, PluginConfig};
pub use self::folder::{Print, prints};
pub use self::history::{KeptVersion, RollBackError, Rollbacks};
pub use self::host::{PluginHost, StartError};
pub use self::sample::Sample;
pub use self::versions::histories;
pub use self::workbench::{ManifestPortrait, Portrait, Tried, Unusable, Workbench};
