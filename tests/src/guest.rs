//! Versions of the misbehaving guest: files that differ, as a team's builds do.

use std::fs;

use crate::build;

/// Its bytes, with another way of describing itself.
///
/// # Panics
/// When the guest has no such mark, or the mode is too long.
pub fn misbehave(mode: &str) -> Vec<u8> {
    const MARK: &[u8] = b"misbehave-mode:";
    let mut bytes = fs::read(build::guest("misbehave")).expect("a built guest");
    let places: Vec<usize> = (0..bytes.len() - 40)
        .filter(|at| bytes[*at..].starts_with(b"misbehave-mode:plain "))
        .collect();
    let [at] = places[..] else { panic!("the mark is there {} times", places.len()) };
    let mode = format!("{mode:<25}");
    assert_eq!(mode.len(), 25, "the mode is too long");
    bytes[at + MARK.len()..at + 40].copy_from_slice(mode.as_bytes());
    bytes
}

/// The same component with another hash: it carries no samples, in so many lines.
pub fn version(component: Vec<u8>, number: usize) -> Vec<u8> {
    haulier::plugin::Sample::ship(component, &"\n".repeat(number))
}
