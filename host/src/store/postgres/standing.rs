//! How a source stands: heartbeats, leases, lanes that have rows.
//!
//! Called by the store for the relay's heartbeats and for `haulier status`. Everything is bounded, and
//! no statement walks over all rows of the outbox.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row};

use super::events::{CLOCK, Statements};
use super::{Connection, seconds, sql_limit};
use crate::event::{EventId, LaneName, Ordering};
use crate::store::standing::{FORGOTTEN_AFTER, MOST_CLAIMED_ROWS, age};
use crate::store::tables::WHOLE_LANE;
use crate::store::{
    Expiry, HaltedKeys, Heartbeat, InstanceSeen, LaneFound, LeaseStanding, Life, MOST_HALTED_NAMED,
    MOST_INSTANCES, MOST_LANES_FOUND, MOST_LEASES, Part,
};

pub(super) async fn heartbeat(
    connection: &mut Connection,
    statements: &Statements,
    beat: &Heartbeat<'_>,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "WITH forgotten AS (DELETE FROM {instances} WHERE source = $1 AND instance <> $2 \
           AND seen_at < clock_timestamp() - make_interval(secs => $6)) \
         INSERT INTO {instances} (source, instance, started_at, seen_at, stopped_at, report) \
         SELECT $1, $2, clock.now - make_interval(secs => $3), clock.now, CASE WHEN $4 THEN clock.now END, $5 \
         FROM {CLOCK} \
         ON CONFLICT (source, instance) DO UPDATE SET started_at = excluded.started_at, \
           seen_at = excluded.seen_at, stopped_at = excluded.stopped_at, report = excluded.report",
        instances = statements.tables.instances,
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(beat.source)
        .bind(beat.instance)
        .bind(seconds(beat.running_for))
        .bind(beat.life == Life::Stopped)
        .bind(beat.report)
        .bind(seconds(FORGOTTEN_AFTER))
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
        "SELECT instance, {started}, {seen}, {stopped}, report FROM {instances} CROSS JOIN {CLOCK} \
         WHERE source = $1 ORDER BY seen_at DESC, instance LIMIT $2",
        started = millis("clock.now - started_at"),
        seen = millis("clock.now - seen_at"),
        stopped = millis("clock.now - stopped_at"),
        instances = statements.tables.instances,
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

/// An interval in whole milliseconds.
fn millis(interval: &str) -> String {
    format!("(extract(epoch FROM {interval}) * 1000)::bigint")
}

/// Jumps from lane to lane in an index that is led by it.
fn lanes(events: &str, status: &str, order: &str) -> String {
    let first = format!("SELECT e.lane FROM {events} e WHERE e.status = '{status}'");
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
    let mut parts = vec![
        format!("SELECT lane, false FROM {} p", lanes(events, "PENDING", "e.lane, e.shard, e.id")),
        format!("SELECT lane, false FROM {} f", lanes(events, "FAILED", "e.lane, e.id")),
    ];
    // Without the index there were never row claims.
    if statements.row_claims {
        let claimed = lanes(events, "PROCESSING", "e.lane, e.claim_expires_at");
        parts.push(format!("SELECT lane, true FROM {claimed} c"));
    }
    let sql = format!(
        "SELECT lane, bool_or(claimed) FROM ({}) found(lane, claimed) GROUP BY lane LIMIT $1",
        parts.join(" UNION ALL ")
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(sql_limit(MOST_LANES_FOUND))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let ordering = if row.try_get(1)? { Ordering::None } else { Ordering::Key };
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
        "SELECT lane, shard, coalesce(owner, ''), taken::bigint, {left} FROM {leases} CROSS JOIN {CLOCK} \
         WHERE source = $1 AND token IS NOT NULL ORDER BY lane, shard LIMIT $2",
        left = millis("expires_at - clock.now"),
        leases = statements.tables.leases,
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
        "SELECT lane, -1, owner, events, {left} FROM ( \
           SELECT lane, coalesce(claim_owner, '') AS owner, count(*) AS events, min(claim_expires_at) AS expires_at \
           FROM (SELECT e.lane, e.claim_owner, e.claim_token, e.claim_expires_at FROM {events} e \
             WHERE e.status = 'PROCESSING' ORDER BY e.lane, e.claim_expires_at LIMIT $1) claimed \
           GROUP BY lane, claim_owner, claim_token) batches CROSS JOIN {CLOCK} \
         ORDER BY lane, owner, expires_at LIMIT $2",
        left = millis("expires_at - clock.now"),
        events = statements.tables.events,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(sql_limit(MOST_CLAIMED_ROWS))
        .bind(sql_limit(MOST_LEASES))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| standing(row, Part::Rows)).collect()
}

fn standing(row: &sqlx::postgres::PgRow, part: Part) -> Result<LeaseStanding, sqlx::Error> {
    let left: Option<i64> = row.try_get(4)?;
    Ok(LeaseStanding {
        lane: Arc::from(row.try_get::<String, _>(0)?),
        part,
        owner: row.try_get(2)?,
        events: u64::try_from(row.try_get::<i64, _>(3)?).unwrap_or_default(),
        expiry: Expiry::of_millis_left(left.unwrap_or_default()),
    })
}

pub(super) async fn halted_keys(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
) -> Result<HaltedKeys, sqlx::Error> {
    let sql = format!(
        "SELECT count(*), coalesce((array_agg(event_id ORDER BY event_id))[1:{MOST_HALTED_NAMED}], '{{}}') \
         FROM {} WHERE source = $1 AND lane = $2 AND until = 'infinity'",
        statements.tables.held_keys
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .fetch_one(connection)
        .await?;
    let events: Vec<i64> = row.try_get(1)?;
    Ok(HaltedKeys {
        keys: u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or_default(),
        events: events.into_iter().map(EventId).collect(),
    })
}
