//! One lane's trouble is not another's.

use std::time::Duration;

use haulier_tests::kafka;
use haulier_tests::workload::Workload;

use crate::scenario::{Scenario, turn};

/// How long a rate is looked at.
const WINDOW: Duration = Duration::from_secs(8);
/// Events a second offered to the fast lane.
const OFFERED: usize = 500;

/// Publishes a steady stream in the fast lane for the window, and counts what has arrived at its end.
async fn arrived_within_the_window(scenario: &Scenario, topic: &str, first: usize) -> usize {
    let workload = Workload { lane: "default".into(), ..Workload::new(topic, 10) };
    let offered = scenario.offer(&workload, first, OFFERED, WINDOW).await;
    let left = scenario.database.number("SELECT count(*) FROM outbox WHERE lane = 'default'").await;
    offered - usize::try_from(left).expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_plugin_in_one_lane_leaves_the_other_its_rate() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let slow_topic = kafka::topic(3, &[]).await;
    let mut setup = scenario.setup("").guest("misbehave").guest("order_events");
    setup.config += "[lanes.slow]\n\
         [plugins.misbehave]\nsettings = { spin_ms = 50 }\nevent_deadline = \"500ms\"\n\
         [[routes]]\nevent_type = \"slow.*\"\nplugin = \"misbehave\"\n";
    setup.migrate();
    let instance = setup.start();
    let alone = arrived_within_the_window(&scenario, &scenario.topic, 0).await;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (lane, event_type, aggregate_id, topic, payload) \
             SELECT 'slow', 'slow.pass', 'key-' || n, '{slow_topic}', '{{}}' FROM generate_series(1, 2000) n"
        ))
        .await;
    scenario.database.until("SELECT least(count(*), 1) FROM haulier_lease WHERE lane = 'slow' AND token IS NOT NULL", 1).await;
    let beside = arrived_within_the_window(&scenario, &scenario.topic, 1_000_000).await;
    let slow_left =
        scenario.database.number("SELECT count(*) FROM outbox WHERE lane = 'slow'").await;
    assert!(slow_left > 0, "the slow lane was at work all the time:\n{}", instance.log());
    assert_eq!(
        scenario.database.number("SELECT count(*) FROM outbox WHERE attempts > 0").await,
        0,
        "slow is not failed"
    );
    assert!(beside * 10 >= alone * 9, "alone {alone}, beside a slow lane {beside}");
}
