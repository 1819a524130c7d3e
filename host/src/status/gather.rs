//! Asks the databases, and puts tables and heartbeats together.
//!
//! Sources are asked at the same time; one that does not answer keeps nothing from the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::{
    Asked, CircuitStatus, GONE, InstanceStatus, LaneStatus, LeaseStatus, PauseStatus, PluginStatus,
    RUNNING, STOPPED, SourceStatus, Status, VERSION, problems,
};
use crate::event::{LaneName, Ordering};
use crate::report::{GONE_AFTER, Report};
use crate::store::{
    Expiry, InstanceSeen, LeaseStanding, MOST_LANES_FOUND, MOST_LEASES, Part, STATS_COUNT_LIMIT,
    StoreError,
};

/// What an instance has published counts for so long after it was last heard of.
const MINUTE: Duration = Duration::from_secs(60);

/// Looks at all sources.
pub async fn look(asked: &[Asked]) -> Status {
    let sources = join_all(asked.iter().map(source)).await;
    let problems = sources.iter().flat_map(problems::of_source).collect();
    Status { version: VERSION, counted_up_to: STATS_COUNT_LIMIT.unsigned_abs(), sources, problems }
}

async fn source(asked: &Asked) -> SourceStatus {
    let named = SourceStatus {
        source: asked.source.to_string(),
        table: asked.table.clone(),
        ..SourceStatus::default()
    };
    match gather(asked).await {
        Ok(found) => SourceStatus { source: named.source, table: named.table, ..found },
        Err(error) => {
            // It stands below the source's name.
            let text = chain(&error);
            let prefix = format!("source {}: ", asked.source);
            let text = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
            SourceStatus { error: Some(text), ..named }
        }
    }
}

async fn gather(asked: &Asked) -> Result<SourceStatus, StoreError> {
    let seen = asked.store.instances().await?;
    let instances: Vec<(InstanceStatus, Option<Report>)> = seen.iter().map(instance).collect();
    let leases = asked.store.leases().await?;
    let with_rows = asked.store.lanes_with_rows().await?;
    let mut known: Vec<(Arc<str>, Ordering, bool)> =
        asked.lanes.iter().map(|(lane, ordering)| (Arc::clone(lane), *ordering, true)).collect();
    let mut others: BTreeMap<Arc<str>, Ordering> = BTreeMap::new();
    for found in &with_rows {
        if known.iter().all(|(lane, ..)| *lane != found.lane) {
            others.insert(Arc::clone(&found.lane), found.ordering);
        }
    }
    known.extend(others.into_iter().map(|(lane, ordering)| (lane, ordering, false)));
    let mut lanes = Vec::new();
    for (lane, ordering, configured) in known {
        let name = LaneName { source: Arc::clone(&asked.source), lane };
        let mut status = counted(asked, &name, ordering).await?;
        status.configured = configured;
        status.ordering = configured.then_some(ordering_name(ordering));
        add_reports(&mut status, &instances);
        lanes.push(status);
    }
    let mut instances: Vec<InstanceStatus> =
        instances.into_iter().map(|(instance, _)| instance).collect();
    instances.sort_by_key(|one| (rank(one.state), one.stopped_ago_ms, one.instance.clone()));
    Ok(SourceStatus {
        lanes,
        lanes_left_out: with_rows.len() >= MOST_LANES_FOUND,
        leases_left_out: leases.len() >= MOST_LEASES,
        leases: leases.iter().map(lease).collect(),
        instances,
        ..SourceStatus::default()
    })
}

async fn counted(
    asked: &Asked,
    name: &LaneName,
    ordering: Ordering,
) -> Result<LaneStatus, StoreError> {
    let stats = asked.store.stats(name, ordering).await?;
    let halted = asked.store.halted_keys(name).await?;
    Ok(LaneStatus {
        lane: name.lane.to_string(),
        pending: stats.pending,
        processing: stats.processing,
        failed: stats.failed,
        held_keys: stats.held_keys,
        halted_keys: halted.keys,
        halted_events: halted.events.iter().map(|id| id.0).collect(),
        oldest_due_ms: stats.oldest_due.map(millis),
        ..LaneStatus::default()
    })
}

fn instance(seen: &InstanceSeen) -> (InstanceStatus, Option<Report>) {
    let state = match seen.stopped_ago {
        Some(_) => STOPPED,
        None if seen.seen_ago > GONE_AFTER => GONE,
        None => RUNNING,
    };
    let mut status = InstanceStatus {
        instance: seen.instance.clone(),
        state,
        started_ago_ms: millis(seen.started_ago),
        seen_ago_ms: millis(seen.seen_ago),
        stopped_ago_ms: seen.stopped_ago.map(millis),
        ..InstanceStatus::default()
    };
    let report = match Report::read(&seen.report) {
        Ok(report) => report,
        Err(unreadable) => {
            status.unreadable = Some(unreadable.to_string());
            return (status, None);
        }
    };
    status.haulier = Some(report.haulier.clone());
    status.lanes = report.lanes.iter().map(|lane| lane.lane.clone()).collect();
    status.plugin_troubles.clone_from(&report.plugin_troubles);
    status.plugins = report
        .plugins
        .iter()
        .map(|plugin| PluginStatus {
            name: plugin.name.clone(),
            version: plugin.version.clone(),
            hash: plugin.hash.clone(),
            standing: plugin.standing.clone(),
        })
        .collect();
    (status, Some(report))
}

/// What instances say of a lane.
fn add_reports(lane: &mut LaneStatus, instances: &[(InstanceStatus, Option<Report>)]) {
    let mut circuits: BTreeMap<String, CircuitStatus> = BTreeMap::new();
    for (instance, report) in instances {
        let Some(said) =
            report.iter().flat_map(|report| &report.lanes).find(|said| said.lane == lane.lane)
        else {
            continue;
        };
        if instance.seen_ago_ms < millis(MINUTE) {
            lane.published_last_minute += said.published_last_minute;
        }
        if instance.state != RUNNING {
            continue;
        }
        lane.served_by.push(instance.instance.clone());
        if let Some(reason) = &said.paused {
            let (instance, reason) = (instance.instance.clone(), reason.clone());
            lane.paused.push(PauseStatus { instance, reason });
        }
        lane.open_circuits_left_out = lane.open_circuits_left_out.max(said.circuits_left_out);
        for open in &said.circuits {
            let next = open.next_trial_ms.saturating_sub(instance.seen_ago_ms);
            let merged =
                circuits.entry(open.destination.clone()).or_insert_with(|| CircuitStatus {
                    destination: open.destination.clone(),
                    cause: open.cause.clone(),
                    failure: open.failure.clone(),
                    next_trial_ms: next,
                    instances: Vec::new(),
                });
            merged.next_trial_ms = merged.next_trial_ms.min(next);
            merged.instances.push(instance.instance.clone());
        }
    }
    lane.served_by.sort_unstable();
    lane.paused.sort_by(|a, b| a.instance.cmp(&b.instance));
    lane.open_circuits = circuits
        .into_values()
        .map(|mut circuit| {
            circuit.instances.sort_unstable();
            circuit
        })
        .collect();
}

fn lease(standing: &LeaseStanding) -> LeaseStatus {
    let (kind, shard) = match standing.part {
        Part::Shard(shard) => ("shard", Some(shard)),
        Part::Lane => ("lane", None),
        Part::Rows => ("rows", None),
    };
    let signed = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    LeaseStatus {
        lane: standing.lane.to_string(),
        kind,
        shard,
        owner: standing.owner.clone(),
        events: standing.events,
        expires_in_ms: match standing.expiry {
            Expiry::In(left) => signed(left),
            Expiry::Ago(over) => -signed(over),
        },
    }
}

fn rank(state: &str) -> u8 {
    match state {
        RUNNING => 0,
        GONE => 1,
        _ => 2,
    }
}

fn ordering_name(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Key => "key",
        Ordering::None => "none",
        Ordering::Total => "total",
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// An error with its causes, on one line. Drivers repeat a cause in the text of the error above it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |error| error.source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
