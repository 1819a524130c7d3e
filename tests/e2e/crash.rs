//! kill -9 and SIGTERM under load, ten times each.

use std::time::Duration;

use haulier_tests::checker::{Verdict, check};
use haulier_tests::kafka;
use haulier_tests::process::{Haulier, eventually};
use haulier_tests::workload::Workload;

use crate::scenario::{Scenario, turn};

const KEYS: usize = 40;
const ROUNDS: usize = 10;
/// Events of one round: enough that an instance is killed while it is at work.
const ROUND: usize = 4_000;
const BATCH: usize = 100;
const IN_FLIGHT: usize = 4;

/// Waits until an instance has published something since it started.
async fn at_work(instance: &Haulier) {
    let busy = eventually(Duration::from_secs(60), async || {
        instance.metric("haulier_events_published_total").await.unwrap_or_default() > 0.0
    })
    .await;
    assert!(busy, "an instance gets work:\n{}", instance.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_loses_nothing_and_repeats_only_what_was_in_flight() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup(&format!("batch_rows = {BATCH}\nin_flight = {IN_FLIGHT}"));
    setup.migrate();
    let _survivor = setup.start();
    let workload = Workload::new(&scenario.topic, KEYS);
    let mut seq = 0;
    for _ in 0..ROUNDS {
        let mut victim = setup.start();
        victim.ready().await;
        // Load goes on until the victim has had its share of it, and while it is killed.
        let mut busy = false;
        while !busy {
            let (pool, workload) = (scenario.database.pool.clone(), workload.clone());
            let writer = tokio::spawn(async move { workload.write(&pool, seq, ROUND).await });
            seq += ROUND / KEYS;
            busy = eventually(Duration::from_secs(5), async || {
                victim.metric("haulier_events_published_total").await.unwrap_or_default() > 0.0
            })
            .await;
            if busy {
                victim.kill();
            }
            writer.await.expect("writes");
        }
    }
    // What the last victim held is taken over when its leases have expired.
    scenario.drained().await;
    let received = kafka::read_count(&scenario.topic, seq * KEYS).await;
    let verdict = check(&received, KEYS, 0, seq);
    assert!(verdict.repeated <= ROUNDS * BATCH * IN_FLIGHT, "{verdict:?}");
    assert_eq!(verdict, Verdict { repeated: verdict.repeated, ..Verdict::default() });
    assert_eq!(
        scenario.database.number("SELECT count(*) FROM outbox WHERE status = 'FAILED'").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_taken_over_soon_after_they_expire() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    // Nobody answers at this broker, so the victim holds its batch until it is killed.
    let stuck = scenario.setup_at("127.0.0.1:9", "");
    let mut victim = stuck.start();
    Workload::new(&scenario.topic, KEYS).write(&scenario.database.pool, 0, KEYS).await;
    scenario
        .database
        .until("SELECT least(count(*), 1) FROM haulier_lease WHERE token IS NOT NULL", 1)
        .await;
    victim.kill();
    let _other = setup.start();
    scenario.drained().await;
    let received = kafka::read_count(&scenario.topic, KEYS).await;
    assert_eq!(check(&received, KEYS, 0, 1), Verdict::default());
}

async fn terminated(ordering: &str) {
    let scenario = Scenario::new().await;
    let setup = scenario.setup(&format!("batch_rows = {BATCH}\nordering = \"{ordering}\""));
    setup.migrate();
    let writer = {
        let (pool, workload) =
            (scenario.database.pool.clone(), Workload::new(&scenario.topic, KEYS));
        tokio::spawn(async move { workload.write(&pool, 0, ROUND * ROUNDS).await })
    };
    for round in 0..ROUNDS {
        let mut instance = setup.start();
        at_work(&instance).await;
        let status = instance.terminate().await;
        assert!(status.success(), "round {round}: {status}\n{}", instance.log());
        let processing = "SELECT (SELECT count(*) FROM outbox WHERE status = 'PROCESSING') \
             + (SELECT count(*) FROM haulier_lease WHERE token IS NOT NULL)";
        assert_eq!(
            scenario.database.number(processing).await,
            0,
            "round {round}: nothing is left PROCESSING"
        );
    }
    writer.await.expect("writes");
    let _last = setup.start();
    scenario.drained().await;
    let received = kafka::read_count(&scenario.topic, ROUND * ROUNDS).await;
    let verdict = check(&received, KEYS, 0, ROUND * ROUNDS / KEYS);
    let out_of_order = if ordering == "none" { verdict.out_of_order } else { 0 };
    assert_eq!(verdict, Verdict { out_of_order, ..Verdict::default() }, "nothing is repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_leaves_nothing_processing_and_repeats_nothing() {
    let _turn = turn().await;
    terminated("key").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_does_the_same_without_order() {
    let _turn = turn().await;
    terminated("none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_at_once() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup_at("127.0.0.1:9", "");
    setup.migrate();
    scenario.database.run("INSERT INTO outbox (event_type, topic) VALUES ('t', 'nowhere')").await;
    let mut instance = setup.start();
    instance.logged("lane waits").await;
    // A stopped process gets both signals in one go.
    instance.signal("TERM");
    instance.signal("INT");
    assert!(
        !instance.ended().await.success()
            || instance.log().contains("everything in flight is settled")
    );
}
