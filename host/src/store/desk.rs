//! What operators look at and change: events, held keys, and the record of who changed what.
//!
//! The contract of the commands `events`, `keys`, `replay` and `audit` with a database; the relay never
//! calls it. Everything is bounded: lists have limits, and a change takes at most [`MOST_CHANGED`] events.
//!
//! # What a change may touch
//!
//! A change is one transaction. It locks the leases of the events' shards first, so that nobody claims
//! them meanwhile, then the rows, and looks again at each: an event that may be in the batch of a live
//! lease is left alone. What becomes due by it may lie below the bounds from which claims look; so the
//! bounds of those shards are forgotten, or a younger event of a key could be found before an older one.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use super::standing::age;
use crate::event::EventId;
use crate::failure::PluginStamp;

/// Most events of one [`Desk::change`].
pub const MOST_CHANGED: usize = 1000;
/// Most entries of one list.
pub const MOST_LISTED: usize = 1000;
/// Events behind a held key are counted up to this.
pub const MOST_BEHIND: i64 = 1000;

/// How an event stands, as people ask for it. The first four are the states of the design; the last two
/// are parts of PENDING.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventState {
    /// To be published.
    Pending,
    /// In the hands of an instance. In leased lanes the row says PENDING meanwhile.
    Processing,
    /// Published, or dropped, and kept.
    Published,
    /// Set aside.
    Failed,
    /// Pending after a failure, due again by itself.
    Waiting,
    /// Pending after a failure, and halting its key until someone decides.
    Halted,
}

impl EventState {
    /// Every state with its name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("pending", Self::Pending),
        ("processing", Self::Processing),
        ("published", Self::Published),
        ("failed", Self::Failed),
        ("waiting", Self::Waiting),
        ("halted", Self::Halted),
    ];

    /// Whether an event in `state` is in this one: PENDING has parts.
    pub fn covers(self, state: Self) -> bool {
        self == state || (self == Self::Pending && matches!(state, Self::Waiting | Self::Halted))
    }

    /// The state of that name, whatever its case.
    pub fn named(name: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, state)| *state)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or("", |(name, _)| name)
    }
}

/// Which events are meant: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// One of these; empty is any.
    pub ids: Vec<EventId>,
    /// In one of these states; empty is any.
    pub states: Vec<EventState>,
    /// Of this lane.
    pub lane: Option<String>,
    /// With this ordering key.
    pub key: Option<String>,
    /// Of this type; `*` stands for any run of characters.
    pub event_type: Option<String>,
    /// Whose last failure has this code.
    pub reason: Option<String>,
    /// Whose last failure has not this code.
    pub except_reason: Option<&'static str>,
    /// Created at this moment or later, in milliseconds since the epoch.
    pub since_ms: Option<i64>,
    /// Created before this moment.
    pub until_ms: Option<i64>,
}

/// Stands in place of a failure's code for events that were discarded and kept.
pub const DISCARDED: &str = "discarded";

/// Which held keys are meant, and what is wanted of them.
#[derive(Debug, Clone, Copy)]
pub struct HeldQuery<'a> {
    /// Of this lane.
    pub lane: Option<&'a str>,
    /// This key.
    pub key: Option<&'a str>,
    /// Held for this reason.
    pub reason: Option<&'a str>,
    /// Behind this lane and key.
    pub after: Option<(&'a str, &'a str)>,
    /// At most so many.
    pub limit: usize,
    /// Whether the events that wait are counted.
    pub behind: Behind,
}

/// Whether the events of a held key are counted, which looks at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// They are.
    Counted,
    /// They are not: 0.
    Uncounted,
}

/// When an event is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueIn {
    /// Already.
    Now,
    /// After this time.
    After(Duration),
    /// Not by itself.
    Never,
}

impl DueIn {
    /// From the milliseconds that are left; none for a time that never comes.
    pub(super) fn of_millis_left(left: Option<i64>) -> Self {
        match left {
            None => Self::Never,
            Some(..=0) => Self::Now,
            Some(left) => Self::After(age(left)),
        }
    }
}

/// One event, without its headers and payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSeen {
    /// The row's id.
    pub id: EventId,
    /// Its lane.
    pub lane: String,
    /// How it stands; never [`EventState::Pending`] where a closer word fits.
    pub state: EventState,
    /// Its ordering key; `None` is NULL.
    pub key: Option<String>,
    /// What it is about.
    pub aggregate_type: String,
    /// Which one it is about.
    pub aggregate_id: Option<String>,
    /// What happened.
    pub event_type: String,
    /// The row's own topic.
    pub topic: Option<String>,
    /// Attempts used.
    pub attempts: u32,
    /// Milliseconds since the epoch.
    pub created_at_ms: i64,
    /// Milliseconds since the epoch, if it is published.
    pub published_at_ms: Option<i64>,
    /// When it is due; for a pending event.
    pub due: DueIn,
    /// The code of its last failure.
    pub reason: Option<String>,
    /// The text of its last failure, or why it was dropped.
    pub error: Option<String>,
    /// The plugin its last failure came from.
    pub plugin: Option<PluginStamp>,
    /// What brought it back after it was parked or published: `retry/17` or `replay/17`, with the number
    /// of the audit record.
    pub redelivery: Option<String>,
    /// Size of the payload; `None` is NULL.
    pub payload_bytes: Option<u64>,
}

/// One event with everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventWhole {
    /// All but the rest.
    pub seen: EventSeen,
    /// The headers column as it stands.
    pub headers: Option<String>,
    /// The payload as it would be published.
    pub payload: Option<Vec<u8>>,
    /// Whether its key is held because of it.
    pub holds_key: bool,
    /// The instance in whose batch it may be at this moment.
    pub owner: Option<String>,
}

/// A key whose later events wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    /// The lane.
    pub lane: String,
    /// The ordering key; empty in lanes that are one order.
    pub key: String,
    /// The event that the others wait for.
    pub event: EventId,
    /// Whether that event is still there and pending; if not, the hold ends at its next look.
    pub event_pending: bool,
    /// The code of the failure.
    pub reason: String,
    /// When it is tried again.
    pub until: DueIn,
    /// How long it has been held.
    pub held_for: Duration,
    /// Events of the key that are pending, that one included, counted up to [`MOST_BEHIND`].
    pub waiting: u64,
}

/// What is done to events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// FAILED, halted and waiting events are due at once, with all attempts before them.
    Retry,
    /// Events are done with unpublished, for this reason: deleted or PUBLISHED, as the source settles.
    Discard(String),
    /// PUBLISHED and FAILED events are published again.
    Replay,
    /// Halted and waiting events become FAILED, and their keys go on.
    SetAside,
}

/// Why an event was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no such event any more.
    Gone,
    /// An instance may be working on it at this moment.
    InFlight,
    /// It is in a state that the change is not for.
    Unfit(EventState),
}

/// What a change did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Events that were changed, by id.
    pub done: Vec<EventId>,
    /// Events that were not, and why.
    pub refused: Vec<(EventId, Refusal)>,
}

/// What there was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The highest id; 0 without rows.
    pub highest: EventId,
    /// The moment, by the database's clock, in milliseconds since the epoch.
    pub now_ms: i64,
}

impl Horizon {
    /// Whether an event was there, and in its present state if that is PUBLISHED.
    pub fn covers(&self, event: &EventSeen) -> bool {
        event.id <= self.highest && event.published_at_ms.is_none_or(|at| at <= self.now_ms)
    }
}

/// What is to be changed.
pub(super) struct Wanted<'a> {
    pub(super) source: &'a str,
    pub(super) change: &'a Change,
    pub(super) ids: &'a [EventId],
    /// The states in which the events were chosen; empty is any.
    pub(super) states: &'a [EventState],
}

/// Events under the lock, sorted by whether they are changed.
pub(super) struct Sorted {
    /// Those that are, with their states until now.
    pub(super) fit: Vec<(EventId, EventState)>,
    /// Those that are not, and why.
    pub(super) refused: Vec<(EventId, Refusal)>,
    /// Those that were not found.
    pub(super) missing: Vec<EventId>,
}

impl Wanted<'_> {
    /// Sorts what was found under the lock.
    pub(super) fn sort(&self, found: Vec<(EventId, EventState, InFlight)>) -> Sorted {
        let mut missing: BTreeSet<EventId> = self.ids.iter().copied().collect();
        let (mut fit, mut refused) = (Vec::new(), Vec::new());
        for (id, state, in_flight) in found {
            missing.remove(&id);
            match refusal(self.change, self.states, state, in_flight) {
                Some(why) => refused.push((id, why)),
                None => fit.push((id, state)),
            }
        }
        Sorted { fit, refused, missing: missing.into_iter().collect() }
    }
}

impl Sorted {
    /// What the change will have done, once those that fit are written; `absent` is why the missing are.
    pub(super) fn changed(&self, absent: impl Fn(EventId) -> Refusal) -> Changed {
        let absent = self.missing.iter().map(|id| (*id, absent(*id)));
        let mut refused: Vec<_> = self.refused.iter().copied().chain(absent).collect();
        refused.sort_unstable_by_key(|(id, _)| *id);
        Changed { done: self.fit.iter().map(|(id, _)| *id).collect(), refused }
    }
}

/// Who does what, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry<'a> {
    /// The person or program.
    pub actor: &'a str,
    /// `cli` or `api`.
    pub via: &'a str,
    /// `retry`, `discard`, `release` or `replay`.
    pub action: &'a str,
    /// What was asked for, as JSON.
    pub selection: &'a str,
    /// Why, in the actor's words.
    pub note: Option<&'a str>,
}

/// The number of an audit record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuditId(pub i64);

/// One audit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// Its number.
    pub id: AuditId,
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    /// When the action was over; `None` while it goes on, or if it was broken off.
    pub ended_at_ms: Option<i64>,
    /// The person or program.
    pub actor: String,
    /// `cli` or `api`.
    pub via: String,
    /// What was done.
    pub action: String,
    /// What was asked for, as JSON.
    pub selection: String,
    /// Why.
    pub note: Option<String>,
    /// Events that were changed.
    pub events: u64,
    /// The lowest and the highest of them.
    pub range: Option<(EventId, EventId)>,
}

/// The operators' side of one source.
#[async_trait]
pub trait Desk: Send + Sync {
    /// Events that fit, with ids above `after`, in id order, at most `limit`.
    async fn events(
        &self,
        selection: &Selection,
        after: EventId,
        limit: usize,
    ) -> Result<Vec<EventSeen>, StoreError>;

    /// One event with everything.
    async fn event(&self, id: EventId) -> Result<Option<EventWhole>, StoreError>;

    /// How far events go at this moment.
    async fn horizon(&self) -> Result<Horizon, StoreError>;

    /// Held keys, by lane and key.
    async fn held_keys(&self, query: &HeldQuery<'_>) -> Result<Vec<HeldKey>, StoreError>;

    /// Does `change` to these events, at most [`MOST_CHANGED`], as far as they are in one of `states` (any,
    /// if there are none), in one transaction that also counts them in the audit record. It waits for
    /// nobody who has locked an event.
    async fn change(
        &self,
        change: &Change,
        ids: &[EventId],
        states: &[EventState],
        audit: AuditId,
    ) -> Result<Changed, StoreError>;

    /// Lets go of a key whose event is gone or no longer pending. False if it is pending.
    async fn drop_hold(&self, lane: &str, key: &str) -> Result<bool, StoreError>;

    /// Begins an audit record.
    async fn audit(&self, entry: &AuditEntry<'_>) -> Result<AuditId, StoreError>;

    /// Ends one.
    async fn audit_ended(&self, id: AuditId) -> Result<(), StoreError>;

    /// The last audit records, the youngest first.
    async fn audits(&self, limit: usize) -> Result<Vec<Audited>, StoreError>;
}

/// How an event stands, given whether its key is held because of it: one that is held back is never due,
/// whatever its own time says.
pub(super) fn held_back(state: EventState, hold: Option<DueIn>) -> EventState {
    match (state, hold) {
        (EventState::Pending, Some(DueIn::After(_))) => EventState::Waiting,
        (EventState::Pending, Some(DueIn::Never)) => EventState::Halted,
        (state, _) => state,
    }
}

/// What a change may do with an event, as it stands under the lock. The one place that decides it.
pub(super) fn refusal(
    change: &Change,
    wanted: &[EventState],
    state: EventState,
    in_flight: InFlight,
) -> Option<Refusal> {
    if !wanted.is_empty() && !wanted.iter().any(|one| one.covers(state)) {
        return Some(Refusal::Unfit(state));
    }
    let fits = match (change, state) {
        (_, EventState::Processing) | (Change::Discard(_), EventState::Pending)
            if in_flight == InFlight::Maybe =>
        {
            return Some(Refusal::InFlight);
        }
        (Change::Retry, EventState::Failed | EventState::Halted | EventState::Waiting)
        | (Change::SetAside, EventState::Halted | EventState::Waiting)
        | (Change::Replay, EventState::Failed | EventState::Published)
        | (
            Change::Discard(_),
            EventState::Failed
            | EventState::Halted
            | EventState::Waiting
            | EventState::Pending
            | EventState::Processing,
        ) => true,
        (Change::Retry, EventState::Pending | EventState::Processing | EventState::Published)
        | (
            Change::SetAside,
            EventState::Pending
            | EventState::Processing
            | EventState::Published
            | EventState::Failed,
        )
        | (
            Change::Replay,
            EventState::Pending | EventState::Processing | EventState::Halted | EventState::Waiting,
        )
        | (Change::Discard(_), EventState::Published) => false,
    };
    (!fits).then_some(Refusal::Unfit(state))
}

/// Whether an instance may be working on an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFlight {
    No,
    Maybe,
}

/// The mark of a row that a change makes due again, if consumers are to be told.
pub(super) fn redelivery(change: &Change, was: EventState, audit: AuditId) -> Option<String> {
    match (change, was) {
        (Change::Replay, _) => Some(format!("replay/{}", audit.0)),
        // A halted or waiting event holds its key: its successors wait, and nothing is out of order.
        (Change::Retry, EventState::Failed) => Some(format!("retry/{}", audit.0)),
        _ => None,
    }
}

/// A pattern with `*` as one for LIKE with `\` as its escape character.
pub(super) fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len());
    for letter in pattern.chars() {
        match letter {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', letter]),
            _ => like.push(letter),
        }
    }
    like
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_in_flight_is_left_alone() {
        let discard = Change::Discard("x".into());
        let maybe = InFlight::Maybe;
        assert_eq!(refusal(&discard, &[], EventState::Pending, maybe), Some(Refusal::InFlight));
        assert_eq!(refusal(&discard, &[], EventState::Processing, maybe), Some(Refusal::InFlight));
        assert_eq!(refusal(&discard, &[], EventState::Pending, InFlight::No), None);
        // Waiting and halted events were given back: whoever holds their shard has not got them.
        assert_eq!(refusal(&Change::Retry, &[], EventState::Halted, maybe), None);
        assert_eq!(refusal(&discard, &[], EventState::Waiting, maybe), None);
    }

    #[test]
    fn a_change_is_for_some_states_only() {
        let unfit = |change: &Change, state| {
            assert_eq!(refusal(change, &[], state, InFlight::No), Some(Refusal::Unfit(state)));
        };
        unfit(&Change::Retry, EventState::Pending);
        unfit(&Change::Retry, EventState::Published);
        unfit(&Change::Replay, EventState::Halted);
        unfit(&Change::SetAside, EventState::Failed);
        unfit(&Change::Discard(String::new()), EventState::Published);
    }

    #[test]
    fn what_has_changed_since_it_was_chosen_is_left_alone() {
        let discard = Change::Discard("x".into());
        let chosen = [EventState::Failed];
        let now = EventState::Pending;
        assert_eq!(refusal(&discard, &chosen, now, InFlight::No), Some(Refusal::Unfit(now)));
        let pending = [EventState::Pending];
        assert_eq!(refusal(&discard, &pending, EventState::Halted, InFlight::No), None);
        assert_eq!(held_back(now, Some(DueIn::Never)), EventState::Halted);
        assert_eq!(held_back(now, Some(DueIn::Now)), now);
    }

    #[test]
    fn only_what_comes_late_is_marked() {
        let audit = AuditId(17);
        let mark = |change, was| redelivery(&change, was, audit);
        assert_eq!(mark(Change::Replay, EventState::Failed).as_deref(), Some("replay/17"));
        assert_eq!(mark(Change::Retry, EventState::Failed).as_deref(), Some("retry/17"));
        assert_eq!(mark(Change::Retry, EventState::Halted), None);
    }

    #[test]
    fn patterns_are_taken_literally_but_for_stars() {
        assert_eq!(like("order.*"), "order.%");
        assert_eq!(like("a_b%c\\*"), "a\\_b\\%c\\\\%");
    }
}
