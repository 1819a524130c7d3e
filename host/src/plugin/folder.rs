//! What lies in the plugins folder, and whether it has changed.
//!
//! `assembly.rs` lists the files; the reload task compares [`Print`]s. Files are looked at by name, size,
//! time and identity only, which works on every kind of file system and costs microseconds; nothing
//! is read here.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the name of a component file ends with.
const COMPONENT: &str = ".wasm";

/// What the name of a candidate version's file ends with.
const CANDIDATE: &str = ".candidate.wasm";

/// What changes when a file does: another file, size or time. Links are followed, so that a link that
/// points elsewhere is another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Print {
    /// The print of the file or folder at `path`.
    ///
    /// # Errors
    /// When it is not there or cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::metadata(path)?))
    }
}

impl From<&fs::Metadata> for Print {
    fn from(found: &fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// The files of a folder whose names end with `ending`, hidden ones left out, with their prints.
///
/// # Errors
/// When the folder cannot be listed.
pub fn prints(folder: &Path, ending: &str) -> io::Result<BTreeMap<String, Print>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(ending) || name.starts_with('.') {
            continue;
        }
        // Following links: mounted folders are often made of them.
        if let Ok(found) = fs::metadata(entry.path())
            && found.is_file()
        {
            files.insert(name, Print::from(&found));
        }
    }
    Ok(files)
}

/// The component files of the plugins folder.
pub(super) fn components(folder: &Path) -> Result<BTreeMap<String, Print>, String> {
    prints(folder, COMPONENT)
        .map_err(|error| format!("the plugins folder {} cannot be read: {error}", folder.display()))
}

/// Whether a file of that name holds a candidate version.
pub(super) fn is_candidate(file: &str) -> bool {
    file.ends_with(CANDIDATE)
}
