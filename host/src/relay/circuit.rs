//! Circuits: destinations found unusable, whose events wait while others flow. Pure.
//!
//! One set per lane, in memory: what it has learnt is re-learnt at a restart by one failed event per
//! destination. The held keys that make it safe are in the database.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::failure::{Cause, Failure};
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

    /// The open circuits with the time until their next trial and what opened them, by destination,
    /// at most `most`; and how many there are in all.
    pub(super) fn open(&self, most: usize) -> (Vec<(String, Duration, Failure)>, usize) {
        let mut destinations: Vec<&String> = self.0.keys().collect();
        destinations.sort_unstable();
        let named = destinations.into_iter().take(most).filter_map(|destination| {
            let circuit = self.0.get(destination)?;
            // While an event tries it, others wait for what becomes of that; it is due already.
            let left = if circuit.trial { Duration::ZERO } else { circuit.until.left() };
            Some((destination.clone(), left, circuit.last.clone()))
        });
        (named.collect(), self.0.len())
    }

    /// Notes a success: the circuit is closed. Returns whether it was open.
    pub(super) fn worked(&mut self, destination: &str) -> bool {
        !self.0.is_empty() && self.0.remove(destination).is_some()
    }

    /// There are other rules and plugins: what was wrong with the old ones says nothing any more.
    pub(super) fn rules_changed(&mut self) {
        self.0.retain(|_, circuit| {
            !matches!(circuit.last.cause, Cause::PluginUnavailable | Cause::RouteMissing)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Cause;

    #[test]
    fn open_circuits_are_told_by_name_and_counted() {
        let mut circuits = Circuits::default();
        let unknown = Failure::new(Cause::TopicUnknown, "no such topic");
        for topic in ["c", "a", "b"] {
            circuits.failed(topic, &unknown);
        }
        let (named, total) = circuits.open(2);
        assert_eq!(total, 3);
        let names: Vec<_> = named.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(named[0].1 > Duration::ZERO && named[0].1 <= LONGEST_REST);
        assert_eq!(named[0].2, unknown);
        circuits.goes("a");
        assert_eq!(circuits.open(1).0[0].1, Duration::ZERO, "its trial is under way");
        circuits.worked("a");
        assert_eq!(circuits.open(9).1, 2);
    }
}
