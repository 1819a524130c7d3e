//! Lines for the host's log, under the plugin's name and version. Natively they go to standard error,
//! which the test runner shows for a test that fails.
//!
//! Plugins call it. A line is cut at 1 KiB; after 100 lines of a batch the rest is left out, and the
//! host logs how many those were. Logging is no way to keep data: the same event may be logged again.

use crate::bindings::haulier::relay::host::Level;

/// For the author of the plugin.
pub fn debug(line: impl AsRef<str>) {
    write(Level::Debug, line.as_ref());
}

/// Worth knowing.
pub fn info(line: impl AsRef<str>) {
    write(Level::Info, line.as_ref());
}

/// Someone should look at it.
pub fn warn(line: impl AsRef<str>) {
    write(Level::Warn, line.as_ref());
}

/// Something is broken.
pub fn error(line: impl AsRef<str>) {
    write(Level::Error, line.as_ref());
}

#[cfg(target_family = "wasm")]
fn write(level: Level, line: &str) {
    crate::bindings::haulier::relay::host::log(level, line);
}

#[cfg(not(target_family = "wasm"))]
fn write(level: Level, line: &str) {
    eprintln!("{level:?}: {line}");
}
