//! Compiled code on disk, by content: a component that was compiled once is loaded in a millisecond.
//!
//! `load.rs` asks before it compiles, and stores what it has compiled. An entry is found by the SHA-256
//! of the component's file and by everything that machine code depends on (wasmtime's version, its
//! settings, the processor); it carries a checksum of itself. What cannot be used is compiled anew:
//! the cache can make loading slow, never wrong.

// Loading machine code is the one thing here that the compiler cannot check.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::state::StateFolder;

/// Most bytes of compiled code that are kept; what was used longest ago goes first. A JavaScript or
/// Python component compiles to about 40 MB.
const MAX_BYTES: u64 = 1 << 30;

/// Bytes of the checksum in front of the code.
const CHECKSUM: usize = 32;

/// The compiled code in a state folder.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    state: StateFolder,
    /// What the code depends on besides the component.
    engine: u64,
}

impl Cache {
    /// The cache of that folder for code of that engine.
    pub(super) fn new(state: StateFolder, engine: &Engine) -> Self {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self { state, engine: hasher.finish() }
    }

    /// The component whose file has that hash, if it was compiled before.
    pub(super) fn load(&self, engine: &Engine, hash: &str) -> Option<Component> {
        let path = self.state.place(self.name(hash));
        let bytes = fs::read(&path).ok()?;
        let (checksum, code) = bytes.split_at_checked(CHECKSUM)?;
        if checksum != Sha256::digest(code).as_slice() {
            tracing::warn!(file = %path.display(), "compiled code is damaged; compiling anew");
            return None;
        }
        // SAFETY: the bytes are the output of `Component::serialize`: this program wrote them into a
        // folder that only its user can write to, whole by rename, and the checksum says that they
        // are unchanged. Wasmtime itself checks that its version and settings are the same.
        let loaded = unsafe { Component::deserialize(engine, code) };
        let component =
            loaded.inspect_err(|error| tracing::debug!(%error, "compiled code not used")).ok()?;
        if self.state.records() {
            // When it was last used; failing to note it only makes it go earlier.
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        Some(component)
    }

    /// Keeps what was compiled.
    pub(super) fn store(&self, hash: &str, component: &Component) {
        if !self.state.records() {
            return;
        }
        let stored = component.serialize().map_err(|error| format!("{error:#}")).and_then(|code| {
            let checksum = Sha256::digest(&code);
            let name = self.name(hash);
            self.state
                .write(&name, &[checksum.as_slice(), &code])
                .map_err(|error| error.to_string())
        });
        match stored {
            Ok(()) => self.prune(),
            Err(error) => tracing::warn!(error, "compiled code cannot be kept"),
        }
    }

    fn name(&self, hash: &str) -> PathBuf {
        PathBuf::from(format!("compiled/{hash}-{:016x}.bin", self.engine))
    }

    /// Removes what was used longest ago until the rest fits.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(self.state.place("compiled")) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let found = entry.metadata().ok()?;
                Some((found.modified().ok()?, found.len(), entry.path()))
            })
            .collect();
        files.sort_unstable_by_key(|(used, ..)| std::cmp::Reverse(*used));
        let mut total = 0u64;
        for (_, bytes, path) in files {
            total = total.saturating_add(bytes);
            if total > MAX_BYTES {
                // Another process may have been faster.
                let _ = fs::remove_file(path);
            }
        }
    }
}
