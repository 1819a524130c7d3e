//! The loop of one lane: claim, hand the batch to a task, react to what comes back.
//!
//! Owned by the relay, one per lane. Claims one batch at a time, keeps a bounded number in flight,
//! and pauses while the broker or the database is away. Never transforms or publishes itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::batch::{self, Report};
use super::{LaneContext, Phase, chain, reached};
use crate::clock::Moment;
use crate::event::Ordering;
use crate::failure::{Cause, Failure};
use crate::retry::{backoff, jittered};
use crate::sink::Fence;
use crate::store::{Batch, ClaimRequest, Look, StoreError, Suspicion, Token};

/// Pause after a claim that left nothing over: long enough to gather a batch, short enough for
/// single-digit milliseconds of lag. It doubles up to the poll interval while nothing comes.
const SHORTEST_POLL: Duration = Duration::from_millis(5);
/// Time between two full looks, and how many times longer than the look itself it must be.
const FULL_LOOK_INTERVAL: Duration = Duration::from_secs(5);
const FULL_LOOK_SHARE: u32 = 20;
/// Pauses while the broker or the database is away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Shards of one claim: at first, and at most.
const FIRST_SHARDS: usize = 8;
const MOST_SHARDS: usize = 256;

/// One lane's loop.
pub(super) struct LaneLoop {
    lane: Arc<LaneContext>,
    phase: watch::Receiver<Phase>,
    in_flight: JoinSet<Report>,
    opened: bool,
    /// When to look for work next.
    next_look: Instant,
    poll: Duration,
    next_full: Instant,
    shards: usize,
    /// Set while the lane waits for the broker or the database.
    pause: Option<Pause>,
    /// Pauses since something was last settled: a broker that answers and acknowledges nothing must
    /// not be tried five times a second.
    troubles: u32,
    /// Whether a suspect batch is in flight: nothing more is claimed until it is settled, or its
    /// crash would make what was claimed meanwhile suspect as well.
    suspect: bool,
}

struct Pause {
    /// Whether the database was the cause: then what is in flight is settled before more is claimed,
    /// or the lane would take its own expired claims again.
    database: bool,
    /// Whether the broker has to answer before the lane goes on.
    broker: bool,
}

impl LaneLoop {
    pub(super) fn new(lane: Arc<LaneContext>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            lane,
            phase,
            in_flight: JoinSet::new(),
            opened: false,
            next_look: Instant::now(),
            poll: SHORTEST_POLL,
            next_full: Instant::now(),
            shards: FIRST_SHARDS,
            pause: None,
            troubles: 0,
            suspect: false,
        }
    }

    /// Runs until shutdown, then until what is in flight is finished.
    pub(super) async fn run(mut self) {
        let mut phase = self.phase.clone();
        loop {
            let room = self.in_flight.len() < self.lane.config.in_flight && !self.suspect;
            let next_look = self.next_look;
            tokio::select! {
                biased;
                // 1. Shutdown comes first: nothing more is claimed.
                () = reached(&mut phase, Phase::Draining) => break,
                // 2. Finished batches free room and tell of trouble before more is claimed.
                Some(ended) = self.in_flight.join_next() => self.finished(ended),
                // 3. Look for work, when there is room for it.
                () = tokio::time::sleep_until(next_look), if room => self.look(&mut phase).await,
            }
        }
        while let Some(ended) = self.in_flight.join_next().await {
            self.finished(ended);
        }
    }

    async fn look(&mut self, phase: &mut watch::Receiver<Phase>) {
        if self.pause.as_ref().is_some_and(|pause| pause.broker) {
            let ready = tokio::select! {
                biased;
                // 1. Shutdown comes first.
                () = reached(phase, Phase::Draining) => return,
                // 2. The broker answers.
                ready = self.lane.sink.ready() => ready,
            };
            if let Err(failure) = ready {
                return self.pause(&failure, true);
            }
            // The database is asked next; only then is the pause over.
            self.pause = self.pause.take().map(|pause| Pause { broker: false, ..pause });
        }
        if !self.in_flight.is_empty() && self.pause.as_ref().is_some_and(|pause| pause.database) {
            self.next_look = Instant::now() + FIRST_PAUSE;
            return;
        }
        // Not while a suspect batch of any lane runs or waits to run.
        let company = Arc::clone(&self.lane.company);
        let _company = tokio::select! {
            biased;
            // 1. Shutdown comes first: nothing more is claimed.
            () = reached(phase, Phase::Draining) => return,
            // 2. There is no suspect batch.
            company = company.read_owned() => company,
        };
        match self.claim().await {
            Ok(batch) => {
                self.resume();
                self.schedule(batch.as_ref());
                if let Some((batch, fence, claimed)) = batch {
                    self.start(batch, fence, claimed);
                }
            }
            Err(error) => self.store_failed(&error),
        }
    }

    async fn claim(&mut self) -> Result<Option<(Batch, Fence, Moment)>, StoreError> {
        let lane = &self.lane;
        if !self.opened {
            lane.store.open_lane(&lane.name, lane.config.ordering).await?;
            self.opened = true;
        }
        let look = if Instant::now() >= self.next_full { Look::Full } else { Look::Quick };
        if look == Look::Full {
            // A look that fails counts as well, or a slow one would be repeated without end.
            self.next_full = Instant::now() + FULL_LOOK_INTERVAL;
        }
        #[cfg(feature = "fail-points")]
        crate::failpoint::pass("claim", &[]).await;
        // The lease is counted from before the claim is sent.
        let before = Moment::now();
        let claimed = lane
            .store
            .claim(&ClaimRequest {
                lane: &lane.name,
                ordering: lane.config.ordering,
                token: Token::fresh(),
                owner: &lane.instance,
                lease: lane.config.lease,
                max_rows: lane.config.batch_rows,
                max_bytes: lane.config.batch_bytes,
                max_shards: self.shards,
                look,
            })
            .await?;
        #[cfg(feature = "fail-points")]
        if let Some(batch) = &claimed {
            crate::failpoint::pass("claimed", &batch.events).await;
        }
        let took = before.elapsed();
        if look == Look::Full {
            // Rows under expired claims are found by full looks only; expired leases by any.
            let recovering = lane.config.ordering == Ordering::None
                && claimed.as_ref().is_some_and(|batch| batch.suspicion != Suspicion::None);
            let rest = jittered(FULL_LOOK_INTERVAL.max(took.saturating_mul(FULL_LOOK_SHARE)));
            self.next_full = Instant::now() + if recovering { Duration::ZERO } else { rest };
        }
        Ok(claimed.map(|batch| {
            lane.metrics.claim_took(took);
            (batch, Fence::until(before.plus(lane.config.lease)), before)
        }))
    }

    /// When to look next, and how many shards to take then.
    fn schedule(&mut self, found: Option<&(Batch, Fence, Moment)>) {
        let now = Instant::now();
        match found {
            Some((batch, ..)) if batch.full || batch.suspicion != Suspicion::None => {
                self.poll = SHORTEST_POLL;
                self.next_look = now;
                if batch.events.len() * 2 < self.lane.config.batch_rows {
                    self.shards = (self.shards * 2).min(MOST_SHARDS);
                } else if batch.events.len() >= self.lane.config.batch_rows {
                    self.shards = (self.shards / 2).max(1);
                }
            }
            Some(_) => {
                self.poll = SHORTEST_POLL;
                self.next_look = now + SHORTEST_POLL;
            }
            None => {
                self.shards = (self.shards * 2).clamp(FIRST_SHARDS, MOST_SHARDS);
                self.next_look = now + jittered(self.poll);
                self.poll = (self.poll * 2).min(self.lane.config.poll_interval);
            }
        }
    }

    fn start(&mut self, batch: Batch, fence: Fence, claimed: Moment) {
        let lane = Arc::clone(&self.lane);
        let phase = self.phase.clone();
        self.suspect = batch.suspicion != Suspicion::None;
        self.in_flight.spawn(batch::work(lane, batch, fence, claimed, phase));
    }

    fn finished(&mut self, ended: Result<Report, JoinError>) {
        // Nothing was claimed beside a suspect batch, so when all are finished it is.
        self.suspect = self.suspect && !self.in_flight.is_empty();
        match ended {
            Ok(report) => {
                if report.progress {
                    self.troubles = 0;
                    self.lane.health.progress();
                    if self.pause.is_none() && self.opened {
                        self.lane.health.clear();
                    }
                }
                if let Some(trouble) = report.trouble {
                    self.pause(&trouble, trouble.cause != Cause::DatabaseUnavailable);
                }
            }
            // Its lease expires and the batch is taken again, alone; nothing is lost.
            Err(error) => {
                tracing::error!(lane = %self.lane.name, %error, "a batch died; its events will be taken again");
            }
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        match error {
            StoreError::Unavailable { .. } => {
                self.pause(&Failure::new(Cause::DatabaseUnavailable, chain(error)), false);
            }
            StoreError::Schema { .. } | StoreError::Refused { .. } => {
                // The tables may be another's by the time someone has mended this.
                self.opened = false;
                self.pause(&Failure::new(Cause::DatabaseUnavailable, chain(error)), false);
            }
        }
    }

    /// Stops claiming for a while. Batches in flight go on; several of them failing at once count
    /// as one.
    fn pause(&mut self, why: &Failure, broker: bool) {
        if why.cause == Cause::ShuttingDown || why.cause == Cause::LeaseEnding {
            return;
        }
        let now = Instant::now();
        if self.pause.is_none() || self.next_look <= now {
            self.troubles = self.troubles.saturating_add(1);
        }
        let times = self.troubles.saturating_sub(1);
        let broker = broker || self.pause.as_ref().is_some_and(|pause| pause.broker);
        if self.lane.health.blocked(why.to_string()) {
            tracing::error!(lane = %self.lane.name, %why, "lane waits; no attempts are used");
        }
        if self.pause.is_none() {
            self.lane.metrics.paused(why.cause);
        }
        self.next_look = now + jittered(backoff(FIRST_PAUSE, LONGEST_PAUSE, times));
        let database = why.cause == Cause::DatabaseUnavailable;
        self.pause = Some(Pause { database, broker });
    }

    fn resume(&mut self) {
        if self.pause.take().is_some() {
            self.lane.metrics.resumed();
            tracing::info!(lane = %self.lane.name, "lane goes on");
        }
        self.lane.health.clear();
    }
}
