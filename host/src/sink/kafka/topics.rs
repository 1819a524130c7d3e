//! How many partitions each topic has, remembered for a while.
//!
//! Asked by publish calls before they choose a partition. Answers come from the current
//! producer's own client, so that the producer knows what we know; the question blocks and is
//! asked on a blocking thread. A topic that is not there is asked for a few times, since asking
//! may have created it.
//!
//! A publish call looks each topic up once and keeps to that answer. So when partitions are added,
//! no call sends a key by both maps; and since the records of a key are never in two calls at a time,
//! those that went by the old map are acknowledged before the first goes by the new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering as Memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tokio::sync::Semaphore;

use crate::clock::Moment;
use crate::failure::{Cause, Failure, FailureKind};

use super::classify::{Verdict, verdict};
use super::producer::Generation;

/// How long one question may take, if the publish timeout is not shorter.
const QUESTION: Duration = Duration::from_secs(5);
/// How many questions may be under way at once.
const QUESTIONS: usize = 4;
/// How often, and how far apart, a missing topic is asked for.
const TRIES: u32 = 4;
const BETWEEN_TRIES: Duration = Duration::from_millis(300);
/// How long it is remembered that a topic cannot be used.
const REFUSAL_AGE: Duration = Duration::from_secs(3);
/// How old an answer may be and still prove that a partition does not exist.
const DOUBT_AGE: Duration = Duration::from_secs(1);
/// The most topics that are remembered; names come from rows and may be anything.
const MAX_TOPICS: usize = 10_000;

/// A topic that can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic {
    /// A number for the name, for keys of maps.
    pub(super) number: u32,
    pub(super) partitions: i32,
}

#[derive(Debug)]
struct Entry {
    /// Kept as long as the entry, so that one topic never has two sets of gates.
    number: u32,
    partitions: Result<i32, Failure>,
    /// The last number of partitions that anybody told, if one did.
    told: Option<i32>,
    asked: Moment,
}

impl Entry {
    fn answer(&self) -> Result<Topic, Failure> {
        let partitions = self.partitions.clone()?;
        Ok(Topic { number: self.number, partitions })
    }
}

/// The cache of one lane.
#[derive(Debug)]
pub(super) struct Topics {
    entries: Mutex<HashMap<String, Entry>>,
    numbers: AtomicU32,
    questions: Semaphore,
    refresh: Duration,
    question: Duration,
}

impl Topics {
    /// A cache that trusts an answer for `refresh`.
    pub(super) fn new(refresh: Duration, publish_timeout: Duration) -> Self {
        Self {
            question: QUESTION.min(publish_timeout),
            entries: Mutex::default(),
            numbers: AtomicU32::new(0),
            questions: Semaphore::new(QUESTIONS),
            refresh,
        }
    }

    /// What is known of topic `name`, asking through `producer` if that is too old.
    ///
    /// # Errors
    /// A destination or event failure if the topic cannot be used, an infrastructure failure if
    /// nobody answered and nothing is remembered.
    pub(super) async fn find(
        &self,
        name: &str,
        producer: &Arc<Generation>,
    ) -> Result<Topic, Failure> {
        if let Some(answer) = self.fresh(name) {
            return answer;
        }
        let Ok(_permit) = self.questions.acquire().await else {
            return Err(Failure::new(Cause::ShuttingDown, "the sink is closed"));
        };
        // Somebody else may have asked while we waited.
        if let Some(answer) = self.fresh(name) {
            return answer;
        }
        let answer = self.ask(name, producer).await;
        self.remember(name, answer)
    }

    /// Asks about topic `name` through `producer`, whatever is remembered, so that this producer
    /// knows what others know already.
    ///
    /// # Errors
    /// An infrastructure failure if nobody answered.
    pub(super) async fn teach(
        &self,
        name: &str,
        producer: &Arc<Generation>,
    ) -> Result<(), Failure> {
        let Ok(_permit) = self.questions.acquire().await else {
            return Err(Failure::new(Cause::ShuttingDown, "the sink is closed"));
        };
        let answer = self.ask(name, producer).await;
        let silence = answer.as_ref().err().filter(|failure| is_silence(failure)).cloned();
        // What the answer says of the topic is for those who look it up.
        let _ = self.remember(name, answer);
        silence.map_or(Ok(()), Err)
    }

    async fn ask(&self, name: &str, producer: &Arc<Generation>) -> Result<i32, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let answer = ask(name.to_owned(), Arc::clone(producer), self.question).await;
            match &answer {
                Err(failure) if failure.cause == Cause::TopicUnknown && tries < TRIES => {
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                Ok(_) | Err(_) => return answer,
            }
        }
    }

    /// Forgets what is known of topic `name`: it turned out to be wrong.
    pub(super) fn forget(&self, name: &str) {
        if let Some(entry) = self.lock().get_mut(name) {
            entry.asked = Moment::from_millis(0);
        }
    }

    /// Forgets what is known of topic `name` if that is not quite new: it may have grown.
    pub(super) fn doubt(&self, name: &str) {
        if let Some(entry) = self.lock().get_mut(name)
            && entry.asked.elapsed() >= DOUBT_AGE
        {
            entry.asked = Moment::from_millis(0);
        }
    }

    fn fresh(&self, name: &str) -> Option<Result<Topic, Failure>> {
        let entries = self.lock();
        let entry = entries.get(name)?;
        let limit = if entry.partitions.is_ok() { self.refresh } else { REFUSAL_AGE };
        (entry.asked.elapsed() < limit).then(|| entry.answer())
    }

    fn remember(&self, name: &str, partitions: Result<i32, Failure>) -> Result<Topic, Failure> {
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(name) {
            match partitions {
                // Old news are better than none; the hand-over will tell.
                Err(failure) if is_silence(&failure) && entry.partitions.is_err() => {
                    return Err(failure);
                }
                Err(failure) if is_silence(&failure) => {}
                Ok(_) | Err(_) => {
                    if let (Some(was), Ok(now)) = (entry.told, &partitions) {
                        notice(name, was, *now);
                    }
                    entry.told = partitions.as_ref().ok().copied().or(entry.told);
                    entry.partitions = partitions;
                    entry.asked = Moment::now();
                }
            }
            return entry.answer();
        }
        let entry = match partitions {
            Err(failure) if is_silence(&failure) => return Err(failure),
            Ok(_) | Err(_) => Entry {
                number: self.numbers.fetch_add(1, Memory::Relaxed),
                told: partitions.as_ref().ok().copied(),
                partitions,
                asked: Moment::now(),
            },
        };
        if entries.len() >= MAX_TOPICS {
            // Rare enough; what is known is asked for again.
            entries.clear();
        }
        let answer = entry.answer();
        entries.insert(name.to_owned(), entry);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a topic has another number of partitions than before.
fn notice(topic: &str, was: i32, now: i32) {
    if now > was {
        tracing::info!(target: "haulier::kafka", topic, was, now,
            "partitions were added; keys change to their new ones, each with its next batch");
    } else if now < was {
        tracing::warn!(target: "haulier::kafka", topic, was, now,
            "topic has fewer partitions than before; it was made anew");
    }
}

fn is_silence(failure: &Failure) -> bool {
    failure.kind() == FailureKind::Infrastructure
}

async fn ask(name: String, producer: Arc<Generation>, limit: Duration) -> Result<i32, Failure> {
    let question = tokio::task::spawn_blocking(move || {
        let answer = producer.client().fetch_metadata(Some(&name), limit);
        let trouble = producer.trouble();
        let metadata = answer.map_err(|error| silent(&name, &error, trouble.as_deref()))?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
            return Err(Failure::new(Cause::TopicUnknown, unknown(&name)));
        };
        if let Some(error) = topic.error() {
            return Err(refused(&name, Code::from(error)));
        }
        match i32::try_from(topic.partitions().len()) {
            Ok(count) if count > 0 => Ok(count),
            Ok(_) | Err(_) => Err(Failure::new(Cause::TopicUnknown, unknown(&name))),
        }
    });
    question.await.unwrap_or_else(|panic| {
        Err(Failure::new(
            Cause::BrokerUnavailable,
            format!("the question for a topic failed: {panic}"),
        ))
    })
}

fn unknown(name: &str) -> String {
    format!("topic '{name}' does not exist")
}

fn refused(name: &str, code: Code) -> Failure {
    // A topic that is being created has no leader yet: ask again, like for one that is missing.
    if code == Code::LeaderNotAvailable {
        return Failure::new(Cause::TopicUnknown, format!("topic '{name}' is not ready: {code}"));
    }
    match verdict(code, false) {
        Verdict::Refused(Cause::TopicUnknown) => Failure::new(Cause::TopicUnknown, unknown(name)),
        Verdict::Refused(cause) | Verdict::Lost(cause) => {
            Failure::new(cause, format!("topic '{name}': {code}"))
        }
        Verdict::Collateral => {
            Failure::new(Cause::BrokerUnavailable, format!("topic '{name}': {code}"))
        }
    }
}

fn silent(name: &str, error: &KafkaError, trouble: Option<&str>) -> Failure {
    let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
    let text = trouble.map_or_else(|| code.to_string(), str::to_owned);
    Failure::new(Cause::BrokerUnavailable, format!("no answer about topic '{name}': {text}"))
}
