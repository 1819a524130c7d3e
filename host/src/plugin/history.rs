//! Going back to an earlier version by hand.
//!
//! The command `haulier plugin rollback` uses [`Rollbacks`] on the state folder; a running relay sees the
//! change there and acts on it. The file in the plugins folder stays as it is.

use std::path::{Path, PathBuf};

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
    /// Its file is not there.
    #[error(
        "plugin {name} is gone: its file {file} is not in the plugins folder; put the version there that is \
         to be used"
    )]
    Gone {
        /// What was asked for.
        name: String,
        /// Where it was.
        file: String,
    },
    /// There is nothing to go back to.
    #[error(
        "there is no earlier good version of plugin {0:?} to go back to; put one into the plugins folder"
    )]
    Nothing(String),
}

/// The versions in a state folder.
pub struct Rollbacks {
    versions: Versions,
    /// The plugins folder.
    folder: PathBuf,
}

impl Rollbacks {
    /// Opens the state folder of a plugins folder.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(state: &Path, plugins: &Path, keeping: Keeping) -> Result<Self, RollBackError> {
        let versions = open_versions(state, plugins, keeping).map_err(RollBackError::State)?;
        Ok(Self { versions, folder: plugins.to_owned() })
    }

    /// Marks the version in use as one to go back from. Returns it and the one to go back to.
    ///
    /// # Errors
    /// When the plugin is not known, or has no other good version.
    pub fn roll_back(&self, plugin: &str) -> Result<(KeptVersion, KeptVersion), RollBackError> {
        self.known(plugin)?;
        let history = self.versions.of(plugin);
        if !self.folder.join(&history.file).exists() {
            let (name, file) = (plugin.to_owned(), history.file);
            return Err(RollBackError::Gone { name, file });
        }
        let mut good = history.good_besides("");
        let nothing = || RollBackError::Nothing(plugin.to_owned());
        let (now, earlier) =
            (good.next().ok_or_else(nothing)?.clone(), good.next().ok_or_else(nothing)?.clone());
        let stamp = PluginStamp {
            name: plugin.to_owned(),
            version: now.version.clone(),
            hash: now.hash.clone(),
        };
        self.versions.condemn(&stamp, BY_HAND);
        Ok((described(now, Some(BY_HAND)), described(earlier, None)))
    }

    /// Takes all marks away: the file in the plugins folder is used again. Returns how many there were.
    ///
    /// # Errors
    /// When the plugin is not known.
    pub fn undo(&self, plugin: &str) -> Result<usize, RollBackError> {
        self.known(plugin)?;
        Ok(self.versions.forgive(plugin))
    }

    /// Forgets a plugin whose file was removed for good from the plugins folder: its event types wait no
    /// longer.
    ///
    /// # Errors
    /// When the plugin is not known, or its file is still there.
    pub fn forget(&self, plugin: &str) -> Result<(), RollBackError> {
        self.known(plugin)?;
        let file = self.versions.of(plugin).file;
        if self.folder.join(&file).exists() {
            return Err(RollBackError::There { name: plugin.to_owned(), file });
        }
        self.versions.forget(plugin);
        Ok(())
    }

    /// The versions of a plugin, the latest first.
    ///
    /// # Errors
    /// When the plugin is not known.
    pub fn versions(&self, plugin: &str) -> Result<Vec<KeptVersion>, RollBackError> {
        self.known(plugin)?;
        let history = self.versions.of(plugin);
        let marked = |kept: &Kept| history.mark(&kept.hash).map(|mark| mark.why.clone());
        let all = history.versions.iter().rev();
        Ok(all.map(|kept| described(kept.clone(), marked(kept).as_deref())).collect())
    }

    fn known(&self, plugin: &str) -> Result<(), RollBackError> {
        let known = self.versions.plugins();
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
