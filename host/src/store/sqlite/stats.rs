//! How a lane stands, and retention.
//!
//! Called by the store for metrics, readiness and retention. Counts are bounded, and deletion is by
//! small batches of rows in state PUBLISHED only.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::events::{Due, Statements};
use super::{Connection, NOW, millis, sql_limit};
use crate::event::{LaneName, Ordering};
use crate::store::{LaneStats, STATS_COUNT_LIMIT};

pub(super) async fn stats(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    ordering: Ordering,
) -> Result<LaneStats, sqlx::Error> {
    let tables = &statements.tables;
    let now = super::now(connection).await?;
    let counted = |status: &str| {
        format!(
            "(SELECT count(*) FROM (SELECT 1 FROM {} WHERE lane = ?2 AND status = '{status}' \
              LIMIT {STATS_COUNT_LIMIT}))",
            tables.events
        )
    };
    let processing = match ordering {
        Ordering::None => counted("PROCESSING"),
        Ordering::Key | Ordering::Total => format!(
            "(SELECT coalesce(sum(taken), 0) FROM {} WHERE source = ?1 AND lane = ?2 AND expires_at > ?3)",
            tables.leases
        ),
    };
    let sql = format!(
        "SELECT {pending}, {processing}, {failed}, \
           (SELECT count(*) FROM {held} WHERE source = ?1 AND lane = ?2 AND until > ?3), \
           (SELECT coalesce(sum(published), 0) FROM {leases} WHERE source = ?1 AND lane = ?2)",
        pending = counted("PENDING"),
        failed = counted("FAILED"),
        held = tables.held_keys,
        leases = tables.leases,
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(now)
        .fetch_one(&mut *connection)
        .await?;
    let count = |at: usize| row.try_get::<i64, _>(at).map(|n| u64::try_from(n).unwrap_or_default());
    let (pending, processing) = (count(0)?, count(1)?);
    // In leased lanes the rows of a live batch stand as PENDING.
    let pending = match ordering {
        Ordering::None => pending,
        Ordering::Key | Ordering::Total => pending.saturating_sub(processing),
    };
    Ok(LaneStats {
        pending,
        processing,
        failed: count(2)?,
        held_keys: count(3)?,
        oldest_due: oldest_due(connection, statements, lane, ordering, now).await?,
        published: count(4)?,
    })
}

/// Age of the oldest due event that nothing keeps back, from the head of each free shard.
async fn oldest_due(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    ordering: Ordering,
    now: i64,
) -> Result<Option<Duration>, sqlx::Error> {
    let tables = &statements.tables;
    let head = |due: &Due| {
        format!(
            "SELECT max(e.available_at, CAST(e.created_at AS INTEGER)) FROM {} WHERE {} ORDER BY {} LIMIT 1",
            due.from, due.filter, due.order
        )
    };
    let heads = match ordering {
        Ordering::Key => format!(
            // A lane that nobody has opened has no leases.
            "WITH RECURSIVE s(shard) AS \
               (SELECT 0 UNION ALL SELECT shard + 1 FROM s WHERE shard + 1 < {shards}) \
             SELECT ({head}) AS since FROM s LEFT JOIN {leases} l \
               ON l.source = ?1 AND l.lane = ?2 AND l.shard = s.shard \
             WHERE l.token IS NULL OR l.expires_at <= ?3",
            shards = statements.shards,
            head = head(&Due::of_shard(tables, "s.shard")),
            leases = tables.leases,
        ),
        // A lane without order holds no keys.
        Ordering::Total | Ordering::None => {
            format!("SELECT ({}) AS since", head(&Due::of_lane(tables)))
        }
    };
    let sql = format!("SELECT ?3 - min(since) FROM ({heads})");
    let age: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(now)
        .fetch_one(connection)
        .await?;
    Ok(age.map(|age| Duration::from_millis(u64::try_from(age).unwrap_or_default())))
}

pub(super) async fn delete_published(
    connection: &mut Connection,
    statements: &Statements,
    age: Duration,
    limit: usize,
) -> Result<u64, sqlx::Error> {
    let sql = format!(
        "DELETE FROM {events} WHERE status = 'PUBLISHED' AND id IN ( \
           SELECT id FROM {events} WHERE status = 'PUBLISHED' AND published_at < {NOW} - ?1 \
           ORDER BY published_at LIMIT ?2)",
        events = statements.tables.events
    );
    let deleted = sqlx::query(AssertSqlSafe(sql))
        .bind(millis(age))
        .bind(sql_limit(limit))
        .execute(connection)
        .await?;
    Ok(deleted.rows_affected())
}
