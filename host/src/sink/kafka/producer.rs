//! One generation of a producer: a librdkafka client, its polling thread, its gates and its age.
//!
//! A lane makes generations and publish calls hand records over to them. A generation is never
//! repaired: what ends the order it can vouch for retires it, and the next one starts from
//! nothing. The rules it keeps:
//! - Nothing is handed over to a retired generation. The check, the gate and the hand-over are one
//!   step under one lock, so that a purge cannot leave a gap behind which something slips in.
//! - A partition that is not proven takes one record at a time (see `gates`).
//! - No record stays undecided for longer than the publish timeout: the polling thread retires and
//!   purges the whole generation then, whatever the async runtime is doing. librdkafka's own
//!   `message.timeout.ms` is off, because it drops a record out of the middle of a queue and sends
//!   those behind it.
//!
//! It never blocks an async thread, except that a hand-over copies the record: questions about the
//! cluster are asked on blocking threads, and the polling thread is the last to let go of the
//! client.

use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig};
use tokio::sync::{Notify, watch};

use crate::clock::Moment;
use crate::event::Record;
use crate::failure::{Cause, Failure};

use super::SinkError;
use super::classify::{Verdict, verdict};
use super::context::Context;
use super::gates::{Ages, Gates, Pass, Step};
use super::schedule::Target;

/// How long the polling thread waits for something to happen before it looks at the clock.
const POLL: Duration = Duration::from_millis(50);
/// How long a spoiled generation waits for what is on the wire, so that fewer records have to be
/// sent twice.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the last reports of a client may take that nobody else holds.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long an acknowledgement proves a partition. Brokers forget an idle producer after a day by
/// default; the setting allows less.
const PROOF: Duration = Duration::from_secs(300);

/// What a generation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Many records on the way; refuses to go on after a gap.
    Pipelined,
    /// One record a partition on the way, so that a refusal is the fault of that record.
    Careful,
}

/// Why a generation takes nothing any more.
#[derive(Debug, Clone)]
pub(super) enum Retired {
    /// A record was refused, or the producer cannot vouch for the order any more. What was
    /// undecided may be sent again, carefully and in order.
    Spoiled,
    /// The broker cannot be reached, or nobody wants the outcome. Undecided records stay so.
    Lost(Failure),
}

/// What became of one hand-over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handover {
    Taken,
    /// The partition takes nothing at present.
    Gated,
    /// The producer's queue is full.
    Full,
    /// The generation is retired.
    Retired,
    /// The record was not taken, for this reason.
    Rejected(Code),
}

/// What the broker, or the client, said about one record.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) index: usize,
    pub(super) result: Result<(), Code>,
    /// Whether it shared its way to the partition with others.
    pub(super) pass: Pass,
}

/// Where the reports of one publish call arrive.
#[derive(Debug, Default)]
pub(super) struct Board {
    reports: Mutex<Vec<Report>>,
    pub(super) arrived: Notify,
}

impl Board {
    /// Takes what has arrived since the last call.
    pub(super) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *lock(&self.reports))
    }

    fn put(&self, report: Report) {
        lock(&self.reports).push(report);
        self.arrived.notify_one();
    }
}

/// Travels with a record through librdkafka and comes back with its report.
#[derive(Debug)]
pub(super) struct Ticket {
    board: Arc<Board>,
    index: usize,
    target: Target,
    step: Step,
    pass: Pass,
}

#[derive(Debug)]
struct State {
    retired: Option<Retired>,
    gates: Gates,
    ages: Ages,
    /// The last trouble with a connection, until something is acknowledged again.
    trouble: Option<String>,
}

/// What a generation, its polling thread and its callbacks share.
#[derive(Debug)]
pub(super) struct Shared {
    kind: Kind,
    publish_timeout: Duration,
    state: Mutex<State>,
    /// Nobody will hand anything over any more.
    dropped: AtomicBool,
    /// Somebody waits for room in the queue.
    starving: AtomicBool,
    /// Tells the lane's publish calls that it is worth while to look again.
    progress: watch::Sender<()>,
}

/// What a generation is made from.
pub(super) struct Blueprint {
    pub(super) kind: Kind,
    pub(super) client: ClientConfig,
    pub(super) label: Arc<str>,
    pub(super) publish_timeout: Duration,
    pub(super) progress: watch::Sender<()>,
}

/// One producer, until something ends what it can vouch for.
pub(super) struct Generation {
    producer: Arc<BaseProducer<Context>>,
    shared: Arc<Shared>,
    thread: thread::JoinHandle<()>,
}

impl Generation {
    /// Starts a producer and its thread. Blocks for as long as librdkafka needs to read its
    /// certificates.
    ///
    /// # Errors
    /// If librdkafka does not take the options, or the thread cannot be started.
    pub(super) fn start(blueprint: Blueprint) -> Result<Self, SinkError> {
        let proof = match blueprint.kind {
            Kind::Pipelined => Some(PROOF),
            Kind::Careful => None,
        };
        let state =
            State { retired: None, gates: Gates::new(proof), ages: Ages::default(), trouble: None };
        let shared = Arc::new(Shared {
            kind: blueprint.kind,
            publish_timeout: blueprint.publish_timeout,
            state: Mutex::new(state),
            dropped: AtomicBool::new(false),
            starving: AtomicBool::new(false),
            progress: blueprint.progress,
        });
        let context = Context::producing(
            Arc::clone(&shared),
            Arc::clone(&blueprint.label),
            &blueprint.client,
        );
        let producer = BaseProducer::from_config_and_context(&blueprint.client, context)
            .map(Arc::new)
            .map_err(|error| SinkError::client(&error))?;
        let thread = {
            let (producer, shared) = (Arc::clone(&producer), Arc::clone(&shared));
            thread::Builder::new()
                .name(format!("kafka {}", blueprint.label))
                .spawn(move || attend(&producer, &shared))
                .map_err(SinkError::Thread)?
        };
        Ok(Self { producer, shared, thread })
    }

    /// Hands over one record, or says why not.
    pub(super) fn hand_over(
        &self,
        record: &Record,
        target: Target,
        board: &Arc<Board>,
        index: usize,
    ) -> Handover {
        let place = (target.topic, target.partition);
        let mut state = self.shared.lock();
        if state.retired.is_some() {
            return Handover::Retired;
        }
        let Some(pass) = state.gates.enter(place) else {
            return Handover::Gated;
        };
        let step = state.ages.begin(Moment::now());
        let ticket = Ticket { board: Arc::clone(board), index, target, step, pass };
        let mut message: BaseRecord<'_, [u8], [u8], _> =
            BaseRecord::with_opaque_to(&record.topic, Box::new(ticket)).partition(target.partition);
        message.key = record.key.as_deref();
        message.payload = record.payload.as_deref();
        message.timestamp = record.timestamp_ms;
        message.headers = headers(record);
        let Err((error, _)) = self.producer.send(message) else {
            return Handover::Taken;
        };
        state.ages.end(step);
        state.gates.left(place);
        match error {
            KafkaError::MessageProduction(Code::QueueFull) => {
                self.shared.starving.store(true, Memory::Release);
                Handover::Full
            }
            KafkaError::MessageProduction(Code::Fatal) => {
                state.retired.get_or_insert(Retired::Spoiled);
                Handover::Retired
            }
            KafkaError::MessageProduction(code) => Handover::Rejected(code),
            // What is left is a NUL in the topic's name, which the checks exclude.
            _ => Handover::Rejected(Code::InvalidTopic),
        }
    }

    /// Why it takes nothing any more, if so.
    pub(super) fn retired(&self) -> Option<Retired> {
        self.shared.lock().retired.clone()
    }

    /// Takes nothing any more; what is undecided is purged soon. The first reason stays.
    pub(super) fn retire(&self, reason: Retired) {
        self.shared.retire(reason);
    }

    /// Whether its thread has ended although the generation is in use: nothing will be decided.
    pub(super) fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }

    /// The client, for questions about the cluster, which block.
    pub(super) fn client(&self) -> &rdkafka::client::Client<Context> {
        self.producer.client()
    }

    /// The last trouble with a connection, if nothing was acknowledged since.
    pub(super) fn trouble(&self) -> Option<String> {
        self.shared.lock().trouble.clone()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // The thread sees that it is alone with the client, and ends.
        self.shared.dropped.store(true, Memory::Release);
    }
}

impl Shared {
    /// A record's fate. Called by the polling thread.
    pub(super) fn decided(&self, ticket: Ticket, result: Result<(), Code>) {
        let place = (ticket.target.topic, ticket.target.partition);
        let opened = {
            let mut state = self.lock();
            state.ages.end(ticket.step);
            match result {
                Ok(()) => {
                    state.trouble = None;
                    state.gates.acknowledged(place)
                }
                Err(_) => state.gates.left(place),
            }
        };
        if let Err(code) = result {
            self.failed(code);
        }
        ticket.board.put(Report { index: ticket.index, result, pass: ticket.pass });
        if self.starving.swap(false, Memory::AcqRel) || opened {
            self.progress.send_replace(());
        }
    }

    /// A record did not succeed: what that means for the generation.
    fn failed(&self, code: Code) {
        match (self.kind, verdict(code, false)) {
            // There is a gap now; nothing may be sent behind it.
            (Kind::Pipelined, Verdict::Refused(_) | Verdict::Collateral) => {
                self.retire(Retired::Spoiled);
            }
            // It was alone, so there is nothing behind it.
            (Kind::Careful, Verdict::Refused(_)) => {}
            (Kind::Careful, Verdict::Collateral) => {
                let text = format!("the producer gave up: {code}");
                self.retire(Retired::Lost(Failure::new(Cause::BrokerUnavailable, text)));
            }
            (_, Verdict::Lost(cause)) => {
                self.retire(Retired::Lost(Failure::new(cause, code.to_string())));
            }
        }
    }

    /// Trouble with a connection. Called by the polling thread.
    pub(super) fn troubled(&self, text: String) {
        self.lock().trouble = Some(text);
    }

    /// Takes nothing any more. The first reason stays.
    pub(super) fn retire(&self, reason: Retired) {
        let mut state = self.lock();
        if state.retired.is_none() {
            match &reason {
                Retired::Spoiled => {
                    tracing::info!(target: "haulier::kafka", "producer is replaced after a refusal");
                }
                Retired::Lost(failure) => {
                    tracing::warn!(target: "haulier::kafka", %failure, "producer is purged");
                }
            }
            state.retired = Some(reason);
        }
        drop(state);
        self.progress.send_replace(());
    }

    /// Retires the generation if a record has been undecided for too long.
    fn watch_age(&self) {
        if !self.is_overdue() {
            return;
        }
        let waited = format!("no answer within {:?}", self.publish_timeout);
        let trouble = self.lock().trouble.clone();
        self.retire(Retired::Lost(match trouble {
            Some(trouble) => Failure::new(Cause::BrokerUnavailable, format!("{waited}: {trouble}")),
            None => Failure::new(Cause::PublishTimeout, waited),
        }));
    }

    /// Whether a record has been undecided for as long as it may. A step and a poll early, so that
    /// the fence holds, which was asked for the whole timeout.
    fn is_overdue(&self) -> bool {
        let limit = self.publish_timeout.saturating_sub(2 * POLL);
        self.lock().ages.oldest().is_some_and(|at| at.elapsed() >= limit)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The polling thread: serves callbacks, watches the age, and winds the client down at the end.
fn attend(producer: &Arc<BaseProducer<Context>>, shared: &Shared) {
    let reason = loop {
        producer.poll(POLL);
        shared.watch_age();
        let retired = shared.lock().retired.clone();
        if retired.is_some() || shared.dropped.load(Memory::Acquire) {
            break retired;
        }
    };
    if let Some(Retired::Spoiled) = reason {
        // What is on the wire will be answered; what is not must not follow it. What the broker
        // answers with "try again" comes back into the queue, so that is emptied again and again.
        let end = Instant::now() + DRAIN;
        while producer.in_flight_count() > 0 && Instant::now() < end && !shared.is_overdue() {
            producer.purge(PurgeConfig::default().queue());
            producer.poll(POLL / 5);
        }
    }
    // Until nobody else holds the client: it blocks when it is dropped.
    let mut alone_since = None;
    loop {
        producer.purge(PurgeConfig::default().queue().inflight());
        producer.poll(POLL / 5);
        if Arc::strong_count(producer) > 1 {
            producer.poll(POLL);
            continue;
        }
        let since = *alone_since.get_or_insert_with(Instant::now);
        if producer.in_flight_count() == 0 || since.elapsed() > FAREWELL {
            return;
        }
    }
}

/// The record's headers as librdkafka takes them; none at all if there are none.
fn headers(record: &Record) -> Option<OwnedHeaders> {
    if record.headers.is_empty() {
        return None;
    }
    let start = OwnedHeaders::new_with_capacity(record.headers.len());
    let insert = |headers: OwnedHeaders, header: &crate::event::Header| {
        headers.insert(KafkaHeader { key: &header.name, value: header.value.as_deref() })
    };
    Some(record.headers.iter().fold(start, insert))
}

/// The lock, whatever happened to an earlier holder: every change under it is complete in itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
