//! The tables: the SQL of `migrate`, running it, and finding out what is there.
//!
//! Called by the `migrate` command and when a lane is opened. Never changes a table that exists
//! beyond adding what is missing, and never touches a row of it.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row};

use super::{BEGIN, Connection, NOW};
use crate::store::names::{COLUMNS, TableName, literal, quoted};
use crate::store::{PayloadType, StoreConfig};

/// The layout these tables have; recorded with the source.
const SCHEMA_VERSION: i32 = 1;

/// How long `migrate` tries to put a busy file into write-ahead mode, and how often.
const WAL_LIMIT: Duration = Duration::from_secs(10);
const WAL_PAUSE: Duration = Duration::from_millis(50);

const OUTBOX: &str = include_str!("../../../migrations/sqlite/outbox.sql");
const LANE_INDEX: &str = include_str!("../../../migrations/sqlite/lane_index.sql");
const SIDE_TABLES: &str = include_str!("../../../migrations/sqlite/side_tables.sql");

/// The names of a source's tables, as SQL.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) name: TableName,
    pub(super) events: String,
    pub(super) leases: String,
    pub(super) held_keys: String,
    pub(super) sources: String,
    pub(super) instances: String,
}

impl Tables {
    pub(super) fn new(table: &str) -> Result<Self, String> {
        let name = TableName::parse(table)?;
        Ok(Self {
            events: name.sql(),
            leases: name.sibling("haulier_lease"),
            held_keys: name.sibling("haulier_held_key"),
            sources: name.sibling("haulier_source"),
            instances: name.sibling("haulier_instance"),
            name,
        })
    }

    /// An index of the outbox table, as SQL.
    pub(super) fn index(&self, suffix: &str) -> String {
        quoted(&self.name.index(suffix))
    }
}

/// The whole migration of one source as SQL that a person can read and run.
pub(super) fn migration_sql(config: &StoreConfig, tables: &Tables) -> String {
    let mut sql = filled(SIDE_TABLES, config, tables);
    sql.push('\n');
    sql.push_str(&filled(OUTBOX, config, tables));
    if config.whole_lane_index {
        sql.push('\n');
        sql.push_str(&filled(LANE_INDEX, config, tables));
    }
    sql.push_str(&format!(
        "\nINSERT INTO {sources} (source, table_name, shards, schema_version)\nVALUES ({source}, {table}, {shards}, {SCHEMA_VERSION}) ON CONFLICT DO NOTHING;\n",
        sources = tables.sources,
        source = literal(&config.source),
        table = literal(&tables.events),
        shards = config.shards,
    ));
    sql
}

fn filled(template: &str, config: &StoreConfig, tables: &Tables) -> String {
    let payload = match config.payload_type {
        PayloadType::Json | PayloadType::Jsonb => {
            "TEXT CHECK (payload IS NULL OR json_valid(payload))"
        }
        PayloadType::Text => "TEXT",
        PayloadType::Bytea => "BLOB",
    };
    template
        .replace("{table}", &tables.events)
        .replace("{leases}", &tables.leases)
        .replace("{held_keys}", &tables.held_keys)
        .replace("{sources}", &tables.sources)
        .replace("{instances}", &tables.instances)
        .replace("{now}", NOW)
        .replace("{payload_column}", payload)
        .replace("{shard_expression}", &shard_expression(config.shards))
        .replace("{index_due}", &tables.index("haulier_due"))
        .replace("{index_lane}", &tables.index("haulier_lane"))
        .replace("{index_claims}", &tables.index("haulier_claims"))
        .replace("{index_published}", &tables.index("haulier_published"))
        .replace("{index_failed}", &tables.index("haulier_failed"))
        .replace("{index_held_event}", &quoted("haulier_held_key_event"))
}

/// Shard of the ordering key. SQLite has no hash function, so the key's bytes become decimal digits,
/// which are taken as numbers of 15 digits modulo primes: five from the start (37 bytes, a whole UUID as
/// text), one from the end, and the length. A step of the generator of Park and Miller (48271, modulo
/// 2^31 - 1) mixes their sum, of which the lowest bits are left out. NULL and empty keys share a shard.
pub(super) fn shard_expression(shards: u16) -> String {
    let letters = [('A', '1'), ('B', '3'), ('C', '5'), ('D', '7'), ('E', '9'), ('F', '2')];
    let hex = "hex(coalesce(partition_key, aggregate_id, ''))".to_owned();
    let digits = letters
        .iter()
        .fold(hex, |text, (letter, digit)| format!("replace({text}, '{letter}', '{digit}')"));
    let mut terms = vec![format!("length({digits})")];
    for (place, factor) in [1, 31, 961, 29_791, 923_521].into_iter().enumerate() {
        let start = place * 15 + 1;
        terms.push(format!("CAST(substr({digits}, {start}, 15) AS INTEGER) % 1000003 * {factor}"));
    }
    terms.push(format!(
        "CAST(substr({digits}, max(1, length({digits}) - 14)) AS INTEGER) % 999983 * 7"
    ));
    format!("(({}) % 2147483647 * 48271 % 2147483647) / 256 % {shards}", terms.join(" + "))
}

/// Runs the migration in one transaction, one at a time as every write to the file.
pub(super) async fn migrate(
    connection: &mut Connection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<(), sqlx::Error> {
    write_ahead(connection).await?;
    let sql = format!("{BEGIN};\n{}\nCOMMIT;", migration_sql(config, tables));
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}

/// Lets readers go on while one writes. The file remembers it. SQLite does not wait by itself for the
/// moment alone with the file that the change needs.
async fn write_ahead(connection: &mut Connection) -> Result<(), sqlx::Error> {
    let started = Instant::now();
    loop {
        let set = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL")
            .fetch_one(&mut *connection)
            .await;
        match set {
            Err(error) if super::is_busy(&error) && started.elapsed() < WAL_LIMIT => {
                tokio::time::sleep(WAL_PAUSE).await;
            }
            other => return other.map(|_| ()),
        }
    }
}

/// What is there, as far as the relay has to know.
#[derive(Debug, Clone)]
pub(super) struct Found {
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
    connection: &mut Connection,
    config: &StoreConfig,
    tables: &Tables,
) -> Result<Result<Found, String>, sqlx::Error> {
    let remedy = "run `haulier migrate`";
    let columns = columns(connection, &tables.events).await?;
    if columns.is_empty() {
        return Ok(Err(format!("there is no table {}: {remedy}", tables.events)));
    }
    let missing: Vec<_> =
        COLUMNS.into_iter().filter(|name| columns.iter().all(|column| column != name)).collect();
    if !missing.is_empty() {
        return Ok(Err(format!(
            "table {} is not an outbox of Haulier, it lacks {}: name another table, or move this one away and {remedy}",
            tables.events,
            missing.join(", "),
        )));
    }
    for side in [&tables.sources, &tables.leases, &tables.held_keys, &tables.instances] {
        if self::columns(connection, side).await?.is_empty() {
            return Ok(Err(format!("there is no table {side}: {remedy}")));
        }
    }
    let sql =
        format!("SELECT shards FROM {} WHERE source = ?1 AND table_name = ?2", tables.sources);
    let registered: Option<i32> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&config.source)
        .bind(&tables.events)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(shards) = registered else {
        return Ok(Err(format!(
            "source '{}' is not registered for table {}: {remedy}; if the source was renamed, change its name in {}, {} and {} as well",
            config.source, tables.events, tables.sources, tables.leases, tables.held_keys,
        )));
    };
    let whole_lane_index: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1)",
    )
    .bind(tables.name.index("haulier_lane"))
    .fetch_one(&mut *connection)
    .await?;
    Ok(Ok(Found { shards, whole_lane_index }))
}

/// The columns of a table or view, whose name is given as SQL; none if there is no such table.
pub(super) async fn columns(
    connection: &mut Connection,
    table: &str,
) -> Result<Vec<String>, sqlx::Error> {
    // Unlike table_info, table_xinfo lists generated columns too.
    let sql = format!("PRAGMA table_xinfo({table})");
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get("name")).collect()
}
