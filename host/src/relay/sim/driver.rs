//! Runs one scenario: starts, freezes, kills and stops processes, lets writers write, breaks and heals things.
//!
//! Each process is the relay itself, `relay::run`, with the simulation's store, sink and plugins. When the
//! time of trouble is over all faults are healed, and everything must come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::broker::Producer;
use super::link::Link;
use super::plugin::{self, BY_ROW, topic};
use super::scenario::{Action, Aim, Draft, Rates, Scenario, Script, TOPICS, Transaction};
use super::world::{Database, Process, Shared, Step};
use crate::event::{Event, LaneName, Ordering};
use crate::relay::{self, Lane, LaneHealth, Phase, Rules};
use crate::store::Store;
use crate::telemetry::Metrics;

/// How long everything may take to come to rest once all is healed. Milliseconds.
const PATIENCE: u64 = 900_000;
/// How often it looks whether a process works by now. Milliseconds.
const AIM: u64 = 17;
/// How often the driver looks whether anything has happened that it did not bring about.
const TICK: u64 = 250;
/// How long a process in good order may take to stop when all is well.
const STOP_LIMIT: u64 = 120_000;

/// Something that is to happen at a time.
#[derive(Debug)]
enum Entry {
    Act(Action),
    Begin(Transaction),
    Commit { ids: Vec<i64>, transaction: Transaction },
    Start(usize),
    Thaw(usize),
    GiveUp(usize),
    DatabaseUp,
    BrokerUp,
    TopicGood(usize),
}

/// A place for a process, and the one in it.
struct Running {
    process: Arc<Process>,
    phase: watch::Sender<Phase>,
    rules: watch::Sender<Arc<Rules>>,
    ended: JoinHandle<Vec<String>>,
}

/// The driver of one run.
pub(super) struct Driver {
    world: Shared,
    scenario: Arc<Scenario>,
    slots: Vec<Option<Running>>,
    /// What is to happen, by time and then in the order in which it was planned.
    agenda: BTreeMap<(u64, u64), Entry>,
    planned: u64,
    version: u64,
    last_id: i64,
    locked_keys: BTreeSet<u8>,
    healed: bool,
}

impl Driver {
    pub(super) fn new(world: Shared) -> Self {
        let scenario = Arc::clone(&world.lock().scenario);
        let mut driver = Self {
            world,
            slots: (0..scenario.processes).map(|_| None).collect(),
            agenda: BTreeMap::new(),
            planned: 0,
            version: 1,
            last_id: 0,
            locked_keys: BTreeSet::new(),
            healed: false,
            scenario: Arc::clone(&scenario),
        };
        for slot in 0..scenario.processes {
            let starts = driver.world.lock().rng.random_range(0..2_000);
            driver.plan(starts, Entry::Start(slot));
        }
        for transaction in &scenario.transactions {
            driver.plan(transaction.begins, Entry::Begin(transaction.clone()));
        }
        for (at, action) in &scenario.actions {
            driver.plan(*at, Entry::Act(action.clone()));
        }
        driver
    }

    fn plan(&mut self, at: u64, entry: Entry) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), entry);
    }

    fn now(&self) -> u64 {
        self.world.lock().now().unsigned_abs()
    }

    /// Runs until everything has come to rest, or something was violated.
    pub(super) async fn run(mut self) {
        let news = Arc::clone(&self.world.lock().news);
        loop {
            let now = self.now();
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
                let entry = entry.remove();
                self.happens(entry).await;
            }
            self.look_after().await;
            if !self.healed && now >= self.scenario.span {
                self.heal();
            }
            let (violated, unfinished) = {
                let world = self.world.lock();
                (!world.violations.is_empty(), world.unfinished())
            };
            if violated {
                return;
            }
            if self.healed && self.agenda.is_empty() && unfinished.is_none() {
                break;
            }
            if now > self.scenario.span + PATIENCE {
                let what = format!("nothing comes to rest: {}", unfinished.unwrap_or_default());
                return self.world.lock().violated(what);
            }
            let next = self.agenda.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let until = self.world.lock().at(next.min(now + TICK));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => {}
                () = news.notified() => {}
            }
        }
        self.stop_all().await;
        let mut world = self.world.lock();
        world.note(Step::Quiet);
        world.check_end();
    }

    async fn happens(&mut self, entry: Entry) {
        match entry {
            Entry::Act(action) => self.act(action),
            Entry::Begin(transaction) => self.begin(transaction),
            Entry::Commit { ids, transaction } => self.commit(&ids, &transaction),
            Entry::Start(slot) => self.start(slot),
            Entry::Thaw(slot) => self.thaw(slot),
            Entry::GiveUp(slot) => {
                if let Some(running) = &self.slots[slot] {
                    running.phase.send_if_modified(|phase| {
                        let drains = *phase == Phase::Draining;
                        if drains {
                            *phase = Phase::Abandon;
                        }
                        drains
                    });
                }
            }
            Entry::DatabaseUp => self.database(Database::Up),
            Entry::BrokerUp => self.world.lock().broker_up = true,
            Entry::TopicGood(number) => {
                self.world.lock().bad_topics.retain(|(name, _)| *name != topic(number));
            }
        }
    }

    fn act(&mut self, action: Action) {
        let now = self.now();
        if let Action::Kill(slot, _, Aim::AtWork) | Action::Freeze(slot, _, Aim::AtWork) = action
            && !self.works(slot)
        {
            return self.plan(now + AIM, Entry::Act(action));
        }
        self.world.lock().note(Step::Did(action.clone()));
        match action {
            Action::Kill(slot, back, _) => {
                if let Some(running) = &self.slots[slot] {
                    running.process.kill();
                    let process = running.process.number;
                    self.world.lock().note(Step::Died { process });
                    self.bury(slot, back);
                }
            }
            Action::Freeze(slot, lasts, _) => {
                if let Some(running) = &self.slots[slot] {
                    running.process.freeze();
                    let process = running.process.number;
                    self.world.lock().note(Step::Frozen { process });
                    self.plan(now + lasts, Entry::Thaw(slot));
                }
            }
            Action::Shutdown(slot, patience) => {
                if let Some(running) = &self.slots[slot] {
                    running.phase.send_replace(Phase::Draining);
                    if let Some(patience) = patience {
                        self.plan(now + patience, Entry::GiveUp(slot));
                    }
                }
            }
            Action::DatabaseDown { silent, lasts } => {
                self.database(if silent { Database::Silent } else { Database::Down });
                self.plan(now + lasts, Entry::DatabaseUp);
            }
            Action::BrokerDown(lasts) => {
                self.world.lock().broker_up = false;
                self.plan(now + lasts, Entry::BrokerUp);
            }
            Action::TopicBad { topic: number, cause, lasts } => {
                self.world.lock().bad_topics.push((topic(number), cause));
                self.plan(now + lasts, Entry::TopicGood(number));
            }
            Action::Reload => self.reload(),
        }
    }

    /// Whether the process in that place works on a batch.
    fn works(&self, slot: usize) -> bool {
        let Some(running) = &self.slots[slot] else { return false };
        self.world.lock().checks.works(running.process.number)
    }

    fn database(&self, state: Database) {
        let mut world = self.world.lock();
        world.database = state;
        world.checks.database_changed = Some(world.now());
    }

    /// Every process goes over to rules of a new version.
    fn reload(&mut self) {
        self.version += 1;
        for running in self.slots.iter().flatten() {
            running.rules.send_replace(plugin::rules(&self.world, &running.process, self.version));
        }
    }

    fn start(&mut self, slot: usize) {
        if self.slots[slot].is_some() {
            return;
        }
        let process = {
            let mut world = self.world.lock();
            let process = Process::new(world.checks.processes.len());
            world.checks.processes.push(Arc::clone(&process));
            world.note(Step::Started { process: process.number, slot });
            process
        };
        let name = LaneName { source: "s".into(), lane: "default".into() };
        let metrics = Metrics::new();
        let link = Link { world: self.world.clone(), process: Arc::clone(&process) };
        let store: Arc<dyn Store> = Arc::new(link);
        let lane = Lane {
            config: self.scenario.lane.clone(),
            store,
            sink: Producer::new(self.world.clone(), Arc::clone(&process)),
            metrics: metrics.lane(&name),
            health: Arc::new(LaneHealth::default()),
            name,
        };
        let (rules, latest) = watch::channel(plugin::rules(&self.world, &process, self.version));
        let shared = relay::Shared {
            rules: latest,
            plugin_metrics: metrics.plugins(),
            instance: format!("process-{}", process.number).into(),
            abandon_limit: Duration::from_secs(1),
            transforms: self.scenario.transforms,
        };
        let (phase, phases) = watch::channel(Phase::Running);
        let ended = tokio::spawn(relay::run(vec![lane], vec![], shared, phases));
        self.slots[slot] = Some(Running { process, phase, rules, ended });
    }

    fn thaw(&self, slot: usize) {
        let Some(running) = self.slots[slot].as_ref().filter(|one| one.process.is_frozen()) else {
            return;
        };
        running.process.thaw();
        let mut world = self.world.lock();
        let (process, now) = (running.process.number, world.now());
        world.checks.troubled(process, now);
        world.checks.thawed.insert(process, now);
        world.note(Step::Thawed { process });
    }

    /// Clears away a process that is dead, and has another started after so long.
    fn bury(&mut self, slot: usize, back: u64) {
        if let Some(running) = self.slots[slot].take() {
            running.ended.abort();
        }
        let now = self.now();
        self.plan(now + back, Entry::Start(slot));
    }

    /// Notices what happened by itself: processes that an event has killed, or that have stopped when asked
    /// to, and versions that were found bad.
    async fn look_after(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(running) = &mut self.slots[slot] else { continue };
            let dead = running.process.is_dead();
            if dead || running.ended.is_finished() {
                if !dead {
                    let died = (&mut running.ended).await.unwrap_or_else(|e| vec![e.to_string()]);
                    let process = running.process.number;
                    self.stopped(process, &died);
                }
                let back = self.world.lock().rng.random_range(10..1_500);
                self.bury(slot, back);
            }
        }
        let bad = self.world.lock().condemned.contains(&self.version);
        if bad {
            self.reload();
        }
    }

    fn stopped(&self, process: usize, died: &[String]) {
        let mut world = self.world.lock();
        world.note(Step::Stopped { process });
        if !died.is_empty() {
            world.violated(format!("process {process} has a bug: {died:?}"));
        }
        world.check_stopped(process);
    }

    fn begin(&mut self, transaction: Transaction) {
        let keys: Vec<u8> = transaction.events.iter().filter_map(|one| self.domain(one)).collect();
        let now = self.now();
        if keys.iter().any(|key| self.locked_keys.contains(key)) {
            return self.plan(now + 5, Entry::Begin(transaction));
        }
        self.locked_keys.extend(keys);
        let first = self.last_id + 1;
        self.last_id += i64::try_from(transaction.events.len()).expect("few");
        let (ids, commits) = ((first..=self.last_id).collect(), now + transaction.takes);
        self.plan(commits, Entry::Commit { ids, transaction });
    }

    fn commit(&mut self, ids: &[i64], transaction: &Transaction) {
        for draft in &transaction.events {
            if let Some(key) = self.domain(draft) {
                self.locked_keys.remove(&key);
            }
        }
        let mut world = self.world.lock();
        let (first, last) = (ids[0], ids[ids.len() - 1]);
        if !transaction.commits {
            return world.note(Step::RolledBack { first, last });
        }
        world.note(Step::Committed { first, last });
        let now = world.now();
        for (id, draft) in ids.iter().zip(&transaction.events) {
            let domain = self.domain(draft);
            world.checks.committed(*id, draft.script.clone(), domain, draft.delay > 0);
            world.table.insert(event(*id, draft, self.scenario.shards, now), now + draft.delay);
        }
    }

    /// The order that an event stands in.
    fn domain(&self, draft: &Draft) -> Option<u8> {
        match self.scenario.lane.ordering {
            Ordering::Key => draft.key,
            // Its order is id order as far as all writers are serialised.
            Ordering::Total => Some(0),
            Ordering::None => None,
        }
    }

    /// The time of trouble is over: nothing goes wrong any more but by events themselves.
    fn heal(&mut self) {
        self.healed = true;
        {
            let mut world = self.world.lock();
            world.note(Step::Healed);
            world.rates = Rates::none();
            world.broker_up = true;
            world.bad_topics.clear();
        }
        self.database(Database::Up);
        (0..self.slots.len()).for_each(|slot| self.thaw(slot));
        let leftover = |entry: &Entry| {
            matches!(
                entry,
                Entry::Act(_)
                    | Entry::Thaw(_)
                    | Entry::DatabaseUp
                    | Entry::BrokerUp
                    | Entry::TopicGood(_)
            )
        };
        self.agenda.retain(|_, entry| !leftover(entry));
    }

    /// Asks all processes to stop, and waits for them.
    async fn stop_all(&mut self) {
        for running in std::mem::take(&mut self.slots).into_iter().flatten() {
            running.phase.send_replace(Phase::Draining);
            let process = running.process.number;
            let limit = Duration::from_millis(STOP_LIMIT);
            match tokio::time::timeout(limit, running.ended).await {
                Ok(Ok(died)) => self.stopped(process, &died),
                other => {
                    let what = format!("process {process} does not stop: {other:?}");
                    self.world.lock().violated(what);
                }
            }
        }
    }
}

fn event(id: i64, draft: &Draft, shards: i32, now: i64) -> Event {
    let key = draft.key.map(i32::from);
    let by_row = draft.script == Script::Row;
    let number = usize::try_from(id).expect("a small id") % TOPICS;
    Event {
        shard: key.unwrap_or_default() % shards,
        aggregate_type: "thing".into(),
        aggregate_id: key.map(|key| key.to_string()),
        event_type: if by_row { BY_ROW } else { "scripted" }.into(),
        topic: by_row.then(|| topic(number)),
        created_at_ms: now,
        defect: (draft.script == Script::Unreadable).then(|| "scripted".to_owned()),
        ..Event::bare(id)
    }
}
