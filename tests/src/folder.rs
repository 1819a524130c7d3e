//! A folder of a test's own, gone when the test is over.

use std::path::{Path, PathBuf};

use crate::database::unique;

/// A fresh folder below the system's temporary one.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    ///
    /// # Panics
    /// When the disk refuses.
    #[expect(clippy::new_without_default, reason = "making a folder is not a default")]
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(unique("haulier"));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
