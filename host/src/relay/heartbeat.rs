//! Says every few seconds that this instance is there, and what only it knows: for `haulier status`.
//!
//! One task per source, owned by the relay. Writes one row of a table of its own. A heartbeat that
//! fails is repeated by the next one and disturbs no lane.

use std::sync::Arc;
use std::time::Duration;

use super::LaneContext;
use crate::clock::Moment;
use crate::report::{
    CircuitReport, INTERVAL, LaneReport, MOST_NAMED, PluginReport, Report, VERSION, short,
};
use crate::store::{Heartbeat, Life};
use crate::transform::InUse;

/// Pause after the first heartbeat, when the lanes have just been opened.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// How long shutdown waits for the last word to be noted.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(1);

/// What is said to one source.
pub(super) struct Pulse {
    /// Its lanes; never empty.
    lanes: Vec<Arc<LaneContext>>,
    started: Moment,
}

impl Pulse {
    /// One for each source that these lanes are of.
    pub(super) fn per_source(lanes: &[Arc<LaneContext>], started: Moment) -> Vec<Arc<Self>> {
        let mut pulses: Vec<Self> = Vec::new();
        for lane in lanes {
            match pulses.iter_mut().find(|pulse| pulse.lanes[0].name.source == lane.name.source) {
                Some(pulse) => pulse.lanes.push(Arc::clone(lane)),
                None => pulses.push(Self { lanes: vec![Arc::clone(lane)], started }),
            }
        }
        pulses.into_iter().map(Arc::new).collect()
    }
}

/// Runs until it is dropped.
pub(super) async fn run(pulse: Arc<Pulse>) {
    let mut pause = FIRST_INTERVAL;
    loop {
        run_once(&pulse, Life::Running).await;
        tokio::time::sleep(pause).await;
        pause = INTERVAL;
    }
}

/// Tells all sources that the instance has stopped in good order.
pub(super) async fn last_word(pulses: &[Arc<Pulse>]) {
    let words = pulses.iter().map(|pulse| run_once(pulse, Life::Stopped));
    // One that is not heard leaves an instance that counts as gone after a while.
    let _ = tokio::time::timeout(LAST_WORD_LIMIT, futures::future::join_all(words)).await;
}

async fn run_once(pulse: &Pulse, life: Life) {
    let first = &pulse.lanes[0];
    let text = report(pulse).to_text();
    let beat = Heartbeat {
        source: &first.name.source,
        instance: &first.instance,
        running_for: pulse.started.elapsed(),
        life,
        report: &text,
    };
    if let Err(error) = first.store.heartbeat(&beat).await {
        tracing::debug!(source = %first.name.source, error = %super::chain(&error),
            "a heartbeat was not noted");
    }
}

fn report(pulse: &Pulse) -> Report {
    let rules = pulse.lanes[0].rules.latest();
    let stamps =
        rules.plugins.in_use().into_iter().map(|InUse { stamp, standing, .. }| PluginReport {
            name: short(&stamp.name),
            version: short(&stamp.version),
            hash: short(&stamp.hash),
            standing: standing.name().to_owned(),
        });
    let plugin_troubles = rules.problems().take(MOST_NAMED);
    Report {
        version: VERSION,
        haulier: env!("CARGO_PKG_VERSION").to_owned(),
        plugins: stamps.collect(),
        plugin_troubles: plugin_troubles.map(|trouble| short(trouble)).collect(),
        lanes: pulse.lanes.iter().map(|lane| lane_report(lane)).collect(),
    }
}

fn lane_report(lane: &LaneContext) -> LaneReport {
    let (open, total) = lane.circuits().open(MOST_NAMED);
    let left_out = total.saturating_sub(open.len());
    let circuits = open.into_iter().map(|(destination, left, failure)| CircuitReport {
        destination: short(&destination),
        cause: failure.cause.code().to_owned(),
        failure: short(&failure.message),
        next_trial_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    });
    LaneReport {
        lane: lane.name.lane.to_string(),
        paused: lane.health.obstacle().map(|why| short(&why)),
        published_last_minute: lane.health.published_last_minute(),
        circuits: circuits.collect(),
        circuits_left_out: u64::try_from(left_out).unwrap_or(u64::MAX),
    }
}
