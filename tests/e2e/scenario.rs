//! What every scenario starts from: a database, a topic, a config.

use haulier_tests::database::Database;
use haulier_tests::kafka;
use haulier_tests::process::Setup;
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

    /// A config with this lane table, for a broker at that address.
    pub(crate) fn setup_at(&self, broker: &str, lane: &str) -> Setup {
        Setup::new(format!(
            "[sources.orders]\nurl = \"{}\"\n\
             [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"{broker}\"\npublish_timeout = \"2s\"\n\
             [lanes.default]\nlease = \"4s\"\n{lane}\n",
            self.database.url
        ))
    }

    /// Waits until no event is left in the outbox.
    pub(crate) async fn drained(&self) {
        self.database.until("SELECT count(*) FROM outbox", 0).await;
    }
}
