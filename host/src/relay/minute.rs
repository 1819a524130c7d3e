//! How much was published in the last sixty seconds. Pure.
//!
//! Kept by a lane's health, told by heartbeats. The time is handed in.

use std::time::Duration;

/// Seconds that are remembered.
const SECONDS: u64 = 60;

/// A count per second, each overwritten after a minute.
#[derive(Debug)]
pub(super) struct LastMinute([(u64, u64); SECONDS as usize]);

impl Default for LastMinute {
    fn default() -> Self {
        Self([(0, 0); SECONDS as usize])
    }
}

impl LastMinute {
    /// Counts events at `now`, which is measured from any fixed point and never goes back.
    pub(super) fn add(&mut self, now: Duration, events: u64) {
        let second = now.as_secs();
        let slot = &mut self.0[(second % SECONDS) as usize];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 = slot.1.saturating_add(events);
    }

    /// What was counted in the minute before `now`.
    pub(super) fn sum(&self, now: Duration) -> u64 {
        let second = now.as_secs();
        let young = self.0.iter().filter(|(at, _)| second.saturating_sub(*at) < SECONDS);
        young.map(|(_, events)| events).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_remembered_and_no_more() {
        let at = Duration::from_secs;
        let mut minute = LastMinute::default();
        assert_eq!(minute.sum(at(1_000)), 0);
        minute.add(at(1_000), 2);
        minute.add(at(1_000), 3);
        minute.add(at(1_059), 1);
        assert_eq!(minute.sum(at(1_059)), 6);
        assert_eq!(minute.sum(at(1_060)), 1);
        minute.add(at(1_060), 4);
        assert_eq!(minute.sum(at(1_060)), 5);
        assert_eq!(minute.sum(at(2_000)), 0);
    }
}
