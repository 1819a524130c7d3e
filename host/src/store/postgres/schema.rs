//! The tables: the SQL of `migrate`, running it, and finding out what is there.
//!
//! Called by the `migrate` command and when a lane is opened. Never changes a table that exists
//! beyond adding what is missing, and never touches a row of it.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};

use crate::store::StoreConfig;
use crate::store::names::quoted;
use crate::store::tables::{Tables, Templates, absent};

/// Serialises migrations of one database; "haulier" in ASCII.
const MIGRATION_LOCK: i64 = 0x68_61_75_6c_69_65_72;

const TEMPLATES: Templates = Templates {
    side_tables: include_str!("../../../migrations/postgres/side_tables.sql"),
    outbox: include_str!("../../../migrations/postgres/outbox.sql"),
    lane_index: include_str!("../../../migrations/postgres/lane_index.sql"),
};

/// The whole migration of one source as SQL that a person can read and run.
pub(super) fn migration_sql(config: &StoreConfig, tables: &Tables) -> String {
    let places = [
        ("{payload_type}", config.payload_type.sql()),
        ("{shard_expression}", &shard_expression(config.shards)),
    ];
    let sql = tables.migration(config, &TEMPLATES, &places);
    match tables.name.schema() {
        Some(schema) => format!("CREATE SCHEMA IF NOT EXISTS {};\n\n{sql}", quoted(schema)),
        None => sql,
    }
}

/// Shard of the ordering key. `sha256` gives the same in every version (the hash functions of hash
/// partitioning do not promise it) and is allowed under FIPS (`md5` is not); `decode(…, 'escape')` is
/// the immutable way from text to bytes (`convert_to` is only stable before version 16). Doubling
/// the backslashes makes every text legal for it. NULL and empty keys share a shard.
pub(super) fn shard_expression(shards: u16) -> String {
    let key = r"decode(replace(coalesce(partition_key, aggregate_id, ''), '\', '\\'), 'escape')";
    format!("('x' || left(encode(sha256({key}), 'hex'), 6))::bit(24)::integer % {shards}")
}

/// How often a migration is tried that waits for a lock, and the pause between.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_secs(1);

/// How a migration went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Migrated {
    Done,
    /// A transaction that goes on has the table.
    Locked,
}

/// Runs the migration in one transaction, one migration of this database at a time. Applications that
/// write wait behind a statement that waits for a lock: so it gives up soon, and tries again.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<Migrated, sqlx::Error> {
    for attempt in 1.. {
        match migrate_once(connection, config, tables).await {
            Err(error) if is_lock_timeout(&error) && attempt < TRIES => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) if is_lock_timeout(&error) => break,
            other => return other.map(|()| Migrated::Done),
        }
    }
    Ok(Migrated::Locked)
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.code().as_deref() == Some("55P03"))
}

async fn migrate_once(
    connection: &mut PgConnection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *transaction)
        .await?;
    // Even "if not exists" takes locks that writers wait for.
    if is_current(&mut transaction, config, tables).await? {
        return transaction.commit().await;
    }
    sqlx::query("SET LOCAL lock_timeout = '1s'").execute(&mut *transaction).await?;
    let mut sql = migration_sql(config, tables);
    if let Some(schema) = tables.name.schema() {
        let exists = sqlx::query("SELECT 1 FROM pg_namespace WHERE nspname = $1")
            .bind(schema)
            .fetch_optional(&mut *transaction)
            .await?;
        if exists.is_some() {
            // Creating it "if not exists" needs a privilege that using it does not.
            sql = sql.split_once(";\n\n").map_or(sql.clone(), |(_, rest)| rest.to_owned());
        }
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Whether nothing is missing.
async fn is_current(
    connection: &mut PgConnection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<bool, sqlx::Error> {
    let Ok(found) = find(connection, config, tables).await? else {
        return Ok(false);
    };
    if config.whole_lane_index && !found.whole_lane_index {
        return Ok(false);
    }
    let mut names = vec!["haulier_due", "haulier_published", "haulier_failed"];
    if config.whole_lane_index {
        names.push("haulier_claims");
    }
    let names: Vec<String> = names.into_iter().map(|name| tables.name.index(name)).collect();
    let there: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND c.relname = ANY($2)",
    )
    .bind(&tables.events)
    .bind(&names)
    .fetch_one(connection)
    .await?;
    Ok(usize::try_from(there).is_ok_and(|there| there == names.len()))
}

/// What is there, as far as the relay has to know.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Type name of the payload column.
    pub(super) payload_type: String,
    /// Shards the source was migrated with.
    pub(super) shards: i32,
    /// Whether the index that reads a whole lane exists.
    pub(super) whole_lane_index: bool,
}

/// Looks at the tables.
///
/// # Errors
/// `Ok(Err(text))` when they are not what they must be; the text says what to do.
pub(super) async fn find(
    connection: &mut PgConnection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<Result<Found, String>, sqlx::Error> {
    let columns = sqlx::query(
        "SELECT attname::text, atttypid::regtype::text FROM pg_attribute \
         WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
    )
    .bind(&tables.events)
    .fetch_all(&mut *connection)
    .await?;
    if columns.is_empty() {
        return Ok(Err(absent(&tables.events)));
    }
    let mut types = std::collections::HashMap::new();
    for row in columns {
        types.insert(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    }
    if let Some(problem) = tables.misfit(|name| types.contains_key(name)) {
        return Ok(Err(problem));
    }
    for side in tables.side_tables() {
        let there: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(side)
            .fetch_one(&mut *connection)
            .await?;
        if !there {
            return Ok(Err(absent(side)));
        }
    }
    let Some(shards) = registered(connection, config, tables).await? else {
        return Ok(Err(tables.unregistered(&config.source)));
    };
    let whole_lane_index: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND c.relname = $2)",
    )
    .bind(&tables.events)
    .bind(tables.name.index("haulier_lane"))
    .fetch_one(&mut *connection)
    .await?;
    let payload_type = types.remove("payload").unwrap_or_default();
    Ok(Ok(Found { payload_type, shards, whole_lane_index }))
}

async fn registered(
    connection: &mut PgConnection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<Option<i32>, sqlx::Error> {
    let sql =
        format!("SELECT shards FROM {} WHERE source = $1 AND table_name = $2", tables.sources);
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(&config.source)
        .bind(&tables.events)
        .fetch_optional(connection)
        .await
}
