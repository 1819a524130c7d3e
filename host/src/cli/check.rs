//! `haulier check`: the part that looks at the settings alone.
//!
//! What they name is looked at by the assembly afterwards, unless `--offline` was given.

use std::io::{self, Write};

use crate::config::{Config, LaneSettings, SinkKind};
use crate::event::LaneName;

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
    let routes = config.routes.iter().count();
    writeln!(to, "routes: {routes}")?;
    match config.admin.listen {
        Some(address) => writeln!(to, "admin port: {address}")?,
        None => writeln!(to, "admin port: off")?,
    }
    writeln!(to, "the settings are valid")
}

fn lane_line(name: &LaneName, lane: &LaneSettings) -> String {
    let order = match lane.config.ordering {
        crate::event::Ordering::Key => "in order per key",
        crate::event::Ordering::None => "in no order",
        crate::event::Ordering::Total => "in one order",
    };
    format!("lane {name}: to sink {}, {order}", lane.sink)
}
