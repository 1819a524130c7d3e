//! From a batch to one verdict per event, whatever the guest does.
//!
//! A call either answers for all events it was given, or fails as a whole: the guest trapped, ran
//! out of time or memory, or answered with something unusable. Then the event at fault is looked for:
//!
//! 1. If the guest said which event it had entered, that one is run alone on a fresh instance, and
//!    what comes of it is its verdict, good or bad; the events before it and those after it are
//!    run as two batches. If it was fine alone, the marker is not believed again in this batch.
//! 2. Without a marker the batch is halved.
//! 3. An event alone on a fresh instance that still fails is at fault.
//!
//! Every step runs a part that is smaller, so the search ends; parts of the list are run again, which
//! is safe since a plugin is a function of its events. A part is run in order, but the parts before
//! and after a culprit are separate calls.
//!
//! The search has a budget of calls and of time. Events that are undecided when it is used up have
//! done nothing wrong: they wait and use no attempt (`plugin_unavailable`), while the culprits found
//! so far back off and are out of the way next time.
//!
//! `transform.rs` calls [`decide`] with a [`Caller`] that runs real instances. Nothing here knows
//! wasmtime.

use std::time::Duration;

use super::convert::Verdict;
use crate::failure::{Cause, Failure};

/// Calls a search may make besides twice the number of events, which is what finding every one of
/// them at fault takes.
const SPARE_CALLS: usize = 64;

/// The least time the search for culprits may take after the first failed call.
const MIN_SEARCH_TIME: Duration = Duration::from_secs(1);

/// What became of one call into a guest.
#[derive(Debug)]
pub(super) struct Reply {
    /// One verdict per event, or why there are none.
    pub(super) result: Result<Vec<Verdict>, Fault>,
    /// What the call cost: the time the guest computed or chose to wait.
    pub(super) used: Duration,
    /// Whether the instance had decided no batch before.
    pub(super) fresh: bool,
}

/// Why a call gave no verdicts.
#[derive(Debug)]
pub(super) enum Fault {
    /// The guest failed on one of the events, or on all of them together.
    Guest {
        /// What it did.
        cause: Cause,
        /// In words.
        message: String,
        /// Which of the events it was given it had entered last.
        entered: Option<usize>,
    },
    /// No guest could be had, so nothing is known about any event.
    Unavailable(String),
}

/// Which instance a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Any that is configured.
    Any,
    /// One that has seen no event before.
    Fresh,
}

/// Runs a guest on some events of the batch.
pub(super) trait Caller {
    /// Calls the guest once, with the events at these places of the batch.
    fn call(&mut self, events: &[usize], want: Want) -> impl Future<Output = Reply> + Send;
}

/// Decides all events of a batch. `parts` are the places of the events, cut into calls; `deadline` is
/// what the whole batch may compute.
pub(super) async fn decide<C: Caller>(
    caller: &mut C,
    parts: Vec<Vec<usize>>,
    deadline: Duration,
) -> Vec<Verdict> {
    let events = parts.iter().map(Vec::len).sum();
    let mut search = Search {
        verdicts: (0..events).map(|_| None).collect(),
        calls_left: 2 * events + SPARE_CALLS,
        time_left: deadline.max(MIN_SEARCH_TIME),
        believe_marker: true,
        last_fault: None,
        unavailable: None,
    };
    // The last is taken first.
    let mut todo: Vec<Part> =
        parts.into_iter().rev().map(|events| Part { events, want: Want::Any }).collect();
    while let Some(part) = todo.pop() {
        if search.is_over() {
            break;
        }
        todo.extend(search.run(caller, part).await);
    }
    search.into_verdicts()
}

/// Some events of the batch, in order, to be given to the guest in one call.
#[derive(Debug)]
struct Part {
    events: Vec<usize>,
    want: Want,
}

#[derive(Debug)]
struct Search {
    verdicts: Vec<Option<Verdict>>,
    calls_left: usize,
    time_left: Duration,
    believe_marker: bool,
    /// What the guest did last, for the text of those who suffer from it.
    last_fault: Option<String>,
    unavailable: Option<String>,
}

impl Search {
    fn is_over(&self) -> bool {
        self.unavailable.is_some() || self.calls_left == 0 || self.time_left.is_zero()
    }

    /// Runs one part. Returns what must be run instead if it failed, in reverse order.
    async fn run<C: Caller>(&mut self, caller: &mut C, part: Part) -> Vec<Part> {
        let Part { events, want } = part;
        let Some((cause, message, entered, fresh)) = self.call(caller, &events, want).await else {
            return Vec::new();
        };
        if let [event] = events[..] {
            if !fresh {
                // It may be the instance that is broken by what it did before.
                return vec![Part { events, want: Want::Fresh }];
            }
            self.verdicts[event] = Some(Err(Failure::new(cause, message)));
            return Vec::new();
        }
        let suspect = entered.filter(|at| self.believe_marker && *at < events.len());
        let (before, after) = match suspect {
            Some(at) => {
                self.run_alone(caller, events[at]).await;
                (events[..at].to_vec(), events[at + 1..].to_vec())
            }
            None => {
                let (before, after) = events.split_at(events.len() / 2);
                (before.to_vec(), after.to_vec())
            }
        };
        [after, before]
            .into_iter()
            .filter(|events| !events.is_empty())
            .map(|events| Part { events, want: Want::Fresh })
            .collect()
    }

    async fn run_alone<C: Caller>(&mut self, caller: &mut C, event: usize) {
        if self.is_over() {
            return;
        }
        match self.call(caller, &[event], Want::Fresh).await {
            Some((cause, message, ..)) => {
                self.verdicts[event] = Some(Err(Failure::new(cause, message)));
            }
            // It has its verdict, unless no guest could be had.
            None => self.believe_marker = false,
        }
    }

    /// Calls the guest. Returns what it did wrong, if it did.
    async fn call<C: Caller>(
        &mut self,
        caller: &mut C,
        events: &[usize],
        want: Want,
    ) -> Option<(Cause, String, Option<usize>, bool)> {
        let Reply { result, used, fresh } = caller.call(events, want).await;
        if self.last_fault.is_some() {
            self.time_left = self.time_left.saturating_sub(used);
        }
        self.calls_left -= 1;
        match result {
            Ok(verdicts) => {
                for (event, verdict) in events.iter().zip(verdicts) {
                    self.verdicts[*event] = Some(verdict);
                }
                None
            }
            Err(Fault::Guest { cause, message, entered }) => {
                self.last_fault = Some(message.clone());
                Some((cause, message, entered, fresh))
            }
            Err(Fault::Unavailable(text)) => {
                self.unavailable = Some(text);
                None
            }
        }
    }

    fn into_verdicts(self) -> Vec<Verdict> {
        let text = match (self.unavailable, self.last_fault) {
            (Some(text), _) => text,
            (None, Some(fault)) => format!(
                "not decided: the plugin failed so often in this batch that the search for the \
                 events at fault was cut short; last: {fault}"
            ),
            (None, None) => "not decided: the plugin was not asked".to_owned(),
        };
        self.verdicts
            .into_iter()
            .map(|verdict| {
                verdict.unwrap_or_else(|| Err(Failure::new(Cause::PluginUnavailable, &text)))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
