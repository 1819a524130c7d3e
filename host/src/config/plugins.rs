//! `[plugin_host]` and `[plugins.NAME]`: where components are found and what each may use.
//!
//! Read by config, used by the plugin host. It does not look into the folder.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::{Secret, Section};

/// Next to the settings file.
const DEFAULT_FOLDER: &str = "plugins";
const WORKERS: RangeInclusive<usize> = 1..=256;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
const MEMORY: RangeInclusive<usize> = MIB..=4096 * MIB;
const FILE_SIZE: RangeInclusive<usize> = 1024..=1024 * MIB;
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=HOUR;
const FAN_OUT: RangeInclusive<usize> = 1..=10_000;
const OUTPUT_FACTOR: RangeInclusive<usize> = 1..=1_000;
const OUTPUT_BASE: RangeInclusive<usize> = 1024..=1024 * MIB;

/// What every plugin shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginHostSettings {
    /// Where components are found.
    pub folder: PathBuf,
    /// How many run at once.
    pub workers: usize,
}

/// What one plugin may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLimits {
    /// Linear memory of one instance.
    pub memory: usize,
    /// Time for one event.
    pub event_deadline: Duration,
    /// Time for a batch, at least.
    pub batch_deadline: Duration,
    /// Time to be configured.
    pub configure_deadline: Duration,
    /// Largest component file.
    pub file_size: usize,
    /// Most deliveries of one event.
    pub fan_out: usize,
    /// Most bytes returned: this many times the bytes given …
    pub output_factor: usize,
    /// … and this many more.
    pub output_base: usize,
}

impl Default for PluginLimits {
    /// A hundred times what a Rust guest needs for an ordinary event.
    fn default() -> Self {
        Self {
            memory: 32 * MIB,
            event_deadline: Duration::from_millis(10),
            batch_deadline: Duration::from_millis(100),
            configure_deadline: Duration::from_secs(1),
            // JavaScript components have 12 MB, Python ones 18.
            file_size: 32 * MIB,
            fan_out: 100,
            output_factor: 4,
            output_base: MIB,
        }
    }
}

/// One plugin's settings. A plugin of the folder that has none runs with the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSettings {
    /// The plugin's name.
    pub name: Arc<str>,
    /// What it is configured with, as JSON text. Secret because teams put tokens there.
    pub settings: Secret,
    /// What it may use.
    pub limits: PluginLimits,
}

impl PluginHostSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let folder = section.string("folder");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let default = cores.clamp(*WORKERS.start(), *WORKERS.end());
        Self {
            folder: section.resolve(folder.as_deref().unwrap_or(DEFAULT_FOLDER)),
            workers: section.integer("workers", WORKERS, default),
        }
    }
}

impl PluginSettings {
    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        let settings = section.json("settings");
        Self {
            name: name.into(),
            settings: Secret::new(settings.map_or("{}".to_owned(), |json| json.to_string())),
            limits: PluginLimits::read(section),
        }
    }
}

impl PluginLimits {
    fn read(section: &Section<'_>) -> Self {
        let normal = Self::default();
        let deadline = |key, default| section.duration(key, DEADLINE, default);
        let limits = Self {
            memory: section.size("memory", MEMORY, normal.memory),
            event_deadline: deadline("event_deadline", normal.event_deadline),
            batch_deadline: deadline("batch_deadline", normal.batch_deadline),
            configure_deadline: deadline("configure_deadline", normal.configure_deadline),
            file_size: section.size("file_size", FILE_SIZE, normal.file_size),
            fan_out: section.integer("fan_out", FAN_OUT, normal.fan_out),
            output_factor: section.integer("output_factor", OUTPUT_FACTOR, normal.output_factor),
            output_base: section.size("output_base", OUTPUT_BASE, normal.output_base),
        };
        if limits.event_deadline > limits.batch_deadline {
            let key = if section.has("event_deadline") {
                "event_deadline"
            } else {
                "batch_deadline"
            };
            section.error(key, "event_deadline must not be longer than batch_deadline");
        }
        limits
    }
}
