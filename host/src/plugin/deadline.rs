//! How long a guest has been at it, and how it is stopped.
//!
//! `instance.rs` wraps every call into a guest in [`Meter::bound`]. What counts is
//!
//! - the processor time that the guest's thread spent in the call. A guest that is interrupted
//!   by the machine's scheduler, or that yields to other guests at every epoch tick, is not charged
//!   for the time it did not run: on an overloaded machine an innocent plugin is slow, but does
//!   not time out;
//! - the time the guest chose to wait inside a host import (a sleep through WASI's clocks), by the
//!   wall clock, since that costs no processor time and would otherwise never end.
//!
//! Every epoch tick (1 ms) brings a running guest here, in [`Meter::tick`]: it is stopped if its
//! time is over, else it lets other guests of the same thread run.
//!
//! Nothing here knows events or plugins.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The guest did not finish in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutOfTime {
    /// The call as a whole took too long.
    #[error("no answer after {} ms of computing", .0.as_millis())]
    Call(Duration),
    /// One event took longer than it would be allowed to if it were alone.
    #[error("no end after {} ms of computing on this event", .0.as_millis())]
    Event(Duration),
    /// The guest waited (slept) too long.
    #[error("no answer after {} ms of waiting", .0.as_millis())]
    Waiting(Duration),
}

/// The time account of one instance. Shared between the store and the future that polls the call;
/// both always run on the same thread during one poll.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of the current thread's processor time at which the call's account stood at zero.
    /// Wraps: a call that moves to a thread with a younger clock starts "before" its beginning.
    origin: AtomicU64,
    /// What the whole call may take, in nanoseconds.
    call_limit: AtomicU64,
    /// What one event may take, in nanoseconds.
    event_limit: AtomicU64,
    /// What the account stood at when the present event was first seen running.
    event_began: AtomicU64,
    /// Whether an event was begun since the last tick.
    event_is_new: AtomicBool,
    /// Whether the guest is suspended to let others run, as opposed to waiting for something.
    yielded: AtomicBool,
}

impl Meter {
    /// Opens the account for a call that may take `call` as a whole and `event` per event.
    pub(crate) fn open(&self, call: Duration, event: Duration) {
        self.call_limit.store(nanos(call), Ordering::Relaxed);
        self.event_limit.store(nanos(event), Ordering::Relaxed);
        self.event_began.store(0, Ordering::Relaxed);
        self.event_is_new.store(false, Ordering::Relaxed);
    }

    /// Notes that another event is worked on. Reading a clock here would cost more than all else
    /// in `enter`, so the event's time counts from the next tick: at most 1 ms in its favour.
    pub(crate) fn begin_event(&self) {
        self.event_is_new.store(true, Ordering::Relaxed);
    }

    /// An epoch tick has reached the running guest.
    pub(crate) fn tick(&self) -> Result<(), OutOfTime> {
        let used = self.used(thread_time());
        let (call, event) =
            (self.call_limit.load(Ordering::Relaxed), self.event_limit.load(Ordering::Relaxed));
        if used >= call {
            return Err(OutOfTime::Call(Duration::from_nanos(call)));
        }
        if self.event_is_new.swap(false, Ordering::Relaxed) {
            self.event_began.store(used, Ordering::Relaxed);
        } else if used - self.event_began.load(Ordering::Relaxed).min(used) >= event {
            return Err(OutOfTime::Event(Duration::from_nanos(event)));
        }
        self.yielded.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs a call to its end, or until it has waited for longer than the account allows. Returns
    /// what it came to and what it cost, computing and waiting.
    pub(crate) async fn bound<T>(
        &self,
        call: impl Future<Output = T>,
    ) -> (Result<T, OutOfTime>, Duration) {
        let mut call = pin!(call);
        let limit = Duration::from_nanos(self.call_limit.load(Ordering::Relaxed));
        let mut used = 0;
        let mut waited = Duration::ZERO;
        let mut waiting: Option<(Instant, std::pin::Pin<Box<tokio::time::Sleep>>)> = None;
        let result = std::future::poll_fn(|cx| {
            if let Some((since, _)) = waiting.take() {
                waited += since.elapsed();
            }
            self.yielded.store(false, Ordering::Relaxed);
            self.origin.store(thread_time().wrapping_sub(used), Ordering::Relaxed);
            let polled = call.as_mut().poll(cx);
            used = self.used(thread_time());
            if let Poll::Ready(output) = polled {
                return Poll::Ready(Ok(output));
            }
            if self.yielded.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            let left = limit.saturating_sub(waited);
            let mut alarm = Box::pin(tokio::time::sleep(left));
            if left.is_zero() || alarm.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(OutOfTime::Waiting(limit)));
            }
            waiting = Some((Instant::now(), alarm));
            Poll::Pending
        })
        .await;
        (result, Duration::from_nanos(used) + waited)
    }

    fn used(&self, now: u64) -> u64 {
        now.wrapping_sub(self.origin.load(Ordering::Relaxed))
    }
}

/// The processor time of this thread in nanoseconds.
fn thread_time() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // The clock starts at zero with the thread and is never negative.
    let secs = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    secs * 1_000_000_000 + nanos
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    /// Computes until `meter` says stop, yielding at each tick as a guest does.
    async fn compute(meter: &Meter) -> OutOfTime {
        loop {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            if let Err(over) = meter.tick() {
                return over;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn computing_counts() {
        let meter = Meter::default();
        meter.open(LIMIT, LIMIT * 10);
        let (over, used) = meter.bound(compute(&meter)).await;
        assert_eq!(over, Ok(OutOfTime::Call(LIMIT)));
        assert!(used >= LIMIT, "{used:?}");
    }

    #[tokio::test]
    async fn one_event_is_stopped_before_the_batch() {
        let meter = Meter::default();
        meter.open(LIMIT * 100, LIMIT);
        meter.begin_event();
        let (over, _) = meter.bound(compute(&meter)).await;
        assert_eq!(over, Ok(OutOfTime::Event(LIMIT)));
    }

    #[tokio::test]
    async fn being_kept_waiting_by_others_does_not_count() {
        let meter = Meter::default();
        meter.open(LIMIT, LIMIT);
        let call = async {
            for _ in 0..10 {
                meter.tick().expect("no time was used");
                tokio::task::yield_now().await;
            }
        };
        let others = async {
            for _ in 0..10 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the others hold the thread on purpose"
                )]
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        };
        let ((result, _), ()) = tokio::join!(meter.bound(call), others);
        assert_eq!(result, Ok(()));
    }

    #[tokio::test]
    async fn sleeping_counts() {
        let meter = Meter::default();
        meter.open(LIMIT, LIMIT);
        let (result, used) = meter.bound(tokio::time::sleep(LIMIT * 100)).await;
        assert_eq!(result, Err(OutOfTime::Waiting(LIMIT)));
        assert!(used >= LIMIT, "{used:?}");
    }
}
