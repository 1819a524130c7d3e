//! What every scenario starts from: a database, a topic, a config.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use haulier_tests::database::Database;
use haulier_tests::history::{self, Findings};
use haulier_tests::kafka::{self, Received};
use haulier_tests::ledger;
use haulier_tests::process::Setup;
use haulier_tests::workload::Workload;
use tokio::sync::{Mutex, MutexGuard};

/// Scenarios share two cores, one broker and its proxy port: they take turns.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// A migrated outbox and a topic.
pub(crate) struct Scenario {
    pub(crate) database: Database,
    pub(crate) topic: String,
}

impl Scenario {
    /// With a topic of twelve partitions.
    pub(crate) async fn new() -> Self {
        Self { database: Database::fresh().await, topic: kafka::topic(12, &[]).await }
    }

    /// A config with this lane table, for the broker itself.
    pub(crate) fn setup(&self, lane: &str) -> Setup {
        self.setup_at(&kafka::address(), lane)
    }

    /// The same with longer limits, for scenarios that run side by side and so are slow.
    pub(crate) fn patient_setup(&self, lane: &str) -> Setup {
        self.setup_within("5s", "10s", lane)
    }

    /// The same with shorter limits, for scenarios that wait for many leases to expire.
    pub(crate) fn brisk_setup(&self, lane: &str) -> Setup {
        self.setup_within("1s", "2s", lane)
    }

    fn setup_within(&self, timeout: &str, lease: &str, lane: &str) -> Setup {
        let mut setup = self.setup(lane);
        setup.config = setup
            .config
            .replace("publish_timeout = \"2s\"", &format!("publish_timeout = \"{timeout}\""))
            .replace("lease = \"4s\"", &format!("lease = \"{lease}\""));
        setup
    }

    /// A config with this lane table, for a broker at that address.
    pub(crate) fn setup_at(&self, broker: &str, lane: &str) -> Setup {
        self.setup_between(&self.database.url, broker, lane)
    }

    /// A config with this lane table, for a database and a broker at those addresses.
    pub(crate) fn setup_between(&self, database: &str, broker: &str, lane: &str) -> Setup {
        Setup::new(format!(
            "[sources.orders]\nurl = \"{database}\"\n\
             [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"{broker}\"\npublish_timeout = \"2s\"\n\
             [lanes.default]\nlease = \"4s\"\n{lane}\n"
        ))
    }

    /// Writes so many events a second for a while, one of each of ten keys at a time, numbered from `first` on
    /// per key. Returns how many.
    pub(crate) async fn offer(
        &self,
        workload: &Workload,
        first: usize,
        a_second: usize,
        window: Duration,
    ) -> usize {
        const AT_ONCE: usize = 10;
        let started = Instant::now();
        let mut seq = first;
        let pause = Duration::from_millis((1000 * AT_ONCE / a_second) as u64);
        let mut tick = tokio::time::interval(pause);
        while started.elapsed() < window {
            tick.tick().await;
            workload.write(&self.database.pool, seq, AT_ONCE).await;
            seq += 1;
        }
        (seq - first) * AT_ONCE
    }

    /// Migrates by this setup and keeps a ledger from then on.
    pub(crate) async fn with_ledger(&self, setup: &Setup) {
        setup.migrate();
        ledger::keep(&self.database).await;
    }

    /// All that has arrived in the topic so far, read until it is quiet for a moment.
    pub(crate) async fn arrived(&self) -> Vec<Received> {
        kafka::read(&self.topic, Duration::from_secs(2), |_| false).await
    }

    /// What the checker says of the whole history of the topic.
    pub(crate) async fn findings(&self) -> Findings {
        let received = self.arrived().await;
        let pool = &self.database.pool;
        let committed = ledger::committed(pool, &self.topic).await;
        let findings =
            history::check(&committed, &ledger::left(pool, &self.topic).await, &received);
        assert!(!committed.is_empty(), "there was something to carry");
        findings
    }

    /// Ids of the events that are still in the outbox.
    pub(crate) async fn unsettled(&self) -> BTreeSet<i64> {
        let left = ledger::left(&self.database.pool, &self.topic).await;
        left.into_iter().map(|(id, _)| id).collect()
    }

    /// Waits until no event is left in the outbox.
    pub(crate) async fn drained(&self) {
        self.database.until("SELECT count(*) FROM outbox", 0).await;
    }
}
