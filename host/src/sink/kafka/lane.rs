//! What all publish calls of a lane share: the current producers, the topics, and which topics
//! are to be handled with care.
//!
//! Made by the sink. It replaces producers and asks whether the cluster answers; it never looks
//! at a record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Moment;
use crate::failure::{Cause, Failure};

use super::context::Context;
use super::options;
use super::probe;
use super::producer::{Blueprint, Generation, Kind, Retired};
use super::topics::Topics;
use super::{Config, SinkError};

/// How long a topic that refused a record is sent to carefully. Long enough for the retries of
/// the event at fault to do no harm to others, short enough not to slow a topic down for good.
const CARE: Duration = Duration::from_secs(30);
/// How long the careful producer is kept when nobody uses it.
const CAREFUL_IDLE: Duration = Duration::from_secs(60);

/// The shared part of a sink.
pub(super) struct Lane {
    pub(super) config: Config,
    pub(super) topics: Topics,
    label: Arc<str>,
    pipelined: Mutex<Arc<Generation>>,
    careful: Mutex<Option<(Arc<Generation>, Moment)>>,
    /// One replacement at a time.
    replacing: tokio::sync::Mutex<()>,
    suspects: Mutex<HashMap<u32, Moment>>,
    progress: watch::Sender<()>,
}

impl Lane {
    /// Starts the first producer. Blocks while certificates are read.
    ///
    /// # Errors
    /// If librdkafka does not take the options.
    pub(super) fn start(config: Config, label: &str) -> Result<Self, SinkError> {
        let label: Arc<str> = label.into();
        let progress = watch::Sender::new(());
        let first = Generation::start(blueprint(&config, &label, &progress, Kind::Pipelined))?;
        Ok(Self {
            topics: Topics::new(config.metadata_refresh, config.publish_timeout),
            config,
            label,
            pipelined: Mutex::new(Arc::new(first)),
            careful: Mutex::new(None),
            replacing: tokio::sync::Mutex::new(()),
            suspects: Mutex::default(),
            progress,
        })
    }

    /// The present producer of `kind`; a new one if that is retired.
    ///
    /// # Errors
    /// An infrastructure failure if none can be started.
    pub(super) async fn producer(&self, kind: Kind) -> Result<Arc<Generation>, Failure> {
        if let Some(present) = self.usable(kind) {
            return Ok(present);
        }
        let _turn = self.replacing.lock().await;
        if let Some(present) = self.usable(kind) {
            return Ok(present);
        }
        let blueprint = blueprint(&self.config, &self.label, &self.progress, kind);
        let started = tokio::task::spawn_blocking(move || Generation::start(blueprint)).await;
        let fresh = match started {
            Ok(Ok(fresh)) => Arc::new(fresh),
            Ok(Err(error)) => return Err(self.failure(&error.to_string())),
            Err(panic) => return Err(self.failure(&panic.to_string())),
        };
        match kind {
            Kind::Pipelined => *lock(&self.pipelined) = Arc::clone(&fresh),
            Kind::Careful => *lock(&self.careful) = Some((Arc::clone(&fresh), Moment::now())),
        }
        Ok(fresh)
    }

    /// Tells whenever it is worth while for a waiting publish call to look again.
    pub(super) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// Marks topic `number` to be sent to carefully for a while.
    pub(super) fn suspect(&self, number: u32) {
        lock(&self.suspects).insert(number, Moment::now());
    }

    /// Whether topic `number` is to be sent to carefully.
    pub(super) fn is_suspect(&self, number: u32) -> bool {
        let mut suspects = lock(&self.suspects);
        match suspects.get(&number) {
            Some(since) if since.elapsed() < CARE => true,
            Some(_) => {
                suspects.remove(&number);
                false
            }
            None => false,
        }
    }

    /// Lets go of a careful producer that nobody has used for a while.
    pub(super) fn tidy(&self) {
        let mut careful = lock(&self.careful);
        if careful.as_ref().is_some_and(|(_, used)| used.elapsed() > CAREFUL_IDLE) {
            *careful = None;
        }
    }

    /// Retires the producers; the next publish call starts new ones.
    pub(super) fn abandon(&self) {
        let reason = Failure::new(Cause::ShuttingDown, "the publish call was abandoned");
        lock(&self.pipelined).retire(Retired::Lost(reason.clone()));
        if let Some((careful, _)) = &*lock(&self.careful) {
            careful.retire(Retired::Lost(reason));
        }
    }

    /// Asks the cluster who it is, with a client made for the purpose, so that connection, TLS and
    /// login are all tried again.
    ///
    /// # Errors
    /// An infrastructure failure with the servers and the reason.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        let client = options::probe(&self.config);
        let context = Context::probing(Arc::clone(&self.label), &client);
        let answer =
            tokio::task::spawn_blocking(move || probe::answering(&client, context).map(drop));
        match answer.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(text)) => Err(self.failure(&text)),
            Err(panic) => Err(self.failure(&panic.to_string())),
        }
    }

    fn usable(&self, kind: Kind) -> Option<Arc<Generation>> {
        let present = match kind {
            Kind::Pipelined => Arc::clone(&lock(&self.pipelined)),
            Kind::Careful => {
                let mut careful = lock(&self.careful);
                let (present, used) = careful.as_mut()?;
                *used = Moment::now();
                Arc::clone(present)
            }
        };
        (present.retired().is_none() && !present.is_dead()).then_some(present)
    }

    fn failure(&self, text: &str) -> Failure {
        let servers = &self.config.bootstrap_servers;
        let text = options::redact(&self.config.options, text);
        Failure::new(Cause::BrokerUnavailable, format!("Kafka at {servers}: {text}"))
    }
}

fn blueprint(
    config: &Config,
    label: &Arc<str>,
    progress: &watch::Sender<()>,
    kind: Kind,
) -> Blueprint {
    Blueprint {
        kind,
        client: options::client(config, kind),
        label: Arc::clone(label),
        publish_timeout: config.publish_timeout,
        progress: progress.clone(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
