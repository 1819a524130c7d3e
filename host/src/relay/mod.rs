//! The relay: one loop per lane that claims, transforms, publishes and settles.
//!
//! Built by the composition root. It sees the contracts only: no database, broker or plugin runtime is
//! named below this module. Shutdown is a [`Phase`] it is told; it never touches signals.

mod batch;
mod circuit;
mod config;
mod health;
mod heartbeat;
mod lane;
mod minute;
#[cfg(test)]
mod model;
mod outcome;
mod plan;
mod preview;
mod retention;
mod rules;
mod shadow;
#[cfg(test)]
mod sim;
mod trial;
mod verdict;
mod watch;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{RwLock, Semaphore, watch as phases};
use tokio::task::JoinSet;

pub use self::config::{LaneConfig, RetentionConfig};
pub use self::health::LaneHealth;
pub use self::preview::{Preview, preview};
pub use self::rules::Rules;
pub use self::verdict::{Judge, decider};

use self::circuit::Circuits;
use self::heartbeat::Pulse;
use self::rules::LaneRules;
use self::shadow::Shadows;
use self::trial::Trials;
use crate::clock::Moment;
use crate::event::LaneName;
use crate::sink::Sink;
use crate::store::Store;
use crate::telemetry::{LaneMetrics, PluginMetrics};
use crate::words::chain;

/// How far the relay has come in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Claiming and publishing.
    Running,
    /// Claiming nothing more; what is in flight is finished.
    Draining,
    /// Out of patience: what is in flight is let go and given back.
    Abandon,
}

/// One lane, wired to its adapters.
pub struct Lane {
    /// Source and lane.
    pub name: LaneName,
    /// Its settings.
    pub config: LaneConfig,
    /// The source's database.
    pub store: Arc<dyn Store>,
    /// The lane's own producer.
    pub sink: Arc<dyn Sink>,
    /// Its metric series.
    pub metrics: LaneMetrics,
    /// What readiness is told about it.
    pub health: Arc<LaneHealth>,
}

/// What all lanes of a process share.
#[derive(Clone)]
pub struct Shared {
    /// The rules and plugins, and those that come after them.
    pub rules: phases::Receiver<Arc<Rules>>,
    /// What is counted of plugins.
    pub plugin_metrics: PluginMetrics,
    /// This instance's name, for people who read leases.
    pub instance: Arc<str>,
    /// How long a batch may take to let go once patience has run out.
    pub abandon_limit: Duration,
    /// How many batches of one lane may be with a plugin at once, so that a lane's slow plugin leaves
    /// room for the others.
    pub transforms: usize,
}

/// Retention of one source.
pub struct Retention {
    /// The source's name.
    pub source: Arc<str>,
    /// When and how much.
    pub config: RetentionConfig,
    /// The source's database.
    pub store: Arc<dyn Store>,
    /// Called with the number of rows each pass deleted.
    pub deleted: Box<dyn Fn(u64) + Send + Sync>,
}

/// A lane with all it needs, shared by its loop and its batches.
struct LaneContext {
    name: LaneName,
    config: LaneConfig,
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    metrics: LaneMetrics,
    health: Arc<LaneHealth>,
    rules: LaneRules,
    trials: Arc<Mutex<Trials>>,
    shadows: Shadows,
    instance: Arc<str>,
    abandon_limit: Duration,
    /// Batches of all lanes share it; a suspect batch has it alone.
    company: Arc<RwLock<()>>,
    /// Room for as many batches of this lane as may be with a plugin at once.
    transforms: Semaphore,
    circuits: Mutex<Circuits>,
    /// Whether it was said that ordering keys share a record key.
    shared_key_told: AtomicBool,
}

impl LaneContext {
    fn circuits(&self) -> MutexGuard<'_, Circuits> {
        // A panic while it was held leaves at worst a forgotten circuit.
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs all lanes until `phase` has reached [`Phase::Draining`] and what was in flight is finished.
/// Returns the lanes whose loop died, which is a bug and is reported as such.
pub async fn run(
    lanes: Vec<Lane>,
    retentions: Vec<Retention>,
    shared: Shared,
    phase: phases::Receiver<Phase>,
) -> Vec<String> {
    let company = Arc::new(RwLock::new(()));
    let trials = Arc::<Mutex<Trials>>::default();
    let started = Moment::now();
    let mut loops = JoinSet::new();
    let mut helpers = JoinSet::new();
    let mut contexts = Vec::new();
    for lane in lanes {
        let context = Arc::new(LaneContext {
            name: lane.name,
            config: lane.config,
            store: lane.store,
            sink: lane.sink,
            metrics: lane.metrics,
            health: lane.health,
            rules: LaneRules::new(shared.rules.clone()),
            trials: Arc::clone(&trials),
            shadows: Shadows::new(shared.plugin_metrics.clone()),
            instance: Arc::clone(&shared.instance),
            abandon_limit: shared.abandon_limit,
            company: Arc::clone(&company),
            transforms: Semaphore::new(shared.transforms.max(1)),
            circuits: Mutex::default(),
            shared_key_told: AtomicBool::new(false),
        });
        contexts.push(Arc::clone(&context));
        helpers.spawn(watch::run(Arc::clone(&context)));
        let name = context.name.to_string();
        let health = Arc::clone(&context.health);
        let running = lane::LaneLoop::new(context, phase.clone());
        loops.spawn(async move {
            // The loop runs in a task of its own so that its panic is somebody's error.
            let ended = tokio::spawn(running.run()).await;
            if ended.is_err() {
                health.died();
            }
            ended.err().map(|error| format!("lane {name}: {error}"))
        });
    }
    for retention in retentions {
        helpers.spawn(retention::run(retention));
    }
    let pulses = Pulse::per_source(&contexts, started);
    for pulse in &pulses {
        helpers.spawn(heartbeat::run(Arc::clone(pulse)));
    }
    let mut died = Vec::new();
    while let Some(ended) = loops.join_next().await {
        died.extend(ended.ok().flatten());
    }
    helpers.shutdown().await;
    heartbeat::last_word(&pulses).await;
    died
}

/// Resolves when the phase has come at least as far as `wanted`, or nobody leads any more.
async fn reached(phase: &mut phases::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}
