//! Row claims: marking rows PROCESSING, recovering expired claims, renewing.
//!
//! Called by the store for lanes with `ordering = "none"`.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::events::{self, Statements};
use super::{Connection, PostgresStore, ids, seconds, sql_limit};
use crate::store::suspicion::RowClaim;
use crate::store::{Batch, BatchClaim, ClaimRequest, Look};

/// Claims due rows: on a full look those under expired claims first.
pub(super) async fn claim(
    store: &PostgresStore,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let mut transaction = store.begin().await?;
    let connection = &mut *transaction;
    let batch = match request.look {
        Look::Full => match recover(connection, statements, request).await? {
            Some(recovered) => Some(recovered),
            None => fresh(connection, statements, request).await?,
        },
        Look::Quick => fresh(connection, statements, request).await?,
    };
    transaction.commit().await?;
    Ok(batch)
}

async fn fresh(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let rows = sqlx::query(statements.lock_rows())
        .bind(&*request.lane.lane)
        .bind(sql_limit(request.max_rows))
        .fetch_all(&mut *connection)
        .await?;
    let due = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let due = due.collect::<Result<Vec<_>, sqlx::Error>>()?;
    mark(connection, statements, request, &RowClaim::fresh(request, &due)).await
}

/// Takes rows whose claim has expired.
async fn recover(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let rows = sqlx::query(statements.lock_expired_rows())
        .bind(&*request.lane.lane)
        .bind(sql_limit(request.max_rows))
        .fetch_all(&mut *connection)
        .await?;
    let lost = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let lost = lost.collect::<Result<Vec<_>, sqlx::Error>>()?;
    mark(connection, statements, request, &RowClaim::expired(request, &lost)).await
}

async fn mark(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    claim: &RowClaim,
) -> Result<Option<Batch>, sqlx::Error> {
    if claim.ids.is_empty() {
        return Ok(None);
    }
    let rows = sqlx::query(statements.claim_rows())
        .bind(&claim.ids)
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(seconds(request.lease))
        .bind(claim.losses)
        .fetch_all(connection)
        .await?;
    let mut claimed = rows.iter().map(events::event).collect::<Result<Vec<_>, _>>()?;
    // RETURNING promises no order.
    claimed.sort_unstable_by_key(|event| event.id);
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
        "UPDATE {} SET claim_expires_at = clock_timestamp() + make_interval(secs => $3) \
         WHERE id = ANY($1) AND claim_token = $2 AND status = 'PROCESSING'",
        statements.tables.events
    );
    let renewed = sqlx::query(AssertSqlSafe(sql))
        .bind(ids(&batch.rows))
        .bind(batch.token.as_uuid())
        .bind(seconds(lease))
        .execute(connection)
        .await?;
    Ok(usize::try_from(renewed.rows_affected()).is_ok_and(|rows| rows == batch.rows.len()))
}
