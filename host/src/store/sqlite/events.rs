//! The statements that more than one module needs, and rows as events.
//!
//! Used by the claim, settle and stats modules. A row that cannot be used is still returned, with
//! the reason as its defect: one bad row never fails a batch. SQLite lets any value stand in any
//! column, so every column is read as bytes first.

use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row};

use super::Connection;
use super::schema::Found;
use crate::event::{Event, EventId, LaneName};
use crate::json;
use crate::store::Settle;
use crate::store::tables::Tables;

/// What is known of one source's tables.
pub(super) struct Statements {
    pub(super) tables: Tables,
    pub(super) settle: Settle,
    /// Whether rows may stand under row claims, and the index to find them is there.
    pub(super) row_claims: bool,
    /// Shards of a lane.
    pub(super) shards: i32,
}

impl Statements {
    pub(super) fn new(tables: &Tables, found: &Found, settle: Settle) -> Self {
        Self {
            tables: tables.clone(),
            settle,
            row_claims: found.whole_lane_index,
            shards: found.shards,
        }
    }
}

/// The ordering key, as bytes to compare. NULL is no key, and nothing holds it.
pub(super) const KEY_BYTES: &str = "CAST(coalesce(e.partition_key, e.aggregate_id) AS BLOB)";

/// The ordering key of a lane that is one order as a whole.
pub(super) const WHOLE_LANE_KEY: &str = "x''";

/// Pending events of one order of lane `?2` that are due at `?3` and that no held key keeps back.
/// `shard` limits them to a shard, or is empty for the whole lane, which has an index of its own.
pub(super) struct Due {
    /// What follows FROM.
    pub(super) from: String,
    /// The condition.
    pub(super) filter: String,
    /// The order that the index gives.
    pub(super) order: &'static str,
}

impl Due {
    /// Due events of the shard that `shard` names in SQL.
    pub(super) fn of_shard(tables: &Tables, shard: &str) -> Self {
        Self::new(tables, "haulier_due", KEY_BYTES, &format!("AND e.shard = {shard}"), "e.id")
    }

    /// Due events of a lane that is one order.
    pub(super) fn of_lane(tables: &Tables) -> Self {
        Self::new(tables, "haulier_lane", WHOLE_LANE_KEY, "", "e.id")
    }

    fn new(tables: &Tables, index: &str, key: &str, shard: &str, order: &'static str) -> Self {
        Self {
            from: format!(
                "{events} e INDEXED BY {index} LEFT JOIN {held} h \
                   ON h.source = ?1 AND h.lane = ?2 AND h.key = {key}",
                events = tables.events,
                index = tables.index(index),
                held = tables.held_keys,
            ),
            filter: format!(
                "e.lane = ?2 {shard} AND e.status = 'PENDING' AND e.available_at <= ?3 \
                   AND (h.until IS NULL OR h.until <= ?3)"
            ),
            order,
        }
    }
}

/// Payload bytes of a row, without reading them.
pub(super) const SIZE: &str = "coalesce(octet_length(e.payload), 0)";

/// A list of numbers as the one value that a statement can take a list in.
pub(super) fn list(numbers: &[i64]) -> String {
    let mut text = String::from("[");
    for (at, number) in numbers.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&number.to_string());
    }
    text.push(']');
    text
}

/// A list of shards in the same form.
pub(super) fn shard_list(shards: &[i32]) -> String {
    list(&shards.iter().map(|shard| i64::from(*shard)).collect::<Vec<_>>())
}

/// Reads whole events by id, in id order. Their shard is the row's.
pub(super) async fn read(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    now: i64,
    ids: &[i64],
) -> Result<Vec<Event>, sqlx::Error> {
    let sql = format!(
        "SELECT e.id, e.shard, CAST(e.aggregate_type AS BLOB), CAST(e.aggregate_id AS BLOB), \
           CAST(e.event_type AS BLOB), CAST(e.partition_key AS BLOB), CAST(e.topic AS BLOB), \
           CAST(e.headers AS BLOB), CAST(e.payload AS BLOB), CAST(e.attempts AS INTEGER), \
           CAST(e.created_at AS INTEGER), max(0, ?3 - max(e.available_at, CAST(e.created_at AS INTEGER))), \
           EXISTS (SELECT 1 FROM {held} h WHERE h.source = ?1 AND h.event_id = e.id), \
           CAST(e.redelivery AS BLOB) \
         FROM json_each(?2) j CROSS JOIN {events} e ON e.id = j.value ORDER BY e.id",
        events = statements.tables.events,
        held = statements.tables.held_keys,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(list(ids))
        .bind(now)
        .fetch_all(connection)
        .await?;
    rows.iter().map(event).collect()
}

/// Pending rows of a lane in id order, due or not.
pub(super) async fn peek(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    now: i64,
    limit: usize,
) -> Result<Vec<Event>, sqlx::Error> {
    let sql = format!(
        "SELECT id FROM {} WHERE lane = ?1 AND status = 'PENDING' ORDER BY id LIMIT ?2",
        statements.tables.events
    );
    let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.lane)
        .bind(super::sql_limit(limit))
        .fetch_all(&mut *connection)
        .await?;
    read(connection, statements, &lane.source, now, &ids).await
}

fn event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let mut defect = None;
    let mut text = |at: usize, name: &str| -> Result<Option<String>, sqlx::Error> {
        let Some(bytes) = row.try_get::<Option<Vec<u8>>, _>(at)? else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8(bytes).unwrap_or_else(|error| {
            defect = Some(format!("column {name} is not UTF-8"));
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        })))
    };
    let aggregate_type = text(2, "aggregate_type")?.unwrap_or_default();
    let aggregate_id = text(3, "aggregate_id")?;
    let event_type = text(4, "event_type")?.unwrap_or_default();
    let partition_key = text(5, "partition_key")?;
    let topic = text(6, "topic")?;
    let redelivery = text(13, "redelivery")?;
    let headers = match text(7, "headers")?.as_deref().map(json::headers) {
        None => Vec::new(),
        Some(Ok(headers)) => headers,
        Some(Err(problem)) => {
            defect = Some(problem);
            Vec::new()
        }
    };
    let waited: i64 = row.try_get(11)?;
    Ok(Event {
        id: EventId(row.try_get(0)?),
        shard: row.try_get(1)?,
        aggregate_type,
        aggregate_id,
        event_type,
        partition_key,
        topic,
        headers,
        payload: row.try_get::<Option<Vec<u8>>, _>(8)?.map(Bytes::from),
        attempts: u32::try_from(row.try_get::<i64, _>(9)?).unwrap_or_default(),
        created_at_ms: row.try_get(10)?,
        waited: Duration::from_millis(u64::try_from(waited).unwrap_or_default()),
        redelivery,
        holds_key: row.try_get(12)?,
        defect,
    })
}
