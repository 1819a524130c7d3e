//! A clock that goes on counting while the machine is suspended or the process is stopped.
//!
//! Leases are counted on it, from before the claim was sent, so that a host never believes it
//! holds a lease longer than the database does. It never tells the time of day: expiry, back-off
//! and age belong to the database's clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the boot-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        #[cfg(test)]
        if let Some(now) = simulated::now() {
            return now;
        }
        let now = clock_gettime(ClockId::Boottime);
        // The boot-time clock is never negative; a value out of range would only end a lease early.
        let secs = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        Self(Duration::new(secs, nanos))
    }

    /// This moment moved later by `by`.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// How long it is from now until this moment; zero once it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// How long ago this moment was; zero if it is still to come.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Milliseconds since boot, for atomics.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment that [`Moment::as_millis`] gave.
    pub fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

/// In the simulation of the relay the clock is tokio's, which is moved by hand.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Moment;

    /// The boot is long ago, as it is on a real machine.
    const UPTIME: Duration = Duration::from_secs(1_000_000);

    thread_local! {
        static START: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// From now on this thread's clock counts from `start`; with `None` it is the machine's again.
    pub(crate) fn since(start: Option<Instant>) {
        START.set(start);
    }

    pub(super) fn now() -> Option<Moment> {
        START.get().map(|start| Moment(UPTIME + start.elapsed()))
    }
}
