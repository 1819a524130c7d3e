//! An order that is being carried out, page by page, and what became of it.
//!
//! Begun by an operator's side of a source. Each page is one transaction, in id order, and counted in the
//! audit record; a dry run looks at the same pages and changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Mode, OperationError, Operator, Order, event};
use crate::event::EventId;
use crate::store::{
    AuditId, Behind, Change, Changed, EventSeen, EventState, Horizon, MOST_CHANGED, Refusal,
    Selection,
};

/// Events of a dry run that are shown.
pub const SHOWN: usize = 20;

/// What became of an order.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The audit record; none after a dry run.
    pub audit: Option<AuditId>,
    /// Events that were changed, or would be.
    pub changed: u64,
    /// Keys that were let go although no event held them any more.
    pub let_go: u64,
    /// Events that were left as they are, by reason.
    pub left: BTreeMap<&'static str, u64>,
    /// After a dry run: the first of them.
    pub shown: Vec<EventSeen>,
}

/// An order that has begun.
pub struct Work {
    pub(super) operator: Operator,
    pub(super) order: Order,
    pub(super) selection: Selection,
    /// What is younger was not meant, nor what is published only now: it would be published twice.
    pub(super) horizon: Horizon,
    pub(super) audit: Option<AuditId>,
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
            let states = &self.selection.states;
            done.add(&self.operator.desk.change(change, some, states, audit).await?);
        }
        Ok(())
    }

    async fn release(&self, done: &mut Done) -> Result<(), OperationError> {
        let operator = &self.operator;
        let mut place: Option<(String, String)> = None;
        loop {
            let after = place.as_ref().map(|(lane, key)| (lane.as_str(), key.as_str()));
            let page = operator
                .look_for_keys(&self.order.filter, after, MOST_CHANGED, Behind::Uncounted)
                .await?;
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
                done.add(&operator.desk.change(&Change::SetAside, &ids, &[], audit).await?);
            }
            for held in stale {
                let dropped = operator.desk.drop_hold(&held.lane, &held.key).await?;
                done.let_go += u64::from(dropped);
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
        EventState::Pending => "pending, and to be published anyway",
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
            "let_go": self.let_go,
            "left": self.left,
            "events": self.shown.iter().map(event).collect::<Vec<_>>(),
        })
    }
}
