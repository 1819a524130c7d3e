//! The broker, and a sink that keeps the sink's contract towards it.
//!
//! Given to the relay as its sink. Records of a slot go in order, several at once; the fence is asked before
//! each hand-over; what has left the process arrives even if the process dies. The fate of each record is
//! drawn from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::link::CLAIM;
use super::scenario::Script;
use super::world::{Flaw, Process, Shared, Step, World};
use crate::event::Record;
use crate::failure::{Cause, Failure};
use crate::sink::{Fence, Outgoing, Receipt, Sink};

/// The payload of a record that a plugin has made: its version.
pub(super) const VERSION: &str = "version ";

/// How long a record, and its acknowledgement, may be on its way, at the usual pace. Milliseconds. Twice this
/// at the slowest pace is less than the publish timeout.
const SLOWEST_WAY: u64 = 40;

/// A process's producer.
pub(super) struct Producer {
    pub(super) world: Shared,
    pub(super) process: Arc<Process>,
    pub(super) abandoned: AtomicBool,
    pub(super) news: Notify,
}

/// When a record is handed over, seen from the look at the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandOver {
    AtOnce,
    Late,
}

/// A record on its way, with what the checks want to know of it.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) claim: u64,
    pub(super) event: i64,
    /// Its number among the records of its event.
    pub(super) part: usize,
    /// The version that made it; 0 if no plugin did.
    pub(super) version: u64,
    pub(super) topic: String,
    place: usize,
}

impl Sent {
    fn of(record: &Record, part: usize, place: usize) -> Self {
        let header = |name: &str| {
            let found = record.headers.iter().find(|header| header.name == name);
            let value = found.and_then(|header| header.value.as_deref()).unwrap_or_default();
            std::str::from_utf8(value).expect("text").to_owned()
        };
        let payload = std::str::from_utf8(record.payload.as_deref().unwrap_or_default());
        let version = payload.expect("text").strip_prefix(VERSION);
        Self {
            claim: header(CLAIM).parse().expect("every claimed event has it"),
            event: header("X-Outbox-Id").parse().expect("a number"),
            part,
            version: version.map_or(0, |version| version.parse().expect("a number")),
            topic: record.topic.clone(),
            place,
        }
    }
}

impl Producer {
    pub(super) fn new(world: Shared, process: Arc<Process>) -> Arc<Self> {
        let (abandoned, news) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { world, process, abandoned, news })
    }

    /// Publishes the records of one slot; their places and receipts.
    async fn slot(&self, records: Vec<Sent>, fence: &Fence) -> Vec<(usize, Receipt)> {
        let (window, timeout, flaw) = {
            let world = self.world.lock();
            (world.scenario.window, world.scenario.publish_timeout, world.flaw)
        };
        let mut receipts = Vec::with_capacity(records.len());
        let mut records = records.into_iter().peekable();
        let mut closed = false;
        while records.peek().is_some() && !closed {
            let mut accepted = Vec::new();
            while accepted.len() < window && records.peek().is_some() {
                let Some(late) = self.may_hand_over(fence, timeout).await else {
                    closed = true;
                    break;
                };
                let Some(sent) = records.next() else { break };
                self.world.lock().handed_over(&sent, late);
                accepted.push(sent);
            }
            if accepted.is_empty() {
                break;
            }
            // What the process has taken and not yet sent stays with it while it is frozen.
            self.process.pass().await;
            let fates = self.send(accepted.clone()).await;
            closed |=
                fates.iter().any(|fate| *fate != Receipt::Acknowledged) && flaw != Flaw::SlotGoesOn;
            receipts.extend(accepted.into_iter().zip(fates));
        }
        receipts.extend(records.map(|sent| (sent, Receipt::Unsent)));
        let mut world = self.world.lock();
        for (sent, receipt) in &receipts {
            world.received(sent, receipt);
        }
        receipts.into_iter().map(|(sent, receipt)| (sent.place, receipt)).collect()
    }

    /// Asks the fence; says how late the hand-over is then.
    async fn may_hand_over(&self, fence: &Fence, timeout: Duration) -> Option<HandOver> {
        self.process.pass().await;
        if self.abandoned.load(Memory::Relaxed) {
            return None;
        }
        let late = {
            let mut world = self.world.lock();
            if world.flaw != Flaw::NoFence && !fence.allows(timeout) {
                return None;
            }
            let rate = world.rates.late_hand_overs;
            world.happens(rate)
        };
        if !late {
            return Some(HandOver::AtOnce);
        }
        // One record may slip through when the process is frozen just here.
        self.world.pause(1..200).await;
        self.process.pass().await;
        Some(HandOver::Late)
    }

    /// What becomes of records that are handed over together, in order.
    async fn send(&self, records: Vec<Sent>) -> Vec<Receipt> {
        let count = records.len();
        let world = self.world.clone();
        let pace = world.lock().scenario.pace;
        let on_the_way = tokio::spawn(async move {
            world.pause(1..SLOWEST_WAY * pace).await;
            let fates = world.lock().arrive(&records);
            let timeout = world.lock().scenario.publish_timeout;
            let timed_out = fates.iter().any(|fate| matches!(fate, Receipt::Unknown(_)));
            match timed_out {
                true => {
                    let way = Duration::from_millis(SLOWEST_WAY * pace);
                    tokio::time::sleep(timeout.saturating_sub(way)).await;
                }
                false => world.pause(1..SLOWEST_WAY * pace).await,
            }
            fates
        });
        let fates = tokio::select! {
            biased;
            // 1. The process lets go.
            () = self.let_go() => None,
            // 2. The broker has answered.
            fates = on_the_way => Some(fates.expect("it does not panic")),
        };
        self.process.pass().await;
        fates.unwrap_or_else(|| {
            vec![Receipt::Unknown(Failure::new(Cause::ShuttingDown, "let go")); count]
        })
    }

    async fn let_go(&self) {
        loop {
            let news = self.news.notified();
            if self.abandoned.load(Memory::Relaxed) {
                return;
            }
            news.await;
        }
    }
}

impl World {
    /// Records arrive at the broker, in order; nothing behind one that does not is appended.
    fn arrive(&mut self, records: &[Sent]) -> Vec<Receipt> {
        let (mut open, mut answers) = (true, true);
        let mut fates = Vec::with_capacity(records.len());
        for sent in records {
            if !open && self.flaw != Flaw::SlotGoesOn {
                fates.push(Receipt::Unsent);
                continue;
            }
            let fate = self.fate(sent, &mut answers);
            open = match fate {
                Receipt::Acknowledged => true,
                // It has arrived, and so may the next.
                Receipt::Unknown(_) => !answers && self.checks.has_arrived(sent),
                Receipt::Refused(_) | Receipt::Unsent => false,
            };
            fates.push(fate);
        }
        fates
    }

    /// The fate of one record. Once an answer is lost, so are those that follow.
    fn fate(&mut self, sent: &Sent, answers: &mut bool) -> Receipt {
        if !self.broker_up {
            return Receipt::Unknown(Failure::new(Cause::BrokerUnavailable, "simulated"));
        }
        let rates = self.rates;
        if let Some((_, cause)) = self.bad_topics.iter().find(|(topic, _)| *topic == sent.topic) {
            return Receipt::Refused(Failure::new(*cause, "simulated"));
        }
        if let Some(cause) = self.refusal(sent) {
            self.checks.failed(sent.event);
            return Receipt::Refused(Failure::new(cause, "simulated"));
        }
        if self.flaw == Flaw::FalseAcknowledgements && self.happens(20) {
            return Receipt::Acknowledged;
        }
        if !*answers || self.happens(rates.unknown) {
            if self.happens(500) {
                *answers = false;
                self.append(sent);
            }
            return Receipt::Unknown(Failure::new(Cause::PublishTimeout, "simulated"));
        }
        self.append(sent);
        Receipt::Acknowledged
    }

    fn refusal(&mut self, sent: &Sent) -> Option<Cause> {
        let rate = self.rates.refused;
        let (script, attempts) = self.checks.script(sent.event, &self.table)?;
        match script {
            Script::Refused(cause, records, until) if attempts < until => {
                (sent.part + 1 == records).then_some(cause)
            }
            _ => self.happens(rate).then_some(Cause::RecordRefused),
        }
    }

    fn append(&mut self, sent: &Sent) {
        let Sent { claim, event, part, version, .. } = *sent;
        self.note(Step::Appended { claim, event, part, version });
        self.check_append(sent);
    }
}

#[async_trait]
impl Sink for Producer {
    async fn publish(&self, records: Vec<Outgoing>, fence: &Fence) -> Vec<Receipt> {
        self.process.pass().await;
        let mut slots: Vec<(u32, Vec<Sent>)> = Vec::new();
        let (mut last, mut part) = (None, 0);
        for (place, out) in records.iter().enumerate() {
            part = if last == Some(out.event) { part + 1 } else { 0 };
            last = Some(out.event);
            let sent = Sent::of(&out.record, part, place);
            match slots.iter_mut().find(|(slot, _)| *slot == out.slot) {
                Some((_, slot)) => slot.push(sent),
                None => slots.push((out.slot, vec![sent])),
            }
        }
        let slots = slots.into_iter().map(|(_, records)| self.slot(records, fence));
        let mut receipts: Vec<(usize, Receipt)> =
            futures::future::join_all(slots).await.into_iter().flatten().collect();
        receipts.sort_by_key(|(place, _)| *place);
        self.process.pass().await;
        receipts.into_iter().map(|(_, receipt)| receipt).collect()
    }

    async fn ready(&self) -> Result<(), Failure> {
        self.process.pass().await;
        self.world.pause(1..30).await;
        self.process.pass().await;
        match self.world.lock().broker_up {
            true => Ok(()),
            false => Err(Failure::new(Cause::BrokerUnavailable, "simulated")),
        }
    }

    fn abandon(&self) {
        if !self.process.is_dead() {
            self.abandoned.store(true, Memory::Relaxed);
            self.news.notify_waiters();
        }
    }
}
