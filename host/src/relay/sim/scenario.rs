//! What one run is: settings, faults, writers and what each event will do, all drawn from the seed.
//!
//! Drawn once, before the run begins. Decides nothing while it runs.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use crate::event::Ordering;
use crate::failure::Cause;
use crate::relay::LaneConfig;
use crate::retry::{OnFailed, RetryPolicy};

/// The time in which things happen; afterwards all faults are healed. Milliseconds.
const SHORTEST_SPAN: u64 = 6_000;
const LONGEST_SPAN: u64 = 25_000;

/// What becomes of an event that is worked on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Script {
    /// It is published, as so many records.
    Deliver(usize),
    /// It needs no plugin: the row says where it goes.
    Row,
    /// The plugin drops it.
    Drop,
    /// It fails in this way as long as it has used fewer attempts, and is one record then.
    Fail(Cause, u32),
    /// The broker refuses the last of so many records, as long as fewer attempts are used.
    Refused(Cause, usize, u32),
    /// The row cannot be read.
    Unreadable,
    /// It kills the process that works on it.
    Kill,
}

impl Script {
    /// The records of an attempt that succeeds.
    pub(super) fn records(&self) -> usize {
        match self {
            Self::Deliver(records) | Self::Refused(_, records, _) => *records,
            Self::Row | Self::Fail(..) => 1,
            Self::Drop | Self::Unreadable | Self::Kill => 0,
        }
    }
}

/// One event of a writer.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// `None` has no order.
    pub(super) key: Option<u8>,
    pub(super) script: Script,
    /// Due so long after its commit; 0 is at once.
    pub(super) delay: i64,
}

/// One transaction of a writer.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) begins: u64,
    pub(super) takes: u64,
    pub(super) commits: bool,
    pub(super) events: Vec<Draft>,
}

/// When something is done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Aim {
    /// At its time.
    Blind,
    /// From its time on, as soon as the process works on a batch.
    AtWork,
}

/// Something that is done to the relay or to what it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The process dies at once, and comes back after so long.
    Kill(usize, u64, Aim),
    /// The process is frozen for so long.
    Freeze(usize, u64, Aim),
    /// The process is asked to stop, is given up on after so long, and comes back.
    Shutdown(usize, Option<u64>),
    /// The database refuses, or does not answer, for so long.
    DatabaseDown { silent: bool, lasts: u64 },
    /// The broker does not answer for so long.
    BrokerDown(u64),
    /// A topic cannot be used for so long.
    TopicBad { topic: usize, cause: Cause, lasts: u64 },
    /// New rules and plugins.
    Reload,
}

/// How often, in a thousand, something goes wrong by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// A call to the database fails before it has any effect.
    pub(super) lost_calls: u32,
    /// The answer of a call is lost, its effect is not.
    pub(super) lost_answers: u32,
    /// A settle is refused as it stands.
    pub(super) refused_settles: u32,
    /// It is not known of a record whether it has arrived.
    pub(super) unknown: u32,
    /// The broker refuses a record.
    pub(super) refused: u32,
    /// The process is late between asking the fence and handing over.
    pub(super) late_hand_overs: u32,
    /// A plugin takes longer than a lease.
    pub(super) slow_plugins: u32,
}

/// One run.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) lane: LaneConfig,
    pub(super) shards: i32,
    pub(super) processes: usize,
    /// Records of a slot that are with the broker at once.
    pub(super) window: usize,
    /// How long the fate of a record can be unknown.
    pub(super) publish_timeout: Duration,
    pub(super) transforms: usize,
    /// How many times longer than usual plugins and broker take.
    pub(super) pace: u64,
    pub(super) rates: Rates,
    pub(super) transactions: Vec<Transaction>,
    pub(super) actions: Vec<(u64, Action)>,
    /// When all faults are healed.
    pub(super) span: u64,
    /// Whether nothing but events of their own makes processes die or lose leases.
    pub(super) peaceful: bool,
}

/// Topics that plugins publish to.
pub(super) const TOPICS: usize = 3;

impl Scenario {
    /// The run of a seed.
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        let span = rng.random_range(SHORTEST_SPAN..LONGEST_SPAN);
        let ordering = match rng.random_range(0..20) {
            0..15 => Ordering::Key,
            15..18 => Ordering::None,
            _ => Ordering::Total,
        };
        let in_flight = rng.random_range(1..=4);
        let processes = rng.random_range(1..=4);
        let peaceful = rng.random_bool(0.15);
        let lane = lane(rng, ordering, in_flight);
        let rates = if peaceful { Rates::none() } else { Rates::draw(rng) };
        let transactions = transactions(rng, ordering, span, peaceful);
        let actions =
            if peaceful { reloads(rng, span) } else { actions(rng, span, processes, in_flight) };
        Self {
            shards: rng.random_range(1..=4),
            processes,
            window: [1, 1, 2, 4, 16][rng.random_range(0..5)],
            publish_timeout: lane.lease / 2 - Duration::from_millis(100),
            transforms: rng.random_range(1..=3),
            pace: [1, 1, 3, 8][rng.random_range(0..4)],
            rates,
            transactions,
            actions,
            span,
            peaceful,
            lane,
        }
    }
}

impl Scenario {
    /// The settings in one line, for people.
    pub(super) fn summary(&self) -> String {
        let Self { shards, processes, window, publish_timeout, rates, lane, peaceful, .. } = self;
        format!(
            "{processes} processes, {shards} shards, window {window}, publish timeout \
             {publish_timeout:?}, peaceful {peaceful}, {lane:?}, {rates:?}"
        )
    }
}

impl Rates {
    pub(super) fn none() -> Self {
        Self {
            lost_calls: 0,
            lost_answers: 0,
            refused_settles: 0,
            unknown: 0,
            refused: 0,
            late_hand_overs: 0,
            slow_plugins: 0,
        }
    }

    fn draw(rng: &mut StdRng) -> Self {
        let mut some =
            |most: u32| if rng.random_bool(0.5) { rng.random_range(0..=most) } else { 0 };
        Self {
            lost_calls: some(50),
            lost_answers: some(80),
            refused_settles: some(40),
            unknown: some(80),
            refused: some(60),
            late_hand_overs: some(60),
            slow_plugins: some(60),
        }
    }
}

fn lane(rng: &mut StdRng, ordering: Ordering, in_flight: usize) -> LaneConfig {
    let halts = rng.random_bool(0.2);
    LaneConfig {
        ordering,
        batch_rows: [1, 3, 8, 30, 100][rng.random_range(0..5)],
        in_flight,
        lease: Duration::from_millis(rng.random_range(2_000..5_000)),
        poll_interval: Duration::from_millis(rng.random_range(200..1_500)),
        retry: RetryPolicy {
            max_attempts: rng.random_range(1..=4),
            first_backoff: Duration::from_millis(rng.random_range(100..1_000)),
            max_backoff: Duration::from_secs(2),
            on_failed: if halts { OnFailed::HaltKey } else { OnFailed::Park },
        },
        ..LaneConfig::default()
    }
}

fn transactions(
    rng: &mut StdRng,
    ordering: Ordering,
    span: u64,
    peaceful: bool,
) -> Vec<Transaction> {
    let keys = rng.random_range(1..=6_u8);
    let keyless = rng.random_bool(0.3) && ordering != Ordering::Total;
    let trouble = [0.0, 0.1, 0.4][rng.random_range(0..3)];
    let mut killers = u32::from(rng.random_bool(if peaceful { 0.5 } else { 0.15 }));
    // Some runs have all their work at the start, others get it bit by bit.
    let until = if rng.random_bool(0.4) { 1_000 } else { span * 3 / 4 };
    let count = rng.random_range(4..30);
    let mut drafts = |rng: &mut StdRng| {
        let count = rng.random_range(1..4);
        let mut draft = |_| {
            let key = if keyless && rng.random_bool(0.2) {
                None
            } else {
                Some(rng.random_range(0..keys))
            };
            let script = match killers {
                1.. if rng.random_bool(0.05) => {
                    killers -= 1;
                    Script::Kill
                }
                _ => script(rng, trouble),
            };
            let delay = if rng.random_bool(0.05) { rng.random_range(0..5_000) } else { 0 };
            Draft { key, script, delay }
        };
        (0..count).map(&mut draft).collect::<Vec<_>>()
    };
    let mut transactions: Vec<Transaction> = (0..count)
        .map(|_| Transaction {
            begins: rng.random_range(0..until),
            takes: if rng.random_bool(0.2) {
                rng.random_range(0..800)
            } else {
                rng.random_range(0..15)
            },
            commits: rng.random_bool(0.9),
            events: drafts(rng),
        })
        .collect();
    transactions.sort_by_key(|one| one.begins);
    transactions
}

fn script(rng: &mut StdRng, trouble: f64) -> Script {
    if !rng.random_bool(trouble) {
        return match rng.random_range(0..10) {
            0..5 => Script::Deliver(1),
            5..7 => Script::Deliver(rng.random_range(2..4)),
            7 => Script::Deliver(0),
            8 => Script::Row,
            _ => Script::Drop,
        };
    }
    let attempts = if rng.random_bool(0.4) { u32::MAX } else { rng.random_range(1..4) };
    match rng.random_range(0..8) {
        0 | 1 => Script::Fail(Cause::PluginRejected, attempts),
        2 | 3 => Script::Fail(Cause::PluginRetry, attempts),
        4 => Script::Fail(Cause::PluginTrap, attempts),
        5 => Script::Refused(Cause::RecordTooLarge, rng.random_range(1..4), attempts),
        6 => Script::Refused(Cause::RecordRefused, rng.random_range(1..4), attempts),
        _ => Script::Unreadable,
    }
}

fn reloads(rng: &mut StdRng, span: u64) -> Vec<(u64, Action)> {
    let most = if rng.random_bool(0.3) { 20 } else { 3 };
    let count = rng.random_range(0..most);
    let mut actions: Vec<(u64, Action)> =
        (0..count).map(|_| (rng.random_range(0..span), Action::Reload)).collect();
    actions.sort_by_key(|(at, _)| *at);
    actions
}

fn actions(rng: &mut StdRng, span: u64, processes: usize, in_flight: usize) -> Vec<(u64, Action)> {
    // Each run has some sorts of faults and not the others, so that each is also seen by itself.
    let sorts: Vec<u32> = (0..7).filter(|_| rng.random_bool(0.4)).collect();
    let mut actions = reloads(rng, span);
    for _ in 0..rng.random_range(0..10) {
        let Some(sort) = sorts.get(rng.random_range(0..sorts.len().max(1))) else { break };
        let which = rng.random_range(0..processes);
        let lasts = rng.random_range(50..6_000);
        let aim = if rng.random_bool(0.6) { Aim::AtWork } else { Aim::Blind };
        let action = match sort {
            0 | 1 => Action::Kill(which, rng.random_range(10..3_000), aim),
            2 => Action::Freeze(which, rng.random_range(500..9_000), aim),
            // Giving up wakes all batches at once, in an order that the runtime does not promise.
            3 => Action::Shutdown(which, (in_flight == 1).then_some(lasts / 4)),
            4 => Action::DatabaseDown { silent: rng.random_bool(0.5), lasts },
            5 => Action::BrokerDown(lasts),
            _ => {
                let causes =
                    [Cause::TopicUnknown, Cause::TopicUnauthorised, Cause::TopicRefusesRecord];
                let cause = causes[rng.random_range(0..causes.len())];
                Action::TopicBad { topic: rng.random_range(0..TOPICS), cause, lasts }
            }
        };
        actions.push((rng.random_range(0..span), action));
    }
    actions.sort_by_key(|(at, _)| *at);
    actions
}
