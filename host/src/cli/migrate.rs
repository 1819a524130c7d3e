//! `haulier migrate`: makes the tables of the sources, or prints how.

use std::io::Write as _;

use anyhow::Context as _;

use super::{Exit, MigrateArgs, complain};
use crate::app;
use crate::config::Config;
use crate::store::StoreError;
use crate::words::chain;

/// Migrates, or prints the migration of, all sources or the one that is named.
///
/// # Errors
/// What went wrong, with its causes.
pub async fn migrate(mut config: Config, args: &MigrateArgs) -> anyhow::Result<Exit> {
    if let Some(wanted) = &args.source
        && config.source(wanted).is_none()
    {
        let known: Vec<&str> = config.sources.iter().map(|source| &*source.name).collect();
        anyhow::bail!("there is no source '{wanted}'; there are {}", known.join(", "));
    }
    if let Some(payload_type) = args.payload_type {
        for source in &mut config.sources {
            source.payload_type = payload_type;
        }
    }
    let mut out = std::io::stdout();
    for source in app::sources(&config)? {
        let name = &source.settings.name;
        if args.source.as_ref().is_some_and(|wanted| **wanted != **name) {
            continue;
        }
        if args.print {
            writeln!(out, "-- Source {name}\n{}", source.store.migration_sql())?;
            continue;
        }
        match source.store.migrate().await {
            Ok(()) => writeln!(out, "source {name}: table {} is ready", source.settings.table)?,
            Err(error @ StoreError::Unavailable { .. }) => {
                complain(chain(&error));
                return Ok(Exit::Unavailable);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("source '{name}' cannot be migrated"));
            }
        }
        source.store.close().await;
    }
    Ok(Exit::Success)
}
