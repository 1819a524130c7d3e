//! How a source stands: heartbeats, leases, lanes that have rows.
//!
//! Called by the store for the relay's heartbeats and for `haulier status`. Everything is bounded, and
//! no statement walks over all rows of the outbox.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row};

use super::events::Statements;
use super::{Connection, FAR, NOW, millis, sql_limit};
use crate::event::{EventId, LaneName, Ordering};
use crate::store::standing::{FORGOTTEN_AFTER, MOST_CLAIMED_ROWS, age};
use crate::store::tables::WHOLE_LANE;
use crate::store::{
    Expiry, HaltedKeys, Heartbeat, InstanceSeen, LaneFound, LeaseStanding, Life, MOST_HALTED_NAMED,
    MOST_INSTANCES, MOST_LANES_FOUND, MOST_LEASES, Part,
};

/// Runs in a transaction that may write.
pub(super) async fn heartbeat(
    connection: &mut Connection,
    statements: &Statements,
    beat: &Heartbeat<'_>,
) -> Result<(), sqlx::Error> {
    let instances = &statements.tables.instances;
    let now = super::now(connection).await?;
    let sql = format!(
        "INSERT INTO {instances} (source, instance, started_at, seen_at, stopped_at, report) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (source, instance) DO UPDATE SET started_at = excluded.started_at, \
           seen_at = excluded.seen_at, stopped_at = excluded.stopped_at, report = excluded.report"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(beat.source)
        .bind(beat.instance)
        .bind(now.saturating_sub(millis(beat.running_for)))
        .bind(now)
        .bind((beat.life == Life::Stopped).then_some(now))
        .bind(beat.report)
        .execute(&mut *connection)
        .await?;
    let sql = format!("DELETE FROM {instances} WHERE source = ?1 AND seen_at < ?2");
    sqlx::query(AssertSqlSafe(sql))
        .bind(beat.source)
        .bind(now.saturating_sub(millis(FORGOTTEN_AFTER)))
        .execute(connection)
        .await
        .map(|_| ())
}

pub(super) async fn instances(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
) -> Result<Vec<InstanceSeen>, sqlx::Error> {
    let sql = format!(
        "SELECT instance, {NOW} - started_at, {NOW} - seen_at, {NOW} - stopped_at, report FROM {} \
         WHERE source = ?1 ORDER BY seen_at DESC, instance LIMIT ?2",
        statements.tables.instances,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(sql_limit(MOST_INSTANCES))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(InstanceSeen {
                instance: row.try_get(0)?,
                started_ago: age(row.try_get(1)?),
                seen_ago: age(row.try_get(2)?),
                stopped_ago: row.try_get::<Option<i64>, _>(3)?.map(age),
                report: row.try_get(4)?,
            })
        })
        .collect()
}

/// Jumps from lane to lane in an index that is led by it. What is no text is no lane's name.
fn lanes(events: &str, status: &str, order: &str) -> String {
    let first = format!(
        "SELECT e.lane FROM {events} e WHERE e.status = '{status}' AND typeof(e.lane) = 'text'"
    );
    format!(
        "(WITH RECURSIVE found(lane) AS ( \
            SELECT ({first} ORDER BY {order} LIMIT 1) \
            UNION ALL \
            SELECT ({first} AND e.lane > found.lane ORDER BY {order} LIMIT 1) FROM found \
            WHERE found.lane IS NOT NULL) \
          SELECT lane FROM found WHERE lane IS NOT NULL LIMIT {MOST_LANES_FOUND})"
    )
}

pub(super) async fn lanes_with_rows(
    connection: &mut Connection,
    statements: &Statements,
) -> Result<Vec<LaneFound>, sqlx::Error> {
    let events = &statements.tables.events;
    let pending = lanes(events, "PENDING", "e.lane, e.shard, e.id");
    let mut parts = vec![
        format!("SELECT lane, 0 AS claimed FROM {pending}"),
        format!("SELECT lane, 0 FROM {}", lanes(events, "FAILED", "e.lane, e.id")),
    ];
    // Without the index there were never row claims.
    if statements.row_claims {
        let claimed = lanes(events, "PROCESSING", "e.lane, e.claim_expires_at");
        parts.push(format!("SELECT lane, 1 FROM {claimed}"));
    }
    let sql = format!(
        "SELECT lane, max(claimed) FROM ({}) GROUP BY lane LIMIT ?1",
        parts.join(" UNION ALL ")
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(sql_limit(MOST_LANES_FOUND))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let claimed = row.try_get::<i64, _>(1)? != 0;
            let ordering = if claimed { Ordering::None } else { Ordering::Key };
            Ok(LaneFound { lane: row.try_get::<String, _>(0)?.into(), ordering })
        })
        .collect()
}

pub(super) async fn leases(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
) -> Result<Vec<LeaseStanding>, sqlx::Error> {
    let sql = format!(
        "SELECT lane, shard, coalesce(owner, ''), taken, coalesce(expires_at, 0) - {NOW} FROM {} \
         WHERE source = ?1 AND token IS NOT NULL ORDER BY lane, shard LIMIT ?2",
        statements.tables.leases,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(sql_limit(MOST_LEASES))
        .fetch_all(&mut *connection)
        .await?;
    let mut found = Vec::new();
    for row in rows {
        let shard: i32 = row.try_get(1)?;
        let part = if shard == WHOLE_LANE { Part::Lane } else { Part::Shard(shard) };
        found.push(standing(&row, part)?);
    }
    if statements.row_claims {
        found.extend(row_claims(connection, statements).await?);
    }
    Ok(found)
}

/// Row claims, one entry per batch.
async fn row_claims(
    connection: &mut Connection,
    statements: &Statements,
) -> Result<Vec<LeaseStanding>, sqlx::Error> {
    let sql = format!(
        "SELECT CAST(lane AS TEXT), -1, coalesce(claim_owner, ''), count(*), coalesce(min(claim_expires_at), 0) - {NOW} \
         FROM (SELECT e.lane, e.claim_owner, e.claim_token, e.claim_expires_at FROM {} e \
           WHERE e.status = 'PROCESSING' ORDER BY e.lane, e.claim_expires_at LIMIT ?1) \
         GROUP BY lane, claim_owner, claim_token \
         ORDER BY lane, claim_owner, min(claim_expires_at) LIMIT ?2",
        statements.tables.events,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(sql_limit(MOST_CLAIMED_ROWS))
        .bind(sql_limit(MOST_LEASES))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| standing(row, Part::Rows)).collect()
}

fn standing(row: &sqlx::sqlite::SqliteRow, part: Part) -> Result<LeaseStanding, sqlx::Error> {
    Ok(LeaseStanding {
        lane: Arc::from(row.try_get::<String, _>(0)?),
        part,
        owner: row.try_get(2)?,
        events: u64::try_from(row.try_get::<i64, _>(3)?).unwrap_or_default(),
        expiry: Expiry::of_millis_left(row.try_get(4)?),
    })
}

pub(super) async fn halted_keys(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
) -> Result<HaltedKeys, sqlx::Error> {
    let halted = format!(
        "FROM {} WHERE source = ?1 AND lane = ?2 AND until >= {FAR}",
        statements.tables.held_keys
    );
    let keys: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) {halted}")))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .fetch_one(&mut *connection)
        .await?;
    let sql = format!("SELECT event_id {halted} ORDER BY event_id LIMIT {MOST_HALTED_NAMED}");
    let events: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .fetch_all(connection)
        .await?;
    Ok(HaltedKeys {
        keys: u64::try_from(keys).unwrap_or_default(),
        events: events.into_iter().map(EventId).collect(),
    })
}
