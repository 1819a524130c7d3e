//! Row claims: marking rows PROCESSING, recovering expired claims, renewing.
//!
//! Called by the store for lanes with `ordering = "none"`. BEGIN IMMEDIATE stands in for SKIP LOCKED.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::events::{self, SIZE, Statements, list};
use super::{Connection, SqliteStore, ids, millis, sql_limit};
use crate::event::EventId;
use crate::store::suspicion::RowClaim;
use crate::store::{Batch, BatchClaim, ClaimRequest, Look};

/// Claims due rows: on a full look those under expired claims first.
pub(super) async fn claim(
    store: &SqliteStore,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let mut connection = store.pool.acquire().await?;
    let now = super::now(&mut connection).await?;
    // A plain look first: an idle relay must not lock the file again and again.
    if next(&mut connection, statements, request, now).await?.ids.is_empty() {
        return Ok(None);
    }
    drop(connection);
    let mut transaction = store.begin().await?;
    let now = super::now(&mut transaction).await?;
    let claim = next(&mut transaction, statements, request, now).await?;
    let batch = mark(&mut transaction, statements, request, &claim, now).await?;
    transaction.commit().await?;
    Ok(batch)
}

/// What to claim: on a full look rows under expired claims first.
async fn next(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<RowClaim, sqlx::Error> {
    if request.look == Look::Full {
        let expired = "e.status = 'PROCESSING' AND e.claim_expires_at <= ?2 \
                       ORDER BY e.claim_losses, e.id";
        let rows = rows(connection, statements, request, now, ("haulier_claims", expired)).await?;
        if !rows.is_empty() {
            return Ok(RowClaim::expired(request, &rows));
        }
    }
    let due = "e.status = 'PENDING' AND e.available_at <= ?2 ORDER BY e.id";
    let rows = rows(connection, statements, request, now, ("haulier_lane", due)).await?;
    let rows: Vec<(i64, i64)> = rows.into_iter().map(|(id, size, _)| (id, size)).collect();
    Ok(RowClaim::fresh(request, &rows))
}

/// Id, payload size and losses of the lane's rows that an index finds by this condition, whose order
/// ends it. `?2` in it is `now`.
async fn rows(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
    (index, condition): (&str, &str),
) -> Result<Vec<(i64, i64, i32)>, sqlx::Error> {
    let sql = format!(
        "SELECT e.id, {SIZE}, e.claim_losses FROM {events} e INDEXED BY {index} \
         WHERE e.lane = ?1 AND {condition} LIMIT ?3",
        events = statements.tables.events,
        index = statements.tables.index(index),
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&*request.lane.lane)
        .bind(now)
        .bind(sql_limit(request.max_rows))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

async fn mark(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    claim: &RowClaim,
    now: i64,
) -> Result<Option<Batch>, sqlx::Error> {
    if claim.ids.is_empty() {
        return Ok(None);
    }
    let sql = format!(
        "UPDATE {} SET status = 'PROCESSING', claim_token = ?2, claim_owner = ?3, \
           claim_expires_at = ?4, claim_losses = claim_losses + ?5 \
         WHERE id IN (SELECT value FROM json_each(?1))",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(list(&claim.ids))
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(now.saturating_add(millis(request.lease)))
        .bind(claim.losses)
        .execute(&mut *connection)
        .await?;
    let source = &request.lane.source;
    let mut claimed = events::read(connection, statements, source, now, &claim.ids).await?;
    for event in &mut claimed {
        // A lane without order has no shards and holds no keys.
        (event.shard, event.holds_key) = (0, false);
    }
    Ok(Some(claim.batch(request, claimed)))
}

/// Extends row claims; false when one of them was lost.
pub(super) async fn renew(
    connection: &mut Connection,
    statements: &Statements,
    batch: &BatchClaim,
    lease: Duration,
) -> Result<bool, sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET claim_expires_at = {now} + ?3 WHERE id IN (SELECT value FROM json_each(?1)) \
           AND claim_token = ?2 AND status = 'PROCESSING'",
        statements.tables.events,
        now = super::NOW,
    );
    let rows: &[EventId] = &batch.rows;
    let renewed = sqlx::query(AssertSqlSafe(sql))
        .bind(list(&ids(rows)))
        .bind(batch.token.as_uuid())
        .bind(millis(lease))
        .execute(connection)
        .await?;
    Ok(usize::try_from(renewed.rows_affected()).is_ok_and(|count| count == rows.len()))
}
