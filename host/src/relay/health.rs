//! What readiness is told about one lane.
//!
//! Written by the lane's loop, batches and watch, read by the admin port and by heartbeats. Never asks
//! the database itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::minute::LastMinute;
use crate::clock::Moment;
use crate::store::LaneStats;

/// What is said of a lane whose loop has panicked.
const DIED: &str = "its loop has died, which is a bug: restart the process";

/// The state behind one lane's readiness.
#[derive(Debug)]
pub struct LaneHealth(Mutex<State>);

#[derive(Debug)]
struct State {
    /// What keeps the lane from being worked at all, if anything does.
    obstacle: Option<String>,
    /// When something was last settled, here or (as far as the database tells) anywhere.
    progress: Moment,
    stats: LaneStats,
    published: LastMinute,
    died: bool,
}

impl Default for LaneHealth {
    fn default() -> Self {
        Self(Mutex::new(State {
            obstacle: Some("not opened yet".to_owned()),
            progress: Moment::now(),
            stats: LaneStats::default(),
            published: LastMinute::default(),
            died: false,
        }))
    }
}

impl LaneHealth {
    /// The lane can be worked.
    pub(super) fn clear(&self) {
        self.state().obstacle = None;
    }

    /// The lane cannot be worked at present, and why. Returns whether that is news.
    pub(super) fn blocked(&self, why: String) -> bool {
        let mut state = self.state();
        let news = state.obstacle.as_ref() != Some(&why);
        state.obstacle = Some(why);
        news
    }

    /// Something was settled.
    pub(super) fn progress(&self) {
        self.state().progress = Moment::now();
    }

    /// Events were settled as published.
    pub(super) fn published(&self, events: u64) {
        if events > 0 {
            self.state().published.add(since_boot(), events);
        }
    }

    /// Events settled as published in the last minute, here.
    pub(super) fn published_last_minute(&self) -> u64 {
        self.state().published.sum(since_boot())
    }

    /// What keeps the lane from being worked at all, if anything does.
    pub(super) fn obstacle(&self) -> Option<String> {
        let state = self.state();
        if state.died { Some(DIED.to_owned()) } else { state.obstacle.clone() }
    }

    /// How the lane stands; a change in what was published, or a head that is no longer due, is
    /// progress by another instance.
    pub(super) fn stats(&self, stats: LaneStats) {
        let mut state = self.state();
        let moved = stats.published != state.stats.published
            || (stats.oldest_due.is_none() && stats.processing == 0)
            || stats.oldest_due < state.stats.oldest_due;
        if moved {
            state.progress = Moment::now();
        }
        state.stats = stats;
    }

    /// The lane's loop ended by a panic.
    pub(super) fn died(&self) {
        self.state().died = true;
    }

    /// Whether the loop is running.
    pub fn alive(&self) -> bool {
        !self.state().died
    }

    /// Why the lane is not ready, if it is not: it cannot be worked, or there has been due work for
    /// longer than `stall` and nothing was settled in that time.
    pub fn trouble(&self, stall: Duration) -> Option<String> {
        let state = self.state();
        if state.died {
            return Some(DIED.to_owned());
        }
        let idle = state.progress.elapsed();
        let overdue = state.stats.oldest_due.filter(|due| *due >= stall && idle >= stall);
        match (&state.obstacle, overdue) {
            (Some(obstacle), _) => Some(obstacle.clone()),
            (None, Some(due)) => Some(format!(
                "no progress for {} s although an event has been due for {} s",
                idle.as_secs(),
                due.as_secs()
            )),
            (None, None) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time that never goes back.
fn since_boot() -> Duration {
    Duration::from_millis(Moment::now().as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(secs: u64, published: u64) -> LaneStats {
        LaneStats { oldest_due: Some(Duration::from_secs(secs)), published, ..LaneStats::default() }
    }

    #[test]
    fn due_work_without_progress_is_trouble() {
        let health = LaneHealth::default();
        assert!(health.trouble(Duration::ZERO).is_some(), "not opened");
        health.clear();
        assert!(health.trouble(Duration::from_secs(30)).is_none());
        health.stats(due(40, 0));
        assert!(health.trouble(Duration::ZERO).is_some());
        assert!(health.trouble(Duration::from_secs(30)).is_none(), "progress was recent");
        health.blocked("the broker is away".into());
        assert!(health.trouble(Duration::from_secs(30)).is_some());
    }

    #[test]
    fn an_idle_lane_is_ready() {
        let health = LaneHealth::default();
        health.clear();
        health.stats(LaneStats::default());
        assert!(health.trouble(Duration::ZERO).is_none());
    }
}
