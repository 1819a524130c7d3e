//! What operators change: retry, discard, replay, set aside.
//!
//! Called by the store for the operators' desk, in one transaction a call. The rules stand at the top of
//! the desk's contract; which change is for which state is decided there. It never touches an event that
//! may be in the batch of a live lease.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Row};

use super::desk::{STATE, left, state};
use super::events::{CLOCK, Statements};
use super::{Connection, ids};
use crate::event::EventId;
use crate::store::Settle;
use crate::store::desk::{
    AuditId, Change, Changed, DISCARDED, DueIn, EventState, InFlight, Refusal, Wanted, held_back,
    redelivery,
};
use crate::store::tables::WHOLE_LANE;

/// The live batch of a shard reaches up to this id; none where nobody holds it.
type Batches = HashMap<(String, i32), Option<i64>>;

pub(super) async fn change(
    connection: &mut Connection,
    statements: &Statements,
    wanted: &Wanted<'_>,
    audit: AuditId,
) -> Result<Changed, sqlx::Error> {
    let Wanted { source, change, .. } = *wanted;
    limit_waiting(connection).await?;
    let batches = lock_leases(connection, statements, source, wanted.ids).await?;
    let sorted = wanted.sort(lock_rows(connection, statements, wanted, &batches).await?);
    let there = still_there(connection, statements, &sorted.missing).await?;
    let changed = sorted.changed(|id| match there.contains(&id.0) {
        // Somebody else has it locked.
        true => Refusal::InFlight,
        false => Refusal::Gone,
    });
    if changed.done.is_empty() {
        return Ok(changed);
    }
    let done = ids(&changed.done);
    match change {
        Change::Retry | Change::Replay => {
            make_due(connection, statements, change, &sorted.fit, audit).await?;
            touch_holds(connection, statements, source, &done, "UPDATE {held} SET until = now()")
                .await?;
        }
        Change::Discard(why) => {
            discard(connection, statements, &done, why).await?;
            touch_holds(connection, statements, source, &done, "DELETE FROM {held}").await?;
        }
        Change::SetAside => {
            set_aside(connection, statements, &done).await?;
            touch_holds(connection, statements, source, &done, "DELETE FROM {held}").await?;
        }
    }
    forget_bounds(connection, statements, source, &batches, done.iter().min().copied()).await?;
    count(connection, statements, &done, audit).await?;
    Ok(changed)
}

/// While it waits for a lock it keeps leases from relays: not for long.
async fn limit_waiting(connection: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query("SET LOCAL lock_timeout = '2s'").execute(connection).await.map(|_| ())
}

/// Lets go of a key whose event is gone or no longer pending, and has its later events looked at.
pub(super) async fn drop_hold(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    lane: &str,
    key: &str,
) -> Result<bool, sqlx::Error> {
    limit_waiting(connection).await?;
    // Its event is gone, and with it the shard: the lane's leases are locked, and none of its shards may
    // start where the hold was still in force.
    let leases = &statements.tables.leases;
    let lock = format!(
        "SELECT l.lane, l.shard FROM {leases} l WHERE l.source = $1 AND l.lane = $2 ORDER BY l.shard FOR UPDATE"
    );
    let rows = sqlx::query(AssertSqlSafe(lock))
        .bind(source)
        .bind(lane)
        .fetch_all(&mut *connection)
        .await?;
    let mut batches = Batches::new();
    for row in rows {
        batches.insert((row.try_get(0)?, row.try_get(1)?), None);
    }
    let sql = format!(
        "DELETE FROM {held} h WHERE h.source = $1 AND h.lane = $2 AND h.key = convert_to($3, 'UTF8') \
           AND NOT EXISTS (SELECT 1 FROM {events} e WHERE e.id = h.event_id AND e.status = 'PENDING')",
        held = statements.tables.held_keys,
        events = statements.tables.events,
    );
    let dropped = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(lane)
        .bind(key)
        .execute(&mut *connection)
        .await?;
    forget_bounds(connection, statements, source, &batches, None).await?;
    Ok(dropped.rows_affected() > 0)
}

/// Keeps everybody from claiming in these events' shards until the transaction ends.
async fn lock_leases(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    wanted: &[EventId],
) -> Result<Batches, sqlx::Error> {
    // The shards first: locking and DISTINCT do not go together.
    let sql = format!(
        "SELECT l.lane, l.shard, l.token IS NOT NULL AND l.expires_at > clock_timestamp(), l.highest_id \
         FROM {leases} l WHERE l.source = $1 AND (l.lane, l.shard) IN ( \
           SELECT e.lane, s.shard FROM {events} e CROSS JOIN LATERAL (VALUES (e.shard), ({WHOLE_LANE})) s(shard) \
           WHERE e.id = ANY($2)) \
         ORDER BY l.lane, l.shard FOR UPDATE OF l",
        leases = statements.tables.leases,
        events = statements.tables.events,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(ids(wanted))
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let live: Option<bool> = row.try_get(2)?;
            let highest: i64 = row.try_get(3)?;
            let reach = (live == Some(true)).then_some(highest);
            Ok(((row.try_get(0)?, row.try_get(1)?), reach))
        })
        .collect()
}

async fn lock_rows(
    connection: &mut Connection,
    statements: &Statements,
    wanted: &Wanted<'_>,
    batches: &Batches,
) -> Result<Vec<(EventId, EventState, InFlight)>, sqlx::Error> {
    // In a statement of its own, which sees what the last holder of a lease has settled.
    let sql = format!(
        "SELECT e.id, e.lane, e.shard, {STATE}, coalesce(e.claim_expires_at > clock.now, false), \
           h.until IS NOT NULL, {until} FROM {events} e CROSS JOIN {CLOCK} LEFT JOIN LATERAL ( \
             SELECT h.until FROM {held} h WHERE h.source = $2 AND h.event_id = e.id LIMIT 1) h ON true \
         WHERE e.id = ANY($1) ORDER BY e.id FOR UPDATE OF e SKIP LOCKED",
        events = statements.tables.events,
        held = statements.tables.held_keys,
        until = left("h.until"),
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(ids(wanted.ids))
        .bind(wanted.source)
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let id: i64 = row.try_get(0)?;
            let (lane, shard): (String, i32) = (row.try_get(1)?, row.try_get(2)?);
            let claimed: bool = row.try_get(4)?;
            let hold: bool = row.try_get(5)?;
            let until: Option<i64> = row.try_get(6)?;
            let taken = [shard, WHOLE_LANE].into_iter().any(|shard| {
                let batch = batches.get(&(lane.clone(), shard)).copied().flatten();
                batch.is_some_and(|highest| highest >= id)
            });
            let in_flight = if claimed || taken { InFlight::Maybe } else { InFlight::No };
            let state =
                held_back(state(row.try_get(3)?)?, hold.then(|| DueIn::of_millis_left(until)));
            Ok((EventId(id), state, in_flight))
        })
        .collect()
}

/// Which of these there are.
async fn still_there(
    connection: &mut Connection,
    statements: &Statements,
    some: &[EventId],
) -> Result<Vec<i64>, sqlx::Error> {
    if some.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT id FROM {} WHERE id = ANY($1)", statements.tables.events);
    sqlx::query_scalar(AssertSqlSafe(sql)).bind(ids(some)).fetch_all(connection).await
}

async fn make_due(
    connection: &mut Connection,
    statements: &Statements,
    change: &Change,
    fit: &[(EventId, EventState)],
    audit: AuditId,
) -> Result<(), sqlx::Error> {
    let (ids, marks): (Vec<i64>, Vec<Option<String>>) =
        fit.iter().map(|(id, was)| (id.0, redelivery(change, *was, audit))).unzip();
    // `now()` is the transaction's: held keys get the very same moment.
    let sql = format!(
        "UPDATE {events} e SET status = 'PENDING', attempts = 0, available_at = now(), published_at = NULL, \
           claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL, claim_losses = 0, \
           failure_kind = nullif(e.failure_kind, '{DISCARDED}'), redelivery = coalesce(u.mark, e.redelivery) \
         FROM unnest($1::bigint[], $2::text[]) AS u(id, mark) WHERE e.id = u.id",
        events = statements.tables.events,
    );
    sqlx::query(AssertSqlSafe(sql)).bind(ids).bind(marks).execute(connection).await.map(|_| ())
}

async fn discard(
    connection: &mut Connection,
    statements: &Statements,
    done: &[i64],
    why: &str,
) -> Result<(), sqlx::Error> {
    let events = &statements.tables.events;
    match statements.settle {
        Settle::Delete => {
            let sql = format!("DELETE FROM {events} WHERE id = ANY($1)");
            sqlx::query(AssertSqlSafe(sql)).bind(done).execute(connection).await
        }
        Settle::Mark => {
            let sql = format!(
                "UPDATE {events} SET status = 'PUBLISHED', published_at = clock_timestamp(), last_error = $2, \
                   failure_kind = '{DISCARDED}', failure_plugin = NULL, failure_version = NULL, failure_hash = NULL, \
                   claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL WHERE id = ANY($1)"
            );
            sqlx::query(AssertSqlSafe(sql)).bind(done).bind(why).execute(connection).await
        }
    }
    .map(|_| ())
}

async fn set_aside(
    connection: &mut Connection,
    statements: &Statements,
    done: &[i64],
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET status = 'FAILED', claim_losses = 0 WHERE id = ANY($1)",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql)).bind(done).execute(connection).await.map(|_| ())
}

/// Runs `sql` on the holds that name these events.
async fn touch_holds(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    done: &[i64],
    sql: &str,
) -> Result<(), sqlx::Error> {
    let sql = sql.replace("{held}", &statements.tables.held_keys)
        + " WHERE source = $1 AND event_id = ANY($2)";
    sqlx::query(AssertSqlSafe(sql)).bind(source).bind(done).execute(connection).await.map(|_| ())
}

/// What is due now may lie below what these shards' looks start from; `lowest` is the lowest of it. The mark
/// stays: nothing can appear below it but by such a change, which locks the lease as a look does.
async fn forget_bounds(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    batches: &Batches,
    lowest: Option<i64>,
) -> Result<(), sqlx::Error> {
    let (lanes, shards): (Vec<&str>, Vec<i32>) =
        batches.keys().map(|(lane, shard)| (lane.as_str(), *shard)).unzip();
    let sql = format!(
        "UPDATE {leases} l SET floor_id = least(l.floor_id, $4), seen_id = 0, next_due_at = NULL \
         FROM unnest($2::text[], $3::int[]) AS u(lane, shard) \
         WHERE l.source = $1 AND l.lane = u.lane AND l.shard = u.shard",
        leases = statements.tables.leases,
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(lanes)
        .bind(shards)
        .bind(lowest)
        .execute(connection)
        .await
        .map(|_| ())
}

async fn count(
    connection: &mut Connection,
    statements: &Statements,
    done: &[i64],
    audit: AuditId,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET events = events + $2, lowest_id = least(lowest_id, $3), \
           highest_id = greatest(highest_id, $4) WHERE id = $1",
        statements.tables.audit
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(audit.0)
        .bind(i64::try_from(done.len()).unwrap_or(i64::MAX))
        .bind(done.iter().min())
        .bind(done.iter().max())
        .execute(connection)
        .await
        .map(|_| ())
}
