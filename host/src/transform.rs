//! The contract between the relay and whatever decides what is published for an event.
//!
//! The plugin host implements it; the relay calls it once per plugin and batch. An implementation
//! never touches the database or the broker, and never fails a batch for one event.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{Event, LaneName, Outcome};
use crate::failure::{Failure, PluginStamp};

/// One verdict per event, in the order of the events, and the plugin version that gave them.
#[derive(Debug)]
pub struct Transformed {
    /// Exactly as many entries as there were events.
    pub verdicts: Vec<Result<Outcome, Failure>>,
    /// Who decided.
    pub stamp: PluginStamp,
    /// Which taking-up of that version it was: a number of its own each time a version is made ready,
    /// also when only its settings have changed.
    pub activation: u64,
}

/// One version of a plugin, ready to be called. It stays what it is: a new version is another one.
#[async_trait]
pub trait Transform: Send + Sync {
    /// Decides every event of the batch. Events arrive in id order per ordering key.
    ///
    /// Never fails as a whole: what goes wrong is the verdict of the event it went wrong on.
    async fn transform(&self, lane: &LaneName, events: &[&Event]) -> Transformed;
}

/// What a version in use is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It decides the plugin's events.
    Current,
    /// It does so in place of the file's version, which is refused or was rolled back.
    Kept,
    /// It decides what a rule gives to the candidate, or runs in its shadow.
    Candidate,
}

impl Standing {
    /// Its stable name, for reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Kept => "kept",
            Self::Candidate => "candidate",
        }
    }
}

/// A version in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Who it is.
    pub stamp: PluginStamp,
    /// What it is there for.
    pub standing: Standing,
    /// The event types its manifest wants, full names or beginnings with a `*`.
    pub event_types: Vec<String>,
}

/// The plugins at one moment: how a name is found, and which plugin wants an event type that no route
/// names. It does not change; a reload makes another one.
pub trait Plugins: Send + Sync {
    /// The version of that plugin that decides.
    ///
    /// # Errors
    /// A text that says why there is none at present: not in the folder, or refused and why.
    fn find(&self, name: &str) -> Result<Arc<dyn Transform>, String>;

    /// The candidate version of that plugin, if there is one.
    fn candidate(&self, name: &str) -> Option<Arc<dyn Transform>>;

    /// The names of the plugins whose manifest wants `event_type`, sorted: the loaded ones, and those
    /// that are not there but had said what they want.
    fn wanting(&self, event_type: &str) -> Vec<String>;

    /// The versions in use, by name.
    fn in_use(&self) -> Vec<InUse>;

    /// Everything that keeps a plugin from running, one line each, for readiness and logs.
    fn troubles(&self) -> Vec<String>;

    /// Everything that was refused while an earlier version goes on, one line each.
    fn notes(&self) -> Vec<String>;

    /// Says that this version is bad (it has failed on every event so far) and should be used no more.
    /// Returns at once; another set of plugins without it follows.
    fn condemn(&self, stamp: &PluginStamp, why: &str);
}

/// Plugins for unit tests: one that decides on everything, or none, and versions that are said to be in use.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct FixedPlugins {
    pub(crate) plugin: Option<Arc<dyn Transform>>,
    pub(crate) in_use: Vec<InUse>,
}

#[cfg(test)]
impl Plugins for FixedPlugins {
    fn find(&self, _: &str) -> Result<Arc<dyn Transform>, String> {
        self.plugin.clone().ok_or_else(String::new)
    }

    fn candidate(&self, _: &str) -> Option<Arc<dyn Transform>> {
        None
    }

    fn wanting(&self, event_type: &str) -> Vec<String> {
        let wants = |wanted: &String| event_type.starts_with(wanted.trim_end_matches('*'));
        let wanting = self.in_use.iter().filter(|one| one.event_types.iter().any(wants));
        wanting.map(|one| one.stamp.name.clone()).collect()
    }

    fn in_use(&self) -> Vec<InUse> {
        self.in_use.clone()
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn condemn(&self, _: &PluginStamp, _: &str) {}
}
