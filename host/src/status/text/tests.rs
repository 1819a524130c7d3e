//! The whole text of a status that has one of everything.

use super::*;
use crate::status::{CircuitStatus, PauseStatus, PluginStatus, VERSION, problems};

fn lane(name: &str) -> LaneStatus {
    LaneStatus {
        lane: name.into(),
        configured: true,
        ordering: Some("key"),
        served_by: vec!["relay-1".into(), "relay-2".into()],
        ..LaneStatus::default()
    }
}

fn lease(owner: &str, shard: i32, events: u64, expires_in_ms: i64) -> LeaseStatus {
    LeaseStatus {
        lane: "default".into(),
        kind: "shard",
        shard: Some(shard),
        owner: owner.into(),
        events,
        expires_in_ms,
    }
}

fn instance(name: &str, state: &'static str, seen_ago_ms: u64) -> InstanceStatus {
    InstanceStatus {
        instance: name.into(),
        state,
        started_ago_ms: 7_380_000 + seen_ago_ms,
        seen_ago_ms,
        stopped_ago_ms: (state == STOPPED).then_some(seen_ago_ms),
        haulier: Some("0.1.0".into()),
        lanes: vec!["default".into()],
        ..InstanceStatus::default()
    }
}

fn instances() -> Vec<InstanceStatus> {
    let mut one = instance("relay-1", RUNNING, 1200);
    one.lanes.push("slow".into());
    one.plugins = vec![PluginStatus {
        name: "order-events".into(),
        version: "0.1.0".into(),
        hash: "0123456789abcdef".into(),
        standing: "current".into(),
    }];
    one.plugin_troubles = vec!["plugin file x.wasm: it is no component".into()];
    let mut other = instance("relay-2", RUNNING, 300);
    other.unreadable =
        Some("its report has version 9, and this program reads version 1".to_owned());
    let (gone, stopped) =
        (instance("relay-3", GONE, 60_000), instance("relay-4", STOPPED, 93_600_000));
    vec![one, other, gone, stopped]
}

fn busy() -> SourceStatus {
    let default = LaneStatus {
        pending: 1_204_000,
        processing: 300,
        failed: 2,
        held_keys: 3,
        halted_keys: 7,
        halted_events: vec![17, 21],
        published_last_minute: 12_345,
        oldest_due_ms: Some(1250),
        open_circuits: vec![
            CircuitStatus {
                destination: "nowhere".into(),
                cause: "topic_unknown".into(),
                failure: format!("there is no topic nowhere\x1b[31m{}", " and so on".repeat(20)),
                next_trial_ms: 12_000,
                instances: vec!["relay-1".into(), "relay-2".into()],
            },
            CircuitStatus {
                destination: "route_missing: no route for x".into(),
                cause: "route_missing".into(),
                failure: "no route for x".into(),
                next_trial_ms: 0,
                instances: vec!["relay-1".into()],
            },
        ],
        open_circuits_left_out: 4,
        ..lane("default")
    };
    let paused = LaneStatus {
        served_by: vec!["relay-1".into()],
        paused: vec![PauseStatus {
            instance: "relay-1".into(),
            reason: "broker_unavailable: no broker answers".into(),
        }],
        ..lane("slow")
    };
    let forgotten = LaneStatus {
        configured: false,
        ordering: None,
        served_by: Vec::new(),
        pending: 42,
        oldest_due_ms: Some(200_000),
        ..lane("forgotten")
    };
    SourceStatus {
        source: "orders".into(),
        table: "app.outbox".into(),
        lanes: vec![default, paused, forgotten],
        leases: vec![
            lease("relay-1", 1, 100, 3000),
            lease("relay-1", 2, 110, 2500),
            lease("relay-2", 3, 90, -12_000),
        ],
        instances: instances(),
        ..SourceStatus::default()
    }
}

fn status(sources: Vec<SourceStatus>) -> Status {
    let problems = sources.iter().flat_map(problems::of_source).collect();
    Status { version: VERSION, counted_up_to: 1_000_000, sources, problems }
}

#[test]
fn everything_has_its_place() {
    let missing = SourceStatus {
        source: "billing".into(),
        table: "outbox".into(),
        error: Some("there is no table outbox: run `haulier migrate`".into()),
        ..SourceStatus::default()
    };
    let text = render(&status(vec![busy(), missing]));
    let expected = include_str!("expected.txt");
    assert_eq!(text, expected, "\n{text}");
    for line in text.lines().take_while(|line| *line != "problems") {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn a_quiet_source_has_no_problems() {
    let quiet = SourceStatus {
        source: "orders".into(),
        table: "outbox".into(),
        lanes: vec![LaneStatus { served_by: vec!["relay-1".into()], ..lane("default") }],
        instances: vec![instance("relay-1", RUNNING, 100)],
        ..SourceStatus::default()
    };
    let text = render(&status(vec![quiet]));
    assert!(text.ends_with("\nno problems\n"), "{text}");
}

#[test]
fn many_entries_are_counted_rather_than_listed() {
    let mut source = busy();
    source.leases = (0..25).map(|n| lease(&format!("relay-{n:02}"), n, 1, 1000)).collect();
    let text = render(&status(vec![source]));
    assert!(text.contains("relay-19: 1 shard") && !text.contains("relay-20: 1 shard"), "{text}");
    assert!(text.contains("    and 5 more\n"), "{text}");
}

#[test]
fn spans_are_told_in_two_units() {
    for (millis, text) in [
        (0, "0 ms"),
        (999, "999 ms"),
        (1999, "1 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
    ] {
        assert_eq!(span(millis), text);
    }
    assert_eq!(number(1_234_567), "1,234,567");
}
