//! An outbox table with its leases and held keys in memory, by the protocol at the top of the contract.
//!
//! Compiled for tests: the simulation of the relay stands on it. It decides by the same pure modules as the
//! adapters (`suspicion`, `plan`) and does what their statements do. It knows no clock and no failure: it is
//! told the time, in milliseconds, and each method is one statement. Not a database to run on.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::plan::{Due, Plan};
use super::suspicion::{
    History, Locked, Lost, RowClaim, fitting_ids, leased_batch, rows_per_shard, taken,
};
use super::tables::WHOLE_LANE;
use super::{Batch, BatchClaim, ClaimRequest, Look, Settled, Settlement};
use crate::event::{Event, EventId, Ordering};

/// Never, for a time that is compared.
const FAR: i64 = i64::MAX / 2;

/// A fault of the table on purpose, to see that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// None: it keeps the protocol.
    Nothing,
    /// A settle writes whether or not the token is still its own.
    SettlesWithoutToken,
    /// A claim takes events whose key is held.
    IgnoresHeldKeys,
    /// A claim reads its events before it has locked their shards.
    ReadsBeforeLocking,
    /// A claim takes shards whose lease has not expired.
    IgnoresLeases,
    /// Nothing is remembered of lost batches.
    ForgetsLosses,
    /// A settle leaves the lease to expire.
    KeepsLeases,
}

/// The state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    Pending,
    Processing,
    Published,
    Failed,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    /// As it is read; `attempts` counts up.
    pub(crate) event: Event,
    pub(crate) status: Status,
    /// When it is due.
    pub(crate) available_at: i64,
    /// The code of what it failed by last.
    pub(crate) failure: Option<&'static str>,
    /// The key that holds it, if it has one.
    key: Option<Vec<u8>>,
    claim: Option<(Uuid, i64)>,
    losses: i32,
}

/// One lease row.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    pub(crate) token: Option<Uuid>,
    pub(crate) expires_at: i64,
    served_at: i64,
    taken: i32,
    highest_id: i64,
    history: History,
    /// Whether a claim's transaction has it locked.
    locked: bool,
}

/// One held key.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) until: i64,
    pub(crate) event_id: i64,
}

/// What a claim reads of its shards: due ids and sizes, shard by shard.
pub(crate) type Reading = Vec<(i64, i64)>;

/// The tables of one lane.
#[derive(Debug)]
pub(crate) struct Table {
    ordering: Ordering,
    planted: Planted,
    pub(crate) rows: BTreeMap<i64, Row>,
    pub(crate) leases: BTreeMap<i32, Lease>,
    pub(crate) held: BTreeMap<Vec<u8>, Held>,
    /// Pending rows by shard, as an index has them.
    pending: BTreeSet<(i32, i64)>,
}

impl Table {
    /// An empty table; a lane that is not one order has so many shards.
    pub(crate) fn new(ordering: Ordering, shards: i32, planted: Planted) -> Self {
        let shards = match ordering {
            Ordering::Key => 0..shards,
            Ordering::Total => WHOLE_LANE..WHOLE_LANE + 1,
            Ordering::None => 0..0,
        };
        Self {
            ordering,
            planted,
            rows: BTreeMap::new(),
            leases: shards.map(|shard| (shard, Lease::default())).collect(),
            held: BTreeMap::new(),
            pending: BTreeSet::new(),
        }
    }

    /// A row that has been committed; `shard` of the event is what its key hashes to.
    pub(crate) fn insert(&mut self, mut event: Event, available_at: i64) {
        let key = match self.ordering {
            Ordering::Key => event.ordering_key().0.map(|key| key.to_vec()),
            Ordering::Total => Some(Vec::new()),
            Ordering::None => None,
        };
        event.shard = match self.ordering {
            Ordering::Key => event.shard,
            Ordering::Total => WHOLE_LANE,
            Ordering::None => 0,
        };
        let id = event.id.0;
        self.pending.insert((event.shard, id));
        let status = Status::Pending;
        let row = Row { event, status, available_at, failure: None, key, claim: None, losses: 0 };
        self.rows.insert(id, row);
    }

    fn is_due(&self, row: &Row, now: i64) -> bool {
        let held = || row.key.as_ref().and_then(|key| self.held.get(key));
        row.status == Status::Pending
            && row.available_at <= now
            && (self.planted == Planted::IgnoresHeldKeys
                || held().is_none_or(|held| held.until <= now))
    }

    /// Due rows of a shard in id order.
    fn due(&self, shard: i32, now: i64) -> impl Iterator<Item = &Row> {
        self.pending
            .range((shard, i64::MIN)..=(shard, i64::MAX))
            .filter_map(|(_, id)| self.rows.get(id))
            .filter(move |row| self.is_due(row, now))
    }

    fn is_free(&self, lease: &Lease, now: i64) -> bool {
        let expired = lease.token.is_none() || lease.expires_at <= now;
        !lease.locked && (expired || self.planted == Planted::IgnoresLeases)
    }

    /// The plain read of a claim: free shards with due work, those served longest ago first.
    pub(crate) fn candidates(&self, request: &ClaimRequest<'_>, now: i64) -> Vec<i32> {
        let mut found: Vec<(i64, i32)> = self
            .leases
            .iter()
            .filter(|(shard, lease)| {
                self.is_free(lease, now) && self.due(**shard, now).next().is_some()
            })
            .map(|(shard, lease)| (lease.served_at, *shard))
            .collect();
        found.sort_unstable();
        found.truncate(request.max_shards);
        found.into_iter().map(|(_, shard)| shard).collect()
    }

    /// The locking read: those that are still free, until [`Table::take`] unlocks them.
    pub(crate) fn lock(&mut self, candidates: &[i32], now: i64) -> Vec<i32> {
        let free = |shard: &i32| self.leases.get(shard).is_some_and(|one| self.is_free(one, now));
        let locked: Vec<i32> = candidates.iter().copied().filter(free).collect();
        for shard in &locked {
            self.leases.entry(*shard).and_modify(|lease| lease.locked = true);
        }
        locked
    }

    /// Whether another transaction has a lease row locked that this claim would write.
    pub(crate) fn is_locked(&self, claim: &BatchClaim) -> bool {
        claim.shards.iter().any(|shard| self.leases.get(shard).is_some_and(|lease| lease.locked))
    }

    /// What [`Table::take`] reads of these shards.
    pub(crate) fn read(&self, request: &ClaimRequest<'_>, shards: &[i32], now: i64) -> Reading {
        let locked = self.look_at(shards);
        for group in Self::groups(&locked) {
            let found = self.read_group(request, group, now);
            if !found.is_empty() {
                return found;
            }
        }
        Reading::new()
    }

    /// The new statement after the lock, the writing of the leases, and the commit. `early` is what was read
    /// before the lock, by a table that does it wrong.
    pub(crate) fn take(
        &mut self,
        request: &ClaimRequest<'_>,
        shards: &[i32],
        now: i64,
        early: Option<Reading>,
    ) -> Option<Batch> {
        let locked = self.look_at(shards);
        let mut batch = None;
        for group in Self::groups(&locked) {
            let found = early.clone().unwrap_or_else(|| self.read_group(request, group, now));
            let shards: Vec<i32> = group.iter().map(|lease| lease.shard).collect();
            let ids = fitting_ids(&found, request.max_bytes);
            let mut events: Vec<Event> = ids.iter().filter_map(|id| self.event(*id, now)).collect();
            events.retain(|event| shards.contains(&event.shard));
            let place = |event: &Event| shards.iter().position(|shard| *shard == event.shard);
            events.sort_by_key(|event| (place(event), event.id));
            batch = leased_batch(request, group, events);
            if let Some(batch) = &batch {
                self.write(request, group, batch, now);
                break;
            }
        }
        for shard in shards {
            self.leases.entry(*shard).and_modify(|lease| lease.locked = false);
        }
        batch
    }

    fn look_at(&self, shards: &[i32]) -> Vec<Locked> {
        let look = |shard: &i32| {
            let lease = self.leases.get(shard)?;
            let history = lease.history.clone();
            let history = match lease.token {
                Some(token) if self.planted != Planted::ForgetsLosses => {
                    history.after(Lost { token, taken: lease.taken, highest_id: lease.highest_id })
                }
                _ => history,
            };
            Some(Locked { shard: *shard, history, stale: false })
        };
        let mut locked: Vec<Locked> = shards.iter().filter_map(look).collect();
        locked.sort_by_key(|lease| lease.history.suspect_id.is_none());
        locked
    }

    /// A suspect shard has no company; they come first.
    fn groups(locked: &[Locked]) -> impl Iterator<Item = &[Locked]> {
        let suspects = locked.partition_point(|lease| lease.history.suspect_id.is_some());
        let (suspects, others) = locked.split_at(suspects);
        suspects.chunks(1).chain((!others.is_empty()).then_some(others))
    }

    fn read_group(&self, request: &ClaimRequest<'_>, group: &[Locked], now: i64) -> Reading {
        let per_shard = rows_per_shard(request, group);
        let of_shard = |lease: &Locked| self.due(lease.shard, now).take(per_shard).map(size_of);
        group.iter().flat_map(of_shard).collect()
    }

    fn event(&self, id: i64, now: i64) -> Option<Event> {
        let row = self.rows.get(&id)?;
        let mut event = row.event.clone();
        let waited = u64::try_from(now - row.available_at.max(event.created_at_ms));
        event.waited = std::time::Duration::from_millis(waited.unwrap_or_default());
        event.holds_key = self.held.values().any(|held| held.event_id == id);
        Some(event)
    }

    fn write(&mut self, request: &ClaimRequest<'_>, group: &[Locked], batch: &Batch, now: i64) {
        for (shard, (taken, highest_id)) in taken(&batch.events) {
            let Some(locked) = group.iter().find(|lease| lease.shard == shard) else { continue };
            let lease = Lease {
                token: Some(request.token.as_uuid()),
                expires_at: now + millis(request.lease),
                served_at: now,
                taken,
                highest_id,
                history: locked.history.clone(),
                locked: true,
            };
            self.leases.insert(shard, lease);
        }
    }

    /// What a full look clears away: holds that are over and whose event waits no more.
    pub(crate) fn tidy_up(&mut self, now: i64) {
        let rows = &self.rows;
        let waits = |id: &i64| rows.get(id).is_some_and(|row| row.status == Status::Pending);
        self.held.retain(|_, held| held.until > now || waits(&held.event_id));
    }

    /// Claims rows one by one; on a full look those under expired claims first.
    pub(crate) fn claim_rows(&mut self, request: &ClaimRequest<'_>, now: i64) -> Option<Batch> {
        let mut expired: Vec<(i64, i64, i32)> = self
            .rows
            .values()
            .filter(|row| row.status == Status::Processing)
            .filter(|row| {
                row.claim.is_some_and(|(_, end)| end <= now)
                    || self.planted == Planted::IgnoresLeases
            })
            .map(|row| (row.event.id.0, 1, row.losses))
            .collect();
        expired.sort_by_key(|(id, _, losses)| (*losses, *id));
        expired.truncate(request.max_rows);
        let claim = if request.look == Look::Full && !expired.is_empty() {
            RowClaim::expired(request, &expired)
        } else {
            let due: Reading = self.due(0, now).take(request.max_rows).map(size_of).collect();
            RowClaim::fresh(request, &due)
        };
        if claim.ids.is_empty() {
            return None;
        }
        for id in &claim.ids {
            self.pending.remove(&(0, *id));
            if let Some(row) = self.rows.get_mut(id) {
                row.status = Status::Processing;
                row.claim = Some((request.token.as_uuid(), now + millis(request.lease)));
                row.losses += claim.losses;
            }
        }
        let events = claim.ids.iter().filter_map(|id| self.event(*id, now)).collect();
        Some(claim.batch(request, events))
    }

    /// Extends a claim to `lease` from now; false when any part of it was lost.
    pub(crate) fn renew(
        &mut self,
        claim: &BatchClaim,
        lease: std::time::Duration,
        now: i64,
    ) -> bool {
        let (token, until) = (claim.token.as_uuid(), now + millis(lease));
        let mut whole = true;
        for shard in &claim.shards {
            match self.leases.get_mut(shard).filter(|lease| lease.token == Some(token)) {
                Some(lease) => lease.expires_at = until,
                None => whole = false,
            }
        }
        for EventId(id) in &claim.rows {
            match self.rows.get_mut(id).and_then(|row| row.claim.as_mut()) {
                Some(claim) if claim.0 == token => claim.1 = until,
                _ => whole = false,
            }
        }
        whole
    }

    /// Writes outcomes of what is still under the claim's token, and releases it.
    pub(crate) fn settle(
        &mut self,
        claim: &BatchClaim,
        settlements: &[Settlement],
        now: i64,
    ) -> Settled {
        let token = claim.token.as_uuid();
        let careless = self.planted == Planted::SettlesWithoutToken;
        let is_ours = |one: &&Settlement| {
            let owner = match claim.ordering {
                Ordering::None => self.rows.get(&one.id.0).and_then(|row| Some(row.claim?.0)),
                Ordering::Key | Ordering::Total => {
                    self.leases.get(&one.shard).and_then(|lease| lease.token)
                }
            };
            careless || owner == Some(token)
        };
        let (owned, lost): (Vec<_>, Vec<_>) = settlements.iter().partition(is_ours);
        let mut settled = Settled { lost: lost.iter().map(|one| one.id).collect(), lost_claims: 0 };
        self.forgive(claim, &settled.lost, &mut settled.lost_claims);
        let plan = Plan::of(&owned, claim.ordering);
        for done in &plan.done {
            self.finish(done.id, Status::Published);
        }
        for put_off in &plan.deferred {
            let id = put_off.id;
            self.finish(
                id,
                if put_off.status == "FAILED" { Status::Failed } else { Status::Pending },
            );
            if let Some(row) = self.rows.get_mut(&id) {
                row.event.attempts += put_off.attempts.unsigned_abs();
                row.available_at = due_at(put_off.due, now).unwrap_or(row.available_at);
                row.failure = Some(put_off.failure.cause.code());
            }
        }
        if claim.ordering == Ordering::None {
            plan.released.iter().for_each(|id| self.finish(*id, Status::Pending));
            return settled;
        }
        self.held.retain(|_, held| !plan.let_go.contains(&held.event_id));
        for hold in &plan.holds {
            let until = due_at(hold.due, now).unwrap_or(now);
            self.held.insert(hold.key.to_vec(), Held { until, event_id: hold.id });
        }
        if self.planted != Planted::KeepsLeases {
            self.release(claim);
        }
        settled
    }

    /// We are alive, so the loss of our claim says nothing against its events.
    fn forgive(&mut self, claim: &BatchClaim, lost: &[EventId], lost_claims: &mut usize) {
        let token = Some(claim.token.as_uuid());
        for shard in &claim.shards {
            let Some(lease) = self.leases.get_mut(shard) else { continue };
            *lost_claims += usize::from(lease.token != token);
            if lease.token != token && lease.history.lost_token == token {
                lease.history = History::default();
            }
        }
        if claim.ordering == Ordering::None {
            *lost_claims = lost.len();
            for EventId(id) in lost {
                let Some(row) = self.rows.get_mut(id) else { continue };
                if row.status == Status::Processing {
                    row.losses = (row.losses - 1).max(0);
                }
            }
        }
    }

    /// Moves a row that still waits to another state; one that somebody has settled is left alone.
    fn finish(&mut self, id: i64, status: Status) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if !matches!(row.status, Status::Pending | Status::Processing) {
            return;
        }
        (row.status, row.claim, row.losses) = (status, None, 0);
        let place = (row.event.shard, id);
        if status == Status::Pending {
            self.pending.insert(place);
        } else {
            self.pending.remove(&place);
        }
    }

    fn release(&mut self, claim: &BatchClaim) {
        let token = Some(claim.token.as_uuid());
        for shard in &claim.shards {
            let Some(lease) = self.leases.get_mut(shard) else { continue };
            if lease.token != token {
                continue;
            }
            // Having passed the suspect id without dying, the shard is beyond suspicion.
            if lease.history.suspect_id.is_some_and(|suspect| lease.highest_id >= suspect) {
                let lost_token = lease.history.lost_token;
                lease.history = History { lost_token, ..History::default() };
            }
            (lease.token, lease.taken) = (None, 0);
        }
    }
}

/// Id and size of a row; a payload counts as one byte.
fn size_of(row: &Row) -> (i64, i64) {
    (row.event.id.0, 1)
}

fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(FAR)
}

fn due_at(due: Due, now: i64) -> Option<i64> {
    match due {
        Due::After(after) => Some(now.saturating_add(millis(after)).min(FAR)),
        Due::Never => Some(FAR),
        Due::Unchanged => None,
    }
}
