//! `haulier check`: what the settings amount to, and whether what they name is there.
//!
//! Changes nothing anywhere.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::{CheckArgs, Exit};
use crate::app;
use crate::config::{Config, LaneSettings, RouteFiles, SinkKind, read_route_files};
use crate::event::LaneName;
use crate::sink::PublishMode;
use crate::transform::InUse;
use crate::words::chain;

/// Writes what the settings amount to: a line for each source, lane, sink and route count. Shows no
/// secret.
///
/// # Errors
/// What `to` says.
pub fn check_config(config: &Config, to: &mut impl Write) -> io::Result<()> {
    for source in &config.sources {
        writeln!(to, "source {}: table {}", source.name, source.table)?;
    }
    for (name, lane) in config.lane_names() {
        writeln!(to, "{}", lane_line(&name, lane))?;
    }
    for sink in &config.sinks {
        match &sink.kind {
            SinkKind::Kafka(kafka) => {
                let servers = &kafka.bootstrap_servers;
                writeln!(to, "sink {}: kafka at {servers}", sink.name)?;
            }
            SinkKind::Stdout => writeln!(to, "sink {}: standard output", sink.name)?,
        }
    }
    let files = read_route_files(&config.routes_folder, &RouteFiles::default(), &BTreeSet::new());
    let routes = config.routes.iter().count() + files.routes().count();
    writeln!(to, "routes: {routes}")?;
    match config.admin.listen {
        Some(address) => writeln!(to, "admin port: {address}")?,
        None => writeln!(to, "admin port: off")?,
    }
    writeln!(to, "the settings are valid")
}

/// The whole command: settings first, then what they name, unless `--offline` was given.
///
/// # Errors
/// Only when standard output is closed or the plugin host does not start.
pub async fn check(config: &Config, args: &CheckArgs) -> anyhow::Result<Exit> {
    let mut out = io::stdout();
    check_config(config, &mut out)?;
    if args.offline {
        return Ok(Exit::Success);
    }
    let mut troubles = 0_usize;
    let mut say = |what: &str, found: Result<&str, String>| -> io::Result<()> {
        match found {
            Ok(fine) => writeln!(io::stdout(), "{what}: {fine}"),
            Err(trouble) => {
                troubles += 1;
                writeln!(io::stderr(), "{what}: {trouble}")
            }
        }
    };
    for source in app::sources(config)? {
        let looked = source.store.check().await;
        let looked = looked.map(|()| "its tables are there").map_err(|error| chain(&error));
        say(&format!("source {}", source.settings.name), looked)?;
        source.store.close().await;
    }
    for settings in &config.sinks {
        let ready = match app::sink(settings, PublishMode::default(), "check") {
            Ok(sink) => sink.ready().await.map_err(|failure| failure.to_string()),
            Err(error) => Err(chain(&error)),
        };
        say(&format!("sink {}", settings.name), ready.map(|()| "it answers"))?;
    }
    let rules = app::rules(config).await?;
    for InUse { stamp, standing, .. } in rules.plugins.in_use() {
        let fine = format!("version {}, {}", stamp.version, standing.name());
        say(&format!("plugin {}", stamp.name), Ok(&fine))?;
    }
    for trouble in rules.problems() {
        say("plugins and routes", Err(trouble.clone()))?;
    }
    Ok(if troubles == 0 { Exit::Success } else { Exit::Unavailable })
}

fn lane_line(name: &LaneName, lane: &LaneSettings) -> String {
    let order = match lane.config.ordering {
        crate::event::Ordering::Key => "in order per key",
        crate::event::Ordering::None => "in no order",
        crate::event::Ordering::Total => "in one order",
    };
    format!("lane {name}: to sink {}, {order}", lane.sink)
}
