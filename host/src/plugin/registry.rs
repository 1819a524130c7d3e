//! The plugins at one moment, as the relay sees them.
//!
//! `assembly.rs` makes one from the folder each time it is looked at; it never changes after that. A batch
//! keeps the one it began with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::manifest::Manifest;
use super::transform::Plugin;
use crate::failure::PluginStamp;
use crate::transform::{InUse, Plugins, Standing, Transform};

/// All plugins of a folder.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) folder: PathBuf,
    /// What is wrong with the folder itself, if anything.
    pub(super) folder_trouble: Option<String>,
    /// What people should know about earlier versions.
    pub(super) note: Option<String>,
    /// The versions that decide, by the plugin's name.
    pub(super) current: BTreeMap<String, (Arc<Plugin>, Standing)>,
    /// The versions on trial, by the plugin's name.
    pub(super) candidates: BTreeMap<String, Arc<Plugin>>,
    /// Lines about files that are not used, with what goes on in their place.
    pub(super) refused: Vec<(String, InPlace)>,
    /// Plugins that are not there; their event types wait.
    pub(super) missing: BTreeMap<String, Missing>,
    /// Configured, and not in the folder.
    pub(super) absent: Vec<String>,
    pub(super) complaints: Arc<Complaints>,
}

/// What is used in place of a refused file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InPlace {
    /// An earlier version.
    Earlier,
    /// Nothing of this file.
    Nothing,
}

/// A plugin that is not there.
pub(super) struct Missing {
    /// What it had said of itself.
    pub(super) manifest: Manifest,
    /// Why it is not there, and what to do.
    pub(super) reason: String,
    pub(super) kind: MissingKind,
}

/// Why it is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingKind {
    /// Its file is gone.
    Gone,
    /// Its file is refused, which is reported with the file.
    Refused,
}

/// Versions that the relay has found to be bad, until someone reads them.
#[derive(Default)]
pub(super) struct Complaints {
    list: Mutex<Vec<(PluginStamp, String)>>,
    news: Notify,
}

impl Complaints {
    fn add(&self, stamp: &PluginStamp, why: &str) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.iter().all(|(known, _)| known != stamp) {
            list.push((stamp.clone(), why.to_owned()));
            self.news.notify_one();
        }
    }

    /// Resolves when there is something to read.
    pub(super) async fn wait(&self) {
        self.news.notified().await;
    }

    /// All that came since the last call of this.
    pub(super) fn take(&self) -> Vec<(PluginStamp, String)> {
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Registry {
    fn refused_with(&self, wanted: InPlace) -> impl Iterator<Item = String> {
        let lines = self.refused.iter().filter(move |(_, in_place)| *in_place == wanted);
        lines.map(|(line, _)| line.clone())
    }
}

impl Plugins for Registry {
    fn find(&self, name: &str) -> Result<Arc<dyn Transform>, String> {
        if let Some((plugin, _)) = self.current.get(name) {
            return Ok(plugin.clone());
        }
        if let Some(missing) = self.missing.get(name) {
            return Err(missing.reason.clone());
        }
        let folder = self.folder.display();
        let mut text = match &self.folder_trouble {
            Some(trouble) => format!("there is no plugin {name:?}: {trouble}"),
            None => format!("there is no plugin {name:?} in the folder {folder}"),
        };
        for (refusal, _) in &self.refused {
            text.push_str("; ");
            text.push_str(refusal);
        }
        Err(text)
    }

    fn candidate(&self, name: &str) -> Option<Arc<dyn Transform>> {
        self.candidates.get(name).map(|plugin| plugin.clone() as Arc<dyn Transform>)
    }

    fn wanting(&self, event_type: &str) -> Vec<String> {
        let there = self.current.values().map(|(plugin, _)| plugin.manifest());
        let missing = self.missing.values().map(|missing| &missing.manifest);
        let wanting = there.chain(missing).filter(|manifest| manifest.wants(event_type));
        let mut names: Vec<String> = wanting.map(|manifest| manifest.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn in_use(&self) -> Vec<InUse> {
        let current = self.current.values().map(|(plugin, standing)| (plugin, *standing));
        let candidates = self.candidates.values().map(|plugin| (plugin, Standing::Candidate));
        let mut all: Vec<InUse> = current
            .chain(candidates)
            .map(|(plugin, standing)| InUse {
                stamp: plugin.stamp().clone(),
                standing,
                event_types: plugin.manifest().event_types.clone(),
            })
            .collect();
        all.sort_by(|a, b| a.stamp.name.cmp(&b.stamp.name));
        all
    }

    fn troubles(&self) -> Vec<String> {
        let folder = self.folder.display();
        let absent = self.absent.iter().map(|name| {
            format!(
                "plugin {name} is configured, and no usable file of the folder {folder} has that \
                 name: put it there, or remove [plugins.{name}]"
            )
        });
        let gone = self.missing.values().filter(|missing| missing.kind == MissingKind::Gone);
        // A folder that nobody needs may be missing.
        let needed = !self.absent.is_empty() || !self.current.is_empty();
        self.folder_trouble
            .iter()
            .filter(|_| needed)
            .cloned()
            .chain(self.refused_with(InPlace::Nothing))
            .chain(gone.map(|missing| missing.reason.clone()))
            .chain(absent)
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        self.refused_with(InPlace::Earlier).chain(self.note.clone()).collect()
    }

    fn condemn(&self, stamp: &PluginStamp, why: &str) {
        self.complaints.add(stamp, why);
    }
}
