//! `[plugin_host]` and `[plugins.NAME]`: where components are found and what each may use.
//!
//! Read by config, used by the plugin host. It does not look into the folder.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::plugin::Limits;
use crate::settings::{Meaning, Secret, Section};

/// Next to the settings file.
const DEFAULT_FOLDER: &str = "plugins";
const DEFAULT_STATE: &str = ".haulier";
const STATE_OFF: &str = "off";
const INSTANCES: RangeInclusive<usize> = 1..=256;
const WORKERS: RangeInclusive<usize> = 1..=256;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
const MEMORY: RangeInclusive<usize> = MIB..=4096 * MIB;
const FILE_SIZE: RangeInclusive<usize> = 1024..=1024 * MIB;
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=HOUR;
const FAN_OUT: RangeInclusive<usize> = 1..=10_000;
const OUTPUT_FACTOR: RangeInclusive<usize> = 1..=1_000;
const LOG_LINE: RangeInclusive<usize> = 16..=MIB;
const LOG_LINES: RangeInclusive<u32> = 0..=100_000;
const OUTPUT_BASE: RangeInclusive<usize> = 1024..=1024 * MIB;

const HOST_INTRO: &str = "What plugins share.";

/// What the keys mean, for the reference.
const HOST_MEANINGS: [Meaning; 3] = [
    Meaning::new("folder", "every `*.wasm` file in it is loaded; relative to this file"),
    Meaning::new(
        "state",
        "private folder for compiled code and for the last good versions, or `\"off\"`; relative to this file",
    ),
    Meaning::new("workers", "plugin calls at once").usually("one per core"),
];

const INTRO: &str =
    "One section per plugin, all optional: a plugin without one runs with the defaults.";

/// What the keys mean, for the reference.
const MEANINGS: [Meaning; 12] = [
    Meaning::new("settings", "handed to the plugin as JSON; treated as secret").usually("`{}`"),
    Meaning::new("memory", "most memory of one instance"),
    Meaning::new("instances", "most instances at work at once, over all lanes"),
    Meaning::new("event_deadline", "a call may compute for this long per event it is given …"),
    Meaning::new(
        "batch_deadline",
        "… but at least this long; a single event gets the larger of both",
    ),
    Meaning::new("configure_deadline", "for the calls `describe` and `configure`"),
    Meaning::new("file_size", "largest component file"),
    Meaning::new("fan_out", "most records of one event"),
    Meaning::new("output_factor", "a batch may return this many times its own bytes …"),
    Meaning::new("output_base", "… plus this"),
    Meaning::new("log_line", "longer lines are cut"),
    Meaning::new("log_lines", "lines per batch; the rest is counted"),
];

/// What every plugin shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginHostSettings {
    /// Where components are found.
    pub folder: PathBuf,
    /// Where compiled code and earlier versions are kept; `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// How many run at once.
    pub workers: usize,
}

/// One plugin's settings. A plugin of the folder that has none runs with the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSettings {
    /// The plugin's name.
    pub name: Arc<str>,
    /// What it is configured with, as JSON text. Secret because teams put tokens there.
    pub settings: Secret,
    /// What it may use.
    pub limits: Limits,
}

impl PluginHostSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        section.document(HOST_INTRO, &HOST_MEANINGS);
        let folder = section.string_or("folder", DEFAULT_FOLDER);
        let state = section.string_or("state", DEFAULT_STATE);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let default = cores.clamp(*WORKERS.start(), *WORKERS.end());
        Self {
            folder: section.resolve(&folder),
            state: (state != STATE_OFF).then(|| section.resolve(&state)),
            workers: section.integer("workers", WORKERS, default),
        }
    }
}

impl PluginSettings {
    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        section.document(INTRO, &MEANINGS);
        let settings = section.json("settings");
        Self {
            name: name.into(),
            settings: Secret::new(settings.map_or("{}".to_owned(), |json| json.to_string())),
            limits: read_limits(section),
        }
    }
}

fn read_limits(section: &Section<'_>) -> Limits {
    let normal = Limits::default();
    let deadline = |key, default| section.duration(key, DEADLINE, default);
    let file_size = usize::try_from(normal.file_size).unwrap_or(usize::MAX);
    Limits {
        memory: section.size("memory", MEMORY, normal.memory),
        instances: section.integer("instances", INSTANCES, normal.instances),
        event_deadline: deadline("event_deadline", normal.event_deadline),
        batch_deadline_min: deadline("batch_deadline", normal.batch_deadline_min),
        configure_deadline: deadline("configure_deadline", normal.configure_deadline),
        file_size: section.size("file_size", FILE_SIZE, file_size) as u64,
        fan_out: section.integer("fan_out", FAN_OUT, normal.fan_out),
        output_factor: section.integer("output_factor", OUTPUT_FACTOR, normal.output_factor),
        output_base: section.size("output_base", OUTPUT_BASE, normal.output_base),
        log_line: section.size("log_line", LOG_LINE, normal.log_line),
        log_lines_per_batch: section.integer("log_lines", LOG_LINES, normal.log_lines_per_batch),
    }
}
