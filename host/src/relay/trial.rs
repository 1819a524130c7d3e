//! Whether a plugin version that has just been taken up is any good.
//!
//! Shared by all lanes of a process, fed with every verdict of a plugin. A version is bad when it traps
//! or times out (never when it rejects) on at least [`BAD_EVENTS`] events of [`BAD_KEYS`] keys without
//! one success since it was taken up. Until it has had a success nothing is laid to an event's door too
//! soon: the first few failures of each event use up no attempt. Never loads or unloads anything; it says
//! so to the plugin host.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::event::{Event, EventId, LaneName};
use crate::failure::{Cause, Failure};
use crate::transform::Transformed;

/// So many events, of so many keys, without a success, and the version is bad.
const BAD_EVENTS: usize = 20;
const BAD_KEYS: usize = 2;

/// So often an event may fail on an unproven version without using up an attempt.
const FREE_TRIES: u32 = 3;

/// Events of one version that are remembered; all of one key, or it would be bad long since.
const MOST_EVENTS: usize = 10_000;

/// Versions that are not proven; what no longer decides is forgotten when there are more.
const MOST_TRIALS: usize = 100;

/// The versions on trial, by activation.
#[derive(Debug, Default)]
pub(super) struct Trials(HashMap<u64, Trial>);

/// Whose events they are; an event without a key is nobody else's.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Ordering(Bytes),
    Alone(EventId),
}

#[derive(Debug)]
enum Trial {
    Running { tries: HashMap<(Arc<str>, EventId), u32>, keys: HashSet<Key> },
    Proven,
    Bad,
}

impl Trials {
    /// Takes note of a batch's verdicts and softens those that are not the event's fault as far as is
    /// known. Returns why the version is bad, when this batch has shown that it is.
    pub(super) fn judge(
        &mut self,
        lane: &LaneName,
        events: &[&Event],
        done: &mut Transformed,
    ) -> Option<String> {
        if self.0.values().filter(|trial| !matches!(trial, Trial::Proven)).count() > MOST_TRIALS {
            let newest = done.activation;
            // What has worked is not forgotten; it takes no room.
            self.0.retain(|activation, trial| {
                *activation == newest || matches!(trial, Trial::Proven)
            });
        }
        let trial = self
            .0
            .entry(done.activation)
            .or_insert_with(|| Trial::Running { tries: HashMap::new(), keys: HashSet::new() });
        let Trial::Running { tries, keys } = trial else {
            if matches!(trial, Trial::Bad) {
                soften_all(done);
            }
            return None;
        };
        if done.verdicts.iter().any(succeeded) {
            *trial = Trial::Proven;
            return None;
        }
        let mut last = String::new();
        for (event, verdict) in events.iter().zip(&mut done.verdicts) {
            let Err(failure) = verdict else { continue };
            if !is_fault(failure.cause) {
                continue;
            }
            let line = failure.message.lines().next().unwrap_or_default();
            last = format!("{}: {line}", failure.cause.code());
            let id = (Arc::clone(&lane.source), event.id);
            if tries.len() >= MOST_EVENTS && !tries.contains_key(&id) {
                continue;
            }
            let tries = tries.entry(id).or_default();
            *tries += 1;
            keys.insert(event.ordering_key().0.map_or(Key::Alone(event.id), Key::Ordering));
            if *tries <= FREE_TRIES {
                soften(failure);
            }
        }
        if tries.len() < BAD_EVENTS || keys.len() < BAD_KEYS {
            return None;
        }
        let why = format!(
            "it failed on each of the first {} events of {} keys; last: {last}",
            tries.len(),
            keys.len()
        );
        *trial = Trial::Bad;
        soften_all(done);
        Some(why)
    }
}

/// An answer is a success, and so is a rejection: the plugin has worked.
fn succeeded(verdict: &Result<crate::event::Outcome, Failure>) -> bool {
    match verdict {
        Ok(_) => true,
        Err(failure) => matches!(failure.cause, Cause::PluginRejected | Cause::PluginRetry),
    }
}

/// Whether the plugin itself has failed.
fn is_fault(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::PluginTrap | Cause::PluginTimeout | Cause::PluginMemory | Cause::PluginOutput
    )
}

/// The event waits for a better version, without using up an attempt.
fn soften(failure: &mut Failure) {
    failure.message =
        format!("plugin version not proven yet: {}: {}", failure.cause.code(), failure.message);
    failure.cause = Cause::PluginUnavailable;
}

fn soften_all(done: &mut Transformed) {
    for failure in done.verdicts.iter_mut().filter_map(|verdict| verdict.as_mut().err()) {
        if is_fault(failure.cause) {
            soften(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Outcome;
    use crate::failure::PluginStamp;

    fn event(id: i64, keys: i64) -> Event {
        Event { aggregate_id: Some((id % keys).to_string()), ..Event::bare(id) }
    }

    fn lane() -> LaneName {
        LaneName { source: "s".into(), lane: "default".into() }
    }

    fn done(activation: u64, verdicts: Vec<Result<Outcome, Failure>>) -> Transformed {
        let stamp = PluginStamp { name: "p".into(), version: "1".into(), hash: "h".into() };
        Transformed { verdicts, stamp, activation }
    }

    fn fail(cause: Cause) -> Result<Outcome, Failure> {
        Err(Failure::new(cause, "no"))
    }

    /// Lets all events of these ids fail in that way, in one batch; whether the version is bad then, and the
    /// cause of the first.
    fn batch(
        trials: &mut Trials,
        ids: std::ops::Range<i64>,
        keys: i64,
        cause: Cause,
    ) -> (bool, Cause) {
        let events: Vec<Event> = ids.map(|id| event(id, keys)).collect();
        let refs: Vec<&Event> = events.iter().collect();
        let mut done = done(1, events.iter().map(|_| fail(cause)).collect());
        let bad = trials.judge(&lane(), &refs, &mut done).is_some();
        let Err(failure) = &done.verdicts[0] else { panic!("it failed") };
        (bad, failure.cause)
    }

    #[test]
    fn a_version_is_bad_after_twenty_events_of_two_keys() {
        let mut trials = Trials::default();
        assert_eq!(
            batch(&mut trials, 0..19, 5, Cause::PluginTrap),
            (false, Cause::PluginUnavailable)
        );
        assert_eq!(
            batch(&mut trials, 5..19, 5, Cause::PluginTrap),
            (false, Cause::PluginUnavailable)
        );
        assert_eq!(
            batch(&mut trials, 19..20, 5, Cause::PluginTimeout),
            (true, Cause::PluginUnavailable)
        );
        let later = batch(&mut trials, 20..40, 5, Cause::PluginTrap);
        assert_eq!(later, (false, Cause::PluginUnavailable), "said once, and nothing is parked");
    }

    #[test]
    fn one_key_or_a_rejection_makes_no_bad_version() {
        let mut trials = Trials::default();
        assert!(!batch(&mut trials, 0..40, 1, Cause::PluginTrap).0);
        let mut trials = Trials::default();
        assert_eq!(
            batch(&mut trials, 0..40, 5, Cause::PluginRejected),
            (false, Cause::PluginRejected)
        );
        let after = batch(&mut trials, 0..40, 5, Cause::PluginTrap);
        assert_eq!(after, (false, Cause::PluginTrap), "it has worked before");
    }

    #[test]
    fn events_without_a_key_are_each_a_key() {
        let mut trials = Trials::default();
        let events: Vec<Event> =
            (0..20).map(|id| Event { aggregate_id: None, ..event(id, 1) }).collect();
        let refs: Vec<&Event> = events.iter().collect();
        let mut done = done(1, events.iter().map(|_| fail(Cause::PluginTrap)).collect());
        assert!(trials.judge(&lane(), &refs, &mut done).is_some());
    }

    #[test]
    fn an_event_that_goes_on_failing_is_at_fault_in_the_end() {
        let mut trials = Trials::default();
        for _ in 0..FREE_TRIES {
            assert_eq!(
                batch(&mut trials, 7..8, 5, Cause::PluginTrap),
                (false, Cause::PluginUnavailable)
            );
        }
        assert_eq!(batch(&mut trials, 7..8, 5, Cause::PluginTrap), (false, Cause::PluginTrap));
    }

    #[test]
    fn a_success_in_the_same_batch_proves_the_version() {
        let mut trials = Trials::default();
        let events: Vec<Event> = (0..30).map(|id| event(id, 30)).collect();
        let refs: Vec<&Event> = events.iter().collect();
        let mut verdicts: Vec<_> = events.iter().map(|_| fail(Cause::PluginTrap)).collect();
        verdicts[29] = Ok(Outcome::Drop("x".into()));
        let mut done = done(1, verdicts);
        assert_eq!(trials.judge(&lane(), &refs, &mut done), None);
        assert!(matches!(&done.verdicts[0], Err(failure) if failure.cause == Cause::PluginTrap));
    }
}
