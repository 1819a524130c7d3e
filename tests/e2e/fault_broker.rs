//! A broker that is down for a minute, cannot be reached, is slow, or restarts while it is used.

use std::time::Duration;

use haulier_tests::process::{Haulier, eventually};
use haulier_tests::proxy::{Proxy, Way};
use haulier_tests::services::{control, variable};
use haulier_tests::traffic::{Plan, Traffic};

use crate::scenario::{Scenario, turn};

/// No attempt was used, and nothing is set aside.
async fn assert_nothing_used(scenario: &Scenario, instances: &[Haulier]) {
    let used = "SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'FAILED'";
    assert_eq!(scenario.database.number(used).await, 0);
    for instance in instances {
        for metric in ["haulier_events_retried_total", "haulier_events_failed_total"] {
            assert_eq!(instance.metric(metric).await, Some(0.0), "{metric}\n{}", instance.log());
        }
    }
}

async fn finish(scenario: &Scenario, traffic: Traffic, instances: &[Haulier]) {
    let counts = traffic.stop().await;
    assert!(counts.committed > 0 && counts.rolled_back > 0 && counts.late > 0, "{counts:?}");
    scenario.drained().await;
    assert_nothing_used(scenario, instances).await;
    for instance in instances {
        instance.ready().await;
    }
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_down_for_a_minute_costs_no_attempts() {
    const DOWN: Duration = Duration::from_secs(60);
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("max_attempts = 3\nfirst_backoff = \"50ms\"");
    scenario.with_ledger(&setup).await;
    let instances = [setup.start(), setup.start()];
    let plan = Plan { pause: Duration::from_millis(250), ..Plan::new(&scenario.topic) };
    let traffic = Traffic::start(&scenario.database.pool, &plan);
    for instance in &instances {
        instance.reaches("haulier_events_published_total", 20.0).await;
    }
    control(&["kill", "kafka"]);
    for instance in &instances {
        instance.logged("lane waits").await;
        instance.unready(&["broker"]).await;
    }
    // What is asked is an outage of this length, not a state to wait for.
    tokio::time::sleep(DOWN).await;
    assert_nothing_used(&scenario, &instances).await;
    control(&["start", "kafka"]);
    finish(&scenario, traffic, &instances).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_swallows_all_or_is_slow_or_restarts_costs_no_attempts() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let address = variable("HAULIER_TEST_KAFKA_PROXY");
    let proxy = Proxy::start(&address, variable("HAULIER_TEST_KAFKA_PROXIED")).await;
    let setup = scenario.setup_at(&address, "max_attempts = 2\nbatch_rows = 100");
    scenario.with_ledger(&setup).await;
    let instances = [setup.start(), setup.start()];
    let plan = Plan { pause: Duration::from_millis(100), ..Plan::new(&scenario.topic) };
    let traffic = Traffic::start(&scenario.database.pool, &plan);
    let published = async || {
        let mut sum = 0.0;
        for instance in &instances {
            sum += instance.metric("haulier_events_published_total").await.unwrap_or_default();
        }
        sum
    };
    let goes_on = async |how: &str| {
        let before = published().await;
        let limit = Duration::from_secs(120);
        assert!(eventually(limit, async || published().await > before + 50.0).await, "{how}");
    };
    goes_on("at first").await;
    // Connections stay, and nothing comes through.
    proxy.set(Way::Hole);
    for instance in &instances {
        instance.logged("lane waits").await;
    }
    assert_nothing_used(&scenario, &instances).await;
    proxy.set(Way::Open);
    goes_on("after the hole").await;
    for way in [Way::Limit(60_000), Way::Delay(Duration::from_millis(400))] {
        proxy.set(way);
        goes_on(&format!("{way:?}")).await;
        proxy.cut();
        goes_on("after a cut").await;
    }
    // On the slow way a batch is being published all the time.
    for way in ["stop", "kill"] {
        let publishing = "SELECT least(count(*), 1) FROM haulier_lease WHERE token IS NOT NULL";
        scenario.database.until(publishing, 1).await;
        control(&[way, "kafka"]);
        control(&["start", "kafka"]);
        goes_on("after a restart").await;
    }
    proxy.set(Way::Open);
    finish(&scenario, traffic, &instances).await;
}
