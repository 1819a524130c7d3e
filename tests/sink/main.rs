//! The Kafka sink against a real broker and against librdkafka's mock cluster.
//!
//! Run with the services up: `eval "$(tests/services env)"`, then `cargo test --test sink`.
//! Every test makes its own topics, so they run in parallel and leave nothing for each other.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod broker;
mod content;
mod forbidden;
mod login;
mod order;
mod outage;
mod partitions;
mod rules;
mod trouble;
