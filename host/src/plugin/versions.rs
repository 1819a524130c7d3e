//! Which versions of each plugin were used, which of them are bad, and the files to go back to.
//!
//! `host.rs` notes every version it takes up and asks for one to put in a bad one's place; the command
//! `haulier plugin rollback` marks versions as bad, and a running relay sees that. One small JSON file
//! and a few component files per plugin in the state folder; without one, all is in memory and
//! forgotten at the end. Never decides by itself that a version is bad.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::manifest::Manifest;
use super::state::StateFolder;
use crate::failure::PluginStamp;

/// Versions of one plugin that are kept, the one in use included.
const KEPT: usize = 5;

/// Marks of badness that are remembered for one plugin.
const MARKS: usize = 50;

/// Where the histories are, in the state folder.
const FOLDER: &str = "plugins";

/// What is known of one plugin's versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    /// The file it came from last.
    pub(super) file: String,
    /// What it said of itself last.
    pub(super) manifest: Manifest,
    /// Versions that were in use, the latest last.
    pub(super) versions: Vec<Kept>,
    /// Versions that must not be used.
    pub(super) marks: Vec<Mark>,
}

/// A version that was in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) hash: String,
    pub(super) version: String,
    /// When it was first taken up, milliseconds since 1970.
    pub(super) since_ms: u64,
}

/// A version that must not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) hash: String,
    pub(super) version: String,
    pub(super) why: String,
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
}

impl History {
    /// Why the version with that hash must not be used, if so.
    pub(super) fn mark(&self, hash: &str) -> Option<&Mark> {
        self.marks.iter().rev().find(|mark| mark.hash == hash)
    }

    /// The versions that may be used, the latest first, but for the one with that hash.
    pub(super) fn good_besides<'a>(&'a self, hash: &'a str) -> impl Iterator<Item = &'a Kept> {
        let usable = move |kept: &&Kept| kept.hash != hash && self.mark(&kept.hash).is_none();
        self.versions.iter().rev().filter(usable)
    }

    fn note(&mut self, stamp: &PluginStamp) -> Vec<String> {
        let known = self.versions.iter().position(|kept| kept.hash == stamp.hash);
        let since_ms = match known {
            Some(at) => self.versions.remove(at).since_ms,
            None => now_ms(),
        };
        let (hash, version) = (stamp.hash.clone(), stamp.version.clone());
        self.versions.push(Kept { hash, version, since_ms });
        let surplus = self.versions.len().saturating_sub(KEPT);
        self.versions.drain(..surplus).map(|kept| kept.hash).collect()
    }
}

/// Where a state folder keeps what belongs to a plugins folder. Two of them do not mix, though they may
/// share a state folder.
fn home(plugins: &Path) -> PathBuf {
    let place = std::path::absolute(plugins).unwrap_or_else(|_| plugins.to_owned());
    let hash = Sha256::digest(place.as_os_str().as_encoded_bytes());
    let name: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Path::new(FOLDER).join(name)
}

/// Where a state folder has a small JSON file for each plugin of that plugins folder that was ever in use.
pub fn histories(state: &Path, plugins: &Path) -> PathBuf {
    state.join(home(plugins))
}

/// What is not, or not yet, on disk of a plugin.
#[derive(Debug, Default)]
struct Remembered {
    history: Option<History>,
    /// Component files by hash.
    files: BTreeMap<String, Vec<u8>>,
}

/// All histories.
#[derive(Debug)]
pub(super) struct Versions {
    state: Option<StateFolder>,
    home: PathBuf,
    /// What cannot be written, or all if there is no state folder: a disk that is full must not keep a bad
    /// version in use.
    memory: Mutex<BTreeMap<String, Remembered>>,
}

impl Versions {
    /// The histories of that plugins folder in that state folder, or empty ones.
    pub(super) fn new(state: Option<StateFolder>, plugins: &Path) -> Self {
        Self { state, home: home(plugins), memory: Mutex::default() }
    }

    /// What is known of that plugin; nothing if it is not known, or its file is damaged.
    pub(super) fn of(&self, plugin: &str) -> History {
        let remembered = self.memory().get(plugin).and_then(|it| it.history.clone());
        remembered.unwrap_or_else(|| match &self.state {
            None => History::default(),
            Some(state) => read(&state.place(self.history_of(plugin))),
        })
    }

    /// The plugins that are known, by name.
    pub(super) fn plugins(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.memory().keys().cloned().collect();
        let folder = self.state.as_ref().map(|state| fs::read_dir(state.place(&self.home)));
        if let Some(Ok(entries)) = folder {
            names.extend(entries.filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                Some(name.strip_suffix(".json")?.to_owned())
            }));
        }
        names.into_iter().filter(|name| !self.of(name).versions.is_empty()).collect()
    }

    /// The component file of a version.
    pub(super) fn bytes(&self, plugin: &str, hash: &str) -> Option<Vec<u8>> {
        let remembered = self.memory().get(plugin).and_then(|it| it.files.get(hash).cloned());
        let read = || fs::read(self.state.as_ref()?.place(self.component_of(hash))).ok();
        remembered.or_else(read)
    }

    /// Notes that this version has come into use, and keeps its file.
    pub(super) fn took_up(
        &self,
        file: &str,
        stamp: &PluginStamp,
        manifest: &Manifest,
        bytes: &[u8],
    ) {
        self.change(&stamp.name, |history| {
            file.clone_into(&mut history.file);
            history.manifest = manifest.clone();
            history.note(stamp)
        });
        let path = self.component_of(&stamp.hash);
        let written = match &self.state {
            Some(state) if !state.records() || state.place(&path).exists() => return,
            Some(state) => state.write(&path, &[bytes]).inspect_err(|error| {
                tracing::warn!(plugin = stamp.name, %error, "a plugin version cannot be kept on disk");
            }),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        };
        if written.is_err() {
            let mut memory = self.memory();
            let files = &mut memory.entry(stamp.name.clone()).or_default().files;
            files.insert(stamp.hash.clone(), bytes.to_vec());
        }
    }

    /// Marks a version: it must not be used.
    pub(super) fn condemn(&self, stamp: &PluginStamp, why: &str) {
        self.change(&stamp.name, |history| {
            history.marks.retain(|mark| mark.hash != stamp.hash);
            history.marks.push(Mark {
                hash: stamp.hash.clone(),
                version: stamp.version.clone(),
                why: why.to_owned(),
                at_ms: now_ms(),
            });
            let surplus = history.marks.len().saturating_sub(MARKS);
            history.marks.drain(..surplus);
            Vec::new()
        });
    }

    /// Takes all marks of a plugin away. Returns how many there were.
    pub(super) fn forgive(&self, plugin: &str) -> usize {
        let mut forgiven = 0;
        self.change(plugin, |history| {
            forgiven = history.marks.len();
            history.marks.clear();
            Vec::new()
        });
        forgiven
    }

    /// Forgets a plugin whose file was removed for good.
    pub(super) fn forget(&self, plugin: &str) {
        let history = self.of(plugin);
        self.memory().remove(plugin);
        if let Some(state) = &self.state {
            // What is not there need not be removed, and a component file without a history does no harm.
            let _ = fs::remove_file(state.place(self.history_of(plugin)));
            for kept in history.versions {
                let _ = fs::remove_file(state.place(self.component_of(&kept.hash)));
            }
        }
    }

    /// Changes a history; `change` returns the hashes of versions whose files may go.
    fn change(&self, plugin: &str, change: impl FnOnce(&mut History) -> Vec<String>) {
        let state = match &self.state {
            Some(state) if !state.records() => return,
            state => state.as_ref(),
        };
        // Several processes may share the folder: one at a time reads, changes and writes.
        let _turn = state.map(|state| {
            File::create(state.place("lock")).and_then(|file| file.lock().map(|()| file))
        });
        let before = self.of(plugin);
        let mut history = before.clone();
        let surplus = change(&mut history);
        if history == before {
            return;
        }
        let text = serde_json::to_vec_pretty(&history).unwrap_or_default();
        let written = state.map(|state| state.write(&self.history_of(plugin), &[&text]));
        let mut memory = self.memory();
        let remembered = memory.entry(plugin.to_owned()).or_default();
        match written {
            Some(Ok(())) => remembered.history = None,
            Some(Err(error)) => {
                tracing::warn!(plugin, %error, "the history of a plugin cannot be written to disk");
                remembered.history = Some(history);
            }
            None => remembered.history = Some(history),
        }
        for hash in surplus {
            remembered.files.remove(&hash);
            if let Some(state) = state {
                // It is of no use any more; if it stays, it only takes room.
                let _ = fs::remove_file(state.place(self.component_of(&hash)));
            }
        }
    }

    fn history_of(&self, plugin: &str) -> PathBuf {
        self.home.join(format!("{plugin}.json"))
    }

    fn component_of(&self, hash: &str) -> PathBuf {
        self.home.join("files").join(format!("{hash}.wasm"))
    }

    fn memory(&self) -> MutexGuard<'_, BTreeMap<String, Remembered>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> History {
    let Ok(text) = fs::read(path) else { return History::default() };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::warn!(file = %path.display(), %error, "the history of a plugin is damaged");
        History::default()
    })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(hash: &str) -> PluginStamp {
        PluginStamp { name: "p".to_owned(), version: "1".to_owned(), hash: hash.to_owned() }
    }

    fn usable(versions: &Versions, current: &str) -> Vec<String> {
        versions.of("p").good_besides(current).map(|kept| kept.hash.clone()).collect()
    }

    fn check(versions: &Versions) {
        for hash in ["a", "b", "c", "d", "e", "f"] {
            versions.took_up("p.wasm", &stamp(hash), &Manifest::default(), hash.as_bytes());
        }
        assert_eq!(usable(versions, "f"), ["e", "d", "c", "b"]);
        assert_eq!(versions.bytes("p", "b"), Some(b"b".to_vec()));
        assert_eq!(versions.bytes("p", "a"), None, "only the last few are kept");

        versions.condemn(&stamp("f"), "it traps");
        versions.condemn(&stamp("d"), "by hand");
        assert_eq!(usable(versions, "f"), ["e", "c", "b"]);
        assert_eq!(versions.of("p").mark("f").map(|mark| mark.why.as_str()), Some("it traps"));
        versions.took_up("p.wasm", &stamp("c"), &Manifest::default(), b"c");
        assert_eq!(usable(versions, "c"), ["e", "b"]);

        assert_eq!(versions.forgive("p"), 2);
        assert_eq!(usable(versions, "c"), ["f", "e", "d", "b"]);
        assert_eq!(versions.plugins(), ["p"]);
        versions.forget("p");
        assert_eq!(versions.of("p"), History::default());
        assert_eq!((versions.plugins().len(), versions.bytes("p", "b")), (0, None));
    }

    #[test]
    fn versions_are_kept_marked_and_forgotten_in_memory() {
        check(&Versions::new(None, Path::new("plugins")));
    }

    #[test]
    fn versions_are_kept_marked_and_forgotten_on_disk() {
        use super::super::config::Keeping;
        let path = std::env::temp_dir().join(format!("haulier-versions-{}", std::process::id()));
        let state = StateFolder::open(&path, Keeping::Record).expect("a folder");
        check(&Versions::new(Some(state.clone()), Path::new("plugins")));

        // Another plugins folder has histories of its own, whatever its plugins are called.
        let one = Versions::new(Some(state.clone()), Path::new("one"));
        let other = Versions::new(Some(state), Path::new("other"));
        one.took_up("p.wasm", &stamp("a"), &Manifest::default(), b"a");
        let odd = PluginStamp { name: "p.json".to_owned(), ..stamp("b") };
        one.took_up("q.wasm", &odd, &Manifest::default(), b"b");
        assert_eq!((one.plugins().len(), other.plugins().len()), (2, 0));
        assert_eq!(one.bytes("p", "a"), Some(b"a".to_vec()));
        fs::remove_dir_all(path).expect("it goes");
    }

    #[test]
    fn what_cannot_be_written_is_remembered() {
        use super::super::config::Keeping;
        let path = std::env::temp_dir().join(format!("haulier-unwritten-{}", std::process::id()));
        let state = StateFolder::open(&path, Keeping::Record).expect("a folder");
        // A file where the folder should be: nothing can be written there, whoever asks.
        fs::write(path.join(FOLDER), "x").expect("a file");
        check(&Versions::new(Some(state), Path::new("plugins")));
        fs::remove_dir_all(path).expect("it goes");
    }
}
