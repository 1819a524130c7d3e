//! From a file and the environment to a checked [`Config`], or to everything that is wrong.
//!
//! The command line calls it. It reads the file and the files that secrets are kept in, and
//! nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Config;
use crate::settings::{Document, Place, Problem, Problems, Settings};

/// The file that is read where none is named.
pub const DEFAULT_FILE: &str = "haulier.toml";

/// Settings are written by people; a larger file is the wrong one.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The least that works, shown where there is nothing at all.
const MINIMAL: &str = r#"
    [sources.main]
    url = { env = "DATABASE_URL" }
    table = "outbox"

    [sinks.main]
    type = "kafka"
    bootstrap_servers = "localhost:9092"

    [[routes]]
    event_type = "*"
    topic = "{aggregate_type}""#;

/// Reads the file at `path`, or [`DEFAULT_FILE`] if it is there, lays the `HAULIER__…` variables
/// of `environment` over it, and checks the whole. Secrets kept in variables are taken from the
/// same `environment`.
///
/// # Errors
/// Everything that is wrong, warnings included, if at least one problem stops the start.
pub fn load(
    path: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, Problems> {
    let environment: BTreeMap<String, String> = environment.collect();
    let file = path.unwrap_or(Path::new(DEFAULT_FILE));
    let name = file.display().to_string();
    let text = match read(file) {
        Ok(text) => Some(text),
        Err(problem) if problem.absent && path.is_none() => None,
        Err(problem) => {
            let place = Place::Document(name.as_str().into());
            return Err(Problems::new(vec![Problem::error(
                place,
                "",
                problem.message,
            )]));
        }
    };
    if text.is_none() && !Settings::any_override(&environment) {
        let message = format!(
            "there are no settings: write this file, name another with --config, or set \
             HAULIER__… variables; the least that works is\n{MINIMAL}"
        );
        let place = Place::Document(name.as_str().into());
        return Err(Problems::new(vec![Problem::error(place, "", message)]));
    }
    let document = text.as_deref().map(|text| Document {
        name: &name,
        folder: file.parent().unwrap_or(Path::new("")),
        text,
    });
    let settings = Settings::new(document, environment);
    let mut config = Config::read(settings.root());
    let problems = Problems::new(settings.into_problems());
    if problems.errors() > 0 {
        return Err(problems);
    }
    config.warnings = problems;
    Ok(config)
}

struct Unreadable {
    absent: bool,
    message: String,
}

fn read(path: &Path) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    let outcome =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = outcome {
        let absent = error.kind() == io::ErrorKind::NotFound;
        let message = if absent {
            "there is no such file: create it, or name another with --config".to_owned()
        } else {
            format!("the file cannot be read: {error}")
        };
        return Err(Unreadable { absent, message });
    }
    let refuse = |message: String| {
        Err(Unreadable {
            absent: false,
            message,
        })
    };
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return refuse(format!(
            "the file is larger than {} MiB",
            MAX_FILE_BYTES >> 20
        ));
    }
    String::from_utf8(bytes).or_else(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..valid).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        refuse(format!("line {line} is not UTF-8, as TOML must be"))
    })
}
