//! Row claims: marking rows PROCESSING, recovering expired claims, renewing.
//!
//! Called by the store for lanes with `ordering = "none"`. BEGIN IMMEDIATE stands in for SKIP LOCKED.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row};

use super::events::{self, SIZE, Statements, list};
use super::{Connection, SqliteStore, ids, millis, sql_limit};
use crate::event::EventId;
use crate::store::suspicion::{fitting, rows_at_once, verdict_on_rows};
use crate::store::{Batch, BatchClaim, ClaimRequest, Look, Suspicion};

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
    let marking = next(&mut transaction, statements, request, now).await?;
    let batch = mark(&mut transaction, statements, request, marking, now).await?;
    transaction.commit().await?;
    Ok(batch)
}

/// What to claim.
struct Marking {
    ids: Vec<i64>,
    losses: i32,
    full: bool,
    suspicion: Suspicion,
}

async fn next(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<Marking, sqlx::Error> {
    if request.look == Look::Full {
        let expired = expired(connection, statements, request, now).await?;
        if !expired.ids.is_empty() {
            return Ok(expired);
        }
    }
    fresh(connection, statements, request, now).await
}

async fn fresh(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<Marking, sqlx::Error> {
    let sql = format!(
        "SELECT e.id, {SIZE} FROM {events} e INDEXED BY {index} \
         WHERE e.lane = ?1 AND e.status = 'PENDING' AND e.available_at <= ?2 ORDER BY e.id LIMIT ?3",
        events = statements.tables.events,
        index = statements.tables.index("haulier_lane"),
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&*request.lane.lane)
        .bind(now)
        .bind(sql_limit(request.max_rows))
        .fetch_all(connection)
        .await?;
    let ids = chosen(&rows, request.max_bytes)?;
    let full = rows.len() >= request.max_rows || ids.len() < rows.len();
    Ok(Marking { ids, losses: 0, full, suspicion: Suspicion::None })
}

/// Rows whose claim has expired: the more often they were lost, the fewer at once.
async fn expired(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<Marking, sqlx::Error> {
    let sql = format!(
        "SELECT e.id, {SIZE}, e.claim_losses FROM {events} e INDEXED BY {index} \
         WHERE e.lane = ?1 AND e.status = 'PROCESSING' AND e.claim_expires_at <= ?2 \
         ORDER BY e.claim_losses, e.id LIMIT ?3",
        events = statements.tables.events,
        index = statements.tables.index("haulier_claims"),
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&*request.lane.lane)
        .bind(now)
        .bind(sql_limit(request.max_rows))
        .fetch_all(connection)
        .await?;
    let losses = rows.iter().map(|row| row.try_get(2)).collect::<Result<Vec<i32>, _>>()?;
    let fewest = losses.first().copied().unwrap_or_default();
    let alike = losses.iter().take_while(|losses| **losses == fewest).count();
    let at_once = alike.min(rows_at_once(fewest, request.max_rows));
    let ids = chosen(&rows[..at_once], request.max_bytes)?;
    Ok(Marking { ids, losses: 1, full: true, suspicion: verdict_on_rows(fewest) })
}

/// The ids of the rows that fit into a batch.
fn chosen(rows: &[SqliteRow], max_bytes: usize) -> Result<Vec<i64>, sqlx::Error> {
    let sizes = rows.iter().map(|row| row.try_get(1)).collect::<Result<Vec<i64>, _>>()?;
    rows[..fitting(sizes, max_bytes)].iter().map(|row| row.try_get(0)).collect()
}

async fn mark(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    marking: Marking,
    now: i64,
) -> Result<Option<Batch>, sqlx::Error> {
    if marking.ids.is_empty() {
        return Ok(None);
    }
    let sql = format!(
        "UPDATE {} SET status = 'PROCESSING', claim_token = ?2, claim_owner = ?3, \
           claim_expires_at = ?4, claim_losses = claim_losses + ?5 \
         WHERE id IN (SELECT value FROM json_each(?1))",
        statements.tables.events
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(list(&marking.ids))
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(now.saturating_add(millis(request.lease)))
        .bind(marking.losses)
        .execute(&mut *connection)
        .await?;
    let source = &request.lane.source;
    let mut claimed = events::read(connection, statements, source, now, &marking.ids).await?;
    for event in &mut claimed {
        // A lane without order has no shards and holds no keys.
        (event.shard, event.holds_key) = (0, false);
    }
    Ok(Some(Batch {
        token: request.token,
        ordering: request.ordering,
        shards: Vec::new(),
        events: claimed,
        suspicion: marking.suspicion,
        full: marking.full,
    }))
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
