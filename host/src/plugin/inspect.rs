//! What can be said about a component file without compiling it.
//!
//! `load.rs` calls [`inspect`] first: compiling costs 30 ms for a Rust guest and seconds for others,
//! and a text that names the world and the version beats the linker's. Only names are looked at;
//! the types behind them are checked when the component is linked. Nothing here runs the guest.

use std::fmt;

use wasmparser::{Encoding, Parser, Payload};

/// The interface a plugin exports, without its version.
const TRANSFORMER: &str = "haulier:relay/transformer";

/// Our package; what a plugin may import of it is fixed by the host's own WIT.
const PACKAGE: &str = "haulier:relay/";

/// The version of the contract that this host speaks: the one in `wit/relay.wit`.
pub(super) const HOST_VERSION: Version = Version { major: 0, minor: 1, patch: 0 };

/// Interfaces of WASI 0.2 that language runtimes import and that give access to nothing here: there
/// are no arguments, no environment and no input; output goes to the log; clocks only tell time.
const ALLOWED_WASI: [&str; 18] = [
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
];

/// Why a file cannot be a plugin of this host, and what to do about it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("not a WebAssembly file ({0}); put only components into the folder")]
    NotWasm(String),
    #[error("damaged or cut off ({0}); build or copy it again")]
    Damaged(String),
    #[error(
        "a core WebAssembly module, not a component; build it for wasm32-wasip2, or wrap it with \
         `wasm-tools component new`"
    )]
    CoreModule,
    #[error(
        "a component for another world: it exports {found} and not {TRANSFORMER}; build it for the \
         world haulier:relay/plugin@{HOST_VERSION}"
    )]
    OtherWorld { found: String },
    #[error(
        "built for {interface} {found}, this host speaks {HOST_VERSION}; rebuild the plugin against \
         the host's wit folder, or use a host of that version"
    )]
    OtherVersion { interface: String, found: String },
    #[error(
        "imports {0}, which no plugin may have; a plugin is a function of its events: leave out \
         whatever reads files, opens connections or starts processes"
    )]
    RefusedImport(String),
}

/// A version of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        // What follows the patch number (`-rc.1`, `+build`) does not change compatibility here.
        let (core, _) = text.split_once(['-', '+']).unwrap_or((text, ""));
        let mut numbers = core.split('.').map(|number| number.parse().ok());
        let version =
            Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }

    /// Whether guests of `self` run on a host of `host`: any patch, and from 1.0 on any minor.
    fn runs_on(self, host: Self) -> bool {
        self.major == host.major && (self.major > 0 || self.minor == host.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Checks what the file is, which world it is built for and what it imports.
pub(super) fn inspect(bytes: &[u8]) -> Result<(), Unfit> {
    let names = names(bytes)?;
    let Some(transformer) = names.exports.iter().find(|name| split(name).0 == TRANSFORMER) else {
        let found = match names.exports.as_slice() {
            [] => "nothing".to_owned(),
            exports => abridged(exports),
        };
        return Err(Unfit::OtherWorld { found });
    };
    check_version(transformer)?;
    names.imports.iter().try_for_each(|name| check_import(name))
}

fn check_version(name: &str) -> Result<(), Unfit> {
    let (interface, version) = split(name);
    match Version::parse(version) {
        Some(version) if version.runs_on(HOST_VERSION) => Ok(()),
        _ => {
            let found = if version.is_empty() { "without a version" } else { version };
            Err(Unfit::OtherVersion { interface: interface.to_owned(), found: found.to_owned() })
        }
    }
}

fn check_import(name: &str) -> Result<(), Unfit> {
    let (interface, version) = split(name);
    if interface.starts_with(PACKAGE) {
        return check_version(name);
    }
    if ALLOWED_WASI.contains(&interface) && version.starts_with("0.2.") {
        return Ok(());
    }
    Err(Unfit::RefusedImport(name.to_owned()))
}

/// `interface@version` in two parts; the version is empty if there is none.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// The first few of what may be many names.
fn abridged(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

/// What a component imports and exports, by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
}

pub(super) fn names(bytes: &[u8]) -> Result<Names, Unfit> {
    if !bytes.starts_with(b"\0asm") {
        return Err(Unfit::NotWasm(if bytes.is_empty() {
            "it is empty".to_owned()
        } else {
            "it does not begin with the bytes of one".to_owned()
        }));
    }
    let damaged = |error: wasmparser::BinaryReaderError| Unfit::Damaged(error.message().to_owned());
    let mut names = Names::default();
    // Components hold modules and further components; only the outermost one's names matter.
    let mut depth = 0usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(damaged)? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(Unfit::CoreModule);
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    names.imports.push(import.map_err(damaged)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    names.exports.push(export.map_err(damaged)?.name.name.to_owned());
                }
            }
            // The compiler checks the rest.
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_in_the_contract() {
        let wit = include_str!("../../../wit/relay.wit");
        assert!(wit.contains(&format!("package haulier:relay@{HOST_VERSION};")));
    }

    #[test]
    fn any_patch_of_the_same_minor_runs() {
        for (version, runs) in [
            ("0.1.0", true),
            ("0.1.7", true),
            ("0.1.0-rc.1", true),
            ("0.2.0", false),
            ("1.1.0", false),
        ] {
            let version = Version::parse(version).expect("a version");
            assert_eq!(version.runs_on(HOST_VERSION), runs, "{version}");
        }
        assert_eq!(Version::parse("0.1"), None);
        assert_eq!(Version::parse("0.1.0.0"), None);
    }

    #[test]
    fn another_version_is_refused_with_both_named() {
        let text =
            check_version("haulier:relay/transformer@0.2.0").expect_err("refused").to_string();
        assert!(text.contains("0.2.0") && text.contains("0.1.0"), "{text}");
        let text = check_version("haulier:relay/host").expect_err("refused").to_string();
        assert!(text.contains("without a version"), "{text}");
    }

    #[test]
    fn imports_are_refused_unless_they_are_listed() {
        for allowed in ["wasi:io/poll@0.2.6", "haulier:relay/host@0.1.3", "wasi:cli/exit@0.2.0"] {
            assert_eq!(check_import(allowed), Ok(()), "{allowed}");
        }
        for refused in [
            "wasi:filesystem/preopens@0.2.6",
            "wasi:sockets/tcp@0.2.0",
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:io/poll@0.3.0",
            "wasi:clocks/timezone@0.2.0",
            "env",
        ] {
            assert_eq!(check_import(refused), Err(Unfit::RefusedImport(refused.to_owned())));
        }
    }

    #[test]
    fn files_that_are_no_components_are_told_apart() {
        assert!(matches!(inspect(b""), Err(Unfit::NotWasm(_))));
        assert!(matches!(inspect(b"hello"), Err(Unfit::NotWasm(_))));
        assert_eq!(inspect(b"\0asm\x01\0\0\0"), Err(Unfit::CoreModule));
        assert!(matches!(inspect(b"\0asm\x0d\0"), Err(Unfit::Damaged(_))));
        let empty_component = b"\0asm\x0d\0\x01\0";
        assert!(matches!(inspect(empty_component), Err(Unfit::OtherWorld { .. })));
    }
}
