//! `haulier run`: carries events until it is told to stop.
//!
//! Signals are heard here, and nowhere below the command line: the first SIGTERM or SIGINT drains, a second one stops at
//! once, and SIGHUP has rules and plugins looked at.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use crate::app::{App, AppError};
use crate::config::{self, Config};
use crate::reload::ReadSettings;
use crate::settings::Severity;
use crate::telemetry;

/// Runs the relay. `path` is the settings file that was named, if one was: it is read again when it
/// changes.
///
/// # Errors
/// What could not be set up, with its causes.
pub async fn run(config: &Config, path: Option<&Path>) -> anyhow::Result<Exit> {
    telemetry::init(config.log.format, &config.log.level).context("the log cannot be started")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be heard")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be heard")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be heard")?;
    let app = App::build(config, reader(path)).await?;
    let reloads = app.reloads();
    let reloading = tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: rules and plugins are looked at");
            if reloads.reload().await.is_none() {
                return;
            }
        }
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        instance = config.relay.instance,
        "haulier runs"
    );
    let done = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&done);
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if ended.load(Ordering::Acquire) {
                // Everything is settled, and the process is on its way out.
                return;
            }
            tracing::warn!("a second signal: stopping at once; claims stay until they expire");
            std::process::exit(Exit::Failure as i32);
        });
    };
    let outcome = app.run(told).await;
    done.store(true, Ordering::Release);
    reloading.abort();
    match outcome {
        Ok(()) => Ok(Exit::Success),
        Err(error @ (AppError::Overran | AppError::Died(_))) => {
            tracing::error!(%error, "haulier ended badly");
            Ok(Exit::Failure)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the settings as they are now, or says in one line why they cannot be used.
fn reader(path: Option<&Path>) -> ReadSettings {
    let path = path.map(Path::to_owned);
    Box::new(move || {
        config::load(path.as_deref(), super::environment()).map_err(|problems| {
            let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
            let lines: Vec<String> = errors.map(ToString::to_string).collect();
            lines.join("; ")
        })
    })
}
