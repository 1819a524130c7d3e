//! How a lane stands, and the deletion of published rows.
//!
//! Called by the store for metrics, readiness and retention. Counts are bounded, and deletion is by
//! small batches of rows in state PUBLISHED only.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::events::{CLOCK, KEY_BYTES, Statements, WHOLE_LANE, WHOLE_LANE_KEY, bound, hold};
use super::{Connection, seconds, sql_limit};
use crate::event::{LaneName, Ordering};
use crate::store::{LaneStats, STATS_COUNT_LIMIT};

pub(super) async fn stats(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    ordering: Ordering,
) -> Result<LaneStats, sqlx::Error> {
    let tables = &statements.tables;
    let counted = |status: &str| {
        format!(
            "(SELECT count(*) FROM (SELECT 1 FROM {} WHERE lane = $2 AND status = '{status}' \
              LIMIT {STATS_COUNT_LIMIT}) counted)",
            tables.events
        )
    };
    let processing = match ordering {
        Ordering::None => counted("PROCESSING"),
        Ordering::Key | Ordering::Total => format!(
            "(SELECT coalesce(sum(taken), 0) FROM {} WHERE source = $1 AND lane = $2 \
              AND expires_at > clock_timestamp())",
            tables.leases
        ),
    };
    let sql = format!(
        "SELECT {pending}, {processing}::bigint, {failed}, \
           (SELECT count(*) FROM {held} WHERE source = $1 AND lane = $2 AND until > clock_timestamp()), \
           (SELECT coalesce(sum(published), 0)::bigint FROM {leases} WHERE source = $1 AND lane = $2)",
        pending = counted("PENDING"),
        failed = counted("FAILED"),
        held = tables.held_keys,
        leases = tables.leases,
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .fetch_one(&mut *connection)
        .await?;
    let count = |at: usize| row.try_get::<i64, _>(at).map(|n| u64::try_from(n).unwrap_or_default());
    let (pending, processing) = (count(0)?, count(1)?);
    // In leased lanes the rows of a live batch stand as PENDING.
    let pending = match ordering {
        Ordering::None => pending,
        Ordering::Key | Ordering::Total => pending.saturating_sub(processing),
    };
    let oldest_due = oldest_due(connection, statements, lane, ordering).await?;
    Ok(LaneStats {
        pending,
        processing,
        failed: count(2)?,
        held_keys: count(3)?,
        oldest_due,
        published: count(4)?,
    })
}

/// Age of the oldest due event that nothing keeps back, from the head of each free shard.
async fn oldest_due(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    ordering: Ordering,
) -> Result<Option<Duration>, sqlx::Error> {
    let tables = &statements.tables;
    let head = |of_shard: &str, key: &str, order: &str| {
        format!(
            "SELECT greatest(e.available_at, e.created_at) AS since FROM {} e {} WHERE e.lane = $2 {of_shard} AND e.status = 'PENDING' AND e.available_at <= clock_timestamp() \
               AND (h.until IS NULL OR h.until <= clock_timestamp()) ORDER BY {order} LIMIT 1",
            tables.events,
            hold(&tables.held_keys, key),
        )
    };
    let heads = match ordering {
        Ordering::Key => format!(
            // A lane that nobody has opened has no leases.
            "SELECT d.since FROM generate_series(0, {shards} - 1) s(shard) \
             LEFT JOIN {leases} l ON l.source = $1 AND l.lane = $2 AND l.shard = s.shard \
             CROSS JOIN {CLOCK} CROSS JOIN LATERAL ({head}) d \
             WHERE l.token IS NULL OR l.expires_at <= clock.now",
            shards = statements.shards,
            leases = tables.leases,
            head = head(
                &format!(
                    "AND e.shard = s.shard AND e.id >= coalesce({}, 0)",
                    bound("false", "clock.now")
                ),
                KEY_BYTES,
                "e.lane, e.shard, e.id"
            ),
        ),
        Ordering::Total => head(WHOLE_LANE, WHOLE_LANE_KEY, "e.lane, e.id"),
        Ordering::None => {
            // A lane without order holds no keys.
            head(&format!("{WHOLE_LANE} AND $1::text IS NOT NULL"), "NULL::bytea", "e.lane, e.id")
        }
    };
    let sql = format!(
        "SELECT extract(epoch FROM clock_timestamp() - min(heads.since))::float8 FROM ({heads}) heads"
    );
    let age: Option<f64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .fetch_one(connection)
        .await?;
    Ok(age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()))
}

pub(super) async fn delete_published(
    connection: &mut Connection,
    statements: &Statements,
    age: Duration,
    limit: usize,
) -> Result<u64, sqlx::Error> {
    let sql = format!(
        "DELETE FROM {events} WHERE status = 'PUBLISHED' AND id = ANY(ARRAY( \
           SELECT id FROM {events} WHERE status = 'PUBLISHED' \
             AND published_at < clock_timestamp() - make_interval(secs => $1) \
           ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
        events = statements.tables.events
    );
    let deleted = sqlx::query(AssertSqlSafe(sql))
        .bind(seconds(age))
        .bind(sql_limit(limit))
        .execute(connection)
        .await?;
    Ok(deleted.rows_affected())
}
