//! Going back to an earlier version by hand.
//!
//! The command `haulier plugin rollback` uses [`Rollbacks`] on the state folder; a running relay sees the
//! change there and acts on it. The file in the plugins folder stays as it is.

use std::path::Path;

use super::config::Keeping;
use super::host::open_versions;
use super::versions::{Kept, Versions};
use crate::failure::PluginStamp;

/// What is said of a version that an operator has rolled back.
const BY_HAND: &str = "rolled back by hand";

/// A version that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// What the plugin calls it.
    pub version: String,
    /// SHA-256 of its file, lower-case hex.
    pub hash: String,
    /// When it was first in use, milliseconds since 1970.
    pub since_ms: u64,
    /// Why it must not be used, if so.
    pub mark: Option<String>,
}

/// Why there is no going back.
#[derive(Debug, thiserror::Error)]
pub enum RollBackError {
    /// The state folder cannot be used.
    #[error("{0}")]
    State(String),
    /// No such plugin was ever in use.
    #[error("no plugin {name:?} was in use with these settings; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Its file is still there.
    #[error("plugin {name} is there: its file {file} is in the plugins folder; remove that first")]
    There {
        /// What was asked for.
        name: String,
        /// Where it is.
        file: String,
    },
    /// There is nothing to go back to.
    #[error(
        "there is no earlier good version of plugin {0:?} to go back to; put one into the plugins folder"
    )]
    Nothing(String),
}

/// The versions in a state folder.
pub struct Rollbacks(Versions);

impl Rollbacks {
    /// Opens the state folder.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(state: &Path) -> Result<Self, RollBackError> {
        open_versions(state, Keeping::Record).map(Self).map_err(RollBackError::State)
    }

    /// Marks the version in use as one to go back from. Returns it and the one to go back to.
    ///
    /// # Errors
    /// When the plugin is not known, or has no other good version.
    pub fn roll_back(&self, plugin: &str) -> Result<(KeptVersion, KeptVersion), RollBackError> {
        self.known(plugin)?;
        let history = self.0.of(plugin);
        let mut good = history.good_besides("");
        let nothing = || RollBackError::Nothing(plugin.to_owned());
        let (now, earlier) =
            (good.next().ok_or_else(nothing)?.clone(), good.next().ok_or_else(nothing)?.clone());
        let stamp = PluginStamp {
            name: plugin.to_owned(),
            version: now.version.clone(),
            hash: now.hash.clone(),
        };
        self.0.condemn(&stamp, BY_HAND);
        Ok((described(now, Some(BY_HAND)), described(earlier, None)))
    }

    /// Takes all marks away: the file in the plugins folder is used again. Returns how many there were.
    ///
    /// # Errors
    /// When the plugin is not known.
    pub fn undo(&self, plugin: &str) -> Result<usize, RollBackError> {
        self.known(plugin)?;
        Ok(self.0.forgive(plugin))
    }

    /// Forgets a plugin whose file was removed for good from the plugins folder: its event types wait no
    /// longer.
    ///
    /// # Errors
    /// When the plugin is not known, or its file is still there.
    pub fn forget(&self, plugin: &str, plugins: &Path) -> Result<(), RollBackError> {
        self.known(plugin)?;
        let file = self.0.of(plugin).file;
        if plugins.join(&file).exists() {
            return Err(RollBackError::There { name: plugin.to_owned(), file });
        }
        self.0.forget(plugin);
        Ok(())
    }

    /// The versions of a plugin, the latest first.
    ///
    /// # Errors
    /// When the plugin is not known.
    pub fn versions(&self, plugin: &str) -> Result<Vec<KeptVersion>, RollBackError> {
        self.known(plugin)?;
        let history = self.0.of(plugin);
        let marked = |kept: &Kept| history.mark(&kept.hash).map(|mark| mark.why.clone());
        let all = history.versions.iter().rev();
        Ok(all.map(|kept| described(kept.clone(), marked(kept).as_deref())).collect())
    }

    fn known(&self, plugin: &str) -> Result<(), RollBackError> {
        let known = self.0.plugins();
        if known.iter().any(|name| name == plugin) {
            return Ok(());
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(RollBackError::Unknown { name: plugin.to_owned(), known })
    }
}

fn described(kept: Kept, mark: Option<&str>) -> KeptVersion {
    let Kept { hash, version, since_ms } = kept;
    KeptVersion { version, hash, since_ms, mark: mark.map(str::to_owned) }
}
