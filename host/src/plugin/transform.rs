//! A loaded plugin as the relay sees it.
//!
//! `registry.rs` hands these out as `dyn Transform`. A batch goes to the guests' own threads and comes
//! back with one verdict per event (`batch.rs` sees to that). Each lane has its own seats, so that a
//! lane with slow batches does not hold up another lane of the same plugin. Nothing here touches the
//! database or the broker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::batch::{self, Caller, Fault, Reply, Want};
use super::config::PluginConfig;
use super::convert::{Input, Verdict};
use super::instance::{Instance, Stopped, Template};
use super::log::{LogBudget, LogRate};
use super::manifest::Manifest;
use super::workers::Workers;
use crate::event::{Event, LaneName};
use crate::failure::{Cause, Failure, PluginStamp};
use crate::transform::{Transform, Transformed};

/// How long an instance lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// For one batch: no leaks, no hidden state. For guests that start in microseconds.
    PerBatch,
    /// For many batches. For guests that bring an interpreter along.
    Reused,
}

/// One version of a plugin, ready to make instances.
pub(super) struct Version {
    pub(super) stamp: PluginStamp,
    pub(super) manifest: Manifest,
    pub(super) template: Template,
    /// JSON for `configure`.
    pub(super) settings: String,
    pub(super) lifecycle: Lifecycle,
}

/// A version in use, with its instances. They go with it.
pub(super) struct Plugin {
    version: Arc<Version>,
    /// Changes each time it is taken up.
    activation: AtomicU64,
    workers: Arc<Workers>,
    pool: Arc<Pool>,
    rate: Arc<LogRate>,
    /// One entry per lane that ever sent a batch; lanes come from the configuration.
    lanes: Mutex<HashMap<LaneName, Arc<Semaphore>>>,
}

/// The instances of a version.
struct Pool {
    /// As many may work at once as the operator allows.
    seats: Semaphore,
    idle: Mutex<Vec<Instance>>,
    most_idle: usize,
}

impl Plugin {
    /// A plugin that decides with this version, on these threads.
    pub(super) fn new(version: Version, workers: Arc<Workers>) -> Self {
        let instances = version.template.limits.instances;
        let most_idle = instances.min(workers.threads());
        let pool = Pool { seats: Semaphore::new(instances), idle: Mutex::default(), most_idle };
        Self {
            version: Arc::new(version),
            activation: AtomicU64::new(0),
            workers,
            pool: Arc::new(pool),
            rate: Arc::default(),
            lanes: Mutex::default(),
        }
    }

    /// It is taken up, perhaps not for the first time: what was found out about it before does not count.
    pub(super) fn activate(&self) {
        static ACTIVATIONS: AtomicU64 = AtomicU64::new(1);
        self.activation.store(ACTIVATIONS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether it was made with these settings and limits.
    pub(super) fn is_told(&self, told: &PluginConfig) -> bool {
        let settings = told.settings.to_string();
        self.version.settings == settings && self.version.template.limits == told.limits
    }

    /// Who it is.
    pub(super) fn stamp(&self) -> &PluginStamp {
        &self.version.stamp
    }

    /// What it says of itself.
    pub(super) fn manifest(&self) -> &Manifest {
        &self.version.manifest
    }

    /// As many batches of a lane at once as there are threads: more would only wait on each other, and
    /// one lane's would keep another's waiting.
    fn lane(&self, lane: &LaneName) -> Arc<Semaphore> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seats) = lanes.get(lane) {
            return seats.clone();
        }
        let seats = Arc::new(Semaphore::new(self.workers.threads()));
        lanes.insert(lane.clone(), seats.clone());
        seats
    }
}

#[async_trait]
impl Transform for Plugin {
    async fn transform(&self, lane: &LaneName, events: &[&Event]) -> Transformed {
        let version = self.version.clone();
        let needs = version.manifest.needs;
        let inputs: Vec<Input> =
            events.iter().map(|event| Input::new(event, lane, needs)).collect();
        let count = inputs.len();
        let (lane, pool, rate) = (self.lane(lane), self.pool.clone(), self.rate.clone());
        let decided = self
            .workers
            .run(async move {
                let _turn = lane.acquire().await;
                let _seat = pool.seats.acquire().await;
                let limits = &version.template.limits;
                let parts = parts(&inputs, limits.input_per_call());
                let deadline = limits.batch_deadline(inputs.len());
                let PluginStamp { name, version: number, .. } = &version.stamp;
                let words = LogBudget::within(name, number, limits, &rate);
                let mut guests = Guests { version: &version, pool: &pool, inputs: &inputs, words };
                let verdicts = batch::decide(&mut guests, parts, deadline).await;
                guests.words.close();
                verdicts
            })
            .await;
        let stamp = self.version.stamp.clone();
        let verdicts = match decided {
            Ok(verdicts) => verdicts,
            Err(error) if error.is_panic() => {
                tracing::error!(plugin = stamp.name, %error, "plugin host panicked on a batch");
                all(count, Cause::PluginUnavailable, "the plugin host panicked on this batch")
            }
            Err(_) => all(count, Cause::ShuttingDown, "the plugin host is shutting down"),
        };
        let verdicts = verdicts
            .into_iter()
            .map(|verdict| verdict.map_err(|failure| failure.in_plugin(&stamp)))
            .collect();
        Transformed { verdicts, stamp, activation: self.activation.load(Ordering::Relaxed) }
    }
}

fn all(count: usize, cause: Cause, text: &str) -> Vec<Verdict> {
    (0..count).map(|_| Err(Failure::new(cause, text))).collect()
}

/// The places of the events, cut into calls of at most `limit` bytes; an event over the limit is a
/// call of its own.
fn parts(inputs: &[Input], limit: usize) -> Vec<Vec<usize>> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0usize;
    for (place, input) in inputs.iter().enumerate() {
        if !part.is_empty() && bytes + input.bytes() > limit {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += input.bytes();
        part.push(place);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Real guests for the search in `batch.rs`.
struct Guests<'a> {
    version: &'a Version,
    pool: &'a Pool,
    inputs: &'a [Input],
    words: Arc<LogBudget>,
}

impl Guests<'_> {
    async fn instance(&self, want: Want) -> Result<Instance, Fault> {
        if want == Want::Any
            && let Some(idle) = self.idle().pop()
        {
            return Ok(idle);
        }
        let started = self.version.template.configured(&self.version.settings, &self.words).await;
        started.map_err(|stopped| {
            // It was tried when the file was loaded: no event is to blame.
            Fault::Unavailable(match stopped {
                Stopped::Crowded(text) => text,
                Stopped::Guest(_, text) => format!("the plugin does not start: {text}"),
            })
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Instance>> {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller for Guests<'_> {
    async fn call(&mut self, events: &[usize], want: Want) -> Reply {
        let mut instance = match self.instance(want).await {
            Ok(instance) => instance,
            Err(fault) => {
                return Reply { result: Err(fault), used: Duration::ZERO, fresh: true };
            }
        };
        let fresh = instance.is_fresh();
        let inputs: Vec<&Input> = events.iter().map(|place| &self.inputs[*place]).collect();
        let (result, used) = instance.transform(&inputs, &self.words).await;
        let reusable = match self.version.lifecycle {
            Lifecycle::PerBatch => false,
            Lifecycle::Reused => result.is_ok() && !instance.is_worn_out(),
        };
        if reusable {
            // A search for culprits makes many instances; more than can work at once are of no use.
            let mut idle = self.idle();
            if idle.len() < self.pool.most_idle {
                idle.push(instance);
            }
        }
        Reply { result, used, fresh }
    }
}
