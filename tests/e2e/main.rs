//! The relay as processes, on real PostgreSQL and Kafka: what was committed against what arrived.
//!
//! Some of these take a service away or measure rates, so they run one after the other.

mod commands;
mod content;
mod crash;
mod demo;
mod examples;
mod fault_broker;
mod fault_data;
mod fault_database;
mod fault_instances;
mod fault_kills;
mod fault_plugins;
mod fault_topics;
mod forbidden;
mod health;
mod init;
mod isolation;
mod operate;
mod order;
mod outage;
mod plugins;
mod reload;
mod scenario;
mod soak;
mod sqlite;
mod status;
