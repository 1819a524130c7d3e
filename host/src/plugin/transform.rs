//! A loaded plugin as the relay sees it.
//!
//! `host.rs` hands these out as `dyn Transform`. A batch goes to the guests' own threads and comes
//! back with one verdict per event (`batch.rs` sees to that). Each lane has its own instances, so that
//! a lane with a slow batch does not hold up another lane of the same plugin. Nothing here touches
//! the database or the broker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::batch::{self, Caller, Fault, Reply, Want};
use super::convert::{Input, Verdict};
use super::instance::{Instance, Stopped, Template};
use super::log::LogBudget;
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

/// A plugin of the folder.
pub(super) struct Plugin {
    version: Arc<Version>,
    workers: Arc<Workers>,
    /// One entry per lane that ever sent a batch; lanes come from the configuration.
    benches: Mutex<HashMap<LaneName, Arc<Bench>>>,
}

/// The instances of one lane.
struct Bench {
    /// As many batches at once as there are threads; more would only wait on each other.
    seats: Semaphore,
    idle: Mutex<Vec<Instance>>,
}

impl Plugin {
    /// A plugin that decides with this version, on these threads.
    pub(super) fn new(version: Version, workers: Arc<Workers>) -> Self {
        Self { version: Arc::new(version), workers, benches: Mutex::default() }
    }

    /// Who it is.
    pub(super) fn stamp(&self) -> &PluginStamp {
        &self.version.stamp
    }

    /// Whether it wants events of that type without a route saying so.
    pub(super) fn wants(&self, event_type: &str) -> bool {
        self.version.manifest.wants(event_type)
    }

    fn bench(&self, lane: &LaneName) -> Arc<Bench> {
        let mut benches = self.benches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bench) = benches.get(lane) {
            return bench.clone();
        }
        let bench = Arc::new(Bench {
            seats: Semaphore::new(self.workers.threads()),
            idle: Mutex::default(),
        });
        benches.insert(lane.clone(), bench.clone());
        bench
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
        let bench = self.bench(lane);
        let decided = self
            .workers
            .run(async move {
                let _seat = bench.seats.acquire().await;
                let limits = &version.template.limits;
                let parts = parts(&inputs, limits.input_per_call());
                let deadline = limits.batch_deadline(inputs.len());
                let PluginStamp { name, version: number, .. } = &version.stamp;
                let words = LogBudget::new(name, number, limits);
                let mut guests =
                    Guests { version: &version, bench: &bench, inputs: &inputs, words };
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
        Transformed { verdicts, stamp }
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
    bench: &'a Bench,
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
        self.bench.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.idle().push(instance);
        }
        Reply { result, used, fresh }
    }
}
