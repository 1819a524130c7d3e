//! One batch, from claim to settlement.
//!
//! Spawned by the lane loop, one task per batch. Renews the claim while it works, publishes, and
//! settles only what was acknowledged. Never claims, and never holds a database transaction.

use std::sync::atomic::Ordering as Memory;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, watch};

use super::outcome::{self, Destination, Outcomes};
use super::plan;
use super::verdict::{self, Observers};
use super::{LaneContext, Phase};
use crate::clock::Moment;
use crate::event::Event;
use crate::failure::{Cause, Failure};
use crate::retry::{backoff, jittered};
use crate::sink::{Fence, Receipt};
use crate::store::{Action, Batch, BatchClaim, Settled, Settlement, StoreError, Suspicion};

/// Pauses between attempts to settle while the database is away.
const FIRST_SETTLE_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_SETTLE_PAUSE: Duration = Duration::from_secs(3);

/// What the lane loop learns from a batch.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// An infrastructure failure: the lane has to pause.
    pub(super) trouble: Option<Failure>,
    /// Whether anything was settled.
    pub(super) progress: bool,
}

/// Works on a batch to its end.
pub(super) async fn work(
    lane: Arc<LaneContext>,
    batch: Batch,
    fence: Fence,
    claimed: Moment,
    mut phase: watch::Receiver<Phase>,
) -> Report {
    let claim = batch.claim();
    let _counted = lane.metrics.batch_in_flight();
    lane.metrics.events_waited(batch.events.iter().map(|event| event.waited));
    let company = Company::default();
    let mut outcomes = tokio::select! {
        biased;
        // 1. Shutdown has run out of patience: what is in flight is let go, the rest given back.
        outcomes = abandoned(&lane, &batch, &fence, &mut phase, &company) => outcomes,
        // 2. The claim is renewed for as long as the work takes; it never resolves.
        () = keep(&lane, &claim, &fence) => Outcomes::default(),
    };
    tell(&lane, &outcomes);
    let trouble = outcomes.trouble.take();
    #[cfg(feature = "fail-points")]
    crate::failpoint::pass("settling", &batch.events).await;
    let settled = settle(&lane, &claim, &mut outcomes.settlements, &mut phase).await;
    #[cfg(feature = "fail-points")]
    if settled.is_ok() {
        crate::failpoint::pass("settled", &batch.events).await;
    }
    // Only now may others run: until a suspect batch is settled, a crash would be laid to its door.
    drop(company);
    lane.metrics.events_worked(claimed.elapsed(), batch.events.len());
    match settled {
        Ok(settled) => {
            count(&lane, &batch, &outcomes.settlements, &settled);
            // Giving back and putting off is no progress.
            let progress = outcomes.settlements.iter().any(|one| match one.action {
                Action::Release | Action::Wait { .. } => false,
                Action::Published
                | Action::Dropped(_)
                | Action::Retry { .. }
                | Action::Park(_)
                | Action::Halt(_) => true,
            });
            Report { progress, trouble }
        }
        Err(failure) => Report { progress: false, trouble: trouble.or(Some(failure)) },
    }
}

/// The place in the process's company that a batch holds from the start of its work to its
/// settlement: shared, or for itself.
#[derive(Default)]
struct Company {
    shared: OnceLock<OwnedRwLockReadGuard<()>>,
    alone: OnceLock<OwnedRwLockWriteGuard<()>>,
}

impl Company {
    async fn take(&self, lane: &LaneContext, suspicion: Suspicion) {
        let company = Arc::clone(&lane.company);
        // Each batch takes its place once, so the cells are empty.
        let _ = match suspicion {
            Suspicion::None => self.shared.set(company.read_owned().await).is_ok(),
            // Run with nothing else in the process, so that a crash names it.
            Suspicion::Suspect => self.alone.set(company.write_owned().await).is_ok(),
            Suspicion::Convicted => true,
        };
    }
}

/// What people should hear of a batch as a whole.
fn tell(lane: &LaneContext, outcomes: &Outcomes) {
    lane.metrics.deliveries_published(outcomes.acknowledged);
    for (failure, rest) in &outcomes.opened {
        tracing::warn!(lane = %lane.name, %failure, again_in = ?rest,
            "events wait for their destination; no attempts are used");
    }
    for topic in &outcomes.closed {
        tracing::info!(lane = %lane.name, topic, "topic works again");
    }
    if outcomes.overtaken > 0 {
        tracing::warn!(lane = %lane.name, events = outcomes.overtaken,
            "events were acknowledged ahead of an undecided event of their key");
    }
}

/// Transforms and publishes; on [`Phase::Abandon`] lets the sink decide what it can at once.
async fn abandoned(
    lane: &LaneContext,
    batch: &Batch,
    fence: &Fence,
    phase: &mut watch::Receiver<Phase>,
    company: &Company,
) -> Outcomes {
    let carried = carry(lane, batch, fence, company);
    tokio::pin!(carried);
    tokio::select! {
        biased;
        // 1. What is finished counts, whatever was said meanwhile.
        outcomes = &mut carried => return outcomes,
        // 2. Shutdown has run out of patience.
        () = super::reached(phase, Phase::Abandon) => {}
    }
    fence.close();
    lane.sink.abandon();
    match tokio::time::timeout(lane.abandon_limit, carried).await {
        Ok(outcomes) => outcomes,
        // Still with a plugin: nothing of it was published.
        Err(_) => released(&batch.events),
    }
}

/// Renews the claim at a third of its life, so that two renewals may fail.
async fn keep(lane: &LaneContext, claim: &BatchClaim, fence: &Fence) {
    let lease = lane.config.lease;
    loop {
        tokio::time::sleep(lease / 3).await;
        let before = Moment::now();
        // One that hangs must leave time for another.
        let renewed = tokio::time::timeout(lease / 4, lane.store.renew(&lane.name, claim, lease));
        match renewed.await {
            Ok(Ok(true)) => fence.extend(before.plus(lease)),
            Ok(Ok(false)) => {
                tracing::warn!(lane = %lane.name, "a claim was lost while its batch was being worked on");
                fence.close();
                std::future::pending::<()>().await;
            }
            Ok(Err(error)) => {
                tracing::warn!(lane = %lane.name, error = %super::chain(&error), "a claim could not be renewed");
            }
            Err(_) => tracing::warn!(lane = %lane.name, "a renewal hangs"),
        }
    }
}

async fn carry(lane: &LaneContext, batch: &Batch, fence: &Fence, company: &Company) -> Outcomes {
    company.take(lane, batch.suspicion).await;
    if batch.suspicion == Suspicion::Convicted {
        return convicted(batch);
    }
    // Held until the records are acknowledged: no newer rules before the older ones are through.
    let rules = lane.rules.enter(|| lane.circuits().rules_changed()).await;
    let started = Moment::now();
    let judged = {
        let _turn = lane.transforms.acquire().await;
        let observers = Observers { trials: &lane.trials, shadows: &lane.shadows };
        verdict::judge(&lane.name, &batch.events, &rules, Some(&observers)).await
    };
    lane.metrics.transform_took(started.elapsed());
    #[cfg(feature = "fail-points")]
    crate::failpoint::pass("transformed", &batch.events).await;
    let plan = {
        let mut circuits = lane.circuits();
        plan::plan(&lane.name, batch.ordering, &batch.events, judged, &mut circuits)
    };
    if let Some(key) = &plan.shared_key
        && !lane.shared_key_told.swap(true, Memory::Relaxed)
    {
        tracing::warn!(lane = %lane.name, key = %String::from_utf8_lossy(key),
            "events of different ordering keys share a record key: consumers see them in order only \
             with ordering = \"total\"");
    }
    #[cfg(feature = "fail-points")]
    crate::failpoint::pass("planned", &batch.events).await;
    let destinations: Vec<Destination> = plan.outgoing.iter().map(Destination::from).collect();
    let receipts = if plan.outgoing.is_empty() {
        Vec::new()
    } else {
        let started = Moment::now();
        let receipts = lane.sink.publish(plan.outgoing, fence).await;
        lane.metrics.publish_took(started.elapsed());
        receipts
    };
    let receipts = complete(receipts, destinations.len());
    #[cfg(feature = "fail-points")]
    crate::failpoint::pass("published", &batch.events).await;
    outcome::decide(
        &batch.events,
        batch.ordering,
        plan.standings,
        &destinations,
        receipts,
        &lane.config.retry,
        &mut lane.circuits(),
    )
}

/// A sink that broke its contract must not make an event count as published.
fn complete(mut receipts: Vec<Receipt>, expected: usize) -> Vec<Receipt> {
    receipts.resize(expected, Receipt::Unsent);
    receipts
}

fn convicted(batch: &Batch) -> Outcomes {
    let failure = Failure::new(
        Cause::ProcessCrash,
        "this event was alone in three processes that died while working on it",
    );
    Outcomes {
        settlements: settlements(&batch.events, &Action::Park(failure)),
        ..Outcomes::default()
    }
}

fn released(events: &[Event]) -> Outcomes {
    Outcomes { settlements: settlements(events, &Action::Release), ..Outcomes::default() }
}

fn settlements(events: &[Event], action: &Action) -> Vec<Settlement> {
    events
        .iter()
        .map(|event| Settlement {
            id: event.id,
            shard: event.shard,
            key: event.ordering_key(),
            holds_key: event.holds_key,
            action: action.clone(),
        })
        .collect()
}

/// Counts what was settled; what was lost will be taken again and counted then.
fn count(lane: &LaneContext, batch: &Batch, settlements: &[Settlement], settled: &Settled) {
    let (mut published, mut dropped, mut released) = (0, 0, 0);
    for (event, one) in batch.events.iter().zip(settlements) {
        if settled.lost.contains(&one.id) {
            continue;
        }
        match &one.action {
            Action::Published => published += 1,
            Action::Dropped(_) => dropped += 1,
            Action::Release => released += 1,
            Action::Retry { failure, after } => {
                lane.metrics.retried(failure.cause, 1);
                tracing::warn!(lane = %lane.name, event = %one.id, event_type = event.event_type,
                    attempt = event.attempts + 1, again_in = ?after, %failure, "event failed");
            }
            Action::Wait { failure, after } => {
                lane.metrics.waiting(failure.cause, 1);
                tracing::debug!(lane = %lane.name, event = %one.id, event_type = event.event_type,
                    again_in = ?after, %failure, "event waits for its destination");
            }
            Action::Park(failure) => {
                lane.metrics.failed(failure.cause, 1);
                tracing::error!(lane = %lane.name, event = %one.id, event_type = event.event_type, %failure,
                    "event parked as FAILED");
            }
            Action::Halt(failure) => {
                lane.metrics.failed(failure.cause, 1);
                tracing::error!(lane = %lane.name, event = %one.id, event_type = event.event_type, %failure,
                    "event halts its key");
            }
        }
    }
    lane.metrics.published(published);
    lane.health.published(published);
    lane.metrics.dropped(dropped);
    lane.metrics.released(released);
}

/// Settles, and goes on trying while the database is away or refuses: settling by token is always safe,
/// and giving up would repeat what was acknowledged. While it refuses, the claim is kept.
async fn settle(
    lane: &LaneContext,
    claim: &BatchClaim,
    settlements: &mut [Settlement],
    phase: &mut watch::Receiver<Phase>,
) -> Result<Settled, Failure> {
    let started = Moment::now();
    let mut refused = false;
    let mut attempt = 0_u32;
    loop {
        let error = match lane.store.settle(&lane.name, claim, settlements).await {
            Ok(settled) => {
                lane.metrics.settle_took(started.elapsed());
                report_losses(lane, &settled);
                return Ok(settled);
            }
            Err(error) => error,
        };
        tracing::warn!(lane = %lane.name, error = %super::chain(&error), "outcomes could not be settled yet");
        let unavailable = || Failure::new(Cause::DatabaseUnavailable, super::chain(&error));
        match &error {
            StoreError::Unavailable { .. } => {
                lane.health.blocked(unavailable().to_string());
            }
            StoreError::Schema { .. } | StoreError::Refused { .. } if refused => {
                if lane.health.blocked(unavailable().to_string()) {
                    tracing::error!(lane = %lane.name, error = %super::chain(&error),
                        "the database refuses what was acknowledged; it is kept, and tried again");
                }
            }
            // Something in the outcomes is refused: the acknowledged ones must be written all the same.
            StoreError::Schema { .. } | StoreError::Refused { .. } => {
                refused = true;
                for one in settlements.iter_mut() {
                    if !matches!(one.action, Action::Published) {
                        one.action = Action::Release;
                    }
                }
            }
        }
        if *phase.borrow() == Phase::Abandon {
            return Err(unavailable());
        }
        let pause = jittered(backoff(FIRST_SETTLE_PAUSE, LONGEST_SETTLE_PAUSE, attempt));
        let pause = pause.min(lane.config.lease / 4);
        if refused && let Err(error) = lane.store.renew(&lane.name, claim, lane.config.lease).await
        {
            tracing::warn!(lane = %lane.name, error = %super::chain(&error), "a claim could not be renewed");
        }
        tokio::select! {
            biased;
            // 1. Either way it is tried again, the last time without a pause.
            () = super::reached(phase, Phase::Abandon) => {}
            // 2. The pause is over.
            () = tokio::time::sleep(pause) => {}
        }
        attempt = attempt.saturating_add(1);
    }
}

fn report_losses(lane: &LaneContext, settled: &Settled) {
    if settled.lost_claims > 0 {
        lane.metrics.leases_lost(settled.lost_claims as u64);
        lane.metrics.settles_lost(settled.lost.len() as u64);
        tracing::warn!(lane = %lane.name, claims = settled.lost_claims, events = settled.lost.len(),
            "a claim was lost before its outcomes were settled; its events will be taken again");
    }
}
