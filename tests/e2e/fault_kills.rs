//! Processes that die at every step of the cycle, and events that kill the process.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use haulier_tests::kafka::Received;
use haulier_tests::process::{Haulier, eventually};
use haulier_tests::traffic::{Plan, Traffic};

use crate::scenario::{Scenario, turn};

/// Named in the order in which a batch passes them.
const POINTS: [&str; 7] =
    ["claim", "claimed", "transformed", "planned", "published", "settling", "settled"];

fn ids(received: &[Received]) -> BTreeSet<i64> {
    received.iter().map(Received::id).collect()
}

/// Waits for the instance's death by SIGKILL.
async fn killed(instance: &mut Haulier) {
    use std::os::unix::process::ExitStatusExt as _;
    let status = instance.ended().await;
    assert_eq!(status.signal(), Some(9), "{}", instance.log());
}

/// Lets an instance die at a point under load, and another go on.
async fn dies_at(point: &str) {
    let scenario = Scenario::new().await;
    // Room for seven relays that start at once on two cores.
    let lane = "batch_rows = 20\nin_flight = 3";
    let setup = scenario.patient_setup(lane);
    scenario.with_ledger(&setup).await;
    let traffic = Traffic::start(&scenario.database.pool, &Plan::new(&scenario.topic));
    let mut victim = setup.failing(&format!("{point}=kill@7")).start();
    killed(&mut victim).await;
    traffic.stop().await;
    // What was on its way when it died, and nothing else, may come again; and does.
    let (arrived, unsettled) = (ids(&scenario.arrived().await), scenario.unsettled().await);
    let in_flight: BTreeSet<i64> = arrived.intersection(&unsettled).copied().collect();
    let _other = setup.start();
    scenario.drained().await;
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{point}: {findings:?}");
    assert_eq!(findings.repeated, in_flight, "{point}");
    if matches!(point, "published" | "settling") {
        assert!(!in_flight.is_empty(), "{point}: it had published what it had not settled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_at_any_step_loses_nothing_and_repeats_only_what_was_in_flight() {
    let _turn = turn().await;
    // Most of the time they wait for leases to expire, so they do it together.
    join_all(POINTS.map(dies_at)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_acknowledgement_and_settle_exactly_that_batch_repeats() {
    const BATCH: i64 = 30;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup(&format!("batch_rows = {BATCH}\nin_flight = 1"));
    scenario.with_ledger(&setup).await;
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT 't', 'key-' || n % 7, '{topic}', '{{}}' FROM generate_series(1, 300) n"
        ))
        .await;
    let mut victim = setup.failing("published=kill@4").start();
    killed(&mut victim).await;
    let database = &scenario.database;
    let taken =
        database.number("SELECT sum(taken) FROM haulier_lease WHERE token IS NOT NULL").await;
    let (arrived, unsettled) = (scenario.arrived().await, scenario.unsettled().await);
    let in_flight: BTreeSet<i64> = ids(&arrived).intersection(&unsettled).copied().collect();
    assert_eq!(in_flight.len(), usize::try_from(taken).expect("a count"), "the whole batch, once");
    assert_eq!(arrived.len() + unsettled.len(), 300 + in_flight.len(), "nothing twice so far");
    let _other = setup.start();
    scenario.drained().await;
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
    assert_eq!(findings.repeated, in_flight, "with the same ids");
    assert_eq!(scenario.arrived().await.len(), 300 + in_flight.len(), "and each once more only");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_kills_the_process_is_parked_alone() {
    const MOST_LOSSES: usize = 12;
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.brisk_setup("batch_rows = 64");
    scenario.with_ledger(&setup).await;
    let topic = &scenario.topic;
    scenario
        .database
        .run(format!(
            "INSERT INTO outbox (event_type, aggregate_id, topic, payload) \
             SELECT CASE n WHEN 150 THEN 'poison' ELSE 't' END, 'key-' || n % 10, '{topic}', '{{}}' \
             FROM generate_series(1, 300) n"
        ))
        .await;
    let poison =
        scenario.database.number("SELECT id FROM outbox WHERE event_type = 'poison'").await;
    let deadly = setup.failing("transformed=kill:poison");
    let mut losses = 0;
    let open = "SELECT count(*) FROM outbox WHERE status <> 'FAILED'";
    // As a supervisor would: started again after each death.
    let mut instance = deadly.start();
    let done = eventually(Duration::from_secs(180), async || {
        if instance.has_ended() {
            losses += 1;
            instance = deadly.start();
        }
        scenario.database.number(open).await == 0
    })
    .await;
    assert!(done, "{}", instance.log());
    assert!((3..=MOST_LOSSES).contains(&losses), "{losses} losses");
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for(&BTreeSet::from([poison])), "{findings:?}");
    let crash = "SELECT count(*) FROM outbox WHERE failure_kind = 'process_crash'";
    assert_eq!(scenario.database.number(crash).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_by_other_causes_park_nothing() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.brisk_setup("batch_rows = 50\nin_flight = 4");
    scenario.with_ledger(&setup).await;
    // Few keys, so that the same shards are hit again and again.
    let plan = Plan { hot: 4, rare: 4, ..Plan::new(&scenario.topic) };
    let traffic = Traffic::start(&scenario.database.pool, &plan);
    let at_work = "SELECT least(count(*), 1) FROM haulier_lease \
         WHERE token IS NOT NULL AND expires_at > clock_timestamp()";
    for _ in 0..10 {
        let mut victim = setup.start();
        scenario.database.until(at_work, 1).await;
        victim.kill();
    }
    traffic.stop().await;
    let _last = setup.start();
    scenario.drained().await;
    let findings = scenario.findings().await;
    assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
}
