//! The state folder: a private place on disk for compiled code and for the last good versions.
//!
//! `host.rs` opens it. What lies in it is trusted as much as the program itself (compiled code is run as
//! it is), so a folder that others can write to is not used. Files appear by rename, whole or not at
//! all. It never holds settings or events.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::config::Keeping;

/// Nobody but the owner.
const PRIVATE: u32 = 0o700;

/// The user who may do anything.
const ROOT: u32 = 0;

/// Write permission for the group and for others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// An open state folder.
#[derive(Debug, Clone)]
pub(super) struct StateFolder {
    path: PathBuf,
    keeping: Keeping,
    owner: Owner,
}

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The user's who runs this.
    Us,
    /// Another user's, which root may use, but must not run code from.
    Another,
}

impl StateFolder {
    /// Opens the folder, and makes it where it may.
    ///
    /// # Errors
    /// A text that says why it cannot be used, and what to do.
    pub(super) fn open(path: &Path, keeping: Keeping) -> Result<Self, String> {
        let place = path.display();
        if keeping == Keeping::Record {
            make(path)
                .map_err(|error| format!("the state folder {place} cannot be made: {error}"))?;
        }
        let found = fs::metadata(path)
            .map_err(|error| format!("the state folder {place} cannot be read: {error}"))?;
        let owner = rustix::process::geteuid().as_raw();
        // Root is who an operator often is; it reads and writes there, and runs nothing from there.
        if (owner != ROOT && found.uid() != owner) || found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(format!(
                "the state folder {place} must belong to the user that runs this (uid {owner}) and be \
                 writable by nobody else, since code is run from it: chmod 700, or name another with \
                 [plugin_host] state"
            ));
        }
        let owner = if found.uid() == owner { Owner::Us } else { Owner::Another };
        Ok(Self { path: path.to_owned(), keeping, owner })
    }

    /// A place below it.
    pub(super) fn place(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path.join(relative)
    }

    /// Whether compiled code in it may be run.
    pub(super) fn is_ours(&self) -> bool {
        self.owner == Owner::Us
    }

    /// Whether this process writes to it.
    pub(super) fn records(&self) -> bool {
        self.keeping == Keeping::Record
    }

    /// Puts a file there, whole or not at all.
    pub(super) fn write(&self, relative: &Path, parts: &[&[u8]]) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let target = self.path.join(relative);
        if let Some(folder) = target.parent() {
            make(folder)?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = target.with_extension(format!("{}-{number}.part", std::process::id()));
        let written = File::create(&part).and_then(|mut file| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_data()
        });
        let moved = written.and_then(|()| fs::rename(&part, &target));
        if moved.is_err() {
            // What is left of it is of no use to anyone.
            let _ = fs::remove_file(&part);
        }
        moved
    }
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let path = std::env::temp_dir().join(format!("haulier-state-{}", std::process::id()));
        let state = StateFolder::open(&path, Keeping::Record).expect("it is made");
        state.write(Path::new("a/b.json"), &[b"x", b"y"]).expect("it is written");
        assert_eq!(fs::read(state.place("a/b.json")).expect("it is there"), b"xy");
        assert_eq!(fs::read_dir(state.place("a")).expect("a folder").count(), 1);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).expect("permissions");
        let refused = StateFolder::open(&path, Keeping::Look).expect_err("others can write");
        assert!(refused.contains("writable by nobody else"), "{refused}");
        fs::remove_dir_all(&path).expect("it goes");
        assert!(StateFolder::open(&path, Keeping::Look).is_err(), "looking makes nothing");
    }
}
