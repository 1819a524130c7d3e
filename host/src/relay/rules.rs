//! The rules and plugins that batches are decided by, and how a lane goes over to new ones.
//!
//! The assembly publishes a [`Rules`] at the start and after every reload. A batch keeps the rules it
//! began with until its records are acknowledged, and in one lane no batch begins with new rules before
//! all that began with old ones have ended: every event is handled by exactly one version, and what a
//! lane publishes never goes back from a newer version to an older one. The price is a pause of at most
//! one batch for each lane and reload. Never loads anything.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

use crate::routing::Routes;
use crate::transform::Plugins;

/// Everything that decides where an event goes, at one moment.
pub struct Rules {
    /// Which event type goes where.
    pub routes: Routes,
    /// The plugins in use.
    pub plugins: Arc<dyn Plugins>,
    /// What keeps events from being decided, one line each.
    pub troubles: Vec<String>,
    /// What was refused while something earlier goes on, one line each.
    pub notes: Vec<String>,
}

impl Rules {
    /// Everything that is wrong: what makes events wait first.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.troubles.iter().chain(&self.notes)
    }
}

/// The rules of one lane.
pub(super) struct LaneRules {
    latest: watch::Receiver<Arc<Rules>>,
    /// Held for reading by every batch that is decided by it.
    mine: Arc<RwLock<Arc<Rules>>>,
}

impl LaneRules {
    /// A lane's own view of the rules.
    pub(super) fn new(latest: watch::Receiver<Arc<Rules>>) -> Self {
        let now = latest.borrow().clone();
        Self { latest, mine: Arc::new(RwLock::new(now)) }
    }

    /// The rules for a batch that begins now; hold them until its records are acknowledged. `news` is
    /// called when the lane goes over to others.
    pub(super) async fn enter(&self, news: impl Fn()) -> OwnedRwLockReadGuard<Arc<Rules>> {
        loop {
            let held = Arc::clone(&self.mine).read_owned().await;
            if Arc::ptr_eq(&held, &self.latest.borrow()) {
                return held;
            }
            drop(held);
            // Waits for the batches under the old rules; those that come now wait for this.
            let mut held = self.mine.write().await;
            let latest = self.latest.borrow().clone();
            if !Arc::ptr_eq(&held, &latest) {
                *held = latest;
                news();
            }
        }
    }

    /// The latest rules, for reports.
    pub(super) fn latest(&self) -> Arc<Rules> {
        self.latest.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transform::FixedPlugins;

    fn rules(number: u8) -> Arc<Rules> {
        let troubles = vec![number.to_string()];
        Arc::new(Rules {
            routes: Routes::default(),
            plugins: Arc::new(FixedPlugins::default()),
            troubles,
            notes: vec![],
        })
    }

    #[tokio::test]
    async fn new_rules_wait_for_the_batches_under_old_ones() {
        let (send, latest) = watch::channel(rules(1));
        let lane = Arc::new(LaneRules::new(latest));
        let (first, second) = (lane.enter(|| {}).await, lane.enter(|| {}).await);
        assert_eq!((&*first.troubles[0], &*second.troubles[0]), ("1", "1"));

        send.send_replace(rules(2));
        let next = tokio::spawn({
            let lane = Arc::clone(&lane);
            async move { lane.enter(|| {}).await.troubles[0].clone() }
        });
        drop(first);
        tokio::task::yield_now().await;
        assert!(!next.is_finished(), "a batch under the old rules has not ended");
        drop(second);
        let next = tokio::time::timeout(Duration::from_secs(10), next).await;
        assert_eq!(next.expect("it goes on").expect("it ends"), "2");
    }
}
