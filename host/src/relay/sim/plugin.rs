//! The plugins of a run: one that decides as each event's script says, in the version of the rules.
//!
//! Given to the relay as its rules. An event that kills is a process that dies here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rand::Rng;

use super::broker::VERSION;
use super::link::CLAIM;
use super::scenario::{Script, TOPICS};
use super::world::{Process, Shared, Step};
use crate::event::{Delivery, Event, LaneName, Outcome, PayloadChoice};
use crate::failure::{Failure, PluginStamp};
use crate::relay::Rules;
use crate::routing::{Pattern, Route, Routes};
use crate::transform::{InUse, Plugins, Transform, Transformed};

/// The event type of events that no plugin decides on.
pub(super) const BY_ROW: &str = "row";

/// How long a plugin takes at most for a batch, at the usual pace. Milliseconds.
const USUAL: u64 = 25;

/// The rules of that version, for a process.
pub(super) fn rules(world: &Shared, process: &Arc<Process>, version: u64) -> Arc<Rules> {
    let route = |pattern: &str, plugin: Option<&str>| Route {
        patterns: vec![Pattern::new(pattern)],
        blocked: None,
        plugin: plugin.map(str::to_owned),
        ..Route::blocking(pattern.to_owned(), String::new())
    };
    let routes = Routes::new(vec![route(BY_ROW, None), route("*", Some("scripted"))]);
    let plugin = Scripted { world: world.clone(), process: Arc::clone(process), version };
    let plugins: Arc<dyn Plugins> = Arc::new(Folder(Arc::new(plugin)));
    Arc::new(Rules { routes, plugins, troubles: vec![], notes: vec![] })
}

struct Scripted {
    world: Shared,
    process: Arc<Process>,
    version: u64,
}

struct Folder(Arc<Scripted>);

impl Plugins for Folder {
    fn find(&self, _: &str) -> Result<Arc<dyn Transform>, String> {
        let plugin: Arc<dyn Transform> = self.0.clone();
        Ok(plugin)
    }

    fn candidate(&self, _: &str) -> Option<Arc<dyn Transform>> {
        None
    }

    fn wanting(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn in_use(&self) -> Vec<InUse> {
        Vec::new()
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn condemn(&self, _: &PluginStamp, _: &str) {
        let mut world = self.0.world.lock();
        world.condemned.insert(self.0.version);
        world.news.notify_one();
    }
}

/// The number of the claim that an event came with.
fn claim_of(event: &Event) -> u64 {
    let header = event.headers.iter().rfind(|header| header.name == CLAIM);
    let value = header.and_then(|header| header.value.as_deref()).unwrap_or_default();
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("a claim's number")
}

#[async_trait]
impl Transform for Scripted {
    async fn transform(&self, _: &LaneName, events: &[&Event]) -> Transformed {
        self.process.pass().await;
        let claim = claim_of(events[0]);
        let (kills, takes) = {
            let mut world = self.world.lock();
            let (process, version) = (self.process.number, self.version);
            world.note(Step::Transformed { process, claim, version });
            world.check_company(claim);
            let kills = |event: &&Event| {
                world
                    .checks
                    .script(event.id.0, &world.table)
                    .is_some_and(|(script, _)| script == Script::Kill)
            };
            let kills = events.iter().copied().find(kills).map(|event| event.id.0);
            let rate = world.rates.slow_plugins;
            let lease = u64::try_from(world.scenario.lane.lease.as_millis()).expect("seconds");
            let slow = world.happens(rate);
            let usual = USUAL * world.scenario.pace;
            let takes = world.rng.random_range(if slow { 0..lease * 3 / 2 } else { 0..usual });
            (kills, takes)
        };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        self.process.pass().await;
        if let Some(event) = kills {
            self.world.lock().killed_by(event, &self.process);
            self.process.pass().await;
        }
        let verdicts = events.iter().map(|event| self.verdict(event)).collect();
        let name = format!("{}", self.version);
        let stamp = PluginStamp { name: "scripted".into(), version: name, hash: "0123".into() };
        Transformed { verdicts, stamp, activation: self.version }
    }
}

impl Scripted {
    fn verdict(&self, event: &Event) -> Result<Outcome, Failure> {
        let mut world = self.world.lock();
        let script = world.checks.script(event.id.0, &world.table).map(|(script, _)| script);
        let records = match script.expect("it was committed") {
            Script::Drop => return Ok(Outcome::Drop("scripted".into())),
            Script::Fail(cause, until) if event.attempts < until => {
                world.checks.failed(event.id.0);
                return Err(Failure::new(cause, "scripted"));
            }
            script => script.records(),
        };
        let payload = Bytes::from(format!("{VERSION}{}", self.version));
        let delivery = |part: usize| Delivery {
            topic: Some(topic((usize::try_from(event.id.0).expect("a small id") + part) % TOPICS)),
            payload: PayloadChoice::Bytes(payload.clone()),
            ..Delivery::default()
        };
        Ok(Outcome::Deliver((0..records).map(delivery).collect()))
    }
}

/// The topic of that number.
pub(super) fn topic(number: usize) -> String {
    format!("topic-{number}")
}
