//! A process's connection to the table: delays, failures before and after the effect, lost answers.
//!
//! Given to the relay as its store. The table does what it is asked; this file decides when it is
//! reached and whether the process hears of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::world::{Database, Flaw, Process, Shared, Step, World};
use crate::event::{Header, LaneName, Ordering};
use crate::store::{
    Batch, BatchClaim, ClaimRequest, Heartbeat, LaneStats, Look, Planted, Settled, Settlement,
    Store, StoreError,
};

/// How long a call may stay without an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);

/// How often, in a thousand, a claim is slow to lock what it has found.
const SLOW_CLAIMS: u32 = 60;

/// The header by which a claim is recognised wherever its events go.
pub(super) const CLAIM: &str = "claim";

/// A process's connection.
pub(super) struct Link {
    pub(super) world: Shared,
    pub(super) process: Arc<Process>,
}

impl Link {
    /// The way to the database. An error is one before any effect.
    async fn enter(&self, doing: &'static str) -> Result<(), StoreError> {
        self.process.pass().await;
        let silent = {
            let mut world = self.world.lock();
            let rate = world.rates.lost_calls;
            let state = world.database;
            if state == Database::Down || (state == Database::Up && world.happens(rate)) {
                return Err(self.fails(&mut world, doing));
            }
            state == Database::Silent
        };
        if silent {
            self.fails(&mut self.world.lock(), doing);
            tokio::time::sleep(CALL_TIMEOUT).await;
            self.process.pass().await;
            return Err(self.fails(&mut self.world.lock(), doing));
        }
        self.world.pause(0..8).await;
        Ok(())
    }

    /// The way back. An error is one after the effect.
    async fn leave(&self, doing: &'static str) -> Result<(), StoreError> {
        self.world.pause(0..8).await;
        self.process.pass().await;
        let mut world = self.world.lock();
        let rate = world.rates.lost_answers;
        if world.database == Database::Up && !world.happens(rate) {
            return Ok(());
        }
        world.note(Step::AnswerLost { process: self.process.number, doing });
        Err(self.fails(&mut world, doing))
    }

    fn fails(&self, world: &mut World, doing: &'static str) -> StoreError {
        let now = world.now();
        world.checks.troubled(self.process.number, now);
        world.note(Step::CallFailed { process: self.process.number, doing });
        unavailable(doing)
    }

    async fn claim_leases(&self, request: &ClaimRequest<'_>) -> Option<Batch> {
        let (shards, early) = {
            let mut world = self.world.lock();
            let now = world.now();
            if request.look == Look::Full {
                world.table.tidy_up(now);
            }
            let candidates = world.table.candidates(request, now);
            if candidates.is_empty() {
                return None;
            }
            let reads_early = world.flaw == Flaw::Table(Planted::ReadsBeforeLocking);
            let early = reads_early.then(|| world.table.read(request, &candidates, now));
            (candidates, early)
        };
        let slow = self.world.lock().happens(SLOW_CLAIMS);
        self.world.pause(if slow { 0..400 } else { 0..4 }).await;
        let locked = {
            let mut world = self.world.lock();
            let now = world.now();
            world.table.lock(&shards, now)
        };
        self.world.pause(0..4).await;
        let mut world = self.world.lock();
        let now = world.now();
        let batch = world.table.take(request, &locked, now, early)?;
        Some(self.claimed(&mut world, request, batch))
    }

    fn claim_rows(&self, request: &ClaimRequest<'_>) -> Option<Batch> {
        let mut world = self.world.lock();
        let now = world.now();
        let batch = world.table.claim_rows(request, now)?;
        Some(self.claimed(&mut world, request, batch))
    }

    fn claimed(&self, world: &mut World, request: &ClaimRequest<'_>, mut batch: Batch) -> Batch {
        let claim = world.claimed(self.process.number, request.lease, &batch);
        for event in &mut batch.events {
            event.headers.push(Header::text(CLAIM, claim.to_string()));
        }
        batch
    }
}

fn unavailable(doing: &'static str) -> StoreError {
    StoreError::Unavailable { source_name: "s".into(), doing, cause: "simulated".into() }
}

#[async_trait]
impl Store for Link {
    async fn open_lane(&self, _: &LaneName, _: Ordering) -> Result<(), StoreError> {
        self.enter("open a lane").await?;
        self.leave("open a lane").await
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Option<Batch>, StoreError> {
        self.enter("claim").await?;
        let batch = match request.ordering {
            Ordering::None => self.claim_rows(request),
            Ordering::Key | Ordering::Total => self.claim_leases(request).await,
        };
        self.leave("claim").await?;
        self.world.lock().checks.answered(request.token);
        Ok(batch)
    }

    async fn renew(
        &self,
        _: &LaneName,
        claim: &BatchClaim,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        self.enter("renew").await?;
        let whole = {
            let mut world = self.world.lock();
            let now = world.now();
            let whole = world.table.renew(claim, lease, now);
            world.renewed(claim.token, lease, whole);
            whole
        };
        self.leave("renew").await?;
        Ok(whole)
    }

    async fn settle(
        &self,
        _: &LaneName,
        claim: &BatchClaim,
        settlements: &[Settlement],
    ) -> Result<Settled, StoreError> {
        self.process.pass().await;
        self.world.lock().checks.leaves(claim.token);
        self.enter("settle").await?;
        let settled = loop {
            {
                let mut world = self.world.lock();
                let rate = world.rates.refused_settles;
                if world.happens(rate) {
                    self.fails(&mut world, "settle as asked");
                    let cause = "simulated".into();
                    let source_name = "s".into();
                    return Err(StoreError::Refused { source_name, doing: "settle", cause });
                }
                let now = world.now();
                if !world.table.is_locked(claim) {
                    let settled = world.table.settle(claim, settlements, now);
                    world.settled(claim.token, settlements, &settled);
                    break settled;
                }
            }
            // A claim's transaction has the lease row locked.
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        self.leave("settle").await?;
        Ok(settled)
    }

    async fn stats(&self, _: &LaneName, _: Ordering) -> Result<LaneStats, StoreError> {
        self.process.pass().await;
        Ok(LaneStats::default())
    }

    async fn delete_published(&self, _: Duration, _: usize) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn heartbeat(&self, _: &Heartbeat<'_>) -> Result<(), StoreError> {
        self.process.pass().await;
        Ok(())
    }
}
