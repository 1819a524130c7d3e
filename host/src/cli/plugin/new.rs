//! `haulier plugin new`: the folder of a new plugin, with all it needs to be built anywhere.
//!
//! The contract and the language's SDK are part of this program and are written beside the source, so
//! that a plugin and the host it was made with fit together. Never touches a folder that is there.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use super::NewArgs;
use crate::cli::Exit;
use crate::config;

/// A language whose toolchain is proven: its guests are built and run in the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust, with the crate `haulier-sdk`
    Rust,
    /// JavaScript, on QuickJS
    #[value(alias = "js")]
    Javascript,
    /// Python, on CPython
    #[value(alias = "py")]
    Python,
    /// C, without a library
    C,
}

/// The name of the build script, which is made executable.
const SCRIPT: &str = "build.sh";

/// A file of the template: where it goes, and what is in it.
type File = (&'static str, &'static str);

macro_rules! plugins {
    ($path:literal) => {
        include_str!(concat!("../../../../plugins/", $path))
    };
}

const CONTRACT: &str = include_str!("../../../../wit/relay.wit");

const RUST: &[File] = &[
    ("Cargo.toml", plugins!("rust/template/Cargo.toml.template")),
    ("src/lib.rs", plugins!("rust/template/src/lib.rs")),
    ("samples.jsonl", plugins!("rust/template/samples.jsonl")),
    (SCRIPT, plugins!("rust/template/build.sh")),
    ("README.md", plugins!("rust/template/README.md")),
    ("rustfmt.toml", plugins!("rust/template/rustfmt.toml")),
    (".gitignore", plugins!("rust/template/.gitignore")),
    ("sdk/wit/relay.wit", CONTRACT),
    ("sdk/Cargo.toml", plugins!("sdk/Cargo.toml")),
    ("sdk/src/lib.rs", plugins!("sdk/src/lib.rs")),
    ("sdk/src/bindings.rs", plugins!("sdk/src/bindings.rs")),
    ("sdk/src/event.rs", plugins!("sdk/src/event.rs")),
    ("sdk/src/guest.rs", plugins!("sdk/src/guest.rs")),
    ("sdk/src/id.rs", plugins!("sdk/src/id.rs")),
    ("sdk/src/json.rs", plugins!("sdk/src/json.rs")),
    ("sdk/src/log.rs", plugins!("sdk/src/log.rs")),
    ("sdk/src/manifest.rs", plugins!("sdk/src/manifest.rs")),
    ("sdk/src/settings.rs", plugins!("sdk/src/settings.rs")),
    ("sdk/src/verdict.rs", plugins!("sdk/src/verdict.rs")),
];

const JAVASCRIPT: &[File] = &[
    ("plugin.js", plugins!("javascript/template/plugin.js")),
    ("samples.jsonl", plugins!("javascript/template/samples.jsonl")),
    (SCRIPT, plugins!("javascript/template/build.sh")),
    ("README.md", plugins!("javascript/template/README.md")),
    ("package.json", plugins!("javascript/template/package.json")),
    ("package-lock.json", plugins!("javascript/template/package-lock.json")),
    (".gitignore", plugins!("javascript/template/.gitignore")),
    ("wit/relay.wit", CONTRACT),
    ("sdk/haulier.js", plugins!("javascript/sdk/haulier.js")),
];

const PYTHON: &[File] = &[
    ("plugin.py", plugins!("python/template/plugin.py")),
    ("samples.jsonl", plugins!("python/template/samples.jsonl")),
    (SCRIPT, plugins!("python/template/build.sh")),
    ("README.md", plugins!("python/template/README.md")),
    ("requirements.txt", plugins!("python/template/requirements.txt")),
    (".gitignore", plugins!("python/template/.gitignore")),
    ("wit/relay.wit", CONTRACT),
    ("sdk/haulier.py", plugins!("python/sdk/haulier.py")),
];

const C: &[File] = &[
    ("plugin.c", plugins!("c/template/plugin.c")),
    ("samples.jsonl", plugins!("c/template/samples.jsonl")),
    (SCRIPT, plugins!("c/template/build.sh")),
    ("README.md", plugins!("c/template/README.md")),
    (".gitignore", plugins!("c/template/.gitignore")),
    ("sdk/wit/relay.wit", CONTRACT),
    ("sdk/build", plugins!("c/sdk/build")),
    ("sdk/haulier.h", plugins!("c/sdk/haulier.h")),
    ("sdk/haulier.c", plugins!("c/sdk/haulier.c")),
    ("sdk/json.h", plugins!("c/sdk/json.h")),
    ("sdk/json.c", plugins!("c/sdk/json.c")),
];

impl Language {
    fn files(self) -> &'static [File] {
        match self {
            Self::Rust => RUST,
            Self::Javascript => JAVASCRIPT,
            Self::Python => PYTHON,
            Self::C => C,
        }
    }
}

/// Writes the folder.
///
/// # Errors
/// When the name will not do, or the folder is there or cannot be written.
pub(super) fn new(args: &NewArgs) -> anyhow::Result<Exit> {
    let name = &args.name;
    ensure!(
        is_plain(name),
        "{name:?} cannot be the name of a new plugin: use up to 64 small letters, digits and '-', and begin \
         with a letter"
    );
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).with_context(|| format!("the folder {name} cannot be made"))?;
    for (path, text) in args.lang.files() {
        write(
            &folder.join(path),
            &text.replace("{{name}}", name).replace("{{crate}}", &name.replace('-', "_")),
        )?;
    }
    writeln!(
        io::stdout(),
        "made {name}: see {name}/README.md, then\n  \
         haulier plugin build {name}\n  \
         haulier plugin test {name}/{name}.wasm --events {name}/samples.jsonl"
    )?;
    Ok(Exit::Success)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
        if text.starts_with("#!") {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    };
    written().with_context(|| format!("{} cannot be written", path.display()))
}

/// A name that is good as a folder, a crate and a plugin in all languages.
fn is_plain(name: &str) -> bool {
    let legal =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    config::is_name(name)
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_a_template() {
        for language in Language::value_variants() {
            let files = language.files();
            let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
            for needed in [SCRIPT, "samples.jsonl", "README.md", ".gitignore"] {
                assert!(names.contains(&needed), "{language:?} has no {needed}");
            }
            assert!(files.iter().any(|(_, text)| text.contains("{{name}}")));
        }
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "order-events", "v2"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a b", "../a", "2a", "\u{e9}"] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
