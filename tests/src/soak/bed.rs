//! What a soak runs on: a database, topics, relays with a supervisor, and the ways between them.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::fault::Kind;
use crate::database::{Database, unique};
use crate::kafka;
use crate::ledger;
use crate::process::{Haulier, Setup, eventually};
use crate::proxy::{Proxy, Way};
use crate::services::{control, variable};
use crate::traffic;

/// How many relays there are, but for one more at times.
const RELAYS: usize = 2;
/// Time to publish what has piled up once all is healed.
const DRAIN: Duration = Duration::from_secs(300);

/// Everything that is alive in a soak.
pub(super) struct Bed {
    pub(super) database: Database,
    pub(super) database_way: Proxy,
    pub(super) broker: Proxy,
    setup: Setup,
    pub(super) relays: Vec<Haulier>,
    /// Relays that have ended, for their logs.
    pub(super) gone: Vec<Haulier>,
    /// Topics that are there; the first is the one of the traffic.
    pub(super) topics: Vec<String>,
    pub(super) counts: BTreeMap<Kind, usize>,
    /// Deaths by deadly events, which a supervisor answered.
    pub(super) deaths: usize,
    seed: u64,
}

impl Bed {
    pub(super) async fn new(seed: u64) -> Self {
        let database = Database::fresh().await;
        let options = PgConnectOptions::from_str(&database.url).expect("a URL");
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let database_way = Proxy::start("127.0.0.1:0", server.clone()).await;
        let address = variable("HAULIER_TEST_KAFKA_PROXY");
        let broker = Proxy::start(&address, variable("HAULIER_TEST_KAFKA_PROXIED")).await;
        // Smaller than the large ones among the poison events.
        let topic = kafka::topic(12, &[("max.message.bytes", "40000")]).await;
        let setup = Setup::new(format!(
            "[sources.orders]\nurl = \"{}\"\n\
             [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"{address}\"\npublish_timeout = \"2s\"\n\
             [lanes.default]\nlease = \"4s\"\nbatch_rows = 100\nmax_attempts = 3\nfirst_backoff = \"200ms\"\n",
            database.url.replace(&server, database_way.address())
        ))
        .failing("transformed=kill:deadly");
        setup.migrate();
        ledger::keep(&database).await;
        let relays = (0..RELAYS).map(|_| setup.start()).collect();
        Self {
            database,
            database_way,
            broker,
            setup,
            relays,
            gone: Vec::new(),
            topics: vec![topic],
            counts: BTreeMap::new(),
            deaths: 0,
            seed,
        }
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.database.pool
    }

    pub(super) fn traffic_plan(&self) -> traffic::Plan {
        let pause = Duration::from_millis(100);
        traffic::Plan { pause, seed: self.seed, ..traffic::Plan::new(&self.topics[0]) }
    }

    /// Waits until each relay has published something.
    pub(super) async fn all_at_work(&self) {
        for relay in &self.relays {
            relay.reaches("haulier_events_published_total", 1.0).await;
        }
    }

    /// Lets time pass, and does what a supervisor does: starts again what has died.
    pub(super) async fn rest(&mut self, time: Duration) {
        eventually(time, async || {
            self.supervise();
            false
        })
        .await;
    }

    fn supervise(&mut self) {
        for index in 0..self.relays.len() {
            if self.relays[index].has_ended() {
                self.deaths += 1;
                self.replace(index);
            }
        }
    }

    /// Another relay in the place of one that has ended.
    pub(super) fn replace(&mut self, index: usize) {
        let next = self.setup.start();
        self.gone.push(std::mem::replace(&mut self.relays[index], next));
    }

    pub(super) fn join(&mut self) {
        self.relays.push(self.setup.start());
    }

    /// SIGTERM, unless it has just died by itself.
    pub(super) async fn leave(&mut self, index: usize) {
        if !self.relays[index].has_ended() {
            self.relays[index].terminate().await;
        }
    }

    /// Commits rows of event type, key, topic and payload that the query gives; `$1` is the topic and
    /// `$2` a text that is new each time. Tries again while the database refuses.
    pub(super) async fn insert(&mut self, query: &str, topic: &str) {
        let sql = format!("INSERT INTO outbox (event_type, aggregate_id, topic, payload) {query}");
        let done = eventually(Duration::from_secs(60), async || {
            self.supervise();
            let insert = sqlx::query(AssertSqlSafe(sql.clone())).bind(topic).bind(unique("n"));
            insert.execute(&self.database.pool).await.is_ok()
        })
        .await;
        assert!(done, "the database takes events");
    }

    /// Makes all ways open and all services run.
    pub(super) async fn heal(&mut self) {
        self.broker.set(Way::Open);
        self.database_way.set(Way::Open);
        tokio::task::block_in_place(|| {
            for service in ["postgres", "kafka"] {
                control(&["start", service]);
            }
        });
    }

    /// Waits until all is published or parked, and ends the relays in good order.
    pub(super) async fn drain(&mut self) {
        let open = "SELECT count(*) FROM outbox WHERE status <> 'FAILED'";
        eventually(DRAIN, async || {
            self.supervise();
            let open: Result<i64, _> =
                sqlx::query_scalar(open).fetch_one(&self.database.pool).await;
            open.is_ok_and(|open| open == 0)
        })
        .await;
        for mut relay in std::mem::take(&mut self.relays) {
            assert!(relay.terminate().await.success(), "it ends in good order: {}", relay.log());
            self.gone.push(relay);
        }
    }
}
