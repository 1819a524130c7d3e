//! Texts that people read, compared with the files in `tests/snapshots`.
//!
//! `HAULIER_UPDATE=1` writes the files anew; the diff is then for a person to judge.

use std::path::Path;

/// The variable that has snapshots written in place of being compared.
const UPDATE: &str = "HAULIER_UPDATE";

/// Whether snapshots are to be written and not compared.
pub fn updating() -> bool {
    std::env::var(UPDATE).is_ok_and(|value| value == "1")
}

/// Compares `text` with `tests/snapshots/NAME.txt`.
///
/// # Panics
/// When they differ, with the first line that does.
pub fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(format!("{name}.txt"));
    if updating() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, text).expect("a snapshot can be written");
        return;
    }
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    assert_same(&file.display().to_string(), &wanted, text);
}

/// Compares two texts and names the first line that differs.
///
/// # Panics
/// When they differ; says how to accept the new text.
pub fn assert_same(name: &str, wanted: &str, found: &str) {
    if wanted == found {
        return;
    }
    let (mut old, mut new) = (wanted.lines(), found.lines());
    let mut number = 1;
    let (before, now) = loop {
        match (old.next(), new.next()) {
            (Some(before), Some(now)) if before == now => number += 1,
            (before, now) => break (before.unwrap_or("(the end)"), now.unwrap_or("(the end)")),
        }
    };
    panic!(
        "{name} differs from line {number} on:\n  was: {before}\n  is:  {now}\n\
         If the new text is right, run this again with {UPDATE}=1.\n\n{found}"
    );
}
