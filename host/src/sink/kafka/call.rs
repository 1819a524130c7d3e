//! One publish call: looks topics up, hands records over as the schedule allows, and turns
//! reports into receipts.
//!
//! Made by the sink for each batch. It owns no producer and no thread: reports arrive on its
//! board, and producers are replaced by the lane. It never sends a record that the schedule does
//! not offer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::failure::{Cause, Failure, FailureKind};
use crate::sink::{Fence, Outgoing, Receipt};

use super::check;
use super::classify::{Verdict, concerns_topic, verdict};
use super::destination::{Destination, Lookup, choose};
use super::gates::Pass;
use super::lane::Lane;
use super::producer::{Board, Generation, Handover, Kind, Report, Retired};
use super::schedule::{Candidate, Schedule, Target};
use super::topics::Topic;

/// How often a waiting call looks again even if nobody wakes it: the fence may have moved.
const TICK: Duration = Duration::from_millis(100);
/// How long after the publish timeout a call waits for reports before it gives them up. Only
/// reached if a polling thread has died.
const GIVE_UP: Duration = Duration::from_secs(10);

/// How many producers one call may use up: each topic that refuses records spoils at most one, and
/// a cluster that spoils more than this is not well.
const REPLACEMENTS: u32 = 32;

/// One batch on its way.
pub(super) struct Call<'a> {
    lane: &'a Lane,
    fence: &'a Fence,
    records: Vec<Outgoing>,
    schedule: Schedule,
    destinations: Vec<Destination>,
    /// The destination of each record.
    destination: Vec<usize>,
    board: Arc<Board>,
    pipelined: Arc<Generation>,
    careful: Option<Arc<Generation>>,
    /// How many records are undecided at each of the two.
    out: [usize; 2],
    /// How many more producers this call may use up.
    replacements: u32,
    /// Why nothing more is handed over.
    halted: Option<Failure>,
    last_handover: Moment,
}

/// What kept the call from handing over more.
enum Pause {
    /// Nothing is offered at present, or there is no room in the producer.
    Wait,
    /// A producer of this kind has to be replaced first.
    Replace(Kind),
    /// The producer of this kind has to ask about the topic at this place first.
    Teach(Kind, usize),
}

impl<'a> Call<'a> {
    pub(super) fn new(
        lane: &'a Lane,
        pipelined: Arc<Generation>,
        records: Vec<Outgoing>,
        fence: &'a Fence,
    ) -> Self {
        let pairs = records.iter().map(|outgoing| (outgoing.slot, outgoing.event));
        let mut call = Self {
            lane,
            fence,
            schedule: Schedule::new(pairs, lane.config.mode),
            destinations: Vec::new(),
            destination: Vec::with_capacity(records.len()),
            board: Arc::default(),
            pipelined,
            careful: None,
            out: [0; 2],
            replacements: REPLACEMENTS,
            halted: None,
            last_handover: Moment::now(),
            records,
        };
        call.survey();
        call
    }

    /// Publishes, and returns one receipt per record.
    pub(super) async fn run(mut self) -> Vec<Receipt> {
        let mut progress = self.lane.progress();
        let lane = self.lane;
        let mut lookups: FuturesUnordered<Lookup<'a>> = (0..self.destinations.len())
            .filter(|&place| !self.destinations[place].records.is_empty())
            .map(|place| self.destinations[place].lookup(place, lane, &self.pipelined))
            .collect();
        loop {
            progress.mark_unchanged();
            self.take_reports();
            if self.halted.is_none()
                && let Some(Retired::Lost(failure)) = self.pipelined.retired()
            {
                // Another call found out that the broker is away, or the sink was abandoned.
                self.halt(failure);
            }
            self.schedule.reopen();
            let pause = self.hand_over();
            if self.is_over() {
                break;
            }
            match pause {
                Pause::Replace(kind) if self.out[slot(kind)] == 0 => {
                    self.replace(kind).await;
                    continue;
                }
                Pause::Teach(kind, place) => {
                    self.teach(kind, place).await;
                    continue;
                }
                Pause::Replace(_) | Pause::Wait => {}
            }
            self.wait(&mut progress, &mut lookups).await;
        }
        drop(lookups);
        let ended = Failure::new(Cause::LeaseEnding, "the lease did not allow to send it again");
        self.schedule.receipts(self.halted.as_ref().unwrap_or(&ended))
    }

    /// Checks every record and collects the topics.
    fn survey(&mut self) {
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (index, outgoing) in self.records.iter().enumerate() {
            let name = outgoing.record.topic.as_str();
            let place = *known.entry(name).or_insert_with(|| {
                self.destinations.push(Destination::new(name));
                self.destinations.len() - 1
            });
            self.destination.push(place);
            match check::check(&outgoing.record, self.lane.config.max_record_bytes) {
                Ok(()) => self.destinations[place].records.push(index),
                Err(failure) => self.schedule.reject(index, Receipt::Refused(failure)),
            }
        }
    }

    /// Waits until something may have changed.
    async fn wait(
        &mut self,
        progress: &mut watch::Receiver<()>,
        lookups: &mut FuturesUnordered<Lookup<'a>>,
    ) {
        let found = tokio::select! {
            // Reports first: they make room and may stop a slot.
            biased;
            () = self.board.arrived.notified() => None,
            Some(found) = lookups.next(), if !lookups.is_empty() => Some(found),
            _ = progress.changed() => None,
            () = tokio::time::sleep(TICK) => None,
        };
        if let Some((place, answer)) = found {
            if self.destinations[place].has_doubts(&answer, &self.records) {
                self.lane.topics.doubt(&self.destinations[place].name);
                lookups.push(self.destinations[place].lookup(place, self.lane, &self.pipelined));
            } else {
                self.locate(place, answer);
            }
        }
        self.give_up_on_the_dead();
    }

    /// A topic is known now, or known not to be usable.
    fn locate(&mut self, place: usize, answer: Result<Topic, Failure>) {
        let destination = &mut self.destinations[place];
        let topic = match answer {
            Ok(topic) => topic,
            Err(failure) => {
                self.close(place, failure);
                return;
            }
        };
        destination.number = Some(topic.number);
        let careful = self.lane.is_suspect(topic.number);
        for &index in &destination.records {
            let outgoing = &self.records[index];
            match choose(outgoing, topic) {
                Ok(partition) => {
                    let target = Target { topic: topic.number, partition, careful };
                    self.schedule.assign(index, target);
                }
                Err(failure) => self.schedule.reject(index, Receipt::Refused(failure)),
            }
        }
    }

    /// Nothing more goes to a destination; its records get `failure` when their turn comes.
    fn close(&mut self, place: usize, failure: Failure) {
        let receipt = receipt(failure.clone());
        let destination = &mut self.destinations[place];
        destination.closed = Some(failure);
        for &index in &destination.records {
            self.schedule.reject(index, receipt.clone());
        }
    }

    /// Hands over what may be handed over.
    fn hand_over(&mut self) -> Pause {
        while self.halted.is_none() {
            let Some(candidate) = self.schedule.next() else {
                break;
            };
            if !self.fence.allows(self.lane.config.publish_timeout) {
                self.halted = Some(Failure::new(
                    Cause::LeaseEnding,
                    "what is left of the lease does not cover the publish timeout",
                ));
                break;
            }
            let Candidate { index, target } = candidate;
            let kind = if target.careful { Kind::Careful } else { Kind::Pipelined };
            let producer = match kind {
                Kind::Pipelined => &self.pipelined,
                Kind::Careful => match &self.careful {
                    Some(careful) => careful,
                    None => return Pause::Replace(kind),
                },
            };
            match producer.hand_over(&self.records[index].record, target, &self.board, index) {
                Handover::Taken => {
                    self.schedule.sent(index);
                    self.out[slot(kind)] += 1;
                    self.last_handover = Moment::now();
                }
                Handover::Gated => self.schedule.gated(index),
                Handover::Full => break,
                Handover::Retired => return Pause::Replace(kind),
                Handover::Rejected(code) => {
                    let place = self.destination[index];
                    if is_unaware(code) && !self.destinations[place].taught[slot(kind)] {
                        return Pause::Teach(kind, place);
                    }
                    self.rejected(index, code);
                }
            }
        }
        Pause::Wait
    }

    /// The client itself did not take a record.
    fn rejected(&mut self, index: usize, code: Code) {
        match verdict(code, self.records[index].record.partition.is_some()) {
            Verdict::Refused(cause) => {
                let failure = self.describe(index, cause, code);
                self.lane.topics.forget(&self.records[index].record.topic);
                self.schedule.reject(index, Receipt::Refused(failure));
            }
            Verdict::Collateral => self.halt(self.describe(index, Cause::BrokerUnavailable, code)),
            Verdict::Lost(cause) => self.halt(self.describe(index, cause, code)),
        }
    }

    fn take_reports(&mut self) {
        for report in self.board.take() {
            let Some(target) = self.schedule.target(report.index) else {
                continue;
            };
            let kind = if target.careful { Kind::Careful } else { Kind::Pipelined };
            self.out[slot(kind)] -= 1;
            match report.result {
                Ok(()) => self.schedule.acked(report.index),
                Err(code) => self.failed(&report, code, target, kind),
            }
        }
    }

    /// A record that was handed over did not succeed.
    fn failed(&mut self, report: &Report, code: Code, target: Target, kind: Kind) {
        let index = report.index;
        let verdict = verdict(code, self.records[index].record.partition.is_some());
        let retired = match kind {
            Kind::Pipelined => self.pipelined.retired(),
            Kind::Careful => self.careful.as_ref().and_then(|careful| careful.retired()),
        };
        match (verdict, retired) {
            (Verdict::Refused(cause), _) if report.pass == Pass::Alone => {
                self.refused(index, cause, code, target);
            }
            // Somebody in the batch was refused; who, the careful producer finds out.
            (Verdict::Refused(_), Some(Retired::Spoiled) | None) => {
                self.beware(target.topic);
                self.send_again(index);
            }
            (Verdict::Collateral, Some(Retired::Spoiled)) if kind == Kind::Pipelined => {
                self.send_again(index);
            }
            (_, Some(Retired::Lost(failure))) => self.lose(index, failure),
            (Verdict::Collateral, Some(Retired::Spoiled) | None) => {
                self.lose(index, self.describe(index, Cause::BrokerUnavailable, code));
            }
            (Verdict::Lost(cause), Some(Retired::Spoiled) | None) => {
                self.lose(index, self.describe(index, cause, code));
            }
        }
    }

    /// A record that came back is sent again, unless its topic is closed by now.
    fn send_again(&mut self, index: usize) {
        self.schedule.returned(index);
        if let Some(failure) = &self.destinations[self.destination[index]].closed {
            self.schedule.reject(index, receipt(failure.clone()));
        }
    }

    /// The record at fault is found.
    fn refused(&mut self, index: usize, cause: Cause, code: Code, target: Target) {
        let failure = self.describe(index, cause, code);
        self.beware(target.topic);
        if concerns_topic(cause) {
            let place = self.destination[index];
            self.lane.topics.forget(&self.destinations[place].name);
            if self.destinations[place].closed.is_none() {
                self.close(place, failure.clone());
            }
        }
        self.schedule.failed(index, Receipt::Refused(failure));
    }

    /// Sends carefully to a topic that refuses records, in this call and for a while.
    fn beware(&mut self, topic: u32) {
        self.lane.suspect(topic);
        self.schedule.take_care(topic);
    }

    /// Nobody knows what became of a record; nothing more is sent in this call.
    fn lose(&mut self, index: usize, failure: Failure) {
        self.lane.topics.forget(&self.records[index].record.topic);
        self.schedule.failed(index, Receipt::Unknown(failure.clone()));
        self.halted.get_or_insert(failure);
    }

    /// Nothing more is sent in this call, and the failure has to be said.
    fn halt(&mut self, failure: Failure) {
        self.schedule.stop_waiting(&Receipt::Unknown(failure.clone()));
        self.halted.get_or_insert(failure);
    }

    /// Lets a producer ask about a topic of which it knows less than we do: another one was asked, and
    /// the topic has grown or been made anew since this one was.
    async fn teach(&mut self, kind: Kind, place: usize) {
        self.destinations[place].taught[slot(kind)] = true;
        let producer = match kind {
            Kind::Pipelined => Some(&self.pipelined),
            Kind::Careful => self.careful.as_ref(),
        };
        let Some(producer) = producer.map(Arc::clone) else { return };
        let name = &self.destinations[place].name;
        if let Err(silence) = self.lane.topics.teach(name, &producer).await {
            self.halt(silence);
        }
    }

    async fn replace(&mut self, kind: Kind) {
        let Some(left) = self.replacements.checked_sub(1) else {
            let text = "one producer after the other gave up";
            self.halt(Failure::new(Cause::BrokerUnavailable, text));
            return;
        };
        self.replacements = left;
        match (self.lane.producer(kind).await, kind) {
            (Ok(fresh), Kind::Pipelined) => {
                self.pipelined = fresh;
                // Another call may have found a topic to be handled with care.
                for destination in &self.destinations {
                    if let Some(number) = destination.number
                        && self.lane.is_suspect(number)
                    {
                        self.schedule.take_care(number);
                    }
                }
            }
            (Ok(fresh), Kind::Careful) => self.careful = Some(fresh),
            (Err(failure), _) => self.halt(failure),
        }
    }

    /// Decides what a producer without a thread never will.
    fn give_up_on_the_dead(&mut self) {
        let dead = self.pipelined.is_dead() || self.careful.as_ref().is_some_and(|it| it.is_dead());
        let late = self.last_handover.elapsed() > self.lane.config.publish_timeout + GIVE_UP;
        if self.schedule.out() == 0 || !(dead || late) {
            return;
        }
        self.take_reports();
        let failure = Failure::new(Cause::PublishTimeout, "the producer gave no report");
        for index in self.schedule.undecided() {
            self.lose(index, failure.clone());
        }
        self.out = [0; 2];
    }

    /// Whether every record is decided, or will never be handed over.
    fn is_over(&self) -> bool {
        self.schedule.out() == 0 && (self.halted.is_some() || self.schedule.finished())
    }

    fn describe(&self, index: usize, cause: Cause, code: Code) -> Failure {
        let topic = &self.records[index].record.topic;
        Failure::new(cause, format!("topic '{topic}': {code}"))
    }
}

/// Whether a client says by this that it does not know where a record should go.
fn is_unaware(code: Code) -> bool {
    matches!(code, Code::UnknownPartition | Code::UnknownTopic)
}

/// The place of a kind in `Call::out`.
fn slot(kind: Kind) -> usize {
    match kind {
        Kind::Pipelined => 0,
        Kind::Careful => 1,
    }
}

/// The receipt of a record that was not sent because of `failure`.
fn receipt(failure: Failure) -> Receipt {
    match failure.kind() {
        FailureKind::Infrastructure => Receipt::Unknown(failure),
        FailureKind::Event | FailureKind::Destination => Receipt::Refused(failure),
    }
}
