//! The operators' side: looking at events and held keys, and changing what becomes of them.
//!
//! Used by the commands `events`, `keys`, `replay` and `audit`, and by the admin port. It turns requests
//! into calls of a store's desk, page by page in id order, and has each change recorded. It never publishes
//! anything itself: what is to be published again becomes due, and a relay does it.

mod answer;
mod request;
mod work;

use std::sync::Arc;

use crate::event::EventId;
use crate::store::{
    AuditEntry, Audited, Behind, DISCARDED, Desk, EventSeen, EventState, EventWhole, HeldKey,
    HeldQuery, MOST_LISTED, Outbox, Selection, StoreError,
};
use crate::words::plain;

pub use self::answer::{audited, event, held_key, time, whole};
pub use self::request::{Filter, Misuse};
pub use self::work::{Done, SHOWN, Work};

/// Events a second that a replay makes due, if nobody says otherwise: live events go on beside it.
pub const DEFAULT_RATE: u32 = 1000;
/// The highest rate that can be asked for.
pub const MOST_RATE: u32 = 1_000_000;
/// Longest name of who does something, and longest reason why, in characters.
const MAX_ACTOR: usize = 128;
const MAX_NOTE: usize = 2000;

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Make failed, halted and waiting events due at once.
    Retry,
    /// Be done with events unpublished.
    Discard,
    /// Publish published and failed events again, at most so many a second.
    Replay(u32),
    /// Set aside the events that hold keys, so that the keys go on.
    Release,
}

impl Action {
    /// Its name in the audit record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
            Self::Replay(_) => "replay",
            Self::Release => "release",
        }
    }

    /// The states it is for.
    fn states(self) -> &'static [EventState] {
        match self {
            Self::Retry | Self::Discard => {
                &[EventState::Failed, EventState::Halted, EventState::Waiting]
            }
            Self::Replay(_) => &[EventState::Published, EventState::Failed],
            Self::Release => &[EventState::Halted, EventState::Waiting],
        }
    }
}

/// Whether something is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Yes.
    Carry,
    /// Only say what would.
    DryRun,
}

/// Whether everything may be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The filter must say something.
    Filtered,
    /// An empty filter means everything.
    All,
}

/// What somebody wants done.
#[derive(Debug, Clone)]
pub struct Order {
    /// What.
    pub action: Action,
    /// To which events.
    pub filter: Filter,
    /// Whether an empty filter is meant.
    pub scope: Scope,
    /// Whether it is to happen.
    pub mode: Mode,
    /// Who wants it.
    pub actor: String,
    /// `cli` or `api`.
    pub via: &'static str,
    /// Why.
    pub note: Option<String>,
}

/// Why an order was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// It makes no sense.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The operators' side of some sources.
#[derive(Clone)]
pub struct Operations(Vec<(Arc<str>, Arc<dyn Outbox>)>);

impl Operations {
    /// Of these sources, by name.
    pub fn new(sources: Vec<(Arc<str>, Arc<dyn Outbox>)>) -> Self {
        Self(sources)
    }

    /// The source of that name, or the only one.
    ///
    /// # Errors
    /// When there is none of that name, or several and no name.
    pub fn source(&self, name: Option<&str>) -> Result<Operator, Misuse> {
        let known = || self.0.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
        let found = match (name, self.0.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => {
                return Err(Misuse(format!("say which source is meant: {}", known())));
            }
            (Some(name), all) => all.iter().find(|(source, _)| &**source == name),
        };
        let (name, desk) = found.ok_or_else(|| {
            Misuse(format!(
                "there is no source '{}'; there are {}",
                name.unwrap_or_default(),
                known()
            ))
        })?;
        Ok(Operator { source: Arc::clone(name), desk: Arc::clone(desk) as Arc<dyn Desk> })
    }
}

/// The operators' side of one source.
#[derive(Clone)]
pub struct Operator {
    /// Its name.
    pub source: Arc<str>,
    desk: Arc<dyn Desk>,
}

impl Operator {
    /// Events that fit, with ids above `after`, at most `limit` or [`MOST_LISTED`].
    ///
    /// # Errors
    /// A filter that makes no sense, or the database.
    pub async fn events(
        &self,
        filter: &Filter,
        after: EventId,
        limit: usize,
    ) -> Result<Vec<EventSeen>, OperationError> {
        let now_ms = if filter.is_relative() { self.desk.horizon().await?.now_ms } else { 0 };
        let selection = filter.selection(now_ms)?;
        Ok(self.desk.events(&selection, after, limit.min(MOST_LISTED)).await?)
    }

    /// One event with everything.
    ///
    /// # Errors
    /// The database.
    pub async fn event(&self, id: EventId) -> Result<Option<EventWhole>, OperationError> {
        Ok(self.desk.event(id).await?)
    }

    /// Held keys of the filter's lane, key and reason, those behind `after`, at most `limit`.
    ///
    /// # Errors
    /// A filter that makes no sense, or the database.
    pub async fn held_keys(
        &self,
        filter: &Filter,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<HeldKey>, OperationError> {
        self.look_for_keys(filter, after, limit.min(MOST_LISTED), Behind::Counted).await
    }

    async fn look_for_keys(
        &self,
        filter: &Filter,
        after: Option<(&str, &str)>,
        limit: usize,
        behind: Behind,
    ) -> Result<Vec<HeldKey>, OperationError> {
        let selection = of_keys(filter)?;
        let query = HeldQuery {
            lane: selection.lane.as_deref(),
            key: selection.key.as_deref(),
            reason: selection.reason.as_deref(),
            after,
            limit,
            behind,
        };
        Ok(self.desk.held_keys(&query).await?)
    }

    /// The last audit records, the youngest first.
    ///
    /// # Errors
    /// The database.
    pub async fn audits(&self, limit: usize) -> Result<Vec<Audited>, OperationError> {
        Ok(self.desk.audits(limit.min(MOST_LISTED)).await?)
    }

    /// Carries out an order to its end.
    ///
    /// # Errors
    /// An order that makes no sense, before anything has happened; or the database, after which what was
    /// done so far stands, and is counted in the audit record.
    pub async fn carry_out(&self, order: &Order) -> Result<Done, OperationError> {
        self.begin(order).await?.run().await
    }

    /// Checks an order and begins its audit record.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out).
    pub async fn begin(&self, order: &Order) -> Result<Work, OperationError> {
        if order.filter.is_empty() && order.scope == Scope::Filtered {
            let by = match order.action {
                Action::Release => "keys to release by lane, key or reason",
                _ => "events are meant by id, key, type, lane, reason, state or time",
            };
            return Err(Misuse(format!("say which {by}; or ask for all of them")).into());
        }
        if order.note.as_ref().is_some_and(|note| note.contains('\0')) {
            return Err(Misuse("a note cannot hold the character NUL".into()).into());
        }
        // Every time is taken from one moment, or a range would move while the work goes on.
        let horizon = self.desk.horizon().await?;
        let selection = match order.action {
            Action::Release => of_keys(&order.filter)?,
            action => narrowed(action, order.filter.selection(horizon.now_ms)?)?,
        };
        if let Action::Replay(rate) = order.action
            && !(1..=MOST_RATE).contains(&rate)
        {
            return Err(Misuse(format!("the rate must be 1 to {MOST_RATE} events a second")).into());
        }
        let audit = match order.mode {
            Mode::DryRun => None,
            Mode::Carry => {
                let asked = asked(order, &selection);
                let actor = match order.actor.trim() {
                    "" => "unknown",
                    actor => actor,
                };
                let note = order.note.as_deref().map(|note| cut(note, MAX_NOTE));
                let entry = AuditEntry {
                    actor: &cut(actor, MAX_ACTOR),
                    via: order.via,
                    action: order.action.name(),
                    selection: &asked,
                    note: note.as_deref(),
                };
                Some(self.desk.audit(&entry).await?)
            }
        };
        Ok(Work { operator: self.clone(), order: order.clone(), selection, horizon, audit })
    }
}

/// An order as its audit record has it: the filter with its times worked out, and what else was said.
fn asked(order: &Order, selection: &Selection) -> String {
    let filter = Filter {
        older_than: None,
        newer_than: None,
        since: selection.since_ms.map(time),
        until: selection.until_ms.map(time),
        ..order.filter.clone()
    };
    let mut asked = serde_json::to_value(filter).unwrap_or_default();
    if order.scope == Scope::All {
        asked["all"] = true.into();
    }
    if let Action::Replay(rate) = order.action {
        asked["rate"] = rate.into();
    }
    asked.to_string()
}

/// At most so many characters of a text, and none that speaks to a terminal.
fn cut(text: &str, most: usize) -> String {
    plain(text).chars().take(most).collect()
}

/// Held keys are told apart by lane, key and reason only.
fn of_keys(filter: &Filter) -> Result<Selection, Misuse> {
    let Filter { id, state, event_type, older_than, newer_than, since, until, .. } = filter;
    let others = [event_type, older_than, newer_than, since, until];
    if !id.is_empty() || !state.is_empty() || others.iter().any(|other| other.is_some()) {
        return Err(Misuse("held keys are chosen by lane, key and reason".into()));
    }
    // Nothing that depends on the time is left.
    filter.selection(0)
}

/// The selection, in states that the action is for. Where ids are named, the others are told why not.
fn narrowed(action: Action, mut selection: Selection) -> Result<Selection, Misuse> {
    if !selection.ids.is_empty() {
        return Ok(selection);
    }
    if selection.states.is_empty() {
        selection.states = action.states().to_vec();
    }
    if matches!(action, Action::Replay(_)) && selection.reason.is_none() {
        // What was thrown away on purpose comes back only by name.
        selection.except_reason = Some(DISCARDED);
    }
    let discards = action == Action::Discard;
    let unfit = selection.states.iter().find(|state| {
        let pending = discards && matches!(state, EventState::Pending | EventState::Processing);
        !pending && !action.states().contains(state)
    });
    match unfit {
        None => Ok(selection),
        Some(state) => Err(Misuse(format!(
            "{} is not for {} events; it is for those that are {}",
            action.name(),
            state.name(),
            action.states().iter().map(|state| state.name()).collect::<Vec<_>>().join(", ")
                + if discards { ", pending, processing" } else { "" }
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_for_its_states_only() {
        let of =
            |states: &[EventState]| Selection { states: states.into(), ..Selection::default() };
        let replay = narrowed(Action::Replay(1), of(&[])).unwrap();
        assert_eq!(replay.states, [EventState::Published, EventState::Failed]);
        let Misuse(text) = narrowed(Action::Replay(1), of(&[EventState::Pending])).unwrap_err();
        assert_eq!(
            text,
            "replay is not for pending events; it is for those that are published, failed"
        );
        assert!(narrowed(Action::Discard, of(&[EventState::Pending])).is_ok());
        assert!(narrowed(Action::Discard, of(&[EventState::Published])).is_err());
    }

    #[test]
    fn held_keys_are_chosen_by_what_they_have() {
        let by_key = Filter { key: Some("a".into()), ..Filter::default() };
        assert!(of_keys(&by_key).is_ok());
        let by_id = Filter { id: vec![1], ..Filter::default() };
        assert!(of_keys(&by_id).is_err());
    }
}
