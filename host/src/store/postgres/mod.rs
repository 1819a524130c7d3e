//! PostgreSQL as a store: leases and row claims on `FOR UPDATE SKIP LOCKED`.
//!
//! Built by the composition root, called by the relay through [`Store`]. Every statement stands in
//! one of the child modules. Keeps no session state on pooled connections, holds no transaction
//! open between calls, and never logs or returns the connection URL.

mod change;
mod classify;
mod desk;
mod events;
mod leases;
mod row_claims;
mod schema;
mod settle;
mod standing;
mod stats;
mod survey;

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::OnceCell;

use self::classify::nature;
use self::schema::{Found, Migrated};
use super::calls::{self, ACQUIRE_TIMEOUT};
use super::tables::{Tables, leased_shards};
use super::{
    Batch, BatchClaim, ClaimRequest, HaltedKeys, Heartbeat, InstanceSeen, LaneFound, LaneStats,
    LeaseStanding, Outbox, PayloadType, Settled, Settlement, Store, StoreConfig, StoreError,
};
use crate::event::{Event, EventId, LaneName, Ordering};
use crate::words::closest;

pub(super) use self::survey::survey;

/// The values of `sslmode` in a URL.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

impl PayloadType {
    fn sql(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("json", |(name, _)| name)
    }
}

/// Whether `url` can be read. Connects to nothing, and shows nothing of it.
///
/// # Errors
/// A text that says what may be wrong with it.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    const ADVICE: &str = "write postgres://user:password@host:5432/database";
    let Some((_, rest)) = url.split_once("://") else {
        return Err(format!("is not a database URL; {ADVICE}"));
    };
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    if address.is_empty() && query.is_empty() {
        return Err(format!("names no host; {ADVICE}"));
    }
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if matches!(name, "sslmode" | "ssl-mode") && !SSL_MODES.contains(&value) {
            let modes = SSL_MODES.join(", ");
            let meant = closest(value, SSL_MODES);
            let meant = meant.map_or(String::new(), |mode| format!("; did you mean '{mode}'?"));
            return Err(format!("has an unknown {name}; there are {modes}{meant}"));
        }
    }
    PgConnectOptions::from_str(url).map(|_| ()).map_err(|_| {
        "cannot be read: special characters in user name and password must be percent-encoded, and \
         the port is a number up to 65535"
            .to_owned()
    })
}

/// How a claim's transaction begins. The isolation level is stated because the database's default
/// may be another. Sequential scans are ruled out for this transaction only: a plan made while the
/// table was empty would otherwise be kept when it has filled up.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan = off";

/// One source's tables on PostgreSQL.
pub struct PostgresStore {
    config: StoreConfig,
    tables: Tables,
    options: PgConnectOptions,
    pool: PgPool,
    opened: OnceCell<events::Statements>,
}

impl PostgresStore {
    /// A store that connects when it is first used.
    ///
    /// # Errors
    /// A text that says what is wrong with the URL or the table name; never holds the URL.
    pub fn new(config: StoreConfig) -> Result<Self, String> {
        let tables = Tables::new(&config.table)?;
        let mut options = PgConnectOptions::from_str(&config.url)
            .map_err(|_| {
                "the URL is not a PostgreSQL URL: write postgres://user:password@host:5432/database"
                    .to_owned()
            })?
            .application_name("haulier")
            .disable_statement_logging();
        if config.transaction_pooler {
            options = options.statement_cache_capacity(0);
        }
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.clone());
        Ok(Self { config, tables, options, pool, opened: OnceCell::new() })
    }

    async fn look(&self) -> Result<Found, StoreError> {
        let found = self
            .bounded("look at the tables", async {
                // Not from the pool, which says of a refused connection that it timed out.
                let mut connection = self.options.connect().await?;
                let found = schema::find(&mut connection, &self.config, &self.tables).await?;
                connection.close().await?;
                Ok(found)
            })
            .await?;
        found.map_err(|problem| self.unfit(problem))
    }

    async fn statements(&self) -> Result<&events::Statements, StoreError> {
        self.opened
            .get_or_try_init(|| async {
                let found = self.look().await?;
                Ok(events::Statements::new(&self.tables, &found, self.config.settle))
            })
            .await
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        self.pool.begin_with(BEGIN).await
    }

    async fn bounded<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        calls::bounded(&self.config.source, doing, nature, call).await
    }

    fn unfit(&self, problem: String) -> StoreError {
        calls::unfit(&self.config.source, problem)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn open_lane(&self, lane: &LaneName, ordering: Ordering) -> Result<(), StoreError> {
        let found = self.look().await?;
        self.statements().await?;
        let shards = leased_shards(ordering, found.shards);
        if ordering != Ordering::Key && !found.whole_lane_index {
            let who = format!("lane '{}'", lane.lane);
            return Err(self.unfit(self.tables.without_lane_index(&who)));
        }
        self.bounded("open a lane", async {
            let mut connection = self.pool.acquire().await?;
            leases::create(&mut connection, &self.tables, lane, &shards).await
        })
        .await
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Option<Batch>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("claim", async {
            match request.ordering {
                Ordering::None => row_claims::claim(self, statements, request).await,
                Ordering::Key | Ordering::Total => leases::claim(self, statements, request).await,
            }
        })
        .await
    }

    async fn renew(
        &self,
        lane: &LaneName,
        batch: &BatchClaim,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let statements = self.statements().await?;
        self.bounded("renew a claim", async {
            let mut connection = self.pool.acquire().await?;
            match batch.ordering {
                Ordering::None => {
                    row_claims::renew(&mut connection, statements, batch, lease).await
                }
                Ordering::Key | Ordering::Total => {
                    leases::renew(&mut connection, statements, lane, batch, lease).await
                }
            }
        })
        .await
    }

    async fn settle(
        &self,
        lane: &LaneName,
        batch: &BatchClaim,
        settlements: &[Settlement],
    ) -> Result<Settled, StoreError> {
        let statements = self.statements().await?;
        self.bounded("settle", async {
            let mut transaction = self.begin().await?;
            let settled =
                settle::settle(&mut transaction, statements, lane, batch, settlements).await?;
            transaction.commit().await?;
            Ok(settled)
        })
        .await
    }

    async fn stats(&self, lane: &LaneName, ordering: Ordering) -> Result<LaneStats, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at a lane", async {
            let mut transaction = self.begin().await?;
            let stats = stats::stats(&mut transaction, statements, lane, ordering).await?;
            transaction.commit().await?;
            Ok(stats)
        })
        .await
    }

    async fn delete_published(&self, age: Duration, limit: usize) -> Result<u64, StoreError> {
        let statements = self.statements().await?;
        self.bounded("delete published events", async {
            let mut connection = self.pool.acquire().await?;
            stats::delete_published(&mut connection, statements, age, limit).await
        })
        .await
    }

    async fn heartbeat(&self, beat: &Heartbeat<'_>) -> Result<(), StoreError> {
        let statements = self.statements().await?;
        self.bounded("note a heartbeat", async {
            let mut connection = self.pool.acquire().await?;
            standing::heartbeat(&mut connection, statements, beat).await
        })
        .await
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    fn migration_sql(&self) -> String {
        schema::migration_sql(&self.config, &self.tables)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let migrated = self
            .bounded("migrate", async {
                let mut connection = self.options.connect().await?;
                schema::migrate(&mut connection, &self.config, &self.tables).await
            })
            .await?;
        if migrated == Migrated::Locked {
            return Err(self.unfit(format!(
                "a transaction that goes on keeps table {} from being changed, and applications would \
                 wait behind that: end it, or run `haulier migrate` again later",
                self.tables.events
            )));
        }
        self.look().await.map(|_| ())
    }

    async fn check(&self) -> Result<(), StoreError> {
        let found = self.look().await?;
        if self.config.whole_lane_index && !found.whole_lane_index {
            return Err(self.unfit(self.tables.without_lane_index("a lane")));
        }
        Ok(())
    }

    async fn lanes_with_rows(&self) -> Result<Vec<LaneFound>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look for lanes", async {
            let mut transaction = self.begin().await?;
            standing::lanes_with_rows(&mut transaction, statements).await
        })
        .await
    }

    async fn leases(&self) -> Result<Vec<LeaseStanding>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at the leases", async {
            let mut transaction = self.begin().await?;
            standing::leases(&mut transaction, statements, &self.config.source).await
        })
        .await
    }

    async fn halted_keys(&self, lane: &LaneName) -> Result<HaltedKeys, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at held keys", async {
            let mut transaction = self.begin().await?;
            standing::halted_keys(&mut transaction, statements, lane).await
        })
        .await
    }

    async fn instances(&self) -> Result<Vec<InstanceSeen>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at the instances", async {
            let mut transaction = self.begin().await?;
            standing::instances(&mut transaction, statements, &self.config.source).await
        })
        .await
    }

    async fn peek(&self, lane: &LaneName, limit: usize) -> Result<Vec<Event>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at pending rows", async {
            let mut transaction = self.begin().await?;
            let rows = sqlx::query(statements.peek())
                .bind(&*lane.lane)
                .bind(sql_limit(limit))
                .fetch_all(&mut *transaction)
                .await?;
            rows.iter().map(events::event).collect()
        })
        .await
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

/// A limit as the database takes it.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A duration as an interval in seconds.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn ids(events: &[EventId]) -> Vec<i64> {
    events.iter().map(|id| id.0).collect()
}

/// The type every statement runs on.
type Connection = PgConnection;
