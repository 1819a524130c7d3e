//! The operators' side: looking at events and held keys, and changing what becomes of them.
//!
//! Used by the commands `events`, `keys`, `replay` and `audit`, and by the admin port. It turns requests
//! into calls of a store's desk, page by page in id order, and has each change recorded. It never publishes
//! anything itself: what is to be published again becomes due, and a relay does it.

mod answer;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::event::EventId;
use crate::store::{
    AuditEntry, AuditId, Audited, Change, Changed, Desk, EventSeen, EventState, EventWhole,
    HeldKey, Horizon, MOST_CHANGED, MOST_LISTED, Outbox, Refusal, Selection, StoreError,
};

pub use self::answer::{audited, event, held_key, time, whole};
pub use self::request::{Filter, Misuse};

/// Events a second that a replay makes due, if nobody says otherwise: live events go on beside it.
pub const DEFAULT_RATE: u32 = 1000;
/// The highest rate that can be asked for.
pub const MOST_RATE: u32 = 1_000_000;
/// Events of a dry run that are shown.
pub const SHOWN: usize = 20;

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

/// What became of an order.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The audit record; none after a dry run.
    pub audit: Option<AuditId>,
    /// Events that were changed, or would be.
    pub changed: u64,
    /// Events that were left as they are, by reason.
    pub left: BTreeMap<&'static str, u64>,
    /// After a dry run: the first of them.
    pub shown: Vec<EventSeen>,
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
        let selection = filter.selection()?;
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
        let selection = of_keys(filter)?;
        let (lane, key) = (selection.lane.as_deref(), selection.key.as_deref());
        let limit = limit.min(MOST_LISTED);
        let fits = |held: &HeldKey| filter.reason.as_ref().is_none_or(|why| *why == held.reason);
        let mut found: Vec<HeldKey> = Vec::new();
        let mut place = after.map(|(lane, key)| (lane.to_owned(), key.to_owned()));
        loop {
            let behind = place.as_ref().map(|(lane, key)| (lane.as_str(), key.as_str()));
            let page = self.desk.held_keys(lane, key, behind, limit).await?;
            let last = page.len() < limit;
            place = page.last().map(|held| (held.lane.clone(), held.key.clone()));
            found.extend(page.into_iter().filter(fits));
            if last || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
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
            return Err(Misuse(format!(
                "say which events to {} by id, key, type, lane, reason, state or time; or ask for all of them",
                order.action.name()
            ))
            .into());
        }
        let selection = match order.action {
            Action::Release => of_keys(&order.filter)?,
            action => narrowed(action, order.filter.selection()?)?,
        };
        if let Action::Replay(rate) = order.action
            && !(1..=MOST_RATE).contains(&rate)
        {
            return Err(Misuse(format!("the rate must be 1 to {MOST_RATE} events a second")).into());
        }
        let horizon = self.desk.horizon().await?;
        let audit = match order.mode {
            Mode::DryRun => None,
            Mode::Carry => {
                // A filter is made of texts and numbers.
                let asked = serde_json::to_string(&order.filter).unwrap_or_default();
                let entry = AuditEntry {
                    actor: &order.actor,
                    via: order.via,
                    action: order.action.name(),
                    selection: &asked,
                    note: order.note.as_deref(),
                };
                Some(self.desk.audit(&entry).await?)
            }
        };
        Ok(Work { operator: self.clone(), order: order.clone(), selection, horizon, audit })
    }
}

/// Held keys are told apart by lane, key and reason only.
fn of_keys(filter: &Filter) -> Result<Selection, Misuse> {
    let Filter { id, state, event_type, older_than, newer_than, since, until, .. } = filter;
    let others = [event_type, older_than, newer_than, since, until];
    if !id.is_empty() || !state.is_empty() || others.iter().any(|other| other.is_some()) {
        return Err(Misuse("held keys are chosen by lane, key and reason".into()));
    }
    filter.selection()
}

/// The selection, in states that the action is for. Where ids are named, the others are told why not.
fn narrowed(action: Action, mut selection: Selection) -> Result<Selection, Misuse> {
    if !selection.ids.is_empty() {
        return Ok(selection);
    }
    if selection.states.is_empty() {
        selection.states = action.states().to_vec();
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
        ))),
    }
}

/// An order that has begun.
pub struct Work {
    operator: Operator,
    order: Order,
    selection: Selection,
    /// What is younger was not meant, nor what is published only now: it would be published twice.
    horizon: Horizon,
    audit: Option<AuditId>,
}

impl Work {
    /// Its audit record; none for a dry run.
    pub fn audit(&self) -> Option<AuditId> {
        self.audit
    }

    /// Carries it out to its end.
    ///
    /// # Errors
    /// The database.
    pub async fn run(self) -> Result<Done, OperationError> {
        let mut done = Done { audit: self.audit, ..Done::default() };
        match self.order.action {
            Action::Release => self.release(&mut done).await?,
            Action::Retry => self.change(&Change::Retry, &mut done).await?,
            Action::Replay(_) => self.change(&Change::Replay, &mut done).await?,
            Action::Discard => {
                let note = self.order.note.as_deref().unwrap_or("by an operator");
                let why = format!("discarded: {note}").replace('\0', "\u{fffd}");
                self.change(&Change::Discard(why), &mut done).await?;
            }
        }
        if let Some(audit) = self.audit {
            self.operator.desk.audit_ended(audit).await?;
            tracing::warn!(
                source = &*self.operator.source,
                action = self.order.action.name(),
                actor = self.order.actor,
                audit = audit.0,
                events = done.changed,
                "an operator changed events"
            );
        }
        Ok(done)
    }

    /// Page by page, in id order: so the order within a key is kept in what becomes due.
    async fn change(&self, change: &Change, done: &mut Done) -> Result<(), OperationError> {
        let desk = &self.operator.desk;
        let page_limit = match self.order.action {
            // Ten pages a second at least, so that the rate is even.
            Action::Replay(rate) => (rate as usize / 10).clamp(1, MOST_CHANGED),
            Action::Retry | Action::Discard | Action::Release => MOST_CHANGED,
        };
        let mut after = EventId(i64::MIN);
        let started = Instant::now();
        let mut found = 0_u64;
        loop {
            let mut page = desk.events(&self.selection, after, page_limit).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            page.retain(|event| self.horizon.covers(event));
            let ids: Vec<EventId> = page.iter().map(|event| event.id).collect();
            found += ids.len() as u64;
            self.page(change, page, &ids, done).await?;
            if after >= self.horizon.highest {
                break;
            }
            if let Action::Replay(rate) = self.order.action
                && self.order.mode == Mode::Carry
            {
                let due = Duration::from_secs_f64(found as f64 / f64::from(rate));
                tokio::time::sleep_until(started + due).await;
            }
        }
        let named = self.selection.ids.len() as u64;
        if named > found {
            done.leave("not there, or not what else was asked for", named - found);
        }
        Ok(())
    }

    async fn page(
        &self,
        change: &Change,
        page: Vec<EventSeen>,
        ids: &[EventId],
        done: &mut Done,
    ) -> Result<(), OperationError> {
        let Some(audit) = self.audit else {
            let (fit, unfit): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|event| fits(self.order.action, event.state));
            unfit.iter().for_each(|event| done.leave(unfit_name(event.state), 1));
            done.changed += fit.len() as u64;
            let room = SHOWN.saturating_sub(done.shown.len());
            done.shown.extend(fit.into_iter().take(room));
            return Ok(());
        };
        for some in ids.chunks(MOST_CHANGED) {
            done.add(&self.operator.desk.change(change, some, audit).await?);
        }
        Ok(())
    }

    async fn release(&self, done: &mut Done) -> Result<(), OperationError> {
        let operator = &self.operator;
        let mut place: Option<(String, String)> = None;
        loop {
            let after = place.as_ref().map(|(lane, key)| (lane.as_str(), key.as_str()));
            let page = operator.held_keys(&self.order.filter, after, MOST_CHANGED).await?;
            let Some(last) = page.last() else { return Ok(()) };
            place = Some((last.lane.clone(), last.key.clone()));
            let Some(audit) = self.audit else {
                done.changed += page.len() as u64;
                continue;
            };
            let (holding, stale): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|held| held.event_pending);
            let ids: Vec<EventId> = holding.iter().map(|held| held.event).collect();
            if !ids.is_empty() {
                done.add(&operator.desk.change(&Change::SetAside, &ids, audit).await?);
            }
            for held in stale {
                let dropped = operator.desk.drop_hold(&held.lane, &held.key).await?;
                done.changed += u64::from(dropped);
            }
        }
    }
}

fn fits(action: Action, state: EventState) -> bool {
    let any_but_published = action == Action::Discard && state != EventState::Published;
    any_but_published || action.states().contains(&state)
}

fn unfit_name(state: EventState) -> &'static str {
    match state {
        EventState::Pending => "pending, and due by itself",
        EventState::Processing => "being worked on",
        EventState::Published => "published already",
        EventState::Failed => "failed already",
        EventState::Waiting | EventState::Halted => "pending, and not yet published",
    }
}

impl Done {
    fn add(&mut self, changed: &Changed) {
        self.changed += changed.done.len() as u64;
        for (_, why) in &changed.refused {
            match why {
                Refusal::Gone => self.leave("gone meanwhile", 1),
                Refusal::InFlight => self.leave("being worked on; try again", 1),
                Refusal::Unfit(state) => self.leave(unfit_name(*state), 1),
            }
        }
    }

    fn leave(&mut self, why: &'static str, events: u64) {
        *self.left.entry(why).or_default() += events;
    }

    /// What became of it, as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "audit": self.audit.map(|audit| audit.0),
            "dry_run": self.audit.is_none(),
            "changed": self.changed,
            "left": self.left,
            "events": self.shown.iter().map(event).collect::<Vec<_>>(),
        })
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
