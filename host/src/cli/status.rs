//! `haulier status`: how the sources stand, once or again and again.
//!
//! Needs the settings and the databases, and no running instance. Changes nothing anywhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::{Exit, StatusArgs};
use crate::app;
use crate::config::Config;
use crate::status::{self, Asked, Status};

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints how all sources, or the one that is named, stand.
///
/// # Errors
/// When the named source does not exist, a source cannot be set up, or standard output is closed.
pub async fn status(config: &Config, args: &StatusArgs) -> anyhow::Result<Exit> {
    if let Some(wanted) = &args.source
        && config.source(wanted).is_none()
    {
        let known: Vec<&str> = config.sources.iter().map(|source| &*source.name).collect();
        anyhow::bail!("there is no source '{wanted}'; there are {}", known.join(", "));
    }
    let asked: Vec<Asked> = app::sources(config)?
        .into_iter()
        .filter(|source| args.source.as_deref().is_none_or(|name| name == &*source.settings.name))
        .map(|source| asked(config, source))
        .collect();
    let exit = match args.watch {
        None => {
            let seen = status::look(&asked).await;
            print(&seen, args, Place::Once)?;
            exit(&seen)
        }
        Some(seconds) => watch(&asked, args, Duration::from_secs(seconds)).await?,
    };
    for one in asked {
        one.store.close().await;
    }
    Ok(exit)
}

fn asked(config: &Config, source: app::Source) -> Asked {
    let name = &source.settings.name;
    let lanes = config.lane_names().filter(|(lane, _)| lane.source == *name);
    let lanes = lanes.map(|(lane, settings)| (lane.lane, settings.config.ordering)).collect();
    Asked { source: name.clone(), table: source.settings.table.clone(), store: source.store, lanes }
}

/// Looks until Ctrl-C.
async fn watch(asked: &[Asked], args: &StatusArgs, pause: Duration) -> anyhow::Result<Exit> {
    let told = tokio::signal::ctrl_c();
    tokio::pin!(told);
    let mut last = Exit::Success;
    let mut place = Place::First;
    loop {
        let round = async {
            let seen = status::look(asked).await;
            print(&seen, args, place)?;
            tokio::time::sleep(pause).await;
            anyhow::Ok(exit(&seen))
        };
        tokio::select! {
            biased;
            // 1. Whoever is watching has seen enough.
            told = &mut told => {
                told?;
                return Ok(last);
            }
            // 2. One look and the pause after it.
            looked = round => last = looked?,
        }
        place = Place::Next;
    }
}

/// Where in a series of looks one stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Once,
    First,
    Next,
}

fn print(seen: &Status, args: &StatusArgs, place: Place) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(seen)?)?;
        out.flush()?;
        return Ok(());
    }
    if place != Place::Once && out.is_terminal() {
        write!(out, "{CLEAR}")?;
    } else if place == Place::Next {
        writeln!(out)?;
    }
    write!(out, "{}", status::render(seen))?;
    out.flush()?;
    Ok(())
}

fn exit(seen: &Status) -> Exit {
    if seen.complete() { Exit::Success } else { Exit::Unavailable }
}
