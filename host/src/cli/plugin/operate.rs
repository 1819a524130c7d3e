//! `haulier plugin versions`, `rollback` and `forget`: earlier versions, by hand.

use std::io::{self, Write};

use super::{NameArgs, RollbackArgs, state};
use crate::cli::{Exit, complain};
use crate::config::Config;
use crate::plugin::{Keeping, KeptVersion, RollBackError, Rollbacks};
use crate::words::plain;

/// Digits of a hash that are shown.
const HASH_DIGITS: usize = 12;

/// Shows the versions of a plugin.
///
/// # Errors
/// When there are none, or standard output is closed.
pub(super) fn versions(config: &Config, args: &NameArgs) -> anyhow::Result<Exit> {
    let kept = match open(config, Keeping::Look)?.and_then(|all| all.versions(&args.name)) {
        Ok(kept) => kept,
        Err(error) => return Ok(refused(&error)),
    };
    let mut out = io::stdout().lock();
    for version in &kept {
        let mark = version.mark.as_deref().map(|why| format!("  not used: {}", plain(why)));
        writeln!(out, "{}{}", named(version), mark.unwrap_or_default())?;
    }
    Ok(Exit::Success)
}

/// Goes back to the version before, or takes that back.
///
/// # Errors
/// When standard output is closed.
pub(super) fn rollback(config: &Config, args: &RollbackArgs) -> anyhow::Result<Exit> {
    let name = &args.name;
    let all = match open(config, Keeping::Record)? {
        Ok(all) => all,
        Err(error) => return Ok(refused(&error)),
    };
    let mut out = io::stdout().lock();
    if args.undo {
        match all.undo(name) {
            Ok(0) => writeln!(out, "plugin {name}: no version was rolled back")?,
            Ok(_) => writeln!(out, "plugin {name}: the file in the plugins folder is used again")?,
            Err(error) => return Ok(refused(&error)),
        }
        return Ok(Exit::Success);
    }
    match all.roll_back(name) {
        Ok((from, to)) => {
            writeln!(out, "plugin {name}: from {}", named(&from))?;
            writeln!(out, "plugin {name}: to   {}", named(&to))?;
            writeln!(
                out,
                "A relay that runs with these settings goes over within a second; see haulier status. It holds \
                 until another file is put into the plugins folder, or until `haulier plugin rollback \
                 --undo {name}`."
            )?;
            Ok(Exit::Success)
        }
        Err(error) => Ok(refused(&error)),
    }
}

/// Says that a plugin will not come back.
///
/// # Errors
/// When standard output is closed.
pub(super) fn forget(config: &Config, args: &NameArgs) -> anyhow::Result<Exit> {
    let name = &args.name;
    let forgotten = open(config, Keeping::Record)?.and_then(|all| all.forget(name));
    if let Err(error) = forgotten {
        return Ok(refused(&error));
    }
    writeln!(io::stdout(), "plugin {name} is forgotten: its event types go by the other rules")?;
    Ok(Exit::Success)
}

fn open(config: &Config, keeping: Keeping) -> anyhow::Result<Result<Rollbacks, RollBackError>> {
    Ok(Rollbacks::open(state(config)?, &config.plugin_host.folder, keeping))
}

fn refused(error: &RollBackError) -> Exit {
    complain(error);
    Exit::Failure
}

fn named(version: &KeptVersion) -> String {
    let hash = version.hash.get(..HASH_DIGITS).unwrap_or(&version.hash);
    format!("version {} ({hash})", plain(&version.version))
}
