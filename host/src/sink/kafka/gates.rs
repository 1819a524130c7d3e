//! Which partitions a producer may send to at present, and how long its records have been on the
//! way. Pure: the caller brings the time, and the lock.
//!
//! A broker that has no state for a producer accepts any first sequence. With two batches on the
//! way to such a broker the second could be appended without the first, so a partition takes one
//! record until it has acknowledged one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Moment;

/// A topic by number, and a partition of it.
pub(super) type Place = (u32, i32);

/// The gates of one producer.
#[derive(Debug)]
pub(super) struct Gates {
    /// How long an acknowledgement proves a partition; `None`: it never does, and every record
    /// goes alone.
    proof: Option<Duration>,
    places: HashMap<Place, Gate>,
}

#[derive(Debug)]
enum Gate {
    /// One record is on the way.
    Proving,
    Proven {
        out: usize,
        since: Moment,
    },
}

/// How a record passed a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Nothing else is on the way to the partition, and nothing will follow before the answer.
    Alone,
    /// With others.
    Among,
}

impl Gates {
    pub(super) fn new(proof: Option<Duration>) -> Self {
        Self { proof, places: HashMap::new() }
    }

    /// Lets one record through to `place`, if the gate is open.
    pub(super) fn enter(&mut self, place: Place) -> Option<Pass> {
        match self.places.get_mut(&place) {
            Some(Gate::Proving) => None,
            Some(Gate::Proven { out, since })
                if *out > 0 || self.proof.is_some_and(|age| since.elapsed() < age) =>
            {
                *out += 1;
                Some(Pass::Among)
            }
            Some(Gate::Proven { .. }) | None => {
                self.places.insert(place, Gate::Proving);
                Some(Pass::Alone)
            }
        }
    }

    /// A record that had entered is acknowledged. True if that opens the gate for others.
    pub(super) fn acknowledged(&mut self, place: Place) -> bool {
        let Some(gate) = self.places.get_mut(&place) else {
            return false;
        };
        match gate {
            Gate::Proven { out, since } => {
                *out = out.saturating_sub(1);
                *since = Moment::now();
                false
            }
            Gate::Proving if self.proof.is_some() => {
                *gate = Gate::Proven { out: 0, since: Moment::now() };
                true
            }
            Gate::Proving => {
                self.places.remove(&place);
                true
            }
        }
    }

    /// A record that had entered was not sent, or was refused. True if that opens the gate for
    /// another try.
    pub(super) fn left(&mut self, place: Place) -> bool {
        match self.places.get_mut(&place) {
            Some(Gate::Proven { out, .. }) => {
                *out = out.saturating_sub(1);
                false
            }
            Some(Gate::Proving) => {
                self.places.remove(&place);
                true
            }
            None => false,
        }
    }
}

/// How many records are on the way, by when they were handed over.
#[derive(Debug, Default)]
pub(super) struct Ages {
    steps: VecDeque<(u64, usize)>,
}

/// Ages are counted in steps of this.
const STEP_MS: u64 = 50;

/// The step in which a record was handed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step(u64);

impl Ages {
    /// One record is handed over at `now`.
    pub(super) fn begin(&mut self, now: Moment) -> Step {
        let mut step = now.as_millis() / STEP_MS;
        match self.steps.back_mut() {
            // Never backwards, so that the list stays sorted.
            Some((last, count)) if *last >= step => {
                step = *last;
                *count += 1;
            }
            Some(_) | None => self.steps.push_back((step, 1)),
        }
        Step(step)
    }

    /// One record of `step` is decided.
    pub(super) fn end(&mut self, step: Step) {
        if let Ok(place) = self.steps.binary_search_by_key(&step.0, |(at, _)| *at) {
            self.steps[place].1 = self.steps[place].1.saturating_sub(1);
        }
        while self.steps.front().is_some_and(|(_, count)| *count == 0) {
            self.steps.pop_front();
        }
    }

    /// When the oldest record on the way was handed over, at the latest.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.steps.front().map(|(step, _)| Moment::from_millis(step * STEP_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_first_record_goes_alone_and_proves_the_partition() {
        let mut gates = Gates::new(Some(HOUR));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Alone));
        assert_eq!(gates.enter((0, 0)), None);
        assert_eq!(gates.enter((0, 1)), Some(Pass::Alone), "another partition is another gate");
        assert!(gates.acknowledged((0, 0)));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Among));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Among));
    }

    #[test]
    fn a_failed_proof_lets_another_try() {
        let mut gates = Gates::new(Some(HOUR));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Alone));
        assert!(gates.left((0, 0)));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Alone));
    }

    #[test]
    fn an_idle_partition_has_to_prove_itself_again() {
        let mut gates = Gates::new(Some(Duration::ZERO));
        gates.enter((0, 0));
        gates.acknowledged((0, 0));
        assert_eq!(gates.enter((0, 0)), Some(Pass::Alone));
    }

    #[test]
    fn without_proofs_every_record_goes_alone() {
        let mut gates = Gates::new(None);
        for _ in 0..3 {
            assert_eq!(gates.enter((0, 0)), Some(Pass::Alone));
            assert_eq!(gates.enter((0, 0)), None);
            assert!(gates.acknowledged((0, 0)));
        }
    }

    #[test]
    fn the_oldest_age_is_that_of_the_oldest_undecided_record() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(), None);
        let first = ages.begin(Moment::from_millis(1000));
        let second = ages.begin(Moment::from_millis(1010));
        let third = ages.begin(Moment::from_millis(2000));
        ages.end(third);
        assert_eq!(ages.oldest(), Some(Moment::from_millis(1000)));
        ages.end(first);
        assert_eq!(ages.oldest(), Some(Moment::from_millis(1000)));
        ages.end(second);
        assert_eq!(ages.oldest(), None);
    }
}
