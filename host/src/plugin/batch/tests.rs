//! The search for culprits, against a guest made of a rule instead of a component.

use std::collections::BTreeSet;

use super::*;
use crate::event::Outcome;

/// A guest that fails whenever it is given an event of `bad`.
struct Rule {
    bad: BTreeSet<usize>,
    /// What its marker says when it fails at an event, given the place of that event in the call.
    marker: fn(usize) -> Option<usize>,
    /// Fails also if it is given more events than this.
    most: usize,
    /// Processor time per event at fault.
    cost: Duration,
    /// Whether the instance at hand has seen events.
    used: bool,
    /// Fails on instances that have seen events.
    leaks: bool,
    calls: usize,
    largest_rerun: usize,
}

impl Rule {
    fn new(bad: impl IntoIterator<Item = usize>, marker: fn(usize) -> Option<usize>) -> Self {
        Self {
            bad: bad.into_iter().collect(),
            marker,
            most: usize::MAX,
            cost: Duration::ZERO,
            used: false,
            leaks: false,
            calls: 0,
            largest_rerun: 0,
        }
    }

    async fn decide(&mut self, events: usize) -> Vec<Option<Cause>> {
        let parts = vec![(0..events).collect()];
        let verdicts = decide(self, parts, Duration::from_secs(1)).await;
        verdicts.into_iter().map(|verdict| verdict.err().map(|failure| failure.cause)).collect()
    }
}

impl Caller for Rule {
    async fn call(&mut self, events: &[usize], want: Want) -> Reply {
        self.calls += 1;
        let fresh = !self.used || want == Want::Fresh;
        self.used = true;
        if self.calls > 1 {
            self.largest_rerun = self.largest_rerun.max(events.len());
        }
        let at = events.iter().position(|event| self.bad.contains(event));
        let fails = at.is_some() || events.len() > self.most || (self.leaks && !fresh);
        let result = if fails {
            Err(Fault::Guest {
                cause: Cause::PluginTrap,
                message: "trap".to_owned(),
                entered: at.and_then(self.marker),
            })
        } else {
            Ok(events.iter().map(|_| Ok(Outcome::Deliver(Vec::new()))).collect())
        };
        Reply { result, used: if fails { self.cost } else { Duration::ZERO }, fresh }
    }
}

fn only(bad: &[usize], events: usize) -> Vec<Option<Cause>> {
    (0..events).map(|event| bad.contains(&event).then_some(Cause::PluginTrap)).collect()
}

#[tokio::test]
async fn a_marked_culprit_costs_three_more_calls() {
    let mut guest = Rule::new([17], Some);
    assert_eq!(guest.decide(256).await, only(&[17], 256));
    assert_eq!(guest.calls, 4);
}

#[tokio::test]
async fn an_unmarked_culprit_is_found_by_halving() {
    let mut guest = Rule::new([200], |_| None);
    assert_eq!(guest.decide(256).await, only(&[200], 256));
    assert_eq!(guest.calls, 17);
}

#[tokio::test]
async fn a_lying_marker_harms_no_innocent() {
    for lie in [|_| Some(0), |at: usize| Some(at + 1), |_| Some(usize::MAX)] {
        let mut guest = Rule::new([3, 40], lie);
        assert_eq!(guest.decide(50).await, only(&[3, 40], 50));
    }
}

#[tokio::test]
async fn every_event_at_fault_is_found() {
    let all: Vec<usize> = (0..256).collect();
    for marker in [Some, |_| None] {
        let mut guest = Rule::new(0..256, marker);
        assert_eq!(guest.decide(256).await, only(&all, 256));
        assert!(guest.calls <= 2 * 256 + SPARE_CALLS, "{}", guest.calls);
    }
}

#[tokio::test]
async fn a_batch_that_is_too_much_as_a_whole_is_decided_in_parts() {
    let mut guest = Rule { most: 10, ..Rule::new([], |_| None) };
    assert_eq!(guest.decide(100).await, only(&[], 100));
}

#[tokio::test]
async fn an_event_is_not_blamed_for_a_worn_out_instance() {
    let mut guest = Rule { used: true, leaks: true, ..Rule::new([], |_| None) };
    assert_eq!(guest.decide(1).await, only(&[], 1));
    assert_eq!(guest.calls, 2);
}

#[tokio::test]
async fn when_time_is_used_up_the_undecided_wait_without_blame() {
    let mut guest = Rule { cost: Duration::from_millis(100), ..Rule::new(0..256, Some) };
    let causes = guest.decide(256).await;
    let blamed = causes.iter().filter(|it| **it == Some(Cause::PluginTrap)).count();
    let waiting = causes.iter().filter(|it| **it == Some(Cause::PluginUnavailable)).count();
    assert!(blamed >= 5, "{blamed}");
    assert_eq!(blamed + waiting, 256);
    assert!(guest.calls <= 12, "{}", guest.calls);
}

#[tokio::test]
async fn without_a_guest_nobody_is_blamed() {
    struct Nobody;
    impl Caller for Nobody {
        async fn call(&mut self, _: &[usize], _: Want) -> Reply {
            let result = Err(Fault::Unavailable("no guest".to_owned()));
            Reply { result, used: Duration::ZERO, fresh: true }
        }
    }
    let verdicts = decide(&mut Nobody, vec![vec![0], vec![1]], Duration::ZERO).await;
    for verdict in verdicts {
        assert_eq!(verdict, Err(Failure::new(Cause::PluginUnavailable, "no guest")));
    }
}
