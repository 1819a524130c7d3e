//! What a settle has to write, worked out once for every database. Pure.
//!
//! Called by the adapters with the settlements whose claim is still theirs. It decides nothing about
//! events: the relay has done that.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Action, Settlement};
use crate::event::Ordering;
use crate::failure::{Failure, storable};

/// When an event is due again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// After this time.
    After(Duration),
    /// Not by itself.
    Never,
    /// As it was.
    Unchanged,
}

/// An event that is done with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) id: i64,
    /// Why it was dropped, if it was.
    pub(super) reason: Option<String>,
}

/// An event that is put off, parked or halted.
#[derive(Debug)]
pub(super) struct Deferred<'a> {
    pub(super) id: i64,
    /// Its state from now on.
    pub(super) status: &'static str,
    /// Attempts to add.
    pub(super) attempts: i32,
    pub(super) due: Due,
    pub(super) failure: &'a Failure,
}

/// An ordering key whose later events wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hold<'a> {
    pub(super) key: &'a [u8],
    /// The event they wait for.
    pub(super) id: i64,
    pub(super) due: Due,
    pub(super) reason: &'static str,
}

/// Everything one settle writes.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    pub(super) done: Vec<Done>,
    pub(super) deferred: Vec<Deferred<'a>>,
    /// Events that go back as they were.
    pub(super) released: Vec<i64>,
    /// At most one of a key.
    pub(super) holds: Vec<Hold<'a>>,
    /// Events whose hold ends.
    pub(super) let_go: Vec<i64>,
    /// Published events by shard.
    pub(super) published: HashMap<i32, i64>,
    /// Whether an event is due again at a time that nobody has looked for.
    pub(super) put_off: bool,
    held: HashSet<&'a [u8]>,
}

impl<'a> Plan<'a> {
    /// Sorts settlements of a claim with this ordering by what is to be written.
    pub(super) fn of(settlements: &[&'a Settlement], ordering: Ordering) -> Self {
        let mut plan = Self::default();
        for one in settlements {
            plan.add(one, ordering);
        }
        plan
    }

    fn add(&mut self, one: &'a Settlement, ordering: Ordering) {
        let id = one.id.0;
        match &one.action {
            Action::Published => {
                self.done.push(Done { id, reason: None });
                *self.published.entry(one.shard).or_default() += 1;
                self.let_go(one);
            }
            Action::Dropped(reason) => {
                let reason = storable(&format!("dropped: {reason}"));
                self.done.push(Done { id, reason: Some(reason) });
                self.let_go(one);
            }
            Action::Retry { after, failure } => {
                self.put_off = true;
                self.defer(one, "PENDING", 1, Due::After(*after), failure);
                self.hold(one, ordering, Due::After(*after), failure);
            }
            Action::Wait { after, failure } => {
                self.put_off = true;
                self.defer(one, "PENDING", 0, Due::After(*after), failure);
                self.hold(one, ordering, Due::After(*after), failure);
            }
            Action::Halt(failure) => {
                self.defer(one, "PENDING", 1, Due::Never, failure);
                self.hold(one, ordering, Due::Never, failure);
            }
            Action::Park(failure) => {
                self.defer(one, "FAILED", 1, Due::Unchanged, failure);
                self.let_go(one);
            }
            Action::Release => self.released.push(id),
        }
    }

    fn defer(
        &mut self,
        one: &'a Settlement,
        status: &'static str,
        attempts: i32,
        due: Due,
        failure: &'a Failure,
    ) {
        self.deferred.push(Deferred { id: one.id.0, status, attempts, due, failure });
    }

    fn hold(&mut self, one: &'a Settlement, ordering: Ordering, due: Due, failure: &'a Failure) {
        let key = match ordering {
            // Nothing holds anything there.
            Ordering::None => return,
            Ordering::Total => &[][..],
            // Events without a key have no order, so none waits for another.
            Ordering::Key => match one.key.0.as_deref() {
                Some(key) => key,
                None => return,
            },
        };
        // The first of a key holds it: the later ones wait for it.
        if self.held.insert(key) {
            self.holds.push(Hold { key, id: one.id.0, due, reason: failure.cause.code() });
        }
    }

    fn let_go(&mut self, one: &Settlement) {
        if one.holds_key {
            self.let_go.push(one.id.0);
        }
    }
}
