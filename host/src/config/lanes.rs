//! `[lanes.NAME]`: which events go together, in what order, and with how much patience.
//!
//! Read by config, used by the assembly, which makes a loop for each lane of each of its sources.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::SinkSettings;
use crate::event::Ordering;
use crate::relay::LaneConfig;
use crate::retry::{OnFailed, RetryPolicy};
use crate::settings::{Meaning, Section, show_duration};
use crate::sink::PublishMode;
use crate::words::closest;

/// The lane of rows whose INSERT names none, and the only one where the settings name none.
pub const DEFAULT_LANE: &str = "default";

/// A renewal may fail once: the publish timeout fits this often into a lease.
const PUBLISH_TIMEOUTS_PER_LEASE: u32 = 2;

const HOUR: Duration = Duration::from_secs(3600);
const BATCH_ROWS: RangeInclusive<usize> = 1..=50_000;
const BATCH_BYTES: RangeInclusive<usize> = 1024..=1024 << 20;
const IN_FLIGHT: RangeInclusive<usize> = 1..=256;
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=HOUR;
const POLL_INTERVAL: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(300);
const MAX_ATTEMPTS: RangeInclusive<u32> = 1..=1_000_000;
const BACKOFF: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);

const INTRO: &str =
    "Paths that do not disturb each other. Without any there is one, `default`, with all defaults.";

/// What the keys mean, for the reference.
const MEANINGS: [Meaning; 13] = [
    Meaning::new("sources", "whose rows of this lane it carries").usually("all sources"),
    Meaning::new("sink", "where it publishes to").usually("the only one"),
    Meaning::new(
        "ordering",
        "order per key, none, or one order of all events; the last two need another `migrate`",
    ),
    Meaning::new(
        "publish",
        "whether many records of a key may be under way, or one that must be acknowledged first",
    ),
    Meaning::new("batch_rows", "most events of a batch"),
    Meaning::new("batch_bytes", "most payload bytes of a batch; a larger event comes alone"),
    Meaning::new("in_flight", "most batches of this lane at once"),
    Meaning::new(
        "lease",
        "how long a claim lasts without renewal; at least twice the `publish_timeout`",
    ),
    Meaning::new("poll_interval", "longest pause of an idle lane"),
    Meaning::new("max_attempts", "attempts of an event that fails by itself"),
    Meaning::new("first_backoff", "pause after the first failure; doubles with each attempt"),
    Meaning::new("max_backoff", "longest pause between two attempts"),
    Meaning::new(
        "on_failed",
        "after the last attempt: set the event aside, or hold its key until someone decides",
    ),
];

/// One lane.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneSettings {
    /// The value of the rows' `lane` column.
    pub name: Arc<str>,
    /// The sources it carries.
    pub sources: Vec<Arc<str>>,
    /// The sink it publishes to.
    pub sink: Arc<str>,
    /// How records of one key follow each other.
    pub publish: PublishMode,
    /// Order, limits and patience.
    pub config: LaneConfig,
}

/// What a lane may refer to.
pub(super) struct Surroundings<'a> {
    /// All names under `[sources]`, the broken ones included.
    pub(super) source_names: &'a [String],
    /// All names under `[sinks]`, the broken ones included.
    pub(super) sink_names: &'a [String],
    /// The sinks that could be read.
    pub(super) sinks: &'a [SinkSettings],
}

impl LaneSettings {
    /// Reads one lane; `None` where its sink is not known.
    pub(super) fn read(
        name: &str,
        section: &Section<'_>,
        around: &Surroundings<'_>,
    ) -> Option<Self> {
        section.document(INTRO, &MEANINGS);
        let modes =
            [("pipelined", PublishMode::Pipelined), ("per_key_sync", PublishMode::PerKeySync)];
        let sources = read_sources(section, around.source_names);
        let publish = section.choice("publish", &modes, PublishMode::default());
        let config = read_config(section);
        let sink = read_sink(section, around.sink_names)?;
        let timeout = around
            .sinks
            .iter()
            .find(|known| *known.name == *sink)
            .and_then(SinkSettings::publish_timeout);
        check_lease(section, &config, &sink, timeout);
        Some(Self { name: name.into(), sources, sink: sink.into(), publish, config })
    }
}

fn read_config(section: &Section<'_>) -> LaneConfig {
    let normal = LaneConfig::default();
    let orders = [("key", Ordering::Key), ("none", Ordering::None), ("total", Ordering::Total)];
    LaneConfig {
        ordering: section.choice("ordering", &orders, normal.ordering),
        batch_rows: section.integer("batch_rows", BATCH_ROWS, normal.batch_rows),
        batch_bytes: section.size("batch_bytes", BATCH_BYTES, normal.batch_bytes),
        in_flight: section.integer("in_flight", IN_FLIGHT, normal.in_flight),
        lease: section.duration("lease", LEASE, normal.lease),
        poll_interval: section.duration("poll_interval", POLL_INTERVAL, normal.poll_interval),
        retry: read_retry(section),
    }
}

fn read_retry(section: &Section<'_>) -> RetryPolicy {
    let normal = RetryPolicy::default();
    let policies = [("park", OnFailed::Park), ("halt_key", OnFailed::HaltKey)];
    let policy = RetryPolicy {
        max_attempts: section.integer("max_attempts", MAX_ATTEMPTS, normal.max_attempts),
        first_backoff: section.duration("first_backoff", BACKOFF, normal.first_backoff),
        max_backoff: section.duration("max_backoff", BACKOFF, normal.max_backoff),
        on_failed: section.choice("on_failed", &policies, normal.on_failed),
    };
    if policy.first_backoff > policy.max_backoff {
        let key = if section.has("first_backoff") { "first_backoff" } else { "max_backoff" };
        let (first, max) = (show_duration(policy.first_backoff), show_duration(policy.max_backoff));
        let message =
            format!("first_backoff ({first}) must not be longer than max_backoff ({max})");
        section.error(key, message);
    }
    policy
}

fn read_sources(section: &Section<'_>, known: &[String]) -> Vec<Arc<str>> {
    let named = section.strings("sources");
    if named.as_ref().is_some_and(Vec::is_empty) {
        section.error("sources", "is empty; leave it out for all sources");
    }
    let Some(named) = named.filter(|named| !named.is_empty()) else {
        return known.iter().map(|name| name.as_str().into()).collect();
    };
    for (index, name) in named.iter().enumerate() {
        if !known.contains(name) {
            unknown(section, "sources", "source", name, known);
        } else if named[..index].contains(name) {
            section.error("sources", format!("names '{name}' twice"));
        }
    }
    named.into_iter().map(Arc::from).collect()
}

fn read_sink(section: &Section<'_>, known: &[String]) -> Option<String> {
    match (section.string("sink"), known) {
        (Some(name), known) if known.contains(&name) => Some(name),
        (Some(name), known) => {
            unknown(section, "sink", "sink", &name, known);
            None
        }
        // Already reported, by the getter or for the settings as a whole.
        (None, _) if section.has("sink") => None,
        (None, []) => None,
        (None, [only]) => Some(only.clone()),
        (None, several) => {
            let several = several.join(", ");
            section.missing("sink", format!("there are several, name one of {several}"));
            None
        }
    }
}

fn unknown(section: &Section<'_>, key: &str, what: &str, name: &str, known: &[String]) {
    if !section.is_complete() {
        return;
    }
    let listed = match known {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    section.error_suggesting(
        key,
        format!("there is no {what} '{name}', there is {listed}"),
        closest(name, known.iter().map(String::as_str)),
    );
}

fn check_lease(section: &Section<'_>, config: &LaneConfig, sink: &str, timeout: Option<Duration>) {
    let Some(timeout) = timeout else { return };
    let least = timeout * PUBLISH_TIMEOUTS_PER_LEASE;
    if config.lease < least {
        let (lease, timeout) = (show_duration(config.lease), show_duration(timeout));
        let least = show_duration(least);
        section.error(
            "lease",
            format!(
                "a lease of {lease} is too short for sink '{sink}', whose publish_timeout is \
                 {timeout}: write lease = \"{least}\" or more, or a shorter publish_timeout"
            ),
        );
    }
}
