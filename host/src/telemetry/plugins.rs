//! What is counted of plugins: versions in use, changes, reloads, shadow runs.
//!
//! The assembly makes one with the other metrics; the reload task and the lanes count. Labels are names
//! and versions of plugins, which come from the operator's folder and not from events; versions that are
//! no longer in use go from the output.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::transform::InUse;

const INFO: &str = "haulier_plugin_info";
const TROUBLES: &str = "haulier_plugin_troubles";
const REFUSALS: &str = "haulier_plugin_refusals";
// The encoder adds "_total" to the names of counters.
const CHANGES: &str = "haulier_plugin_changes";
const RELOADS: &str = "haulier_reloads";
const SHADOWED: &str = "haulier_plugin_shadowed_events";

/// Digits of a hash that make a label.
const HASH_DIGITS: usize = 12;

/// What a candidate in the shadow has said, compared with the version that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shadow {
    /// The same.
    Same,
    /// Another outcome.
    Different,
    /// It failed where the other did not, or in another way.
    Failed,
    /// It was not asked, since too much was waiting.
    Skipped,
}

impl Shadow {
    fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// What happened to the set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginChange {
    /// A version was taken up.
    Activated,
    /// A file was refused.
    Refused,
    /// A version was put back to an earlier one, since it is bad.
    RolledBack,
    /// A plugin's file is gone.
    Removed,
}

impl PluginChange {
    const ALL: [Self; 4] = [Self::Activated, Self::Refused, Self::RolledBack, Self::Removed];

    fn name(self) -> &'static str {
        match self {
            Self::Activated => "activated",
            Self::Refused => "refused",
            Self::RolledBack => "rolled_back",
            Self::Removed => "removed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    plugin: String,
    version: String,
    hash: String,
    standing: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowLabels {
    plugin: Arc<str>,
    result: &'static str,
}

/// The metrics of plugins. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PluginMetrics {
    info: Family<Version, Gauge>,
    troubles: Gauge,
    refusals: Gauge,
    changes: Family<Result, Counter>,
    reloads: Family<Result, Counter>,
    shadowed: Family<ShadowLabels, Counter>,
}

impl PluginMetrics {
    /// Makes them part of the output, every series that is known beforehand with 0.
    pub(super) fn register(&self, to: &mut Registry) {
        let help = "1 for each plugin version in use";
        to.register(INFO, help, self.info.clone());
        to.register(TROUBLES, "Plugins that cannot run", self.troubles.clone());
        let help = "Plugin files and rules that are refused while earlier ones go on";
        to.register(REFUSALS, help, self.refusals.clone());
        let help = "Changes of the plugins in use";
        to.register(CHANGES, help, self.changes.clone());
        let help = "Looks at rules and plugins because something had changed, or on demand";
        to.register(RELOADS, help, self.reloads.clone());
        let help = "Events that a candidate decided in the shadow, by how it compares";
        to.register(SHADOWED, help, self.shadowed.clone());
        for change in PluginChange::ALL {
            self.changed(change, 0);
        }
        for result in ["ok", "failed"] {
            self.reloads.get_or_create(&Result { result }).inc_by(0);
        }
    }

    /// Sets which versions are in use, how much makes events wait, and how much is refused while
    /// something earlier goes on.
    pub fn in_use(&self, versions: &[InUse], troubles: usize, refusals: usize) {
        self.info.clear();
        for InUse { stamp, standing, .. } in versions {
            let hash = stamp.hash.get(..HASH_DIGITS).unwrap_or(&stamp.hash).to_owned();
            let labels = Version {
                plugin: stamp.name.clone(),
                version: stamp.version.clone(),
                hash,
                standing: standing.name(),
            };
            self.info.get_or_create(&labels).set(1);
        }
        self.troubles.set(i64::try_from(troubles).unwrap_or(i64::MAX));
        self.refusals.set(i64::try_from(refusals).unwrap_or(i64::MAX));
    }

    /// Counts changes.
    pub fn changed(&self, change: PluginChange, times: usize) {
        let counter = self.changes.get_or_create(&Result { result: change.name() });
        counter.inc_by(u64::try_from(times).unwrap_or(u64::MAX));
    }

    /// Counts a look at rules and plugins that went well: all that was found is in use.
    pub fn reloaded(&self) {
        self.reloads.get_or_create(&Result { result: "ok" }).inc();
    }

    /// Counts a look after which something old goes on, since what was found is refused.
    pub fn reload_failed(&self) {
        self.reloads.get_or_create(&Result { result: "failed" }).inc();
    }

    /// Counts events that a candidate has decided in the shadow.
    pub fn shadowed(&self, plugin: &str, result: Shadow, events: usize) {
        let labels = ShadowLabels { plugin: plugin.into(), result: result.name() };
        let counter = self.shadowed.get_or_create(&labels);
        counter.inc_by(u64::try_from(events).unwrap_or(u64::MAX));
    }
}
