//! Candidate versions in the shadow of the one that decides: asked the same, compared, counted.
//!
//! Called by the batch worker once its events are decided. Runs beside the lane, on the plugins' threads, one
//! batch at a time: what comes meanwhile is passed over and counted as skipped, so that the lane never
//! waits for it. Nothing that a candidate says here is published.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::event::{Event, LaneName, Outcome};
use crate::failure::Failure;
use crate::telemetry::{PluginMetrics, Shadow};
use crate::transform::Transform;

/// Batches of one lane that may be with candidates at once: the threads are those of all plugins.
const MOST_BATCHES: usize = 1;

/// Differences of one batch that are logged.
const MOST_LOGGED: usize = 3;

/// What a lane's shadow runs share.
pub(super) struct Shadows {
    room: Arc<Semaphore>,
    metrics: PluginMetrics,
}

/// What the version that decides has said of some events.
pub(super) struct Decided {
    pub(super) plugin: String,
    pub(super) events: Vec<Event>,
    pub(super) verdicts: Vec<Result<Outcome, Failure>>,
}

impl Shadows {
    /// A lane's own.
    pub(super) fn new(metrics: PluginMetrics) -> Self {
        Self { room: Arc::new(Semaphore::new(MOST_BATCHES)), metrics }
    }

    /// Whether another batch can be compared now; if not, it is counted as skipped.
    pub(super) fn has_room(&self, plugin: &str, events: usize) -> bool {
        let room = self.room.available_permits() > 0;
        if !room {
            self.metrics.shadowed(plugin, Shadow::Skipped, events);
        }
        room
    }

    /// Has the candidate decide the same events, and compares.
    pub(super) fn compare(&self, lane: &LaneName, candidate: Arc<dyn Transform>, decided: Decided) {
        let Ok(seat) = Arc::clone(&self.room).try_acquire_owned() else {
            self.metrics.shadowed(&decided.plugin, Shadow::Skipped, decided.events.len());
            return;
        };
        let (lane, metrics) = (lane.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let asked: Vec<&Event> = decided.events.iter().collect();
            let said = candidate.transform(&lane, &asked).await;
            drop(seat);
            let (mut same, mut different, mut failed) = (0, 0, 0);
            for ((event, current), candidate) in
                decided.events.iter().zip(&decided.verdicts).zip(&said.verdicts)
            {
                let what = difference(current, candidate);
                match (&what, candidate) {
                    (None, _) => same += 1,
                    (Some(_), Err(_)) => failed += 1,
                    (Some(_), Ok(_)) => different += 1,
                }
                if let Some(what) = what
                    && different + failed <= MOST_LOGGED
                {
                    tracing::info!(lane = %lane, candidate = %said.stamp, event = %event.id,
                        event_type = event.event_type, what, "the candidate decides otherwise");
                }
            }
            for (result, events) in
                [(Shadow::Same, same), (Shadow::Different, different), (Shadow::Failed, failed)]
            {
                metrics.shadowed(&decided.plugin, result, events);
            }
        });
    }
}

/// What differs between two verdicts, if anything, without data of the event. Failures are the same when
/// their causes are.
fn difference(
    current: &Result<Outcome, Failure>,
    candidate: &Result<Outcome, Failure>,
) -> Option<String> {
    match (current, candidate) {
        (Err(current), Err(candidate)) if current.cause == candidate.cause => None,
        (Err(current), Err(candidate)) => {
            Some(format!("{} and not {}", candidate.cause.code(), current.cause.code()))
        }
        (Ok(_), Err(candidate)) => Some(format!("it fails: {}", candidate.cause.code())),
        (Err(current), Ok(_)) => Some(format!("it succeeds and not {}", current.cause.code())),
        (Ok(Outcome::Drop(_)), Ok(Outcome::Drop(_))) => None,
        (Ok(Outcome::Drop(_)), Ok(Outcome::Deliver(_))) => Some("it does not drop".to_owned()),
        (Ok(Outcome::Deliver(_)), Ok(Outcome::Drop(_))) => Some("it drops".to_owned()),
        (Ok(Outcome::Deliver(current)), Ok(Outcome::Deliver(candidate))) => {
            if current.len() != candidate.len() {
                return Some(format!("{} deliveries and not {}", candidate.len(), current.len()));
            }
            let parts = |at: usize| {
                let (a, b) = (&current[at], &candidate[at]);
                [
                    ("topic", a.topic != b.topic),
                    ("key", a.key != b.key),
                    ("payload", a.payload != b.payload),
                    ("headers", a.headers != b.headers),
                    ("partition", a.partition != b.partition),
                    ("timestamp", a.timestamp_ms != b.timestamp_ms),
                ]
            };
            let differing: Vec<String> = (0..current.len())
                .flat_map(|at| {
                    let differing = parts(at).into_iter().filter(|(_, differs)| *differs);
                    differing.map(move |(part, _)| format!("{part} of delivery {at}"))
                })
                .collect();
            (!differing.is_empty()).then(|| differing.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Delivery, KeyChoice};
    use crate::failure::Cause;

    #[test]
    fn differences_are_named_and_hold_no_data() {
        let deliver = |list: Vec<Delivery>| Ok::<_, Failure>(Outcome::Deliver(list));
        let fail = |cause| Err::<Outcome, _>(Failure::new(cause, "SECRET"));
        let to = |topic: &str| Delivery { topic: Some(topic.into()), ..Delivery::default() };
        let cases = [
            (deliver(vec![to("a")]), deliver(vec![to("a")]), None),
            (
                deliver(vec![to("a"), to("a")]),
                deliver(vec![to("a"), Delivery { key: KeyChoice::Null, ..to("SECRET") }]),
                Some("topic of delivery 1, key of delivery 1"),
            ),
            (deliver(vec![]), deliver(vec![to("a")]), Some("1 deliveries and not 0")),
            (deliver(vec![]), Ok(Outcome::Drop("SECRET".into())), Some("it drops")),
            (fail(Cause::PluginRejected), fail(Cause::PluginRejected), None),
            (
                fail(Cause::PluginRejected),
                fail(Cause::PluginTrap),
                Some("plugin_trap and not plugin_rejected"),
            ),
            (deliver(vec![]), fail(Cause::PluginTrap), Some("it fails: plugin_trap")),
        ];
        for (current, candidate, expected) in cases {
            assert_eq!(difference(&current, &candidate).as_deref(), expected);
        }
    }
}
