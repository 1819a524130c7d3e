//! A database that restarts, is cut off, ends sessions, refuses, or takes no writes for a while.

use std::str::FromStr as _;
use std::time::Duration;

use haulier_tests::checker::{Verdict, check};
use haulier_tests::kafka;
use haulier_tests::process::{Haulier, eventually};
use haulier_tests::proxy::{Proxy, Way};
use haulier_tests::services::control;
use haulier_tests::traffic::{Plan, Traffic};
use haulier_tests::workload::Workload;
use sqlx::postgres::PgConnectOptions;

use crate::scenario::{Scenario, turn};

/// Two relays that reach their database through a proxy, and writers that do not.
struct Bed {
    scenario: Scenario,
    proxy: Proxy,
    instances: Vec<Haulier>,
    traffic: Traffic,
}

impl Bed {
    async fn new() -> Self {
        let scenario = Scenario::new().await;
        let options = PgConnectOptions::from_str(&scenario.database.url).expect("a URL");
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let proxy = Proxy::start("127.0.0.1:0", server.clone()).await;
        let url = scenario.database.url.replace(&server, proxy.address());
        let broker = kafka::address();
        let setup = scenario.setup_between(&url, &broker, "max_attempts = 2\nbatch_rows = 50");
        scenario.with_ledger(&scenario.setup("")).await;
        let instances = vec![setup.start(), setup.start()];
        let plan = Plan { pause: Duration::from_millis(100), ..Plan::new(&scenario.topic) };
        let traffic = Traffic::start(&scenario.database.pool, &plan);
        Self { scenario, proxy, instances, traffic }
    }

    /// Waits until some more events were published, and looks that no attempt was used for it.
    async fn goes_on(&self, after: &str) {
        let before = self.published().await;
        let more =
            eventually(Duration::from_secs(120), async || self.published().await > before + 50.0)
                .await;
        assert!(more, "after {after} it goes on:\n{}", self.instances[0].log());
        self.assert_nothing_used(after).await;
    }

    async fn published(&self) -> f64 {
        let mut sum = 0.0;
        for instance in &self.instances {
            sum += instance.metric("haulier_events_published_total").await.unwrap_or_default();
        }
        sum
    }

    async fn assert_nothing_used(&self, after: &str) {
        let used = "SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'FAILED'";
        assert_eq!(self.scenario.database.number(used).await, 0, "{after}");
        for instance in &self.instances {
            for metric in ["haulier_events_retried_total", "haulier_events_failed_total"] {
                assert_eq!(instance.metric(metric).await, Some(0.0), "{after}: {metric}");
            }
        }
    }

    async fn finish(self) {
        let counts = self.traffic.stop().await;
        assert!(counts.committed > 0, "{counts:?}");
        self.scenario.drained().await;
        for instance in &self.instances {
            instance.ready().await;
        }
        let findings = self.scenario.findings().await;
        assert!(findings.is_clean_but_for_repeats(), "{findings:?}");
    }

    async fn run(&self, sql: &str) {
        self.scenario.database.run(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_and_sessions_cost_nothing() {
    let _turn = turn().await;
    let bed = Bed::new().await;
    bed.goes_on("the start").await;
    for _ in 0..4 {
        bed.proxy.cut();
        bed.goes_on("a cut").await;
    }
    bed.proxy.set(Way::Closed);
    for instance in &bed.instances {
        instance.logged("lane waits").await;
    }
    bed.proxy.set(Way::Open);
    bed.goes_on("a refusal of connections").await;
    let mut ended = 0;
    let enough = eventually(Duration::from_secs(60), async || {
        ended += bed
            .scenario
            .database
            .number(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'haulier'",
            )
            .await;
        ended >= 60
    })
    .await;
    assert!(enough, "sessions were ended: {ended}");
    bed.goes_on("the end of its sessions").await;
    bed.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_restarts_costs_nothing() {
    let _turn = turn().await;
    let bed = Bed::new().await;
    bed.goes_on("the start").await;
    for way in ["kill", "stop"] {
        control(&[way, "postgres"]);
        for instance in &bed.instances {
            instance.logged("database").await;
        }
        control(&["start", "postgres"]);
        let back = eventually(Duration::from_secs(60), async || {
            sqlx::raw_sql("SELECT 1").execute(&bed.scenario.database.pool).await.is_ok()
        })
        .await;
        assert!(back, "the database is back");
        bed.goes_on("a restart").await;
    }
    bed.finish().await;
}

/// A trigger on a table of haulier's that refuses one statement in five, and counts it.
fn refusing(table: &str, code: &str) -> String {
    // A sequence keeps its count when the transaction rolls back.
    format!(
        "CREATE SEQUENCE IF NOT EXISTS refused; \
         CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF random() < 0.2 AND current_setting('application_name') = 'haulier' THEN \
             PERFORM nextval('refused'); \
             RAISE EXCEPTION 'refused by the test' USING ERRCODE = '{code}'; \
           END IF; RETURN NULL; END $$; \
         CREATE TRIGGER refuse AFTER UPDATE OR DELETE ON {table} \
           FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlocks_and_serialisation_errors_cost_nothing() {
    let _turn = turn().await;
    let bed = Bed::new().await;
    bed.goes_on("the start").await;
    for (table, code) in [("haulier_lease", "40P01"), ("outbox", "40001"), ("outbox", "40P01")] {
        bed.run(&refusing(table, code)).await;
        let refused = "SELECT least(last_value, 5) FROM refused";
        bed.scenario.database.until(refused, 5).await;
        bed.run(&format!("DROP TRIGGER refuse ON {table}; DROP SEQUENCE refused")).await;
        bed.goes_on(&format!("{code} on {table}")).await;
    }
    real_deadlock(&bed).await;
    bed.goes_on("a deadlock").await;
    bed.finish().await;
}

/// Locks rows that a batch holds, waits until its settle waits for them, then wants all leases. This
/// session looks for a deadlock later than the relays', so at least one of theirs is ended for it.
async fn real_deadlock(bed: &Bed) {
    let pool = &bed.scenario.database.pool;
    let mut transaction = pool.begin().await.expect("begins");
    let lock = "SET LOCAL deadlock_timeout = '5s'; \
         SELECT id FROM outbox WHERE status = 'PENDING' FOR UPDATE";
    // Until there were some to lock.
    let waiting = "SELECT least(count(*), 1) FROM pg_locks WHERE NOT granted \
         AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
           AND application_name = 'haulier')";
    let blocked = eventually(Duration::from_secs(60), async || {
        sqlx::raw_sql(lock).execute(&mut *transaction).await.expect("locks");
        bed.scenario.database.number(waiting).await > 0
    })
    .await;
    assert!(blocked, "a settle waits for the rows");
    // A session looks once only: with both relays waiting, the end of one may leave it to this session
    // to end the deadlock with the other.
    let _ =
        sqlx::raw_sql("SELECT * FROM haulier_lease FOR UPDATE").execute(&mut *transaction).await;
    transaction.rollback().await.expect("rolls back");
    let told = eventually(Duration::from_secs(60), async || {
        bed.instances.iter().any(|instance| instance.log().contains("deadlock detected"))
    })
    .await;
    assert!(told, "a relay's transaction was ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_no_writes_for_a_while_costs_nothing() {
    let _turn = turn().await;
    let bed = Bed::new().await;
    bed.goes_on("the start").await;
    let end_others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let set = |what: &str| {
        // The session may be one that takes no writes.
        format!(
            "BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {what}', \
               current_database()); END $$; COMMIT; {end_others}"
        )
    };
    bed.run(&set("SET default_transaction_read_only = on")).await;
    for instance in &bed.instances {
        instance.logged("read-only").await;
    }
    bed.assert_nothing_used("read-only").await;
    bed.run(&set("RESET default_transaction_read_only")).await;
    bed.goes_on("read-only").await;
    bed.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_that_the_database_refuses_are_kept_and_not_repeated() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    // As a foreign key or an audit trigger of the application's may do.
    scenario
        .database
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23503'; END $$; \
             CREATE TRIGGER refuse BEFORE DELETE ON outbox EXECUTE FUNCTION refuse()",
        )
        .await;
    Workload::new(&scenario.topic, 20).write(&scenario.database.pool, 0, 20).await;
    let holder = setup.start();
    holder.logged("the database refuses what was acknowledged").await;
    holder.unready(&["not this one"]).await;
    let other = setup.start();
    other.ready().await;
    // Longer than a lease: it is renewed, or the other would publish the same again.
    let kept = "SELECT least(count(*), 1) FROM haulier_lease WHERE token IS NOT NULL \
         AND expires_at > served_at + interval '12 seconds'";
    scenario.database.until(kept, 1).await;
    scenario.database.run("DROP TRIGGER refuse ON outbox").await;
    scenario.drained().await;
    holder.ready().await;
    let received = kafka::read_count(&scenario.topic, 20).await;
    assert_eq!(check(&received, 20, 0, 1), Verdict::default(), "nothing is repeated");
}
