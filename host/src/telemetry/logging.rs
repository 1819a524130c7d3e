//! The log: lines on standard error, as text or JSON, with UTC timestamps.
//!
//! Levels say what an operator must do: *error* needs a person now, *warn* a person some day,
//! *info* is what one wants to read afterwards, *debug* and *trace* are for looking into it.
//! The command line starts it once; config checks the directives. `RUST_LOG` is not read: the
//! settings are the one place.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The directives cannot be read.
    #[error("the log level is not valid: {0}")]
    Level(String),
    /// Somebody has started a log in this process.
    #[error("the log has already been started")]
    Started(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts the log of this process.
///
/// # Errors
/// Directives that [`check_level`] refuses, or a log that has already been started.
pub fn init(format: LogFormat, level: &str) -> Result<(), LoggingError> {
    let filter = filter(level).map_err(LoggingError::Level)?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => registry.with(lines.with_ansi(io::stderr().is_terminal())).try_init(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init()
        }
    };
    started.map_err(LoggingError::Started)
}

/// Whether `level` is a level, or directives such as `info,haulier::relay=debug`.
///
/// # Errors
/// A text that says what is wrong.
pub fn check_level(level: &str) -> Result<(), String> {
    filter(level).map(|_| ())
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    const FORM: &str = "write off, error, warn, info, debug or trace, or directives such as \
                        info,haulier::relay=debug";
    if level.trim().is_empty() {
        return Err(format!("is empty: {FORM}"));
    }
    // A bare word that is no level would be taken for a target at the level trace.
    let bare = |part: &&str| part.chars().all(|letter| letter.is_ascii_alphabetic());
    let level_name = |part: &str| part.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    let mut words = level.split(',').map(str::trim).filter(bare);
    if let Some(word) = words.find(|word| !level_name(word)) {
        return Err(format!("'{word}' is no level: {FORM}"));
    }
    let filter = EnvFilter::builder().parse(level).map_err(|error| format!("{error}: {FORM}"))?;
    // The driver prints parameters of a database URL that it does not know, value and all: a
    // misspelt password among them.
    Ok(DRIVER_URLS.iter().fold(filter, |filter, target| match format!("{target}=off").parse() {
        Ok(silence) => filter.add_directive(silence),
        Err(_) => filter,
    }))
}

/// Log targets that show what stands in a URL.
const DRIVER_URLS: [&str; 2] = ["sqlx_postgres::options", "sqlx_postgres::options::parse"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_told_from_typing_errors() {
        for good in ["info", "OFF", "warn,haulier=debug", "info,haulier::relay[turn]=trace"] {
            assert_eq!(check_level(good), Ok(()), "{good}");
        }
        for bad in ["", "inffo", "info,haulier=loud", "verbose", "a=b=c"] {
            assert!(check_level(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_second_start_is_an_error_and_no_panic() {
        let _ = init(LogFormat::Json, "off");
        let again = init(LogFormat::Text, "off");
        assert!(matches!(again, Err(LoggingError::Started(_))));
        assert!(matches!(init(LogFormat::Text, "loud"), Err(LoggingError::Level(_))));
    }
}
