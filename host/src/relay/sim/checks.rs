//! What must hold of claims and settlements, checked as they happen.
//!
//! Told by the link, the broker, the plugin and the driver what has taken effect. It keeps its own books, so that
//! the table cannot hide its mistakes. What must hold of publications and at the end is in `order`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::broker::{HandOver, Sent};
use super::scenario::Script;
use super::world::{Database, Process, Step, World};
use crate::event::Ordering;
use crate::failure::{Cause, FailureKind};
use crate::retry::OnFailed;
use crate::sink::Receipt;
use crate::store::{Action, Batch, Settled, Settlement, Suspicion, Table, Token};

/// So often an event may kill before it must be found when nothing else goes wrong.
const MOST_KILLS: u32 = 12;
/// Losses alone in a process that convict.
const LONE_LOSSES: u32 = 3;

/// What is known of a committed event.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) script: Script,
    /// The order it stands in.
    pub(super) domain: Option<u8>,
    /// Whether its writer has put it off: that delays it and holds nothing.
    pub(super) scheduled: bool,
    /// Failures of its own so far.
    pub(super) failures: u32,
    /// Its records that have arrived.
    pub(super) arrived: BTreeSet<usize>,
    /// The claim under which it was settled as published.
    pub(super) published_by: Option<u64>,
    pub(super) lone_losses: u32,
    kills: u32,
}

/// What is claimed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Shard(i32),
    Row(i64),
}

/// A claim that has taken effect.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) process: usize,
    pub(super) suspicion: Suspicion,
    ordering: Ordering,
    at: i64,
    expires_at: i64,
    shard_of: BTreeMap<i64, i32>,
    /// Whether the process has learnt of it.
    answered: bool,
    /// Whether a settle of it has taken effect.
    pub(super) settled: bool,
    acknowledged: BTreeMap<i64, BTreeSet<usize>>,
    /// Records that have arrived under it.
    pub(super) arrived: BTreeSet<(i64, usize)>,
}

impl Claim {
    fn unit(&self, event: i64) -> Option<Unit> {
        let shard = self.shard_of.get(&event)?;
        Some(if self.ordering == Ordering::None { Unit::Row(event) } else { Unit::Shard(*shard) })
    }
}

/// The books.
#[derive(Default)]
pub(super) struct Checks {
    pub(super) events: BTreeMap<i64, Known>,
    pub(super) processes: Vec<Arc<Process>>,
    pub(super) claims: BTreeMap<u64, Claim>,
    tokens: HashMap<Token, u64>,
    holders: BTreeMap<Unit, u64>,
    /// Orders that wait, for which event and until when.
    waiting: BTreeMap<u8, (i64, i64)>,
    /// When something last kept a process from the database.
    troubled: BTreeMap<usize, i64>,
    /// When a process last went on that had been frozen.
    pub(super) thawed: BTreeMap<usize, i64>,
    /// When the database last went away or came back.
    pub(super) database_changed: Option<i64>,
    /// Batches that are being worked on, by process.
    working: BTreeMap<usize, BTreeSet<u64>>,
    /// The newest version that each process has published by.
    pub(super) newest: BTreeMap<usize, u64>,
}

impl Checks {
    pub(super) fn committed(
        &mut self,
        id: i64,
        script: Script,
        domain: Option<u8>,
        scheduled: bool,
    ) {
        let known = Known {
            failures: if script == Script::Unreadable { u32::MAX } else { 0 },
            script,
            domain,
            scheduled,
            arrived: BTreeSet::new(),
            published_by: None,
            lone_losses: 0,
            kills: 0,
        };
        self.events.insert(id, known);
    }

    /// What an event does, and the attempts that it has used.
    pub(super) fn script(&self, id: i64, table: &Table) -> Option<(Script, u32)> {
        let attempts = table.rows.get(&id)?.event.attempts;
        Some((self.events.get(&id)?.script.clone(), attempts))
    }

    /// An event has failed by itself.
    pub(super) fn failed(&mut self, id: i64) {
        if let Some(known) = self.events.get_mut(&id) {
            known.failures = known.failures.saturating_add(1);
        }
    }

    /// A process was kept from the database.
    pub(super) fn troubled(&mut self, process: usize, now: i64) {
        self.troubled.insert(process, now);
    }

    /// The process has learnt of its claim.
    pub(super) fn answered(&mut self, token: Token) {
        let number = self.tokens.get(&token);
        if let Some(claim) = number.and_then(|number| self.claims.get_mut(number)) {
            claim.answered = true;
        }
    }

    /// A suspect claim that a process still works on: it claims nothing beside it.
    fn suspect_of(&self, process: usize, database: Database) -> Option<u64> {
        let is_working = |claim: &Claim| {
            claim.process == process
                && claim.suspicion == Suspicion::Suspect
                && claim.answered
                && !claim.settled
                && !self.is_excused(claim, database)
        };
        self.claims.iter().find(|(_, claim)| is_working(claim)).map(|(number, _)| *number)
    }

    /// Whether a process works on a batch.
    pub(super) fn works(&self, process: usize) -> bool {
        self.working.get(&process).is_some_and(|working| !working.is_empty())
    }

    /// A batch is no longer worked on.
    pub(super) fn leaves(&mut self, token: Token) {
        let Some(number) = self.tokens.get(&token) else { return };
        self.working.values_mut().for_each(|working| _ = working.remove(number));
    }

    pub(super) fn has_arrived(&self, sent: &Sent) -> bool {
        let claim = self.claims.get(&sent.claim);
        claim.is_some_and(|claim| claim.arrived.contains(&(sent.event, sent.part)))
    }

    /// Whether a claim has lost its right to this event.
    pub(super) fn is_lost(&self, number: u64, event: i64) -> bool {
        let unit = self.claims.get(&number).and_then(|claim| claim.unit(event));
        unit.is_none_or(|unit| self.holders.get(&unit) != Some(&number))
    }

    /// Whether something explains that a claim was lost.
    fn is_excused(&self, claim: &Claim, database: Database) -> bool {
        let since = |when: Option<i64>| when.is_some_and(|when| when >= claim.at);
        let process = self.processes.get(claim.process);
        process.is_none_or(|process| process.is_dead() || process.is_frozen())
            || since(self.troubled.get(&claim.process).copied())
            || since(self.database_changed)
            || database != Database::Up
    }
}

impl World {
    /// A claim has taken effect; its number.
    pub(super) fn claimed(&mut self, process: usize, lease: Duration, batch: &Batch) -> u64 {
        let now = self.now();
        let number = u64::try_from(self.checks.claims.len()).expect("few") + 1;
        let claim = Claim {
            process,
            suspicion: batch.suspicion,
            ordering: batch.ordering,
            at: now,
            expires_at: now + millis(lease),
            shard_of: batch.events.iter().map(|event| (event.id.0, event.shard)).collect(),
            answered: false,
            settled: false,
            acknowledged: BTreeMap::new(),
            arrived: BTreeSet::new(),
        };
        let flag = match batch.suspicion {
            Suspicion::None => "",
            Suspicion::Suspect => "suspect",
            Suspicion::Convicted => "convicted",
        };
        let events: Vec<i64> = batch.events.iter().map(|event| event.id.0).collect();
        let units: BTreeSet<Unit> = events.iter().filter_map(|id| claim.unit(*id)).collect();
        self.note(Step::Claimed { process, claim: number, flag, events: events.clone() });
        self.checks.claims.insert(number, claim);
        self.checks.tokens.insert(batch.token, number);
        if batch.suspicion != Suspicion::None && batch.shards.len() > 1 {
            self.violated(format!("claim {number} is suspect and has company"));
        }
        if let Some(suspect) = self.checks.suspect_of(process, self.database) {
            self.violated(format!("claim {number} is taken beside suspect claim {suspect}"));
        }
        let mut lost = BTreeSet::new();
        for unit in &units {
            let Some(before) = self.checks.holders.insert(*unit, number) else { continue };
            let claim = &self.checks.claims[&before];
            let expires_at = claim.expires_at;
            if !claim.settled {
                lost.insert(before);
                if expires_at > now {
                    self.violated(format!("claims {before} and {number} both hold {unit:?}"));
                }
            }
        }
        lost.into_iter().for_each(|before| self.lost(before));
        for id in &events {
            self.check_claimed(number, *id, batch.suspicion);
        }
        number
    }

    fn check_claimed(&mut self, number: u64, id: i64, suspicion: Suspicion) {
        let now = self.now();
        let Some(known) = self.checks.events.get(&id) else {
            return self
                .violated(format!("claim {number} has event {id}, which was not committed"));
        };
        let waits = known.domain.and_then(|domain| self.checks.waiting.get(&domain)).copied();
        let (lone, published) = (known.lone_losses, known.published_by);
        if let Some((event, until)) = waits
            && until > now
        {
            self.violated(format!("claim {number} has event {id}, whose key waits for {event}"));
        }
        if let Some(by) = published {
            self.violated(format!("claim {number} has event {id}, which claim {by} has published"));
        }
        if suspicion == Suspicion::Convicted && lone < LONE_LOSSES {
            self.violated(format!("event {id} is convicted after {lone} losses of its own"));
        }
    }

    /// A claim was taken over by another.
    fn lost(&mut self, number: u64) {
        self.note(Step::Lost { claim: number });
        let claim = &self.checks.claims[&number];
        let excused = self.checks.is_excused(claim, self.database);
        let suspect = claim.suspicion == Suspicion::Suspect;
        if let Some(alone) = claim.shard_of.keys().next()
            && suspect
            && claim.shard_of.len() == 1
            && let Some(known) = self.checks.events.get_mut(alone)
        {
            known.lone_losses += 1;
        }
        if !excused {
            self.violated(format!("claim {number} was lost although nothing has gone wrong"));
        }
    }

    pub(super) fn renewed(&mut self, token: Token, lease: Duration, whole: bool) {
        let until = self.now() + millis(lease);
        let Some(number) = self.checks.tokens.get(&token).copied() else { return };
        self.note(Step::Renewed { claim: number, whole });
        if let Some(claim) = self.checks.claims.get_mut(&number) {
            claim.expires_at = until;
        }
    }

    /// A batch begins to be worked on: a suspect one alone in its process.
    pub(super) fn check_company(&mut self, number: u64) {
        let Some(claim) = self.checks.claims.get(&number) else { return };
        let (process, suspicion) = (claim.process, claim.suspicion);
        let working = self.checks.working.entry(process).or_default();
        working.insert(number);
        let others: Vec<u64> = working.iter().copied().filter(|one| *one != number).collect();
        let is_suspect = |one: &u64| self.checks.claims[one].suspicion == Suspicion::Suspect;
        let suspect = suspicion == Suspicion::Suspect || others.iter().any(is_suspect);
        if suspect && !others.is_empty() {
            self.violated(format!("suspect claims do not run alone: {number} beside {others:?}"));
        }
        if suspicion == Suspicion::Convicted {
            self.violated(format!("the convicted event of claim {number} is run"));
        }
    }

    pub(super) fn handed_over(&mut self, sent: &Sent, when: HandOver) {
        let Sent { claim: number, event, part, .. } = *sent;
        self.note(Step::HandedOver { claim: number, event, part });
        let left = self.checks.claims[&number].expires_at - self.now();
        let lost = self.checks.is_lost(number, event);
        let needed = millis(self.scenario.publish_timeout);
        if when == HandOver::AtOnce && (lost || left < needed) {
            self.violated(format!(
                "claim {number} hands over {event} with {left} ms left, lost: {lost}"
            ));
        }
    }

    pub(super) fn received(&mut self, sent: &Sent, receipt: &Receipt) {
        let Sent { claim, event, part, .. } = *sent;
        let what = match receipt {
            Receipt::Acknowledged => "acknowledged",
            Receipt::Refused(failure) => failure.cause.code(),
            Receipt::Unknown(_) => "unknown",
            Receipt::Unsent => "unsent",
        };
        self.note(Step::Receipt { claim, event, part, what });
        if let Some(claim) = self.checks.claims.get_mut(&claim)
            && *receipt == Receipt::Acknowledged
        {
            claim.acknowledged.entry(event).or_default().insert(part);
        }
    }

    /// A settle has taken effect.
    pub(super) fn settled(&mut self, token: Token, settlements: &[Settlement], settled: &Settled) {
        let Some(number) = self.checks.tokens.get(&token).copied() else {
            return self.violated("a settle under a token that nobody has".into());
        };
        let outcomes = settlements.iter().map(|one| (one.id.0, name(&one.action))).collect();
        self.note(Step::Settled { claim: number, outcomes, lost: settled.lost.len() });
        let again = self.checks.claims[&number].settled;
        for one in settlements {
            let lost = self.checks.is_lost(number, one.id.0);
            let written = !settled.lost.contains(&one.id);
            match (written, lost || again) {
                (true, true) => {
                    self.violated(format!("claim {number} is lost and writes to event {}", one.id));
                }
                (false, false) => {
                    self.violated(format!("claim {number} cannot write to its event {}", one.id));
                }
                (true, false) => self.check_outcome(number, one),
                (false, true) => {}
            }
        }
        if let Some(claim) = self.checks.claims.get_mut(&number) {
            claim.settled = true;
        }
    }

    fn check_outcome(&mut self, number: u64, one: &Settlement) {
        let id = one.id.0;
        let policy = self.scenario.lane.retry.clone();
        let attempts = self.table.rows.get(&id).map_or(0, |row| row.event.attempts);
        let claim = &self.checks.claims[&number];
        let convicted = claim.suspicion == Suspicion::Convicted;
        let acknowledged = claim.acknowledged.get(&id).map_or(0, BTreeSet::len);
        let Some(known) = self.checks.events.get_mut(&id) else { return };
        let records = known.script.records();
        // Time goes on while a process is frozen, also that which a sink has to let go: then what it has
        // said is not heard.
        let frozen = self.checks.thawed.get(&claim.process).is_some_and(|when| *when >= claim.at);
        let all = records > 0 && acknowledged == records;
        let exhausted = known.failures >= policy.max_attempts && attempts >= policy.max_attempts;
        let fine = match &one.action {
            Action::Published => {
                known.published_by = Some(number);
                acknowledged == records
                    && known.arrived.len() == records
                    && !matches!(known.script, Script::Drop | Script::Kill | Script::Unreadable)
            }
            Action::Dropped(_) => known.script == Script::Drop,
            Action::Retry { failure, .. } => failure.kind() == FailureKind::Event && !all,
            Action::Wait { failure, .. } => failure.kind() == FailureKind::Destination && !all,
            Action::Park(failure) if failure.cause == Cause::ProcessCrash => convicted,
            Action::Park(failure) => {
                failure.kind() == FailureKind::Event
                    && exhausted
                    && !all
                    // What stands in no order has nothing to halt.
                    && (policy.on_failed == OnFailed::Park || known.domain.is_none())
            }
            Action::Halt(_) => {
                exhausted && !all && policy.on_failed == OnFailed::HaltKey && known.domain.is_some()
            }
            Action::Release => !all || frozen,
        };
        let failures = known.failures;
        let domain = known.domain;
        if !fine {
            self.violated(format!(
                "event {id} is settled as {:?} with {acknowledged} of {records} acknowledged, {failures} failures",
                one.action
            ));
        }
        if attempts > failures && !convicted {
            self.violated(format!(
                "event {id} has used {attempts} attempts in {failures} failures"
            ));
        }
        self.note_waiting(domain, one);
    }

    fn note_waiting(&mut self, domain: Option<u8>, one: &Settlement) {
        let (now, id) = (self.now(), one.id.0);
        let Some(domain) = domain else { return };
        let until = match one.action {
            Action::Retry { after, .. } | Action::Wait { after, .. } => now + millis(after),
            Action::Halt(_) => i64::MAX,
            Action::Published | Action::Dropped(_) | Action::Park(_) => {
                if self.checks.waiting.get(&domain).is_some_and(|(event, _)| *event == id) {
                    self.checks.waiting.remove(&domain);
                }
                return;
            }
            Action::Release => return,
        };
        self.checks.waiting.insert(domain, (id, until));
    }

    /// A process has stopped in good order: unless it was kept from it, it has given everything back.
    pub(super) fn check_stopped(&mut self, process: usize) {
        let is_kept = |claim: &Claim| {
            let explained = self.checks.is_excused(claim, self.database);
            claim.process == process && !claim.settled && !explained
        };
        let kept = self.checks.claims.iter().find(|(_, claim)| is_kept(claim));
        if let Some((number, _)) = kept {
            let what = format!("process {process} has stopped and keeps claim {number}");
            self.violated(what);
        }
    }

    /// An event has killed the process that worked on it.
    pub(super) fn killed_by(&mut self, event: i64, process: &Process) {
        process.kill();
        self.note(Step::Died { process: process.number });
        let peaceful = self.scenario.peaceful;
        let Some(known) = self.checks.events.get_mut(&event) else { return };
        known.kills += 1;
        if peaceful && known.kills > MOST_KILLS {
            self.violated(format!("event {event} has killed {MOST_KILLS} times and is still run"));
        }
        self.news.notify_one();
    }
}

/// An action's name in the history.
fn name(action: &Action) -> &'static str {
    match action {
        Action::Published => "published",
        Action::Dropped(_) => "dropped",
        Action::Retry { .. } => "retry",
        Action::Wait { .. } => "wait",
        Action::Park(_) => "park",
        Action::Halt(_) => "halt",
        Action::Release => "release",
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).expect("a short span")
}
