//! Haulier: a relay for the transactional outbox, with WebAssembly plugins.
//!
//! A map, in reading order. The domain is pure; the contracts are three traits; adapters stand behind
//! them; the relay sees domain and contracts only; the assembly puts it all together.
//!
//! - domain: [`event`], [`failure`], [`routing`], [`retry`], [`json`], [`clock`], [`words`], [`report`]
//! - contracts: [`store`], [`sink`], [`transform`] (the first two hold their adapters as children)
//! - adapter of the third: [`plugin`]
//! - the loop: [`relay`]
//! - for people: [`status`], [`operations`]
//! - assembly: [`settings`], [`config`], [`telemetry`], [`admin`], [`reload`], [`app`], [`cli`]
//! - beside it all: [`demo`], which runs the binary as a user would; and, in test builds only,
//!   `failpoint`, which breaks the relay on purpose

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod event;
#[cfg(feature = "fail-points")]
pub mod failpoint;
pub mod failure;
pub mod json;
pub mod operations;
pub mod plugin;
pub mod relay;
pub mod reload;
pub mod report;
pub mod retry;
pub mod routing;
pub mod settings;
pub mod sink;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod transform;
pub mod words;
