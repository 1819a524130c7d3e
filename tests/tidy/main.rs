//! The shape of the tree, as tests: layers, fences, sizes, first lines.
//!
//! Reads the sources and runs nothing. What may import what is the table [`LAYERS`]; which crate may
//! be named where is [`FENCES`].

mod causes;
mod promises;
mod reference;
mod snippets;

use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 500;

/// A module and the modules it may name through `crate::`. A module may always name its own children.
const LAYERS: [(&str, &[&str]); 25] = [
    ("clock", &[]),
    ("event", &[]),
    ("failpoint", &["clock", "event"]),
    ("failure", &[]),
    ("json", &["event"]),
    ("report", &[]),
    ("retry", &[]),
    ("words", &[]),
    ("routing", &["event", "failure", "json"]),
    ("transform", &["event", "failure"]),
    ("sink", &["event", "failure", "clock"]),
    ("store", &["event", "failure", "json", "words"]),
    ("status", &["event", "report", "store", "words"]),
    ("operations", &["event", "failure", "store", "words"]),
    ("plugin", &["event", "failure", "transform"]),
    ("settings", &["words"]),
    ("telemetry", &["event", "failure", "store", "transform"]),
    (
        "relay",
        &[
            "event",
            "failure",
            "clock",
            "failpoint",
            "retry",
            "routing",
            "json",
            "report",
            "sink",
            "store",
            "transform",
            "telemetry",
            "words",
        ],
    ),
    (
        "config",
        &[
            "words",
            "event",
            "settings",
            "routing",
            "retry",
            "relay",
            "sink",
            "store",
            "plugin",
            "telemetry",
        ],
    ),
    ("admin", &["event", "operations", "settings", "store", "telemetry", "words"]),
    ("reload", &["config", "plugin", "relay", "routing", "telemetry", "transform", "words"]),
    (
        "app",
        &[
            "admin",
            "config",
            "event",
            "operations",
            "plugin",
            "relay",
            "reload",
            "sink",
            "store",
            "telemetry",
        ],
    ),
    ("demo", &["words"]),
    (
        "cli",
        &[
            "app",
            "config",
            "demo",
            "event",
            "operations",
            "plugin",
            "relay",
            "reload",
            "routing",
            "settings",
            "sink",
            "status",
            "store",
            "telemetry",
            "transform",
            "words",
        ],
    ),
    ("main", &["cli"]),
];

/// A crate and the only places whose code may name it.
const FENCES: [(&str, &[&str]); 8] = [
    ("sqlx", &["store/postgres/", "store/sqlite/", "demo/"]),
    ("rdkafka", &["sink/kafka/", "demo/"]),
    ("wasmtime", &["plugin/"]),
    ("wasmparser", &["plugin/"]),
    ("axum", &["admin/"]),
    ("clap", &["cli/", "main.rs"]),
    ("anyhow", &["cli/", "demo/", "main.rs"]),
    ("prometheus_client", &["telemetry/"]),
];

/// What of a module the relay may not see: adapters behind the contracts.
const ADAPTERS: [&str; 6] = [
    "store::Postgres",
    "store::postgres",
    "store::Sqlite",
    "store::sqlite",
    "sink::kafka",
    "sink::stdout",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace")
}

/// All Rust sources below these folders, as path relative to the root and text.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(found.len() > 20, "the sources are where they are looked for");
    found
}

/// The code of a file: no comment lines, nothing from its tests on.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn every_file_says_what_it_is() {
    for (name, text) in sources(&["host/src", "tests", "examples", "plugins"]) {
        assert!(text.starts_with("//! "), "{name} does not open with //!");
    }
}

#[test]
fn files_are_short() {
    for (name, text) in sources(&["host/src", "tests", "examples", "plugins"]) {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        assert!(lines <= MAX_FILE_LINES, "{name} has {lines} lines before its tests");
    }
}

#[test]
fn modules_import_downwards_only() {
    for (name, text) in sources(&["host/src"]) {
        let relative = name.trim_start_matches("host/src/");
        let module = relative.split(['/', '.']).next().expect("a name");
        if module == "lib" {
            continue;
        }
        let (_, allowed) = LAYERS
            .iter()
            .find(|(layer, _)| *layer == module)
            .unwrap_or_else(|| panic!("{name}: module '{module}' is not in the table of layers"));
        for line in code(&text) {
            for (at, _) in
                line.match_indices("crate::").filter(|(at, _)| !line[..*at].ends_with("pub(in "))
            {
                let used: String = line[at + 7..]
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                    .collect();
                let known = LAYERS.iter().any(|(layer, _)| *layer == used);
                let fine = used == module || allowed.contains(&used.as_str()) || !known;
                assert!(fine, "{name}: '{module}' must not import '{used}': {line}");
            }
        }
    }
}

#[test]
fn the_relay_sees_contracts_only() {
    for (name, text) in sources(&["host/src"]) {
        let behind = ["host/src/relay/", "host/src/transform", "host/src/routing"];
        if behind.iter().any(|part| name.starts_with(part)) {
            for line in code(&text) {
                for adapter in ADAPTERS {
                    assert!(!line.contains(adapter), "{name} names an adapter: {line}");
                }
            }
        }
    }
}

#[test]
fn crates_stay_behind_their_fences() {
    for (name, text) in sources(&["host/src"]) {
        let relative = name.trim_start_matches("host/src/");
        for (fenced, places) in FENCES {
            if places.iter().any(|place| relative.starts_with(place)) {
                continue;
            }
            for line in code(&text) {
                let named = [format!("use {fenced}"), format!("{fenced}::")];
                assert!(
                    !named.iter().any(|part| line.contains(part.as_str())),
                    "{name} names {fenced}: {line}"
                );
            }
        }
    }
}

#[test]
fn contracts_are_free_of_sql() {
    for name in ["sink/mod.rs", "transform.rs", "event.rs", "failure.rs"] {
        let text = std::fs::read_to_string(root().join("host/src").join(name)).expect("text");
        for word in ["SELECT", "INSERT", "UPDATE ", "SKIP LOCKED"] {
            assert!(!text.contains(word), "{name} speaks SQL: {word}");
        }
    }
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not find itself.
    let words =
        [["TO", "DO"], ["FIX", "ME"], ["XX", "X:"], ["unimpl", "emented!("], ["to", "do!("]]
            .map(|parts| parts.concat());
    for (name, text) in sources(&["host/src", "tests", "examples", "plugins"]) {
        for word in &words {
            assert!(!text.contains(word.as_str()), "{name} has a left-over {word}");
        }
    }
}

#[test]
fn every_dependency_says_why_it_is_there() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let dependencies = text
        .split("[workspace.dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("[workspace.lints").next())
        .expect("the dependencies");
    let mut reason = false;
    for line in dependencies.lines() {
        if line.starts_with('#') {
            reason = true;
        } else if line.contains('=') {
            // Crates of one family may share a line of reason.
            assert!(reason || line.starts_with("tracing-subscriber"), "no reason for: {line}");
            assert!(line.contains("\"~"), "the minor is not pinned: {line}");
            reason = false;
        }
    }
}
