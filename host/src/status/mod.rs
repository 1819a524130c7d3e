//! How all sources stand, from their databases alone: what `haulier status` shows.
//!
//! The command line asks [`look`] and prints the [`Status`] as text or as JSON, whose field names are
//! those of the structs here. Counts and leases come from the tables, what only instances know from
//! their heartbeats. Changes nothing.

mod gather;
mod problems;
mod text;

use std::sync::Arc;

use serde::Serialize;

use crate::event::Ordering;
use crate::store::Outbox;

pub use self::gather::look;
pub use self::text::render;

/// The version of the JSON; grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// A source to be looked at, as the settings have it.
pub struct Asked {
    /// Its name.
    pub source: Arc<str>,
    /// Its table, as written in the settings.
    pub table: String,
    /// Its database.
    pub store: Arc<dyn Outbox>,
    /// The lanes that the settings give it, in their order.
    pub lanes: Vec<(Arc<str>, Ordering)>,
}

/// How everything stands. All times are milliseconds, and ages by the clock of the source's database.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The version of this document.
    pub version: u32,
    /// Events are counted up to this many.
    pub counted_up_to: u64,
    /// The sources, in the order of the settings.
    pub sources: Vec<SourceStatus>,
    /// What deserves attention, source by source.
    pub problems: Vec<Problem>,
}

/// One source.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SourceStatus {
    /// Its name.
    pub source: String,
    /// Its table.
    pub table: String,
    /// Why it could not be looked at, with the remedy where there is one; then the lists are empty.
    pub error: Option<String>,
    /// Its lanes: those of the settings first, in their order, then the others by name.
    pub lanes: Vec<LaneStatus>,
    /// Whether there are more lanes than are looked at.
    pub lanes_left_out: bool,
    /// Leases and row claims that were not given back, by lane and shard.
    pub leases: Vec<LeaseStatus>,
    /// Whether there are more leases than are listed.
    pub leases_left_out: bool,
    /// Instances heard of within a day: running ones, then those that are gone, then stopped ones.
    pub instances: Vec<InstanceStatus>,
}

/// One lane of a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LaneStatus {
    /// Its name.
    pub lane: String,
    /// Whether the settings name it.
    pub configured: bool,
    /// `key`, `none` or `total`; null where the settings do not name it.
    pub ordering: Option<&'static str>,
    /// The running instances that work on it, by name.
    pub served_by: Vec<String>,
    /// Events waiting, due or not.
    pub pending: u64,
    /// Events in live batches.
    pub processing: u64,
    /// Events set aside.
    pub failed: u64,
    /// Ordering keys that wait, the halted ones included.
    pub held_keys: u64,
    /// Ordering keys that wait until someone decides.
    pub halted_keys: u64,
    /// The events that halt them, lowest ids first; the first few only.
    pub halted_events: Vec<i64>,
    /// Events published in the last minute, as far as instances have said.
    pub published_last_minute: u64,
    /// How long the oldest event that could be claimed has been due; null when there is none.
    pub oldest_due_ms: Option<u64>,
    /// Destinations whose events wait, by name.
    pub open_circuits: Vec<CircuitStatus>,
    /// How many more there are.
    pub open_circuits_left_out: u64,
    /// The running instances that cannot work on it at present.
    pub paused: Vec<PauseStatus>,
}

/// A destination whose events wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CircuitStatus {
    /// The topic, or a text that names the missing plugin or route.
    pub destination: String,
    /// The failure's stable name.
    pub cause: String,
    /// What happened.
    pub failure: String,
    /// Time until an event may try it again; 0 is with the next event.
    pub next_trial_ms: u64,
    /// The instances that have found it so.
    pub instances: Vec<String>,
}

/// Why an instance does not work on a lane.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PauseStatus {
    /// The instance.
    pub instance: String,
    /// The reason.
    pub reason: String,
}

/// A lease or row claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaseStatus {
    /// Its lane.
    pub lane: String,
    /// `shard`, `lane` (all of it) or `rows`.
    pub kind: &'static str,
    /// The shard, where it is one.
    pub shard: Option<i32>,
    /// The instance that took it.
    pub owner: String,
    /// Events in its batch.
    pub events: u64,
    /// Time until it ends; negative once it has.
    pub expires_in_ms: i64,
}

/// One instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceStatus {
    /// Its name.
    pub instance: String,
    /// `running`; `gone`, when it was not heard of for three heartbeats; `stopped`, in good order.
    pub state: &'static str,
    /// How long ago it started.
    pub started_ago_ms: u64,
    /// How long ago it was last heard of.
    pub seen_ago_ms: u64,
    /// How long ago it stopped; null while it has not said so.
    pub stopped_ago_ms: Option<u64>,
    /// The program's version; null where the report cannot be read.
    pub haulier: Option<String>,
    /// Why its report cannot be read, if it cannot.
    pub unreadable: Option<String>,
    /// The lanes of this source that it works on.
    pub lanes: Vec<String>,
    /// Its plugins.
    pub plugins: Vec<PluginStatus>,
    /// What keeps plugins from running.
    pub plugin_troubles: Vec<String>,
}

/// One plugin of an instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PluginStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its file, lower-case hex.
    pub hash: String,
    /// `current`; `kept`, an earlier version in place of one that cannot be used; or `candidate`.
    pub standing: String,
}

/// Something that deserves attention.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// The source it is of.
    pub source: String,
    /// The lane it is of, where it is of one.
    pub lane: Option<String>,
    /// Its stable name, for programs.
    pub kind: &'static str,
    /// A sentence for people.
    pub text: String,
}

impl Status {
    /// Whether every source could be looked at.
    pub fn complete(&self) -> bool {
        self.sources.iter().all(|source| source.error.is_none())
    }
}

/// The state of an instance that is there.
const RUNNING: &str = "running";
/// The state of one that is not heard of any more.
const GONE: &str = "gone";
/// The state of one that has said good-bye.
const STOPPED: &str = "stopped";
