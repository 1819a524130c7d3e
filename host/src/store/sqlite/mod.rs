//! SQLite as a store: leases and row claims under BEGIN IMMEDIATE.
//!
//! Built by the composition root, called by the relay through [`Store`]. For small services and for
//! trying things out: the file has one writer at a time, which the applications and all instances
//! share. Its clock is that of the machine. Never creates a file except when it migrates, holds no
//! transaction open between calls, and never waits for a writer just to find that there is nothing to do.

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

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, Sqlite, SqliteConnection, SqlitePool,
    Transaction,
};
use tokio::sync::OnceCell;

use self::classify::nature;
use self::schema::Found;
use super::calls::{self, ACQUIRE_TIMEOUT};
use super::tables::{Tables, leased_shards};
use super::{
    Batch, BatchClaim, ClaimRequest, HaltedKeys, Heartbeat, InstanceSeen, LaneFound, LaneStats,
    LeaseStanding, Outbox, Settled, Settlement, Store, StoreConfig, StoreError,
};
use crate::event::{Event, EventId, LaneName, Ordering};

pub(super) use self::survey::survey;

/// Milliseconds since the epoch, in functions that every SQLite in use has.
const NOW: &str = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
/// The end of the year 9999 in the same unit: never, by itself.
const FAR: i64 = 253_402_300_799_999;
/// How a write begins: with the right to write, so that what it reads stays true until it commits.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// How long a write waits for other writers of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(15);

/// The type every statement runs on.
type Connection = SqliteConnection;

/// Whether `url` names a file. Opens nothing.
///
/// # Errors
/// A text that says what may be wrong with it.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    options(url, Path::new("")).map(|_| ())
}

/// `url` with its path made absolute from the current folder.
///
/// # Errors
/// A text that says what is wrong with it.
pub(super) fn anchored(url: &str) -> Result<String, String> {
    let file = options(url, Path::new(""))?.get_filename().to_owned();
    let path = std::path::absolute(file).map_err(|error| format!("has no such path: {error}"))?;
    let path = path.to_str().ok_or_else(|| "has a path that is not UTF-8".to_owned())?;
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let query = url.split_once('?').map(|(_, query)| format!("?{query}"));
    Ok(format!("sqlite:{path}{}", query.unwrap_or_default()))
}

/// How the file of `url` is opened; a relative path starts at `folder`.
fn options(url: &str, folder: &Path) -> Result<SqliteConnectOptions, String> {
    const ADVICE: &str = "write sqlite:path/to/file.db";
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|_| format!("cannot be read as an SQLite URL; {ADVICE}"))?;
    let file = options.get_filename().to_owned();
    let memory = url.contains(":memory:") || url.contains("mode=memory");
    if memory || file.as_os_str().is_empty() {
        return Err(format!(
            "must name a file, which the relay shares with its applications; {ADVICE}"
        ));
    }
    Ok(options
        .filename(folder.join(file))
        .read_only(false)
        .create_if_missing(false)
        .shared_cache(false)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging())
}

/// One source's tables in an SQLite file.
pub struct SqliteStore {
    config: StoreConfig,
    tables: Tables,
    options: SqliteConnectOptions,
    pool: SqlitePool,
    opened: OnceCell<events::Statements>,
}

impl SqliteStore {
    /// A store that opens its file when it is first used.
    ///
    /// # Errors
    /// A text that says what is wrong with the URL or the table name; never holds the URL.
    pub fn new(config: StoreConfig) -> Result<Self, String> {
        let tables = Tables::new(&config.table)?;
        let options =
            options(&config.url, &config.folder).map_err(|problem| format!("its URL {problem}"))?;
        let pool = SqlitePoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| Box::pin(settle_for_normal(connection)))
            .connect_lazy_with(options.clone());
        Ok(Self { config, tables, options, pool, opened: OnceCell::new() })
    }

    /// Opens the file outside the pool, which says of one that cannot be opened that it timed out.
    async fn connect(&self, create: bool) -> Result<Connection, sqlx::Error> {
        self.options.clone().create_if_missing(create).connect().await
    }

    async fn look(&self) -> Result<Found, StoreError> {
        let file = self.options.get_filename();
        if !file.exists() {
            return Err(
                self.unfit(format!("there is no file {}: run `haulier migrate`", file.display()))
            );
        }
        let found = self
            .bounded("look at the tables", async {
                let mut connection = self.connect(false).await?;
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

    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
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

/// With write-ahead logging, losing power may undo the last commits but breaks nothing: what the
/// relay had settled is then published again, as after any crash.
async fn settle_for_normal(connection: &mut Connection) -> Result<(), sqlx::Error> {
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
    if mode.eq_ignore_ascii_case("wal") {
        connection.execute("PRAGMA synchronous = NORMAL").await?;
    }
    Ok(())
}

#[async_trait]
impl Store for SqliteStore {
    async fn open_lane(&self, lane: &LaneName, ordering: Ordering) -> Result<(), StoreError> {
        let found = self.look().await?;
        let statements = self.statements().await?;
        let shards = leased_shards(ordering, found.shards);
        if ordering != Ordering::Key && !found.whole_lane_index {
            let who = format!("lane '{}'", lane.lane);
            return Err(self.unfit(self.tables.without_lane_index(&who)));
        }
        self.bounded("open a lane", async {
            let mut connection = self.pool.acquire().await?;
            leases::create(&mut connection, statements, lane, &shards).await
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
            let mut transaction = self.pool.begin().await?;
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
            let mut transaction = self.begin().await?;
            standing::heartbeat(&mut transaction, statements, beat).await?;
            transaction.commit().await
        })
        .await
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    fn migration_sql(&self) -> String {
        schema::migration_sql(&self.config, &self.tables)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        self.bounded("migrate", async {
            let mut connection = self.connect(true).await?;
            schema::migrate(&mut connection, &self.config, &self.tables).await?;
            connection.close().await
        })
        .await?;
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
            let mut transaction = self.pool.begin().await?;
            standing::lanes_with_rows(&mut transaction, statements).await
        })
        .await
    }

    async fn leases(&self) -> Result<Vec<LeaseStanding>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at the leases", async {
            let mut transaction = self.pool.begin().await?;
            standing::leases(&mut transaction, statements, &self.config.source).await
        })
        .await
    }

    async fn halted_keys(&self, lane: &LaneName) -> Result<HaltedKeys, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at held keys", async {
            let mut transaction = self.pool.begin().await?;
            standing::halted_keys(&mut transaction, statements, lane).await
        })
        .await
    }

    async fn instances(&self) -> Result<Vec<InstanceSeen>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at the instances", async {
            let mut transaction = self.pool.begin().await?;
            standing::instances(&mut transaction, statements, &self.config.source).await
        })
        .await
    }

    async fn peek(&self, lane: &LaneName, limit: usize) -> Result<Vec<Event>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at pending rows", async {
            let mut transaction = self.pool.begin().await?;
            let now = now(&mut transaction).await?;
            events::peek(&mut transaction, statements, lane, now, limit).await
        })
        .await
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

/// The moment that statements compare with, milliseconds since the epoch.
async fn now(connection: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT {NOW}"))).fetch_one(connection).await
}

/// A limit as the database takes it.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A duration in milliseconds.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(FAR)
}

fn ids(events: &[EventId]) -> Vec<i64> {
    events.iter().map(|id| id.0).collect()
}
