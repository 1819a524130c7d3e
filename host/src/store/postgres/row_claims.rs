//! Row claims: marking rows PROCESSING, recovering expired claims, renewing.
//!
//! Called by the store for lanes with `ordering = "none"`.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use super::events::{self, Statements};
use super::{Connection, PostgresStore, ids, seconds, sql_limit};
use crate::store::suspicion::{fitting, rows_at_once, verdict_on_rows};
use crate::store::{Batch, BatchClaim, ClaimRequest, Look, Suspicion};

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
    let chosen = chosen(&rows, request.max_bytes)?;
    let full = rows.len() >= request.max_rows || chosen.len() < rows.len();
    mark(
        connection,
        statements,
        request,
        &Marking { ids: chosen, losses: 0, full, suspicion: Suspicion::None },
    )
    .await
}

/// Takes rows whose claim has expired: the more often they were lost, the fewer at once.
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
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let losses: i32 = first.try_get(2)?;
    let mut alike = rows.len();
    for (at, row) in rows.iter().enumerate() {
        if row.try_get::<i32, _>(2)? != losses {
            alike = at;
            break;
        }
    }
    let chosen =
        chosen(&rows[..alike.min(rows_at_once(losses, request.max_rows))], request.max_bytes)?;
    let suspicion = verdict_on_rows(losses);
    mark(
        connection,
        statements,
        request,
        &Marking { ids: chosen, losses: 1, full: true, suspicion },
    )
    .await
}

/// The ids of the rows that fit into a batch.
fn chosen(rows: &[PgRow], max_bytes: usize) -> Result<Vec<i64>, sqlx::Error> {
    let sizes = rows.iter().map(|row| row.try_get(1)).collect::<Result<Vec<i64>, _>>()?;
    rows[..fitting(sizes, max_bytes)].iter().map(|row| row.try_get(0)).collect()
}

struct Marking {
    ids: Vec<i64>,
    losses: i32,
    full: bool,
    suspicion: Suspicion,
}

async fn mark(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    marking: &Marking,
) -> Result<Option<Batch>, sqlx::Error> {
    if marking.ids.is_empty() {
        return Ok(None);
    }
    let rows = sqlx::query(statements.claim_rows())
        .bind(&marking.ids)
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(seconds(request.lease))
        .bind(marking.losses)
        .fetch_all(connection)
        .await?;
    let mut claimed = rows.iter().map(events::event).collect::<Result<Vec<_>, _>>()?;
    // RETURNING promises no order.
    claimed.sort_unstable_by_key(|event| event.id);
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
