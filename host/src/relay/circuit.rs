//! Circuits: destinations found unusable, whose events wait while others flow. Pure.
//!
//! One set per lane, in memory: what it has learnt is re-learnt at a restart by one failed event per
//! destination. The held keys that make it safe are in the database.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::failure::Failure;
use crate::retry::{backoff, jittered};

/// First time a destination rests after it failed.
const FIRST_REST: Duration = Duration::from_secs(1);
/// Longest rest between two trials.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long a trial may take before another event may try.
const TRIAL: Duration = Duration::from_secs(15);
/// Most destinations remembered; beyond it the set starts afresh rather than grow.
const MOST: usize = 10_000;

#[derive(Debug)]
struct Circuit {
    until: Moment,
    failures: u32,
    /// Whether an event is trying the destination at present.
    trial: bool,
    last: Failure,
}

/// The open circuits of a lane, by destination.
#[derive(Debug, Default)]
pub(super) struct Circuits(HashMap<String, Circuit>);

impl Circuits {
    /// How long an event for `destination` must wait and for what, or `None` when it may go.
    pub(super) fn resting(&self, destination: &str) -> Option<(Duration, Failure)> {
        let circuit = self.0.get(destination)?;
        let left = circuit.until.left();
        (left > Duration::ZERO).then(|| (left, circuit.last.clone()))
    }

    /// An event goes to `destination`; if its circuit is open, the event is its trial, and others
    /// wait for what becomes of it.
    pub(super) fn goes(&mut self, destination: &str) {
        if let Some(circuit) = self.0.get_mut(destination) {
            circuit.until = Moment::now().plus(TRIAL);
            circuit.trial = true;
        }
    }

    /// Notes a failure and says how long to wait, and whether this failure opened the circuit.
    /// Failures during one rest count once.
    pub(super) fn failed(&mut self, destination: &str, failure: &Failure) -> (Duration, bool) {
        if self.0.len() >= MOST && !self.0.contains_key(destination) {
            self.0.clear();
        }
        let circuit = self.0.entry(destination.to_owned()).or_insert_with(|| Circuit {
            until: Moment::now(),
            failures: 0,
            trial: true,
            last: failure.clone(),
        });
        let resting = circuit.until.left();
        if !circuit.trial && resting > Duration::ZERO {
            return (resting, false);
        }
        let rest = jittered(backoff(FIRST_REST, LONGEST_REST, circuit.failures));
        *circuit = Circuit {
            until: Moment::now().plus(rest),
            failures: circuit.failures.saturating_add(1),
            trial: false,
            last: failure.clone(),
        };
        (rest, true)
    }

    /// Notes a success: the circuit is closed. Returns whether it was open.
    pub(super) fn worked(&mut self, destination: &str) -> bool {
        !self.0.is_empty() && self.0.remove(destination).is_some()
    }
}
