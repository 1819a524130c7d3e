//! What an operator may set about plugins, with the defaults and their reasons.
//!
//! The configuration module fills these structs; the rest of this module reads them. Nothing here
//! reads files or environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The configuration of the plugin host.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder whose `*.wasm` files are loaded, in the order of their names. A folder that does
    /// not exist is an empty one.
    pub folder: PathBuf,
    /// A private folder for compiled code and for the last good versions; `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// Whether this process may write there.
    pub keeping: Keeping,
    /// How many threads run guests. More than the machine has cores gains nothing.
    pub workers: usize,
    /// What holds for plugins that are not named in `plugins`.
    pub limits: Limits,
    /// Settings and limits by plugin name. A name that no file has is reported.
    pub plugins: BTreeMap<String, PluginConfig>,
}

/// What a process does with the state folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// A relay: it notes the versions it uses and keeps them.
    Record,
    /// A command that looks: it reads what is there and changes nothing.
    Look,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("plugins"),
            state: None,
            keeping: Keeping::Record,
            workers: thread::available_parallelism().map_or(1, Into::into),
            limits: Limits::default(),
            plugins: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The limits of the plugin of that name.
    pub(crate) fn limits_of(&self, plugin: &str) -> &Limits {
        self.plugins.get(plugin).map_or(&self.limits, |plugin| &plugin.limits)
    }

    /// Limits under which no configured plugin would be refused: a file must be read and asked for
    /// its name before it is known which limits are its own.
    pub(crate) fn widest_limits(&self) -> Limits {
        let mut widest = self.limits.clone();
        for Limits { configure_deadline, memory, file_size, .. } in
            self.plugins.values().map(|plugin| &plugin.limits)
        {
            widest.configure_deadline = widest.configure_deadline.max(*configure_deadline);
            widest.memory = widest.memory.max(*memory);
            widest.file_size = widest.file_size.max(*file_size);
        }
        widest
    }
}

/// What an operator says about one plugin.
#[derive(Clone, PartialEq)]
pub struct PluginConfig {
    /// Handed to the plugin's `configure` as JSON. Must be an object.
    pub settings: serde_json::Value,
    /// The limits of this plugin.
    pub limits: Limits,
}

impl Default for PluginConfig {
    fn default() -> Self {
        Self { settings: serde_json::json!({}), limits: Limits::default() }
    }
}

impl fmt::Debug for PluginConfig {
    /// Without the settings: people put tokens there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginConfig").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What a plugin may use. Exceeding a limit is the failure of the event that did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Computing time per event. Measured plugins need 1 to 50 µs; 10 ms is a plugin gone wrong.
    pub event_deadline: Duration,
    /// The least a batch gets, and so what a single event may take: page faults and a first
    /// garbage collection must not look like a hang.
    pub batch_deadline_min: Duration,
    /// Computing time of `describe` and of `configure`; interpreters start up in there.
    pub configure_deadline: Duration,
    /// Linear memory of one instance in bytes, over all of its memories. A Rust guest needs 1 to 2 MiB;
    /// interpreters need 10 to 40, and which one a file holds is not known before it runs.
    pub memory: usize,
    /// Instances that work at once, over all lanes; batches wait for one.
    pub instances: usize,
    /// Size of the component file in bytes.
    pub file_size: u64,
    /// A batch may return this many times the bytes it was given …
    pub output_factor: usize,
    /// … plus this many bytes.
    pub output_base: usize,
    /// Deliveries per event.
    pub fan_out: usize,
    /// Bytes of one log line; what is longer is cut.
    pub log_line: usize,
    /// Log lines per batch; what comes after is counted and left out.
    pub log_lines_per_batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_deadline: Duration::from_millis(10),
            batch_deadline_min: Duration::from_millis(100),
            configure_deadline: Duration::from_secs(1),
            memory: 64 << 20,
            instances: 64,
            file_size: 32 << 20,
            output_factor: 4,
            output_base: 1 << 20,
            fan_out: 100,
            log_line: 1 << 10,
            log_lines_per_batch: 100,
        }
    }
}

impl Limits {
    /// How long a batch of `events` events may compute.
    pub(crate) fn batch_deadline(&self, events: usize) -> Duration {
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        self.batch_deadline_min.max(self.event_deadline.saturating_mul(events))
    }

    /// How many bytes may come back for `input` bytes.
    pub(crate) fn output(&self, input: usize) -> usize {
        input.saturating_mul(self.output_factor).saturating_add(self.output_base)
    }

    /// The most bytes that are handed over in one call. The guest holds the events while it makes
    /// up its answer, and allocators double: an eighth leaves room for both.
    pub(crate) fn input_per_call(&self) -> usize {
        self.memory / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gets_ten_milliseconds_per_event_and_a_hundred_at_least() {
        let limits = Limits::default();
        assert_eq!(limits.batch_deadline(1), Duration::from_millis(100));
        assert_eq!(limits.batch_deadline(256), Duration::from_millis(2560));
    }

    #[test]
    fn the_widest_limits_cover_every_plugin() {
        let mut config = Config::default();
        let mut python = PluginConfig::default();
        python.limits.memory = 128 << 20;
        config.plugins.insert("python".to_owned(), python);
        assert_eq!(config.widest_limits().memory, 128 << 20);
        assert_eq!(config.widest_limits().file_size, config.limits.file_size);
        assert_eq!(config.limits_of("other").memory, 64 << 20);
    }
}
