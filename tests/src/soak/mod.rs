//! A soak: relays under traffic while random faults happen, and a verdict at the end.
//!
//! Called by `make soak` and, much shorter, by the e2e tier. The order of faults follows from the
//! seed; when exactly each hits does not. It uses the services of `tests/services` and takes them
//! away, so nothing else may use them meanwhile.

mod bed;
mod fault;
mod verdict;

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

pub use self::fault::Kind;
pub use self::verdict::Report;

use self::bed::Bed;
use crate::traffic::Traffic;

/// How a soak runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long faults go on.
    pub length: Duration,
    /// Where the random numbers begin.
    pub seed: u64,
    /// The faults to choose from.
    pub kinds: Vec<Kind>,
}

/// Runs a soak to its end and judges it.
///
/// # Panics
/// When an invariant does not hold, with what was found; the folders of all relays are then kept.
pub async fn run(plan: &Plan) -> Report {
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut bed = Bed::new(plan.seed).await;
    let traffic = Traffic::start(bed.pool(), &bed.traffic_plan());
    bed.all_at_work().await;
    let end = Instant::now() + plan.length;
    let mut deck: Vec<Kind> = Vec::new();
    while Instant::now() < end {
        if deck.is_empty() {
            // Each comes once before any comes again, so that none is left out by chance.
            deck = plan.kinds.clone();
        }
        let kind = deck.swap_remove(random.random_range(0..deck.len()));
        bed.inject(kind, &mut random).await;
        bed.rest(Duration::from_millis(random.random_range(300..2500))).await;
    }
    bed.heal().await;
    let written = traffic.stop().await;
    bed.drain().await;
    verdict::judge(&bed, written).await
}
