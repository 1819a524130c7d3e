//! What operators change: retry, discard, replay, set aside.
//!
//! Called by the store for the operators' desk, in one transaction a call, which has the file to itself.
//! The rules stand at the top of the desk's contract; which change is for which state is decided there. It
//! never touches an event that may be in the batch of a live lease. There are no bounds to forget here.

use sqlx::{AssertSqlSafe, Row};

use super::desk::{state, state_at};
use super::events::{Statements, list};
use super::{Connection, FAR, ids};
use crate::event::EventId;
use crate::store::Settle;
use crate::store::desk::{
    AuditId, Change, Changed, DISCARDED, DueIn, EventState, InFlight, Refusal, Wanted, held_back,
    redelivery,
};

pub(super) async fn change(
    connection: &mut Connection,
    statements: &Statements,
    wanted: &Wanted<'_>,
    audit: AuditId,
) -> Result<Changed, sqlx::Error> {
    let Wanted { source, change, .. } = *wanted;
    let now = super::now(connection).await?;
    let sorted = wanted.sort(look_at(connection, statements, source, wanted.ids, now).await?);
    let changed = sorted.changed(|_| Refusal::Gone);
    if changed.done.is_empty() {
        return Ok(changed);
    }
    let done = ids(&changed.done);
    match change {
        Change::Retry | Change::Replay => {
            make_due(connection, statements, change, &sorted.fit, audit, now).await?;
            let until = format!("UPDATE {{held}} SET until = {now}");
            touch_holds(connection, statements, source, &done, &until).await?;
        }
        Change::Discard(why) => {
            discard(connection, statements, &done, why, now).await?;
            touch_holds(connection, statements, source, &done, "DELETE FROM {held}").await?;
        }
        Change::SetAside => {
            set_aside(connection, statements, &done).await?;
            touch_holds(connection, statements, source, &done, "DELETE FROM {held}").await?;
        }
    }
    count(connection, statements, &done, audit).await?;
    Ok(changed)
}

async fn look_at(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    wanted: &[EventId],
    now: i64,
) -> Result<Vec<(EventId, EventState, InFlight)>, sqlx::Error> {
    let sql = format!(
        "SELECT e.id, {state}, coalesce(e.claim_expires_at > ?3, 0) OR EXISTS (SELECT 1 FROM {leases} l \
           WHERE l.source = ?1 AND l.lane = e.lane AND l.shard IN (e.shard, -1) AND l.token IS NOT NULL \
             AND l.expires_at > ?3 AND l.highest_id >= e.id), \
           h.event_id IS NOT NULL, CASE WHEN h.until < {FAR} THEN max(0, h.until - ?3) END \
         FROM {events} e LEFT JOIN {held} h ON h.source = ?1 AND h.event_id = e.id \
         WHERE e.id IN (SELECT value FROM json_each(?2)) GROUP BY e.id ORDER BY e.id",
        state = state_at(now),
        held = statements.tables.held_keys,
        leases = statements.tables.leases,
        events = statements.tables.events,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(list(&ids(wanted)))
        .bind(now)
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let in_flight = if row.try_get(2)? { InFlight::Maybe } else { InFlight::No };
            let hold: bool = row.try_get(3)?;
            let until: Option<i64> = row.try_get(4)?;
            let state =
                held_back(state(row.try_get(1)?)?, hold.then(|| DueIn::of_millis_left(until)));
            Ok((EventId(row.try_get(0)?), state, in_flight))
        })
        .collect()
}

async fn make_due(
    connection: &mut Connection,
    statements: &Statements,
    change: &Change,
    states: &[(EventId, EventState)],
    audit: AuditId,
    now: i64,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET status = 'PENDING', attempts = 0, available_at = ?2, published_at = NULL, \
           claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL, claim_losses = 0, \
           failure_kind = nullif(failure_kind, '{DISCARDED}'), redelivery = coalesce(?3, redelivery) WHERE id = ?1",
        statements.tables.events,
    );
    for (id, was) in states {
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(id.0)
            .bind(now)
            .bind(redelivery(change, *was, audit))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn discard(
    connection: &mut Connection,
    statements: &Statements,
    done: &[i64],
    why: &str,
    now: i64,
) -> Result<(), sqlx::Error> {
    let events = &statements.tables.events;
    let these = "id IN (SELECT value FROM json_each(?1))";
    match statements.settle {
        Settle::Delete => {
            let sql = format!("DELETE FROM {events} WHERE {these}");
            sqlx::query(AssertSqlSafe(sql)).bind(list(done)).execute(connection).await
        }
        Settle::Mark => {
            let sql = format!(
                "UPDATE {events} SET status = 'PUBLISHED', published_at = ?2, last_error = ?3, \
                   failure_kind = '{DISCARDED}', failure_plugin = NULL, failure_version = NULL, failure_hash = NULL, \
                   claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL WHERE {these}"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(list(done))
                .bind(now)
                .bind(why)
                .execute(connection)
                .await
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
        "UPDATE {} SET status = 'FAILED', claim_losses = 0 \
         WHERE id IN (SELECT value FROM json_each(?1))",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql)).bind(list(done)).execute(connection).await.map(|_| ())
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
        + " WHERE source = ?1 AND event_id IN (SELECT value FROM json_each(?2))";
    sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(list(done))
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
        "UPDATE {} SET events = events + ?2, lowest_id = min(coalesce(lowest_id, ?3), ?3), \
           highest_id = max(coalesce(highest_id, ?4), ?4) WHERE id = ?1",
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
