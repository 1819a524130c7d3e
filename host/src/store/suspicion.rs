//! What an expired claim says about the events that were under it, and what is taken next. Pure.
//!
//! Called by the adapters for every lease they have locked and for rows under expired claims. The
//! rules stand in prose at the top of the store contract.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Batch, ClaimRequest, Suspicion};
use crate::event::Event;

/// Losses of a batch of one that convict its event.
const LOSSES_TO_CONVICT: i32 = 3;

/// Losses of a row that had ever less company, the last three of them alone, before it is convicted:
/// in a crowd, in an eighth of it, in a sixty-fourth, then three times alone.
const ROW_LOSSES_TO_CONVICT: i32 = 6;

/// One lease row, locked.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) shard: i32,
    pub(super) history: History,
    /// Whether what the row says of its shard has not been brought up to date for a while.
    pub(super) stale: bool,
}

/// How many events of each of these shards one batch may hold.
pub(super) fn rows_per_shard(request: &ClaimRequest<'_>, locked: &[Locked]) -> usize {
    let own_limit = locked.first().and_then(|lease| lease.history.limit()).unwrap_or(usize::MAX);
    (request.max_rows / locked.len().max(1)).clamp(1, own_limit)
}

/// The number and the highest id of the events of each shard.
pub(super) fn taken(events: &[Event]) -> HashMap<i32, (i32, i64)> {
    let mut of_shard: HashMap<i32, (i32, i64)> = HashMap::new();
    for event in events {
        let entry = of_shard.entry(event.shard).or_insert((0, event.id.0));
        *entry = (entry.0 + 1, entry.1.max(event.id.0));
    }
    of_shard
}

/// The batch of these leases; `None` without events.
pub(super) fn leased_batch(
    request: &ClaimRequest<'_>,
    locked: &[Locked],
    events: Vec<Event>,
) -> Option<Batch> {
    if events.is_empty() {
        return None;
    }
    let per_shard = rows_per_shard(request, locked);
    let of_shard = taken(&events);
    let suspicion = match locked {
        [only] => {
            let ids: Vec<i64> = events.iter().map(|event| event.id.0).collect();
            only.history.verdict(&ids)
        }
        _ => Suspicion::None,
    };
    let full = of_shard.values().any(|(taken, _)| usize::try_from(*taken).is_ok_and(|n| n >= per_shard))
        || locked.len() >= request.max_shards
        // Read up to the byte limit, or nearly.
        || events.iter().map(Event::payload_len).sum::<usize>() >= request.max_bytes / 2;
    Some(Batch {
        token: request.token,
        ordering: request.ordering,
        shards: of_shard.into_keys().collect(),
        events,
        suspicion,
        full,
    })
}

/// Rows that are to be claimed one by one, and what is said of them.
#[derive(Debug)]
pub(super) struct RowClaim {
    pub(super) ids: Vec<i64>,
    /// Losses to add to each.
    pub(super) losses: i32,
    full: bool,
    suspicion: Suspicion,
}

impl RowClaim {
    /// From due rows, given as id and payload size, that were read up to the limit.
    pub(super) fn fresh(request: &ClaimRequest<'_>, rows: &[(i64, i64)]) -> Self {
        let ids = fitting_ids(rows, request.max_bytes);
        let full = rows.len() >= request.max_rows || ids.len() < rows.len();
        Self { ids, losses: 0, full, suspicion: Suspicion::None }
    }

    /// From rows under expired claims, given as id, payload size and losses so far, those with the
    /// fewest losses first: the more often they were lost, the fewer at once.
    pub(super) fn expired(request: &ClaimRequest<'_>, rows: &[(i64, i64, i32)]) -> Self {
        let losses = rows.first().map_or(0, |(_, _, losses)| *losses);
        let at_once = match losses {
            0 => request.max_rows.div_ceil(8),
            1 => request.max_rows.div_ceil(64),
            _ => 1,
        };
        let alike = rows.iter().take_while(|row| row.2 == losses).take(at_once);
        let alike: Vec<(i64, i64)> = alike.map(|(id, size, _)| (*id, *size)).collect();
        let convicted = losses + 1 >= ROW_LOSSES_TO_CONVICT;
        Self {
            ids: fitting_ids(&alike, request.max_bytes),
            losses: 1,
            full: true,
            suspicion: if convicted { Suspicion::Convicted } else { Suspicion::Suspect },
        }
    }

    /// The batch of these rows, once they are marked.
    pub(super) fn batch(&self, request: &ClaimRequest<'_>, events: Vec<Event>) -> Batch {
        Batch {
            token: request.token,
            ordering: request.ordering,
            shards: Vec::new(),
            events,
            suspicion: self.suspicion,
            full: self.full,
        }
    }
}

/// The ids of the rows that fit into one batch by their payload sizes, in order: at least one.
pub(super) fn fitting_ids(rows: &[(i64, i64)], max_bytes: usize) -> Vec<i64> {
    let limit = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let mut bytes = 0_i64;
    let mut ids = Vec::new();
    for (id, size) in rows {
        bytes = bytes.saturating_add(*size);
        if !ids.is_empty() && bytes > limit {
            break;
        }
        ids.push(*id);
    }
    ids
}

/// What a lease row remembers of lost batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) losses: i32,
    pub(super) lost_token: Option<Uuid>,
    pub(super) suspect_id: Option<i64>,
    pub(super) suspect_limit: Option<i32>,
    pub(super) alone_id: Option<i64>,
    pub(super) alone_losses: i32,
}

/// The batch that was under a lease when it expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    pub(super) token: Uuid,
    pub(super) taken: i32,
    pub(super) highest_id: i64,
}

impl History {
    /// The history once the batch `lost` has expired without release.
    pub(super) fn after(mut self, lost: Lost) -> Self {
        // Only a flagged batch ran alone in its process, so only its loss can be its event's fault.
        let was_alone = self.suspect_id.is_some() && lost.taken == 1;
        if was_alone && self.alone_id == Some(lost.highest_id) {
            self.alone_losses += 1;
        } else {
            self.alone_losses = i32::from(was_alone);
            self.alone_id = was_alone.then_some(lost.highest_id);
        }
        self.losses += 1;
        self.lost_token = Some(lost.token);
        self.suspect_id = Some(self.suspect_id.unwrap_or(lost.highest_id).max(lost.highest_id));
        self.suspect_limit = Some((lost.taken / 2).max(1));
        self
    }

    /// How many events the next batch may hold; `None` is no limit of its own.
    pub(super) fn limit(&self) -> Option<usize> {
        self.suspect_id?;
        Some(usize::try_from(self.suspect_limit.unwrap_or(1)).unwrap_or(1).max(1))
    }

    /// What to say of a batch whose events are `ids`.
    pub(super) fn verdict(&self, ids: &[i64]) -> Suspicion {
        match (self.suspect_id, self.alone_id, ids) {
            (None, _, _) => Suspicion::None,
            (Some(_), Some(alone), [only])
                if alone == *only && self.alone_losses >= LOSSES_TO_CONVICT =>
            {
                Suspicion::Convicted
            }
            (Some(_), _, _) => Suspicion::Suspect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(taken: i32, highest_id: i64) -> Lost {
        Lost { token: Uuid::nil(), taken, highest_id }
    }

    #[test]
    fn a_killer_among_a_thousand_is_convicted_within_a_dozen_losses() {
        // Events 1..=1000, number 700 kills; a batch is always the lowest ids left.
        let (mut history, mut next, mut losses) = (History::default(), 1_i64, 0);
        loop {
            let size = history.limit().unwrap_or(1000).min(1000) as i64;
            let ids: Vec<i64> = (next..next + size).collect();
            if history.verdict(&ids) == Suspicion::Convicted {
                assert_eq!(ids, [700]);
                break;
            }
            let highest = next + size - 1;
            if ids.contains(&700) {
                losses += 1;
                history = history.after(lost(size as i32, highest));
            } else {
                next = highest + 1;
                if history.suspect_id.is_some_and(|id| highest >= id) {
                    history = History::default();
                }
            }
        }
        assert!(losses <= 13, "{losses}");
    }

    #[test]
    fn losses_in_company_convict_nobody() {
        let mut history = History::default();
        for _ in 0..10 {
            history = history.after(lost(2, 9));
        }
        assert_eq!(history.verdict(&[9]), Suspicion::Suspect);
        assert_eq!(history.alone_losses, 0);
    }

    #[test]
    fn losses_of_different_single_events_do_not_add_up() {
        let mut history = History::default().after(lost(8, 8));
        for id in [1, 2, 1, 2, 1, 2] {
            history = history.after(lost(1, id));
            assert_eq!(history.verdict(&[id]), Suspicion::Suspect);
        }
    }

    #[test]
    fn a_first_loss_of_one_event_does_not_count_as_alone() {
        let history = History::default().after(lost(1, 5));
        assert_eq!((history.alone_losses, history.limit()), (0, Some(1)));
    }
}
