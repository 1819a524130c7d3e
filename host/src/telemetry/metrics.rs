//! Every metric: its name, its help, its labels.
//!
//! The assembly makes one [`Metrics`]; each lane's loop counts on its own [`LaneMetrics`]; the
//! admin port encodes. Labels are source, lane and the stable code of a cause, so that the number
//! of series follows from the settings and not from the events. Every series of a lane is there,
//! with 0, before anything happens: an alert on its rate sees the first failure.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::histogram::Histogram;
use super::plugins::PluginMetrics;
use crate::event::LaneName;
use crate::failure::{Cause, FailureKind};
use crate::store::LaneStats;

const CLAIM_SECONDS: &str = "haulier_claim_seconds";
const TRANSFORM_SECONDS: &str = "haulier_transform_seconds";
const PUBLISH_SECONDS: &str = "haulier_publish_seconds";
const SETTLE_SECONDS: &str = "haulier_settle_seconds";
const EVENT_WAIT_SECONDS: &str = "haulier_event_wait_seconds";
const EVENT_WORK_SECONDS: &str = "haulier_event_work_seconds";
// The encoder adds "_total" to the names of counters.
const EVENTS_PUBLISHED: &str = "haulier_events_published";
const EVENTS_DROPPED: &str = "haulier_events_dropped";
const EVENTS_FAILED: &str = "haulier_events_failed";
const EVENTS_RETRIED: &str = "haulier_events_retried";
const EVENTS_WAITING: &str = "haulier_events_waiting";
const EVENTS_RELEASED: &str = "haulier_events_released";
const DELIVERIES_PUBLISHED: &str = "haulier_deliveries_published";
const LEASE_LOSSES: &str = "haulier_lease_losses";
const SETTLES_LOST_EVENTS: &str = "haulier_settles_lost_events";
const LANE_PAUSES: &str = "haulier_lane_pauses";
const RETENTION_DELETED: &str = "haulier_retention_deleted";
const PENDING: &str = "haulier_pending";
const PROCESSING: &str = "haulier_processing";
const FAILED: &str = "haulier_failed";
const HELD_KEYS: &str = "haulier_held_keys";
const OLDEST_DUE_AGE_SECONDS: &str = "haulier_oldest_due_age_seconds";
const BATCHES_IN_FLIGHT: &str = "haulier_batches_in_flight";
const LANE_PAUSED: &str = "haulier_lane_paused";

/// Every cause, so that its series is there before it happens. A test keeps it complete.
const CAUSES: [Cause; 25] = [
    Cause::PluginRejected,
    Cause::PluginRetry,
    Cause::PluginTrap,
    Cause::PluginTimeout,
    Cause::PluginMemory,
    Cause::PluginOutput,
    Cause::RowUnreadable,
    Cause::TopicMissing,
    Cause::TopicIllegal,
    Cause::PartitionIllegal,
    Cause::RecordTooLarge,
    Cause::HeaderInvalid,
    Cause::KeyUnreadable,
    Cause::RecordRefused,
    Cause::ProcessCrash,
    Cause::TopicUnknown,
    Cause::TopicUnauthorised,
    Cause::TopicRefusesRecord,
    Cause::PluginUnavailable,
    Cause::RouteMissing,
    Cause::BrokerUnavailable,
    Cause::PublishTimeout,
    Cause::DatabaseUnavailable,
    Cause::LeaseEnding,
    Cause::ShuttingDown,
];

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    source: Text,
    lane: Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    source: Text,
    lane: Text,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: Text,
}

/// A shared text as a label's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Text(Arc<str>);

impl EncodeLabelValue for Text {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

/// All metrics of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registry: Registry,
    families: Families,
    plugins: PluginMetrics,
}

#[derive(Debug, Default)]
struct Families {
    claim: Family<LaneLabels, Histogram>,
    transform: Family<LaneLabels, Histogram>,
    publish: Family<LaneLabels, Histogram>,
    settle: Family<LaneLabels, Histogram>,
    event_wait: Family<LaneLabels, Histogram>,
    event_work: Family<LaneLabels, Histogram>,
    published: Family<LaneLabels, Counter>,
    dropped: Family<LaneLabels, Counter>,
    failed: Family<CauseLabels, Counter>,
    retried: Family<CauseLabels, Counter>,
    waiting: Family<CauseLabels, Counter>,
    released: Family<LaneLabels, Counter>,
    deliveries: Family<LaneLabels, Counter>,
    lease_losses: Family<LaneLabels, Counter>,
    settles_lost_events: Family<LaneLabels, Counter>,
    pauses: Family<CauseLabels, Counter>,
    retention_deleted: Family<SourceLabels, Counter>,
    pending: Family<LaneLabels, Gauge>,
    processing: Family<LaneLabels, Gauge>,
    parked: Family<LaneLabels, Gauge>,
    held_keys: Family<LaneLabels, Gauge>,
    oldest_due_age: Family<LaneLabels, Seconds>,
    in_flight: Family<LaneLabels, Gauge>,
    paused: Family<LaneLabels, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All families, with nothing counted.
    pub fn new() -> Self {
        let families = Families::default();
        let mut registry = Registry::default();
        families.register_durations(&mut registry);
        families.register_counters(&mut registry);
        families.register_gauges(&mut registry);
        let plugins = PluginMetrics::default();
        plugins.register(&mut registry);
        Self(Arc::new(Shared { registry, families, plugins }))
    }

    /// The metrics of one lane, every series of it made.
    pub fn lane(&self, name: &LaneName) -> LaneMetrics {
        LaneMetrics::new(&self.0.families, name)
    }

    /// Counts rows that retention has deleted from `source`. Call it with 0 at the start.
    pub fn retention_deleted(&self, source: &Arc<str>, rows: u64) {
        let labels = SourceLabels { source: Text(source.clone()) };
        let family = &self.0.families.retention_deleted;
        family.get_or_create(&labels).inc_by(rows);
    }

    /// The metrics of plugins.
    pub fn plugins(&self) -> PluginMetrics {
        self.0.plugins.clone()
    }

    /// Everything in the OpenMetrics text form, which is what Prometheus scrapes.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail; a partial answer lacks the final "# EOF" and is refused.
        let _ = encode(&mut text, &self.0.registry);
        text
    }

    /// The media type of [`Metrics::encode`].
    pub const MEDIA_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

fn add(registry: &mut Registry, name: &str, help: &str, family: &(impl Metric + Clone)) {
    registry.register(name, help, family.clone());
}

impl Families {
    fn register_durations(&self, to: &mut Registry) {
        let help = "Time to claim a batch: phase 1, a short transaction, no event row is locked";
        add(to, CLAIM_SECONDS, help, &self.claim);
        let help = "Time for routes and plugins to decide a batch";
        add(to, TRANSFORM_SECONDS, help, &self.transform);
        let help = "Time to publish a batch: phase 2, until every record is acknowledged or failed";
        add(to, PUBLISH_SECONDS, help, &self.publish);
        let help = "Time to write a batch's outcomes, one transaction";
        add(to, SETTLE_SECONDS, help, &self.settle);
        let help = "Time an event was due before it was claimed, by the database's clock";
        add(to, EVENT_WAIT_SECONDS, help, &self.event_wait);
        let help = "Time from an event's claim until its outcome was written";
        add(to, EVENT_WORK_SECONDS, help, &self.event_work);
    }

    fn register_counters(&self, to: &mut Registry) {
        let help = "Events acknowledged by the broker and settled";
        add(to, EVENTS_PUBLISHED, help, &self.published);
        let help = "Events handled by publishing nothing, on purpose";
        add(to, EVENTS_DROPPED, help, &self.dropped);
        let help = "Events whose attempts were used up: parked, or their key halted";
        add(to, EVENTS_FAILED, help, &self.failed);
        let help = "Attempts that failed and will be repeated";
        add(to, EVENTS_RETRIED, help, &self.retried);
        let help = "Times an event was put off until its destination works";
        add(to, EVENTS_WAITING, help, &self.waiting);
        let help = "Events given back undecided";
        add(to, EVENTS_RELEASED, help, &self.released);
        let help = "Records acknowledged by the broker";
        add(to, DELIVERIES_PUBLISHED, help, &self.deliveries);
        let help = "Claims that ended before their batch was settled";
        add(to, LEASE_LOSSES, help, &self.lease_losses);
        let help = "Events whose outcome was not written because their claim was lost";
        add(to, SETTLES_LOST_EVENTS, help, &self.settles_lost_events);
        let help = "Times a lane stopped claiming because of its surroundings";
        add(to, LANE_PAUSES, help, &self.pauses);
        let help = "Published rows deleted by retention";
        add(to, RETENTION_DELETED, help, &self.retention_deleted);
    }

    fn register_gauges(&self, to: &mut Registry) {
        add(to, PENDING, "Events waiting in the table", &self.pending);
        let help = "Events in the batches of live claims, of all instances";
        add(to, PROCESSING, help, &self.processing);
        add(to, FAILED, "Events set aside as FAILED", &self.parked);
        let help = "Ordering keys whose later events must wait";
        add(to, HELD_KEYS, help, &self.held_keys);
        let help = "How long the oldest event that could be claimed has been due";
        add(to, OLDEST_DUE_AGE_SECONDS, help, &self.oldest_due_age);
        let help = "Batches this instance is working on";
        add(to, BATCHES_IN_FLIGHT, help, &self.in_flight);
        let help = "1 while the lane has stopped claiming because of its surroundings";
        add(to, LANE_PAUSED, help, &self.paused);
    }
}

/// The metrics of one lane. Clones share them.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    name: LaneName,
    claim: Histogram,
    transform: Histogram,
    publish: Histogram,
    settle: Histogram,
    event_wait: Histogram,
    event_work: Histogram,
    published: Counter,
    dropped: Counter,
    failed: Family<CauseLabels, Counter>,
    retried: Family<CauseLabels, Counter>,
    waiting: Family<CauseLabels, Counter>,
    released: Counter,
    deliveries: Counter,
    lease_losses: Counter,
    settles_lost_events: Counter,
    pauses: Family<CauseLabels, Counter>,
    pending: Gauge,
    processing: Gauge,
    parked: Gauge,
    held_keys: Gauge,
    oldest_due_age: Seconds,
    in_flight: Gauge,
    paused: Gauge,
}

impl LaneMetrics {
    fn new(families: &Families, name: &LaneName) -> Self {
        let labels =
            LaneLabels { source: Text(name.source.clone()), lane: Text(name.lane.clone()) };
        let lane = Self {
            name: name.clone(),
            claim: families.claim.get_or_create_owned(&labels),
            transform: families.transform.get_or_create_owned(&labels),
            publish: families.publish.get_or_create_owned(&labels),
            settle: families.settle.get_or_create_owned(&labels),
            event_wait: families.event_wait.get_or_create_owned(&labels),
            event_work: families.event_work.get_or_create_owned(&labels),
            published: families.published.get_or_create_owned(&labels),
            dropped: families.dropped.get_or_create_owned(&labels),
            failed: families.failed.clone(),
            retried: families.retried.clone(),
            waiting: families.waiting.clone(),
            released: families.released.get_or_create_owned(&labels),
            deliveries: families.deliveries.get_or_create_owned(&labels),
            lease_losses: families.lease_losses.get_or_create_owned(&labels),
            settles_lost_events: families.settles_lost_events.get_or_create_owned(&labels),
            pauses: families.pauses.clone(),
            pending: families.pending.get_or_create_owned(&labels),
            processing: families.processing.get_or_create_owned(&labels),
            parked: families.parked.get_or_create_owned(&labels),
            held_keys: families.held_keys.get_or_create_owned(&labels),
            oldest_due_age: families.oldest_due_age.get_or_create_owned(&labels),
            in_flight: families.in_flight.get_or_create_owned(&labels),
            paused: families.paused.get_or_create_owned(&labels),
        };
        for cause in CAUSES {
            match cause.kind() {
                FailureKind::Event => {
                    lane.failed(cause, 0);
                    lane.retried(cause, 0);
                }
                FailureKind::Destination => lane.waiting(cause, 0),
                FailureKind::Infrastructure => lane.count(&lane.pauses, cause, 0),
            }
        }
        lane
    }

    /// A claim that found a batch took this long.
    pub fn claim_took(&self, duration: Duration) {
        self.claim.observe([duration]);
    }

    /// Deciding a batch took this long.
    pub fn transform_took(&self, duration: Duration) {
        self.transform.observe([duration]);
    }

    /// Publishing a batch took this long.
    pub fn publish_took(&self, duration: Duration) {
        self.publish.observe([duration]);
    }

    /// Settling a batch took this long.
    pub fn settle_took(&self, duration: Duration) {
        self.settle.observe([duration]);
    }

    /// The events of a batch had been due for so long when they were claimed.
    pub fn events_waited(&self, durations: impl IntoIterator<Item = Duration>) {
        self.event_wait.observe(durations);
    }

    /// `count` events of a batch were settled so long after they were claimed.
    pub fn events_worked(&self, duration: Duration, count: usize) {
        self.event_work.observe(std::iter::repeat_n(duration, count));
    }

    /// Events were settled as published.
    pub fn published(&self, events: u64) {
        self.published.inc_by(events);
    }

    /// Events were settled as dropped.
    pub fn dropped(&self, events: u64) {
        self.dropped.inc_by(events);
    }

    /// Events were parked, or their keys halted.
    pub fn failed(&self, cause: Cause, events: u64) {
        self.count(&self.failed, cause, events);
    }

    /// Events failed and will be tried again.
    pub fn retried(&self, cause: Cause, events: u64) {
        self.count(&self.retried, cause, events);
    }

    /// Events were put off until their destination works.
    pub fn waiting(&self, cause: Cause, events: u64) {
        self.count(&self.waiting, cause, events);
    }

    /// Events were given back undecided.
    pub fn released(&self, events: u64) {
        self.released.inc_by(events);
    }

    /// Records were acknowledged.
    pub fn deliveries_published(&self, records: u64) {
        self.deliveries.inc_by(records);
    }

    /// Claims were lost before their batch was settled.
    pub fn leases_lost(&self, claims: u64) {
        self.lease_losses.inc_by(claims);
    }

    /// Outcomes of events were not written because their claim was lost.
    pub fn settles_lost(&self, events: u64) {
        self.settles_lost_events.inc_by(events);
    }

    /// The lane stopped claiming.
    pub fn paused(&self, cause: Cause) {
        self.count(&self.pauses, cause, 1);
        self.paused.set(1);
    }

    /// The lane claims again.
    pub fn resumed(&self) {
        self.paused.set(0);
    }

    /// A batch is being worked on until the guard is dropped.
    pub fn batch_in_flight(&self) -> BatchInFlight {
        self.in_flight.inc();
        BatchInFlight(self.in_flight.clone())
    }

    /// How the lane stands in the database.
    pub fn stands(&self, stats: &LaneStats) {
        self.pending.set(whole(stats.pending));
        self.processing.set(whole(stats.processing));
        self.parked.set(whole(stats.failed));
        self.held_keys.set(whole(stats.held_keys));
        let age = stats.oldest_due.unwrap_or_default();
        self.oldest_due_age.set(age.as_secs_f64());
    }

    fn count(&self, family: &Family<CauseLabels, Counter>, cause: Cause, by: u64) {
        let labels = CauseLabels {
            source: Text(self.name.source.clone()),
            lane: Text(self.name.lane.clone()),
            cause: cause.code(),
        };
        family.get_or_create(&labels).inc_by(by);
    }
}

/// Counts a batch as being worked on for as long as it lives.
#[derive(Debug)]
pub struct BatchInFlight(Gauge);

impl Drop for BatchInFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A count as a gauge holds it.
fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> LaneName {
        LaneName { source: "orders".into(), lane: "de\"fault".into() }
    }

    /// Fails to compile when a cause is added, so that `CAUSES` is thought of.
    fn position(cause: Cause) -> usize {
        match cause {
            Cause::PluginRejected => 0,
            Cause::PluginRetry => 1,
            Cause::PluginTrap => 2,
            Cause::PluginTimeout => 3,
            Cause::PluginMemory => 4,
            Cause::PluginOutput => 5,
            Cause::RowUnreadable => 6,
            Cause::TopicMissing => 7,
            Cause::TopicIllegal => 8,
            Cause::PartitionIllegal => 9,
            Cause::RecordTooLarge => 10,
            Cause::HeaderInvalid => 11,
            Cause::KeyUnreadable => 12,
            Cause::RecordRefused => 13,
            Cause::ProcessCrash => 14,
            Cause::TopicUnknown => 15,
            Cause::TopicUnauthorised => 16,
            Cause::TopicRefusesRecord => 17,
            Cause::PluginUnavailable => 18,
            Cause::RouteMissing => 19,
            Cause::BrokerUnavailable => 20,
            Cause::PublishTimeout => 21,
            Cause::DatabaseUnavailable => 22,
            Cause::LeaseEnding => 23,
            Cause::ShuttingDown => 24,
        }
    }

    #[test]
    fn every_cause_has_a_series() {
        let positions: Vec<_> = CAUSES.into_iter().map(position).collect();
        assert_eq!(positions, (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn every_series_of_a_lane_starts_at_zero() {
        let metrics = Metrics::new();
        metrics.lane(&name());
        metrics.retention_deleted(&"orders".into(), 0);
        let text = metrics.encode();
        let lane = r#"source="orders",lane="de\"fault""#;
        for counter in [
            "events_published",
            "events_dropped",
            "events_released",
            "deliveries_published",
            "lease_losses",
            "settles_lost_events",
        ] {
            let line = format!("haulier_{counter}_total{{{lane}}} 0\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        for gauge in
            ["pending", "processing", "failed", "held_keys", "batches_in_flight", "lane_paused"]
        {
            let line = format!("haulier_{gauge}{{{lane}}} 0\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        for (counter, cause) in [
            ("events_failed", "plugin_trap"),
            ("events_retried", "plugin_retry"),
            ("events_waiting", "topic_unknown"),
            ("lane_pauses", "broker_unavailable"),
        ] {
            let line = format!("haulier_{counter}_total{{{lane},cause=\"{cause}\"}} 0\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        for phase in ["claim", "transform", "publish", "settle", "event_wait", "event_work"] {
            let line = format!("haulier_{phase}_seconds_count{{{lane}}} 0\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        for line in [
            format!("haulier_oldest_due_age_seconds{{{lane}}} 0.0\n"),
            "haulier_retention_deleted_total{source=\"orders\"} 0\n".to_owned(),
            "haulier_plugin_troubles 0\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_happens_is_counted() {
        let metrics = Metrics::new();
        let lane = metrics.lane(&name());
        lane.published(3);
        lane.failed(Cause::PluginTrap, 2);
        lane.paused(Cause::BrokerUnavailable);
        lane.events_waited([Duration::from_millis(3), Duration::from_secs(4000)]);
        lane.events_worked(Duration::from_millis(10), 5);
        lane.stands(&LaneStats {
            pending: u64::MAX,
            oldest_due: Some(Duration::from_millis(1500)),
            ..LaneStats::default()
        });
        let guard = lane.batch_in_flight();
        let text = metrics.encode();
        let lines = |name: &str| -> Vec<&str> {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()).collect()
        };
        assert_eq!(lines("haulier_events_published_total"), ["3"]);
        assert!(text.contains("cause=\"plugin_trap\"} 2\n"));
        assert_eq!(lines("haulier_lane_paused"), ["1"]);
        assert_eq!(lines("haulier_batches_in_flight"), ["1"]);
        assert_eq!(lines("haulier_oldest_due_age_seconds"), ["1.5"]);
        assert_eq!(lines("haulier_pending"), [i64::MAX.to_string()]);
        assert_eq!(lines("haulier_event_wait_seconds_count"), ["2"]);
        assert_eq!(lines("haulier_event_work_seconds_sum"), ["0.05"]);
        let buckets = lines("haulier_event_wait_seconds_bucket");
        assert_eq!(buckets.iter().filter(|count| **count == "1").count(), 13);
        assert_eq!(buckets.last(), Some(&"2"));
        let within = "{le=\"0.01\",source=\"orders\",lane=\"de\\\"fault\"} 5\n";
        assert!(text.contains(within), "{text}");
        drop(guard);
        lane.resumed();
        let text = metrics.encode();
        assert!(
            text.lines().any(|l| l.starts_with("haulier_batches_in_flight{") && l.ends_with(" 0"))
        );
        assert!(text.lines().any(|l| l.starts_with("haulier_lane_paused{") && l.ends_with(" 0")));
    }
}
