//! Settling: one transaction that writes what became of a batch and lets its claim go.
//!
//! Called by the store for both kinds of claim. Writes by exact id and only what is still under the
//! caller's token; decides nothing itself.

use std::collections::HashSet;

use sqlx::AssertSqlSafe;

use super::events::{Statements, list, shard_list};
use super::{Connection, FAR, ids, millis};
use crate::event::{LaneName, Ordering};
use crate::store::plan::{Due, Plan};
use crate::store::{BatchClaim, Settle, Settled, Settlement};

pub(super) async fn settle(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
    settlements: &[Settlement],
) -> Result<Settled, sqlx::Error> {
    let (owned, lost): (Vec<&Settlement>, Vec<&Settlement>);
    let mut settled = Settled::default();
    match batch.ordering {
        Ordering::None => {
            let rows = owned_rows(connection, statements, batch).await?;
            (owned, lost) = settlements.iter().partition(|one| rows.contains(&one.id.0));
            settled.lost_claims = lost.len();
            if !lost.is_empty() {
                forget_losses(connection, statements, &lost).await?;
            }
        }
        Ordering::Key | Ordering::Total => {
            let shards = owned_shards(connection, statements, lane, batch).await?;
            (owned, lost) =
                settlements.iter().partition(|one| shards.contains(&i64::from(one.shard)));
            settled.lost_claims = batch.shards.len() - shards.len();
            if settled.lost_claims > 0 {
                clear_suspicion(connection, statements, lane, batch).await?;
            }
        }
    }
    settled.lost = lost.iter().map(|one| one.id).collect();
    // Events and held keys get the very same moment.
    let now = super::now(connection).await?;
    let plan = Plan::of(&owned, batch.ordering);
    publish(connection, statements, &plan, now).await?;
    defer(connection, statements, &plan, now).await?;
    if batch.ordering == Ordering::None {
        release_rows(connection, statements, &plan).await?;
    } else {
        hold_keys(connection, statements, lane, &plan, now).await?;
        release_leases(connection, statements, lane, batch, &plan).await?;
    }
    Ok(settled)
}

async fn owned_rows(
    connection: &mut Connection,
    statements: &Statements,
    batch: &BatchClaim,
) -> Result<HashSet<i64>, sqlx::Error> {
    let sql = format!(
        "SELECT id FROM {} WHERE id IN (SELECT value FROM json_each(?1)) AND claim_token = ?2 \
           AND status = 'PROCESSING'",
        statements.tables.events
    );
    let rows = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(list(&ids(&batch.rows)))
        .bind(batch.token.as_uuid())
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().collect())
}

async fn owned_shards(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
) -> Result<HashSet<i64>, sqlx::Error> {
    let sql = format!(
        "SELECT shard FROM {} WHERE source = ?1 AND lane = ?2 \
           AND shard IN (SELECT value FROM json_each(?3)) AND token = ?4",
        statements.tables.leases
    );
    let rows = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(shard_list(&batch.shards))
        .bind(batch.token.as_uuid())
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().collect())
}

/// We are alive, so the loss of our lease says nothing against its events.
async fn clear_suspicion(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET losses = 0, lost_token = NULL, suspect_id = NULL, suspect_limit = NULL, \
           alone_id = NULL, alone_losses = 0 WHERE source = ?1 AND lane = ?2 \
           AND shard IN (SELECT value FROM json_each(?3)) AND lost_token = ?4",
        statements.tables.leases
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(shard_list(&batch.shards))
        .bind(batch.token.as_uuid())
        .execute(connection)
        .await
        .map(|_| ())
}

/// The same for rows: whoever took them over counted a loss that was none.
async fn forget_losses(
    connection: &mut Connection,
    statements: &Statements,
    lost: &[&Settlement],
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET claim_losses = max(claim_losses - 1, 0) \
         WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'PROCESSING'",
        statements.tables.events
    );
    let lost: Vec<i64> = lost.iter().map(|one| one.id.0).collect();
    sqlx::query(AssertSqlSafe(sql)).bind(list(&lost)).execute(connection).await.map(|_| ())
}

/// A row that someone else has settled meanwhile (FAILED or PUBLISHED by hand) is left alone.
const STILL: &str = "status IN ('PENDING', 'PROCESSING')";

async fn publish(
    connection: &mut Connection,
    statements: &Statements,
    plan: &Plan<'_>,
    now: i64,
) -> Result<(), sqlx::Error> {
    if plan.done.is_empty() {
        return Ok(());
    }
    let events = &statements.tables.events;
    let done: Vec<i64> = plan.done.iter().map(|done| done.id).collect();
    let these = format!("id IN (SELECT value FROM json_each(?1)) AND {STILL}");
    if statements.settle == Settle::Delete {
        let sql = format!("DELETE FROM {events} WHERE {these}");
        return sqlx::query(AssertSqlSafe(sql))
            .bind(list(&done))
            .execute(connection)
            .await
            .map(|_| ());
    }
    // Reasons first: after the second statement the rows are no longer waiting.
    for (id, reason) in plan.done.iter().filter_map(|done| Some((done.id, done.reason.as_ref()?))) {
        let sql = format!("UPDATE {events} SET last_error = ?2 WHERE id = ?1 AND {STILL}");
        sqlx::query(AssertSqlSafe(sql)).bind(id).bind(reason).execute(&mut *connection).await?;
    }
    let dropped = plan.done.iter().filter(|done| done.reason.is_some()).map(|done| done.id);
    let sql = format!(
        "UPDATE {events} SET status = 'PUBLISHED', published_at = ?2, claim_owner = NULL, \
           claim_token = NULL, claim_expires_at = NULL, \
           last_error = CASE WHEN id IN (SELECT value FROM json_each(?3)) THEN last_error END \
         WHERE {these}"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(list(&done))
        .bind(now)
        .bind(list(&dropped.collect::<Vec<_>>()))
        .execute(connection)
        .await
        .map(|_| ())
}

/// When something put off at `now` is due; `None` leaves it as it is.
fn due_at(due: Due, now: i64) -> Option<i64> {
    match due {
        Due::After(after) => Some(now.saturating_add(millis(after)).min(FAR)),
        Due::Never => Some(FAR),
        Due::Unchanged => None,
    }
}

async fn defer(
    connection: &mut Connection,
    statements: &Statements,
    plan: &Plan<'_>,
    now: i64,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET status = ?2, attempts = attempts + ?3, available_at = coalesce(?4, available_at), \
           last_error = ?5, failure_kind = ?6, failure_plugin = ?7, failure_version = ?8, \
           failure_hash = ?9, claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL, \
           claim_losses = 0 WHERE id = ?1 AND {STILL}",
        statements.tables.events,
    );
    for one in &plan.deferred {
        let plugin = one.failure.plugin.as_deref();
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(one.id)
            .bind(one.status)
            .bind(one.attempts)
            .bind(due_at(one.due, now))
            .bind(&one.failure.message)
            .bind(one.failure.cause.code())
            .bind(plugin.map(|plugin| plugin.name.as_str()))
            .bind(plugin.map(|plugin| plugin.version.as_str()))
            .bind(plugin.map(|plugin| plugin.hash.as_str()))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn release_rows(
    connection: &mut Connection,
    statements: &Statements,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    if plan.released.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "UPDATE {} SET status = 'PENDING', claim_owner = NULL, claim_token = NULL, \
           claim_expires_at = NULL, claim_losses = 0 WHERE id IN (SELECT value FROM json_each(?1))",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql)).bind(list(&plan.released)).execute(connection).await.map(|_| ())
}

async fn hold_keys(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    plan: &Plan<'_>,
    now: i64,
) -> Result<(), sqlx::Error> {
    let held = &statements.tables.held_keys;
    if !plan.let_go.is_empty() {
        let sql = format!(
            "DELETE FROM {held} WHERE source = ?1 AND event_id IN (SELECT value FROM json_each(?2))"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(&*lane.source)
            .bind(list(&plan.let_go))
            .execute(&mut *connection)
            .await?;
    }
    let sql = format!(
        "INSERT INTO {held} (source, lane, key, until, event_id, reason, held_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (source, lane, key) DO UPDATE SET until = excluded.until, \
           event_id = excluded.event_id, reason = excluded.reason, held_at = excluded.held_at"
    );
    for hold in &plan.holds {
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&*lane.source)
            .bind(&*lane.lane)
            .bind(hold.key)
            .bind(due_at(hold.due, now))
            .bind(hold.id)
            .bind(hold.reason)
            .bind(now)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn release_leases(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    // Having passed the suspect id without dying, the shard is beyond suspicion.
    let passed = "highest_id >= suspect_id";
    let sql = format!(
        "UPDATE {leases} SET token = NULL, owner = NULL, expires_at = NULL, taken = 0, \
           published = published + ?5, \
           losses = CASE WHEN {passed} THEN 0 ELSE losses END, \
           suspect_limit = CASE WHEN {passed} THEN NULL ELSE suspect_limit END, \
           alone_id = CASE WHEN {passed} THEN NULL ELSE alone_id END, \
           alone_losses = CASE WHEN {passed} THEN 0 ELSE alone_losses END, \
           suspect_id = CASE WHEN {passed} THEN NULL ELSE suspect_id END \
         WHERE source = ?1 AND lane = ?2 AND shard = ?3 AND token = ?4",
        leases = statements.tables.leases,
    );
    for shard in &batch.shards {
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&*lane.source)
            .bind(&*lane.lane)
            .bind(shard)
            .bind(batch.token.as_uuid())
            .bind(plan.published.get(shard).copied().unwrap_or_default())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
