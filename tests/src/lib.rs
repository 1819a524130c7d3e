//! What the tests stand on: services, databases, topics, processes, a workload and a checker.
//!
//! Used by every tier in this crate. Nothing here asserts how the relay does its work, only what was
//! committed and what arrived.

pub mod access;
pub mod build;
pub mod checker;
pub mod database;
pub mod folder;
pub mod guest;
pub mod history;
pub mod kafka;
pub mod ledger;
pub mod process;
pub mod proxy;
pub mod services;
pub mod snapshot;
pub mod soak;
pub mod traffic;
pub mod workload;
