//! The one state of a run: table, broker log, processes, random numbers and the history.
//!
//! Shared by everything in the simulation, always on one thread. It holds and tells; what is wrong with what
//! happened is said by `checks`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering as Memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::checks::Checks;
use super::scenario::{Action, Rates, Scenario};
use crate::failure::Cause;
use crate::store::{Planted, Table};

/// A fault of the world on purpose, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// None.
    None,
    /// Of the table.
    Table(Planted),
    /// The sink hands over without asking the fence.
    NoFence,
    /// The sink goes on in a slot after a record that did not arrive.
    SlotGoesOn,
    /// The sink says of some records that they arrived which did not.
    FalseAcknowledgements,
}

/// One step of the history.
#[derive(Debug, Clone, Hash)]
pub(super) enum Step {
    Did(Action),
    Started { process: usize, slot: usize },
    Stopped { process: usize },
    Died { process: usize },
    Frozen { process: usize },
    Thawed { process: usize },
    Committed { first: i64, last: i64 },
    RolledBack { first: i64, last: i64 },
    Claimed { process: usize, claim: u64, flag: &'static str, events: Vec<i64> },
    Lost { claim: u64 },
    Renewed { claim: u64, whole: bool },
    Settled { claim: u64, outcomes: Vec<(i64, &'static str)>, lost: usize },
    CallFailed { process: usize, doing: &'static str },
    AnswerLost { process: usize, doing: &'static str },
    Transformed { process: usize, claim: u64, version: u64 },
    HandedOver { claim: u64, event: i64, part: usize },
    Appended { claim: u64, event: i64, part: usize, version: u64 },
    Receipt { claim: u64, event: i64, part: usize, what: &'static str },
    Healed,
    Quiet,
}

/// How the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Database {
    Up,
    /// It refuses at once.
    Down,
    /// It does not answer.
    Silent,
}

/// What is shared by a whole run.
pub(super) struct World {
    pub(super) rng: StdRng,
    start: Instant,
    pub(super) scenario: Arc<Scenario>,
    pub(super) flaw: Flaw,
    pub(super) table: Table,
    pub(super) rates: Rates,
    pub(super) database: Database,
    pub(super) broker_up: bool,
    pub(super) bad_topics: Vec<(String, Cause)>,
    /// Events whose transformation killed a process, with how often.
    pub(super) condemned: BTreeSet<u64>,
    pub(super) checks: Checks,
    pub(super) steps: Vec<(u64, Step)>,
    pub(super) violations: Vec<String>,
    pub(super) news: Arc<Notify>,
}

/// The world, as everything in it has it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(super) fn new(seed: u64, flaw: Flaw) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let scenario = Arc::new(Scenario::draw(&mut rng));
        let planted = match flaw {
            Flaw::Table(planted) => planted,
            _ => Planted::Nothing,
        };
        Self(Arc::new(Mutex::new(World {
            rng,
            start: Instant::now(),
            flaw,
            table: Table::new(scenario.lane.ordering, scenario.shards, planted),
            rates: scenario.rates,
            database: Database::Up,
            broker_up: true,
            bad_topics: Vec::new(),
            condemned: BTreeSet::new(),
            checks: Checks::default(),
            steps: Vec::new(),
            violations: Vec::new(),
            news: Arc::default(),
            scenario,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a time between these milliseconds.
    pub(super) async fn pause(&self, millis: std::ops::Range<u64>) {
        let wait = self.lock().rng.random_range(millis);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

impl World {
    /// Milliseconds since the run began; the database's clock.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).expect("a short run")
    }

    /// The moment at so many milliseconds.
    pub(super) fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// Whether something that happens so often in a thousand happens now.
    pub(super) fn happens(&mut self, rate: u32) -> bool {
        rate > 0 && self.rng.random_range(0..1000) < rate
    }

    pub(super) fn note(&mut self, step: Step) {
        let now = self.now().unsigned_abs();
        self.steps.push((now, step));
    }

    /// Something that must not be.
    pub(super) fn violated(&mut self, what: String) {
        let now = self.now();
        self.violations.push(format!("at {now} ms: {what}"));
        self.news.notify_one();
    }

    /// A number for the whole history: the same for two runs that did the same.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.steps.hash(&mut hasher);
        hasher.finish()
    }
}

const RUNNING: u8 = 0;
const FROZEN: u8 = 1;
const DEAD: u8 = 2;

/// One process: what it does to the outside passes here, so that it can be frozen and killed.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: usize,
    state: AtomicU8,
    thawed: Notify,
}

impl Process {
    pub(super) fn new(number: usize) -> Arc<Self> {
        Arc::new(Self { number, state: AtomicU8::new(RUNNING), thawed: Notify::new() })
    }

    /// Returns while the process runs, waits while it is frozen, and never returns once it is dead. Nothing
    /// that a dead process does is seen by anyone, which is what kill -9 means.
    pub(super) async fn pass(&self) {
        loop {
            let thawed = self.thawed.notified();
            match self.state.load(Memory::Relaxed) {
                RUNNING => return,
                FROZEN => thawed.await,
                _ => std::future::pending().await,
            }
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.state.load(Memory::Relaxed) == FROZEN
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state.load(Memory::Relaxed) == DEAD
    }

    pub(super) fn freeze(&self) {
        self.state.store(FROZEN, Memory::Relaxed);
    }

    pub(super) fn thaw(&self) {
        self.state.store(RUNNING, Memory::Relaxed);
        self.thawed.notify_waiters();
    }

    pub(super) fn kill(&self) {
        self.state.store(DEAD, Memory::Relaxed);
    }
}
