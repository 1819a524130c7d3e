//! The tables: the SQL of `migrate`, running it, and finding out what is there.
//!
//! Called by the `migrate` command and when a lane is opened. Never changes a table that exists
//! beyond adding what is missing, and never touches a row of it.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row};

use super::{BEGIN, Connection, NOW};
use crate::store::tables::{Tables, Templates, absent};
use crate::store::{PayloadType, StoreConfig};

/// How long `migrate` tries to put a busy file into write-ahead mode, and how often.
const WAL_LIMIT: Duration = Duration::from_secs(10);
const WAL_PAUSE: Duration = Duration::from_millis(50);

const TEMPLATES: Templates = Templates {
    side_tables: include_str!("../../../migrations/sqlite/side_tables.sql"),
    outbox: include_str!("../../../migrations/sqlite/outbox.sql"),
    lane_index: include_str!("../../../migrations/sqlite/lane_index.sql"),
};

/// The whole migration of one source as SQL that a person can read and run.
pub(super) fn migration_sql(config: &StoreConfig, tables: &Tables) -> String {
    let payload = match config.payload_type {
        PayloadType::Json | PayloadType::Jsonb => {
            "TEXT CHECK (payload IS NULL OR json_valid(payload))"
        }
        PayloadType::Text => "TEXT",
        PayloadType::Bytea => "BLOB",
    };
    let places = [
        ("{now}", NOW),
        ("{payload_column}", payload),
        ("{shard_expression}", &shard_expression(config.shards)),
    ];
    tables.migration(config, &TEMPLATES, &places)
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
    let present = columns(connection, &tables.events).await?;
    let lacking = !present.is_empty() && !present.iter().any(|column| column == "redelivery");
    // SQLite knows no "if not exists" for columns. Two that do this at once: one fails, and says so.
    let upgrade = if lacking {
        format!("ALTER TABLE {} ADD COLUMN redelivery TEXT;", tables.events)
    } else {
        String::new()
    };
    let sql = format!("{BEGIN};\n{upgrade}\n{}\nCOMMIT;", migration_sql(config, tables));
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
            Err(error) if super::classify::is_busy(&error) && started.elapsed() < WAL_LIMIT => {
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
    let columns = columns(connection, &tables.events).await?;
    if columns.is_empty() {
        return Ok(Err(absent(&tables.events)));
    }
    if let Some(problem) = tables.misfit(|name| columns.iter().any(|column| column == name)) {
        return Ok(Err(problem));
    }
    for side in tables.side_tables() {
        if self::columns(connection, side).await?.is_empty() {
            return Ok(Err(absent(side)));
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
        return Ok(Err(tables.unregistered(&config.source)));
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
