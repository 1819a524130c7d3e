//! When a failed event is due again, and what happens when its attempts are used up. Pure.
//!
//! The relay asks; the database's clock does the counting, so the answer is a duration.

use std::time::Duration;

use rand::Rng;

/// How an event that failed by itself is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included, before `on_failed` applies. At least 1.
    pub max_attempts: u32,
    /// Back-off after the first failure; doubled after each further one.
    pub first_backoff: Duration,
    /// Longest back-off.
    pub max_backoff: Duration,
    /// What happens when the attempts are used up.
    pub on_failed: OnFailed,
}

/// What becomes of an event whose attempts are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailed {
    /// It is parked as FAILED, and its key goes on.
    #[default]
    Park,
    /// Its key is held until someone retries or discards it.
    HaltKey,
}

impl Default for RetryPolicy {
    /// Ten attempts over about eight minutes: longer than a deployment, shorter than a night.
    fn default() -> Self {
        Self {
            max_attempts: 10,
            first_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(300),
            on_failed: OnFailed::Park,
        }
    }
}

/// The next step for an event that has just failed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Try again after this time.
    Again(Duration),
    /// Attempts are used up: park it.
    Park,
    /// Attempts are used up: hold its key.
    HaltKey,
}

impl RetryPolicy {
    /// Decides for an event that had used `attempts` attempts before the one that just failed.
    pub fn next(&self, attempts: u32) -> NextStep {
        let used = attempts.saturating_add(1);
        if used < self.max_attempts {
            return NextStep::Again(jittered(backoff(
                self.first_backoff,
                self.max_backoff,
                attempts,
            )));
        }
        match self.on_failed {
            OnFailed::Park => NextStep::Park,
            OnFailed::HaltKey => NextStep::HaltKey,
        }
    }
}

/// `first`, doubled `times` times, at most `max`.
pub fn backoff(first: Duration, max: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).filter(|_| times < 31).unwrap_or(1 << 31);
    first.checked_mul(factor).map_or(max, |wait| wait.min(max))
}

/// The shares of a pause that are left by jitter.
const SHARES: std::ops::RangeInclusive<f64> = 0.75..=1.0;

/// `wait` made shorter by up to a quarter, so that instances and events do not move in step.
pub fn jittered(wait: Duration) -> Duration {
    #[cfg(test)]
    if let Some(share) = seeded::share() {
        return wait.mul_f64(share);
    }
    wait.mul_f64(rand::rng().random_range(SHARES))
}

/// In the simulation of the relay the jitter comes out of the seed.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    thread_local! {
        static SOURCE: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// From now on this thread's jitter comes out of `seed`; with `None` it is random again.
    pub(crate) fn by(seed: Option<u64>) {
        SOURCE.set(seed.map(StdRng::seed_from_u64));
    }

    pub(super) fn share() -> Option<f64> {
        SOURCE.with_borrow_mut(|source| Some(source.as_mut()?.random_range(super::SHARES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_from_the_first_failure() {
        let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
        assert!(matches!(policy.next(0), NextStep::Again(_)));
        assert!(matches!(policy.next(1), NextStep::Again(_)));
        assert_eq!(policy.next(2), NextStep::Park);
        assert_eq!(policy.next(u32::MAX), NextStep::Park);
    }

    #[test]
    fn back_off_doubles_up_to_its_limit() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(backoff(first, max, 0), first);
        assert_eq!(backoff(first, max, 3), Duration::from_secs(8));
        assert_eq!(backoff(first, max, 6), max);
        assert_eq!(backoff(first, max, u32::MAX), max);
    }
}
