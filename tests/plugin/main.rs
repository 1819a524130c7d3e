//! The plugin host on real components: good ones, bad files, and a plugin that misbehaves on request.
//!
//! Needs the wasm32-wasip2 target and nothing else: no database, no broker.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod guests;
mod hostile;
mod loading;
mod misbehaviour;
mod outcomes;
mod reload;
