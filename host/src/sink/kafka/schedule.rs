//! Which records of a publish call may be handed over now. Pure: no clock, no client, no lock.
//!
//! The rules, per slot:
//! 1. Records go out in the order given; after the first that did not succeed, none does.
//! 2. A record may join those of its slot that are still undecided only if all of them go to the
//!    same place (one producer, one partition: the broker then keeps their order), or all belong
//!    to the same event (there is no order among those). With `PerKeySync` only the latter.
//! 3. A careful record, one that a producer gave back because of some other record's refusal, and
//!    each record behind one, goes out only when nothing of its slot is undecided.
//! 4. Nothing of an event goes out before all its records have passed their checks and know their
//!    place; if one has not passed, it is refused, and the others are not sent.
//!
//! Whether a partition takes a record at present is the producer's business: the caller says
//! `gated` and later `reopen`.

use std::collections::{HashMap, VecDeque};

use crate::failure::Failure;
use crate::sink::{PublishMode, Receipt};

/// Where a record goes, and through which producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The topic, by the number the topic cache gave it.
    pub(super) topic: u32,
    pub(super) partition: i32,
    /// Through the careful producer, alone in its batch.
    pub(super) careful: bool,
}

/// A record that may be handed over now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) index: usize,
    pub(super) target: Target,
}

#[derive(Debug)]
enum Plan {
    /// Its topic is still being looked up.
    Open,
    Target(Target),
    /// It will not be sent; this is its receipt when its turn comes.
    Reject(Receipt),
}

#[derive(Debug)]
enum State {
    Waiting,
    Out,
    Done(Receipt),
}

#[derive(Debug)]
struct Entry {
    slot: usize,
    /// Its position within the slot.
    place: usize,
    /// The event, as an index into `groups`.
    group: usize,
    plan: Plan,
    state: State,
    /// Handed over once, and given back without a word on whether it was appended.
    exposed: bool,
}

/// The records of one event.
#[derive(Debug, Default)]
struct Group {
    open: usize,
    rejected: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    None,
    Ready,
    Gated,
}

#[derive(Debug)]
struct Slot {
    records: Vec<usize>,
    /// Everything before this place is decided or out.
    cursor: usize,
    out: usize,
    /// What all undecided records have in common, as long as they do.
    out_target: Option<Target>,
    out_group: Option<usize>,
    /// The receipt that stopped the slot.
    stopped: Option<Receipt>,
    queue: Queue,
}

/// The records of one publish call and what is known about each.
#[derive(Debug)]
pub(super) struct Schedule {
    mode: PublishMode,
    entries: Vec<Entry>,
    groups: Vec<Group>,
    slots: Vec<Slot>,
    ready: VecDeque<usize>,
    gated: Vec<usize>,
    out: usize,
    open: usize,
}

enum Look {
    Go(Candidate),
    Reject(usize),
    Wait,
}

impl Schedule {
    /// A schedule for records given as (slot, event), in order.
    pub(super) fn new(records: impl Iterator<Item = (u32, u32)>, mode: PublishMode) -> Self {
        let mut schedule = Self {
            mode,
            entries: Vec::with_capacity(records.size_hint().0),
            groups: Vec::new(),
            slots: Vec::new(),
            ready: VecDeque::new(),
            gated: Vec::new(),
            out: 0,
            open: 0,
        };
        let mut dense = HashMap::new();
        let mut last = None;
        for (slot, event) in records {
            let index = schedule.entries.len();
            if last.replace((slot, event)) != Some((slot, event)) {
                schedule.groups.push(Group::default());
            }
            let group = schedule.groups.len() - 1;
            schedule.groups[group].open += 1;
            let slot = *dense.entry(slot).or_insert(schedule.slots.len());
            if slot == schedule.slots.len() {
                schedule.slots.push(Slot::new());
            }
            let place = schedule.slots[slot].records.len();
            schedule.slots[slot].records.push(index);
            schedule.entries.push(Entry {
                slot,
                place,
                group,
                plan: Plan::Open,
                state: State::Waiting,
                exposed: false,
            });
        }
        schedule.open = schedule.entries.len();
        schedule
    }

    /// Says where record `index` goes.
    pub(super) fn assign(&mut self, index: usize, target: Target) {
        self.plan(index, Plan::Target(target));
    }

    /// Says that record `index` will not be sent, and what its receipt is when its turn comes.
    pub(super) fn reject(&mut self, index: usize, receipt: Receipt) {
        if matches!(self.entries[index].state, State::Waiting) {
            let group = self.entries[index].group;
            self.groups[group].rejected.get_or_insert(index);
            self.plan(index, Plan::Reject(receipt));
        }
    }

    /// The next record that may be handed over. Asks for the same again until told what became
    /// of it.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        while let Some(&slot) = self.ready.front() {
            match self.look(slot) {
                Look::Go(candidate) => return Some(candidate),
                Look::Reject(index) => {
                    let plan = std::mem::replace(&mut self.entries[index].plan, Plan::Open);
                    if let Plan::Reject(receipt) = plan {
                        self.stop(index, receipt);
                    }
                }
                Look::Wait => {}
            }
            self.ready.pop_front();
            self.slots[slot].queue = Queue::None;
        }
        None
    }

    /// Record `index` was handed over to the producer of its target.
    pub(super) fn sent(&mut self, index: usize) {
        let Plan::Target(target) = self.entries[index].plan else {
            return;
        };
        let entry = &mut self.entries[index];
        entry.state = State::Out;
        let slot = &mut self.slots[entry.slot];
        if slot.out == 0 {
            slot.out_target = Some(target);
            slot.out_group = Some(entry.group);
        } else {
            // What they no longer have in common is forgotten until all are decided: a little
            // less overlap, and no list to search.
            slot.out_target = slot.out_target.filter(|common| *common == target);
            slot.out_group = slot.out_group.filter(|common| *common == entry.group);
        }
        slot.out += 1;
        self.out += 1;
    }

    /// The partition of record `index` takes nothing at present.
    pub(super) fn gated(&mut self, index: usize) {
        let slot = self.entries[index].slot;
        if self.ready.front() == Some(&slot) {
            self.ready.pop_front();
            self.slots[slot].queue = Queue::Gated;
            self.gated.push(slot);
        }
    }

    /// Partitions may take records again.
    pub(super) fn reopen(&mut self) {
        for slot in std::mem::take(&mut self.gated) {
            self.slots[slot].queue = Queue::None;
            self.enqueue(slot);
        }
    }

    /// Record `index` is acknowledged.
    pub(super) fn acked(&mut self, index: usize) {
        self.land(index);
        self.entries[index].state = State::Done(Receipt::Acknowledged);
    }

    /// Record `index` did not succeed; its slot stops.
    pub(super) fn failed(&mut self, index: usize, receipt: Receipt) {
        self.land(index);
        self.stop(index, receipt);
    }

    /// Record `index` came back undecided because of something else, and is to be sent again,
    /// carefully.
    pub(super) fn returned(&mut self, index: usize) {
        self.land(index);
        let entry = &mut self.entries[index];
        entry.state = State::Waiting;
        entry.exposed = true;
        if let Plan::Target(target) = &mut entry.plan {
            target.careful = true;
        }
        let slot = &mut self.slots[entry.slot];
        slot.cursor = slot.cursor.min(entry.place);
    }

    /// Sends what still waits for `topic` carefully from now on.
    pub(super) fn take_care(&mut self, topic: u32) {
        for entry in &mut self.entries {
            if let (State::Waiting, Plan::Target(target)) = (&entry.state, &mut entry.plan)
                && target.topic == topic
            {
                target.careful = true;
            }
        }
    }

    /// Where record `index` goes, once that is known.
    pub(super) fn target(&self, index: usize) -> Option<Target> {
        match &self.entries[index].plan {
            Plan::Target(target) => Some(*target),
            Plan::Open | Plan::Reject(_) => None,
        }
    }

    /// The records that are handed over and undecided.
    pub(super) fn undecided(&self) -> Vec<usize> {
        let out = |entry: &Entry| matches!(entry.state, State::Out);
        (0..self.entries.len()).filter(|&index| out(&self.entries[index])).collect()
    }

    /// How many are handed over and undecided.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Whether nothing is undecided and nothing more can be handed over. Ask after [`Self::next`]
    /// has said `None`.
    pub(super) fn finished(&self) -> bool {
        self.out == 0 && self.open == 0 && self.ready.is_empty() && self.gated.is_empty()
    }

    /// The receipts. `cut` says why the call ended before its end, if it did: it is the failure of
    /// records that were handed over once and could not be sent again.
    pub(super) fn receipts(self, cut: &Failure) -> Vec<Receipt> {
        let slots = self.slots;
        self.entries
            .into_iter()
            .map(|entry| match entry.state {
                State::Done(receipt) => receipt,
                State::Out => Receipt::Unknown(cut.clone()),
                State::Waiting if entry.exposed => match &slots[entry.slot].stopped {
                    // Its predecessor is not in the topic, so the broker, which counts the
                    // sequence of a producer, cannot have taken this one either. (It may have
                    // taken one of the refused event itself, in another partition; the whole
                    // event is retried anyway.)
                    Some(Receipt::Refused(_)) => Receipt::Unsent,
                    Some(Receipt::Unknown(failure)) => Receipt::Unknown(failure.clone()),
                    Some(Receipt::Acknowledged | Receipt::Unsent) | None => {
                        Receipt::Unknown(cut.clone())
                    }
                },
                State::Waiting => Receipt::Unsent,
            })
            .collect()
    }

    /// Stops what waits: the first record of each slot gets `receipt`, unless its slot has
    /// stopped already.
    pub(super) fn stop_waiting(&mut self, receipt: &Receipt) {
        for slot in 0..self.slots.len() {
            if let Some(index) = self.first_waiting(slot)
                && self.slots[slot].stopped.is_none()
            {
                self.stop(index, receipt.clone());
            }
        }
    }

    fn plan(&mut self, index: usize, plan: Plan) {
        let entry = &mut self.entries[index];
        if matches!(entry.plan, Plan::Open) {
            self.groups[entry.group].open -= 1;
            self.open -= 1;
        }
        entry.plan = plan;
        let slot = entry.slot;
        self.enqueue(slot);
    }

    /// Record `index` is no longer undecided at a producer.
    fn land(&mut self, index: usize) {
        if !matches!(self.entries[index].state, State::Out) {
            return;
        }
        let slot = self.entries[index].slot;
        self.slots[slot].out -= 1;
        self.out -= 1;
        self.enqueue(slot);
    }

    fn stop(&mut self, index: usize, receipt: Receipt) {
        let slot = self.entries[index].slot;
        self.slots[slot].stopped.get_or_insert_with(|| receipt.clone());
        self.entries[index].state = State::Done(receipt);
    }

    fn enqueue(&mut self, slot: usize) {
        if self.slots[slot].queue == Queue::None {
            self.slots[slot].queue = Queue::Ready;
            self.ready.push_back(slot);
        }
    }

    fn first_waiting(&mut self, slot: usize) -> Option<usize> {
        let state = &mut self.slots[slot];
        while let Some(&index) = state.records.get(state.cursor) {
            if matches!(self.entries[index].state, State::Waiting) {
                return Some(index);
            }
            state.cursor += 1;
        }
        None
    }

    fn look(&mut self, slot: usize) -> Look {
        if self.slots[slot].stopped.is_some() {
            return Look::Wait;
        }
        let Some(index) = self.first_waiting(slot) else {
            return Look::Wait;
        };
        let state = &self.slots[slot];
        let entry = &self.entries[index];
        let group = &self.groups[entry.group];
        if group.open > 0 {
            return Look::Wait;
        }
        if let Some(rejected) = group.rejected {
            // Only once its predecessors are acknowledged: until then it may be their turn to stop
            // the slot.
            return if state.out == 0 { Look::Reject(rejected) } else { Look::Wait };
        }
        let Plan::Target(target) = entry.plan else {
            return Look::Wait;
        };
        if state.may_join(target, entry.group, self.mode) {
            Look::Go(Candidate { index, target })
        } else {
            Look::Wait
        }
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            records: Vec::new(),
            cursor: 0,
            out: 0,
            out_target: None,
            out_group: None,
            stopped: None,
            queue: Queue::None,
        }
    }

    fn may_join(&self, target: Target, group: usize, mode: PublishMode) -> bool {
        if self.out == 0 {
            return true;
        }
        if target.careful || self.out_target.is_some_and(|common| common.careful) {
            return false;
        }
        if self.out_group == Some(group) {
            return true;
        }
        match mode {
            PublishMode::PerKeySync => false,
            PublishMode::Pipelined => self.out_target == Some(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;
    use crate::failure::Cause;

    fn refusal() -> Receipt {
        Receipt::Refused(Failure::new(Cause::RecordTooLarge, "x"))
    }

    fn cut() -> Failure {
        Failure::new(Cause::LeaseEnding, "x")
    }

    fn place(topic: u32, partition: i32) -> Target {
        Target { topic, partition, careful: false }
    }

    /// A schedule of (slot, event, partition) records, all of one topic.
    fn plan(records: &[(u32, u32, i32)], mode: PublishMode) -> Schedule {
        let mut schedule = Schedule::new(records.iter().map(|(s, e, _)| (*s, *e)), mode);
        for (index, (_, _, partition)) in records.iter().enumerate() {
            schedule.assign(index, place(0, *partition));
        }
        schedule
    }

    /// Hands over all it offers.
    fn pump(schedule: &mut Schedule) -> Vec<usize> {
        let mut sent = Vec::new();
        while let Some(candidate) = schedule.next() {
            schedule.sent(candidate.index);
            sent.push(candidate.index);
        }
        sent
    }

    #[test]
    fn a_key_is_pipelined_to_its_partition() {
        let mut schedule = plan(&[(0, 0, 1), (0, 1, 1), (0, 2, 1)], PublishMode::Pipelined);
        assert_eq!(pump(&mut schedule), [0, 1, 2]);
    }

    #[test]
    fn per_key_sync_sends_one_event_of_a_slot_at_a_time() {
        let records = [(0, 0, 1), (0, 0, 2), (0, 1, 1), (7, 2, 1)];
        let mut schedule = plan(&records, PublishMode::PerKeySync);
        assert_eq!(pump(&mut schedule), [0, 1, 3]);
        schedule.acked(1);
        assert!(pump(&mut schedule).is_empty());
        schedule.acked(0);
        assert_eq!(pump(&mut schedule), [2]);
    }

    #[test]
    fn another_partition_waits_for_the_acknowledgement() {
        let mut schedule = plan(&[(0, 0, 1), (0, 1, 2), (0, 2, 2)], PublishMode::Pipelined);
        assert_eq!(pump(&mut schedule), [0]);
        schedule.acked(0);
        assert_eq!(pump(&mut schedule), [1, 2]);
    }

    #[test]
    fn an_event_waits_until_all_its_records_know_their_place() {
        let mut schedule =
            Schedule::new([(0, 0), (0, 0), (1, 1)].into_iter(), PublishMode::Pipelined);
        schedule.assign(0, place(0, 0));
        schedule.assign(2, place(0, 0));
        assert_eq!(pump(&mut schedule), [2]);
        assert!(!schedule.finished());
        schedule.assign(1, place(1, 0));
        assert_eq!(pump(&mut schedule), [0, 1]);
    }

    #[test]
    fn a_record_that_fails_its_check_stops_its_event_and_its_slot() {
        let records = [(0, 0, 0), (0, 1, 0), (0, 1, 0), (0, 2, 0), (1, 3, 0)];
        let mut schedule = plan(&records, PublishMode::Pipelined);
        schedule.reject(2, refusal());
        assert_eq!(pump(&mut schedule), [0, 4]);
        schedule.acked(0);
        schedule.acked(4);
        assert!(pump(&mut schedule).is_empty());
        assert!(schedule.finished());
        let unsent = Receipt::Unsent;
        assert_eq!(
            schedule.receipts(&cut()),
            [Receipt::Acknowledged, unsent.clone(), refusal(), unsent, Receipt::Acknowledged]
        );
    }

    #[test]
    fn a_rejection_behind_a_failure_is_not_reported() {
        let mut schedule = plan(&[(0, 0, 0), (0, 1, 0)], PublishMode::Pipelined);
        schedule.reject(1, refusal());
        assert_eq!(pump(&mut schedule), [0]);
        let lost = Receipt::Unknown(cut());
        schedule.failed(0, lost.clone());
        assert!(pump(&mut schedule).is_empty());
        assert_eq!(schedule.receipts(&cut()), [lost, Receipt::Unsent]);
    }

    #[test]
    fn returned_records_go_again_one_by_one_and_in_order() {
        let mut schedule = plan(&[(0, 0, 0), (0, 1, 0), (0, 2, 0)], PublishMode::Pipelined);
        assert_eq!(pump(&mut schedule), [0, 1, 2]);
        schedule.returned(1);
        assert!(pump(&mut schedule).is_empty(), "others of the slot are undecided");
        schedule.returned(0);
        schedule.returned(2);
        for index in 0..3 {
            assert_eq!(pump(&mut schedule), [index]);
            schedule.acked(index);
        }
        assert_eq!(schedule.receipts(&cut()), vec![Receipt::Acknowledged; 3]);
    }

    #[test]
    fn what_came_back_is_unsent_behind_a_refusal_and_unknown_behind_a_cut() {
        let records = [(0, 0, 0), (0, 1, 0), (1, 2, 0), (1, 3, 0)];
        let mut schedule = plan(&records, PublishMode::Pipelined);
        pump(&mut schedule);
        for index in 0..4 {
            schedule.returned(index);
        }
        schedule.next();
        schedule.sent(0);
        schedule.failed(0, refusal());
        let unknown = Receipt::Unknown(cut());
        assert_eq!(
            schedule.receipts(&cut()),
            [refusal(), Receipt::Unsent, unknown.clone(), unknown]
        );
    }

    #[test]
    fn a_closed_partition_holds_only_its_own_slots() {
        let mut schedule = plan(&[(0, 0, 0), (1, 1, 1)], PublishMode::Pipelined);
        let first = schedule.next().unwrap();
        schedule.gated(first.index);
        assert_eq!(pump(&mut schedule), [1]);
        schedule.acked(1);
        assert!(!schedule.finished());
        schedule.reopen();
        assert_eq!(pump(&mut schedule), [0]);
    }

    /// A cluster with partitions that append in order, refuse some records, and refuse what comes
    /// behind a refused record of the same producer, as brokers do that know its sequence.
    struct Model {
        schedule: Schedule,
        records: Vec<(u32, u32, Target)>,
        poison: Vec<bool>,
        /// Handed over and not yet appended, per partition, in order.
        wires: HashMap<(u32, i32), VecDeque<(usize, bool)>>,
        log: Vec<usize>,
    }

    impl Model {
        fn new(random: &mut StdRng) -> Self {
            let slots = random.random_range(1..5);
            let mut records = Vec::new();
            for event in 0..random.random_range(1..30) {
                let slot = random.random_range(0..slots);
                for _ in 0..random.random_range(1..3) {
                    let target = place(random.random_range(0..2), random.random_range(0..2));
                    records.push((slot, event, target));
                }
            }
            let mode = if random.random_bool(0.3) {
                PublishMode::PerKeySync
            } else {
                PublishMode::Pipelined
            };
            let poison = records.iter().map(|_| random.random_bool(0.05)).collect();
            let schedule = Schedule::new(records.iter().map(|(s, e, _)| (*s, *e)), mode);
            Self { schedule, records, poison, wires: HashMap::new(), log: Vec::new() }
        }

        fn run(&mut self, random: &mut StdRng) {
            let mut unplanned: Vec<usize> = (0..self.records.len()).collect();
            for _ in 0..100_000 {
                self.hand_over(random);
                if !unplanned.is_empty() && random.random_bool(0.5) {
                    let index = unplanned.swap_remove(random.random_range(0..unplanned.len()));
                    if random.random_bool(0.02) {
                        self.schedule.reject(index, refusal());
                    } else {
                        self.schedule.assign(index, self.records[index].2);
                    }
                }
                self.append(random);
                if random.random_bool(0.5) {
                    self.schedule.reopen();
                    while let Some(next) = self.schedule.next() {
                        self.schedule.gated(next.index);
                    }
                    if unplanned.is_empty() && self.schedule.out() == 0 {
                        self.schedule.reopen();
                        if self.schedule.next().is_none() && self.schedule.finished() {
                            return;
                        }
                    }
                }
            }
            panic!("it never came to an end");
        }

        fn hand_over(&mut self, random: &mut StdRng) {
            self.schedule.reopen();
            for _ in 0..random.random_range(0..8) {
                let Some(Candidate { index, target }) = self.schedule.next() else {
                    return;
                };
                let wire = self.wires.entry((target.topic, target.partition)).or_default();
                if random.random_bool(0.1) || (target.careful && !wire.is_empty()) {
                    self.schedule.gated(index);
                } else {
                    self.schedule.sent(index);
                    wire.push_back((index, target.careful));
                }
            }
        }

        fn append(&mut self, random: &mut StdRng) {
            let places: Vec<_> = self.wires.keys().copied().collect();
            let Some(place) = places.get(random.random_range(0..places.len().max(1))) else {
                return;
            };
            let Some((index, careful)) = self.wires.get_mut(place).and_then(VecDeque::pop_front)
            else {
                return;
            };
            if !self.poison[index] {
                self.log.push(index);
                self.schedule.acked(index);
            } else if careful {
                self.schedule.failed(index, refusal());
            } else {
                // The producer is spoiled: all that is on its wires comes back, of which some may
                // have been appended, unless it stood behind the refused record.
                self.schedule.returned(index);
                for (at, wire) in &mut self.wires {
                    let mut lucky = at != place;
                    for (other, careful) in wire.drain(..).collect::<Vec<_>>() {
                        lucky &= random.random_bool(0.5) && !self.poison[other];
                        if careful {
                            wire.push_back((other, careful));
                        } else {
                            if lucky {
                                self.log.push(other);
                            }
                            self.schedule.returned(other);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_ever_overtakes_whatever_is_refused_or_comes_back() {
        for seed in 0..3000 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut model = Model::new(&mut random);
            model.run(&mut random);
            let Model { schedule, records, poison, log, .. } = model;
            let receipts = schedule.receipts(&cut());
            let first = |index: usize| log.iter().position(|at| *at == index);
            let refused = |event: u32| {
                let of_event = (0..records.len()).filter(|at| records[*at].1 == event);
                of_event.into_iter().any(|at| matches!(receipts[at], Receipt::Refused(_)))
            };
            for (index, (slot, event, _)) in records.iter().enumerate() {
                let appended = first(index);
                match &receipts[index] {
                    Receipt::Acknowledged => assert!(appended.is_some(), "seed {seed}: {index}"),
                    // A sibling of the refused record, in another partition.
                    Receipt::Unsent if refused(*event) => {}
                    Receipt::Refused(_) | Receipt::Unsent => {
                        assert!(appended.is_none(), "seed {seed}: {index} is there");
                    }
                    Receipt::Unknown(_) => panic!("seed {seed}: {index} is unknown"),
                }
                assert!(!poison[index] || appended.is_none(), "seed {seed}");
                let earlier =
                    (0..index).filter(|at| records[*at].0 == *slot && records[*at].1 != *event);
                for before in earlier {
                    // Whoever is in the log has all its predecessors before it.
                    if let Some(appended) = appended {
                        assert!(
                            first(before).is_some_and(|at| at < appended),
                            "seed {seed}: {index} overtook {before}"
                        );
                    }
                }
            }
        }
    }
}
