//! What the relay is told: the sum of its components' settings, read and checked as a whole.
//!
//! The command line calls [`load`]; the assembly takes the parts. Every mistake is reported at
//! once, with the place where it was made. Nothing here connects to anything.

mod admin;
mod lanes;
mod load;
mod plugins;
mod reference;
mod route_files;
mod routes;
mod sinks;
mod sources;

use std::path::PathBuf;

use crate::event::LaneName;
use crate::routing::Routes;
use crate::settings::{Problems, Section};

pub use self::admin::{AdminSettings, LogSettings, RelaySettings};
pub use self::lanes::{DEFAULT_LANE, LaneSettings};
pub use self::load::{DEFAULT_FILE, check_text, load};
pub use self::plugins::{PluginHostSettings, PluginSettings};
pub use self::reference::reference;
pub use self::route_files::{RouteFiles, read_route_files};
pub use self::routes::ROUTE_FILE;
pub use self::sinks::{KafkaSettings, SinkKind, SinkSettings};
pub use self::sources::{Pooler, Retention, SourceSettings};

use self::lanes::Surroundings;

/// Longest name of a source, lane, sink or plugin: it goes into rows and metric labels.
const MAX_NAME_BYTES: usize = 64;

/// Everything the relay is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Outbox tables.
    pub sources: Vec<SourceSettings>,
    /// Lanes, each for one or more sources.
    pub lanes: Vec<LaneSettings>,
    /// Brokers.
    pub sinks: Vec<SinkSettings>,
    /// What plugins share.
    pub plugin_host: PluginHostSettings,
    /// What single plugins are told; a plugin that is not here runs with the defaults.
    pub plugins: Vec<PluginSettings>,
    /// Which event goes where.
    pub routes: Routes,
    /// The folder of route files, which add to `routes`.
    pub routes_folder: PathBuf,
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
    /// The admin port.
    pub admin: AdminSettings,
    /// The log.
    pub log: LogSettings,
    /// The process.
    pub relay: RelaySettings,
    /// What deserves a look but does not stop the start.
    pub warnings: Problems,
}

impl Config {
    /// Each lane of each source, with its settings.
    pub fn lane_names(&self) -> impl Iterator<Item = (LaneName, &LaneSettings)> {
        self.lanes.iter().flat_map(|lane| {
            lane.sources.iter().map(move |source| {
                let name = LaneName { source: source.clone(), lane: lane.name.clone() };
                (name, lane)
            })
        })
    }

    /// The source of that name.
    pub fn source(&self, name: &str) -> Option<&SourceSettings> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    /// The sink of that name.
    pub fn sink(&self, name: &str) -> Option<&SinkSettings> {
        self.sinks.iter().find(|sink| &*sink.name == name)
    }

    /// Reads all sections. Parts that cannot be read are left out and noted in the sections.
    fn read(root: Section<'_>) -> Self {
        let (source_names, sources) = read_sources(&root);
        let (sink_names, sinks) = read_sinks(&root);
        let around =
            Surroundings { source_names: &source_names, sink_names: &sink_names, sinks: &sinks };
        let config = Self {
            lanes: read_lanes(&root, &around),
            plugin_host: read_section(&root, "plugin_host", PluginHostSettings::read),
            plugins: read_plugins(&root),
            routes: routes::read(root.table_list("routes")),
            routes_folder: read_section(&root, "routing", routes::read_folder),
            file: None,
            admin: read_section(&root, "admin", AdminSettings::read),
            log: read_section(&root, "log", LogSettings::read),
            relay: read_section(&root, "relay", RelaySettings::read),
            warnings: Problems::new(Vec::new()),
            sources,
            sinks,
        };
        root.finish();
        config
    }
}

fn read_section<T>(root: &Section<'_>, key: &str, read: impl FnOnce(&Section<'_>) -> T) -> T {
    let section = root.section(key);
    let settings = read(&section);
    section.finish();
    settings
}

fn read_sources(root: &Section<'_>) -> (Vec<String>, Vec<SourceSettings>) {
    let sections = root.tables("sources");
    if sections.is_empty() {
        root.missing("sources", "at least one source is needed, write [sources.main]");
    }
    let mut names = Vec::new();
    let mut sources: Vec<SourceSettings> = Vec::new();
    for (name, section) in sections {
        check_name(&section, "source", &name);
        if let Some(source) = SourceSettings::read(&name, &section) {
            let same =
                |other: &&SourceSettings| other.table == source.table && other.url == source.url;
            if let Some(other) = sources.iter().find(same) {
                let other = &other.name;
                section.whole_error(format!(
                    "is the same table of the same database as source '{other}': every event \
                     would be carried twice"
                ));
            }
            sources.push(source);
        }
        section.finish();
        names.push(name);
    }
    (names, sources)
}

fn read_sinks(root: &Section<'_>) -> (Vec<String>, Vec<SinkSettings>) {
    let sections = root.tables("sinks");
    if sections.is_empty() {
        root.missing("sinks", "at least one sink is needed, write [sinks.main]");
    }
    let mut names = Vec::new();
    let mut sinks = Vec::new();
    for (name, section) in sections {
        check_name(&section, "sink", &name);
        sinks.extend(SinkSettings::read(&name, section));
        names.push(name);
    }
    (names, sinks)
}

fn read_plugins(root: &Section<'_>) -> Vec<PluginSettings> {
    let sections = root.tables("plugins").into_iter();
    let read = |(name, section): (String, Section<'_>)| {
        check_name(&section, "plugin", &name);
        let plugin = PluginSettings::read(&name, &section);
        section.finish();
        plugin
    };
    sections.map(read).collect()
}

fn read_lanes(root: &Section<'_>, around: &Surroundings<'_>) -> Vec<LaneSettings> {
    let mut sections = root.tables("lanes");
    if sections.is_empty() {
        let section = root.section("lanes").section(DEFAULT_LANE);
        sections.push((DEFAULT_LANE.to_owned(), section));
    }
    let mut lanes = Vec::new();
    for (name, section) in sections {
        check_name(&section, "lane", &name);
        lanes.extend(LaneSettings::read(&name, &section, around));
        section.finish();
    }
    if root.is_complete() && !lanes.is_empty() {
        warn_of_idle_rows(root, &lanes, around.source_names);
    }
    lanes
}

fn warn_of_idle_rows(root: &Section<'_>, lanes: &[LaneSettings], source_names: &[String]) {
    if lanes.iter().all(|lane| *lane.name != *DEFAULT_LANE) {
        root.warning(
            "lanes",
            format!("there is no lane '{DEFAULT_LANE}': rows that name no lane stay in the table"),
        );
    }
    for source in source_names {
        let carries = |lane: &LaneSettings| lane.sources.iter().any(|name| **name == **source);
        if !lanes.iter().any(carries) {
            let message = "no lane carries this source: its events stay in the table";
            root.section("sources").warning(source, message);
        }
    }
}

/// Whether a source, lane, sink or plugin can have this name: names go into rows, metric labels and
/// messages.
pub fn is_name(name: &str) -> bool {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(legal)
}

fn check_name(section: &Section<'_>, what: &str, name: &str) {
    if !is_name(name) {
        section.whole_error(format!(
            "a {what}'s name has 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' or '-'"
        ));
    }
}
