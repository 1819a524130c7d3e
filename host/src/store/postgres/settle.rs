//! Settling: one transaction that writes what became of a batch and lets its claim go.
//!
//! Called by the store for both kinds of claim. Writes by exact id and only what is still under the
//! caller's token; decides nothing itself.

use std::collections::HashSet;

use sqlx::AssertSqlSafe;

use super::events::Statements;
use super::{Connection, ids, seconds};
use crate::event::{LaneName, Ordering};
use crate::failure::PluginStamp as Blamed;
use crate::store::plan::{Deferred, Due, Plan};
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
            (owned, lost) = settlements.iter().partition(|one| shards.contains(&one.shard));
            settled.lost_claims = batch.shards.len() - shards.len();
            if settled.lost_claims > 0 {
                clear_suspicion(connection, statements, lane, batch).await?;
            }
        }
    }
    settled.lost = lost.iter().map(|one| one.id).collect();
    let plan = Plan::of(&owned, batch.ordering);
    publish(connection, statements, &plan).await?;
    defer(connection, statements, &plan).await?;
    if batch.ordering == Ordering::None {
        release_rows(connection, statements, &plan).await?;
    } else {
        hold_keys(connection, statements, lane, &plan).await?;
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
        "SELECT id FROM {} WHERE id = ANY($1) AND claim_token = $2 AND status = 'PROCESSING' \
         ORDER BY id FOR UPDATE",
        statements.tables.events
    );
    let rows = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(ids(&batch.rows))
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
) -> Result<HashSet<i32>, sqlx::Error> {
    let sql = format!(
        "SELECT shard FROM {} WHERE source = $1 AND lane = $2 AND shard = ANY($3) AND token = $4 \
         ORDER BY shard FOR UPDATE",
        statements.tables.leases
    );
    let rows = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&batch.shards)
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
           alone_id = NULL, alone_losses = 0 \
         WHERE source = $1 AND lane = $2 AND shard = ANY($3) AND lost_token = $4",
        statements.tables.leases
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&batch.shards)
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
        "UPDATE {} SET claim_losses = greatest(claim_losses - 1, 0) \
         WHERE id = ANY($1) AND status = 'PROCESSING'",
        statements.tables.events
    );
    let lost: Vec<i64> = lost.iter().map(|one| one.id.0).collect();
    sqlx::query(AssertSqlSafe(sql)).bind(lost).execute(connection).await.map(|_| ())
}

async fn publish(
    connection: &mut Connection,
    statements: &Statements,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    if plan.done.is_empty() {
        return Ok(());
    }
    let done: Vec<i64> = plan.done.iter().map(|done| done.id).collect();
    let events = &statements.tables.events;
    // A row that someone else has settled meanwhile (FAILED or PUBLISHED by hand) is left alone.
    let still = "e.status IN ('PENDING', 'PROCESSING')";
    match statements.settle {
        Settle::Delete => {
            let sql = format!("DELETE FROM {events} e WHERE e.id = ANY($1) AND {still}");
            sqlx::query(AssertSqlSafe(sql)).bind(done).execute(connection).await?;
        }
        Settle::Mark => {
            let sql = format!(
                "UPDATE {events} e SET status = 'PUBLISHED', published_at = clock_timestamp(), \
                   last_error = u.reason, claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL \
                 FROM unnest($1::bigint[], $2::text[]) AS u(id, reason) WHERE e.id = u.id AND {still}"
            );
            let reasons: Vec<Option<&str>> =
                plan.done.iter().map(|done| done.reason.as_deref()).collect();
            sqlx::query(AssertSqlSafe(sql)).bind(done).bind(reasons).execute(connection).await?;
        }
    }
    Ok(())
}

/// Seconds until due again; `None` is never, by itself.
fn seconds_until(due: Due) -> Option<f64> {
    match due {
        Due::After(after) => Some(seconds(after)),
        Due::Never | Due::Unchanged => None,
    }
}

async fn defer(
    connection: &mut Connection,
    statements: &Statements,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    fn column<'a, T>(plan: &'a Plan<'_>, pick: impl Fn(&'a Deferred<'a>) -> T) -> Vec<T> {
        plan.deferred.iter().map(pick).collect()
    }
    fn blamed<'a>(one: &Deferred<'a>) -> Option<&'a Blamed> {
        one.failure.plugin.as_deref()
    }
    if plan.deferred.is_empty() {
        return Ok(());
    }
    // `now()` is the transaction's: held keys get the very same moment.
    let sql = format!(
        "UPDATE {events} e SET status = u.status, attempts = e.attempts + u.attempts, \
           available_at = CASE WHEN u.status = 'FAILED' THEN e.available_at \
             ELSE coalesce(now() + make_interval(secs => u.after), 'infinity') END, \
           last_error = u.error, failure_kind = u.kind, failure_plugin = u.plugin, \
           failure_version = u.version, failure_hash = u.hash, \
           claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL, claim_losses = 0 \
         FROM unnest($1::bigint[], $2::text[], $3::int[], $4::float8[], $5::text[], $6::text[], \
           $7::text[], $8::text[], $9::text[]) \
           AS u(id, status, attempts, after, error, kind, plugin, version, hash) \
         WHERE e.id = u.id AND e.status IN ('PENDING', 'PROCESSING')",
        events = statements.tables.events,
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(column(plan, |one| one.id))
        .bind(column(plan, |one| one.status))
        .bind(column(plan, |one| one.attempts))
        .bind(column(plan, |one| seconds_until(one.due)))
        .bind(column(plan, |one| one.failure.message.as_str()))
        .bind(column(plan, |one| one.failure.cause.code()))
        .bind(column(plan, |one| blamed(one).map(|plugin| plugin.name.as_str())))
        .bind(column(plan, |one| blamed(one).map(|plugin| plugin.version.as_str())))
        .bind(column(plan, |one| blamed(one).map(|plugin| plugin.hash.as_str())))
        .execute(connection)
        .await
        .map(|_| ())
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
           claim_expires_at = NULL, claim_losses = 0 WHERE id = ANY($1)",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql)).bind(&plan.released).execute(connection).await.map(|_| ())
}

async fn hold_keys(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    let held = &statements.tables.held_keys;
    if !plan.let_go.is_empty() {
        let sql = format!("DELETE FROM {held} WHERE source = $1 AND event_id = ANY($2)");
        sqlx::query(AssertSqlSafe(sql))
            .bind(&*lane.source)
            .bind(&plan.let_go)
            .execute(&mut *connection)
            .await?;
    }
    if plan.holds.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {held} (source, lane, key, until, event_id, reason) \
         SELECT $1, $2, u.key, coalesce(now() + make_interval(secs => u.after), 'infinity'), u.id, u.reason \
         FROM unnest($3::bytea[], $4::float8[], $5::bigint[], $6::text[]) AS u(key, after, id, reason) \
         ON CONFLICT (source, lane, key) DO UPDATE SET until = excluded.until, \
           event_id = excluded.event_id, reason = excluded.reason, held_at = now()"
    );
    let holds = &plan.holds;
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(holds.iter().map(|hold| hold.key).collect::<Vec<_>>())
        .bind(holds.iter().map(|hold| seconds_until(hold.due)).collect::<Vec<_>>())
        .bind(holds.iter().map(|hold| hold.id).collect::<Vec<_>>())
        .bind(holds.iter().map(|hold| hold.reason).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map(|_| ())
}

async fn release_leases(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    let count = |shard: &i32| plan.published.get(shard).copied().unwrap_or_default();
    let counts: Vec<i64> = batch.shards.iter().map(count).collect();
    // Having passed the suspect id without dying, the shard is beyond suspicion.
    let passed = "l.highest_id >= l.suspect_id";
    let sql = format!(
        "UPDATE {leases} l SET token = NULL, owner = NULL, expires_at = NULL, taken = 0, \
           published = l.published + u.published, \
           next_due_at = CASE WHEN $6 THEN NULL ELSE l.next_due_at END, \
           losses = CASE WHEN {passed} THEN 0 ELSE l.losses END, \
           suspect_limit = CASE WHEN {passed} THEN NULL ELSE l.suspect_limit END, \
           alone_id = CASE WHEN {passed} THEN NULL ELSE l.alone_id END, \
           alone_losses = CASE WHEN {passed} THEN 0 ELSE l.alone_losses END, \
           suspect_id = CASE WHEN {passed} THEN NULL ELSE l.suspect_id END \
         FROM unnest($3::int[], $5::bigint[]) AS u(shard, published) \
         WHERE l.source = $1 AND l.lane = $2 AND l.shard = u.shard AND l.token = $4",
        leases = statements.tables.leases,
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&batch.shards)
        .bind(batch.token.as_uuid())
        .bind(counts)
        // An event put off may be due before what the bounds were derived from.
        .bind(plan.put_off)
        .execute(connection)
        .await
        .map(|_| ())
}
