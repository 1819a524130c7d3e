//! Row claims: marking rows PROCESSING, recovering expired claims, renewing.
//!
//! Called by the store for lanes with `ordering = "none"`.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::events::{self, Statements};
use super::{Connection, PostgresStore, ids, seconds, sql_limit};
use crate::store::{Batch, BatchClaim, ClaimRequest, Look, Suspicion};

/// Losses of an event that had ever less company, the last three of them alone, before it is
/// convicted: in a crowd, in an eighth of it, in a sixty-fourth, then three times alone.
const LOSSES_TO_CONVICT: i32 = 6;

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
    let mut chosen = Vec::new();
    let mut bytes = 0_i64;
    for row in &rows {
        bytes = bytes.saturating_add(row.try_get(1)?);
        if !chosen.is_empty() && bytes > sql_limit(request.max_bytes) {
            break;
        }
        chosen.push(row.try_get::<i64, _>(0)?);
    }
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
    let limit = match losses {
        0 => request.max_rows.div_ceil(8),
        1 => request.max_rows.div_ceil(64),
        _ => 1,
    };
    let mut chosen = Vec::new();
    let mut bytes = 0_i64;
    for row in rows.iter().take(limit) {
        bytes = bytes.saturating_add(row.try_get(1)?);
        let another = row.try_get::<i32, _>(2)? != losses;
        if another || (!chosen.is_empty() && bytes > sql_limit(request.max_bytes)) {
            break;
        }
        chosen.push(row.try_get::<i64, _>(0)?);
    }
    let convicted = losses + 1 >= LOSSES_TO_CONVICT;
    let suspicion = if convicted { Suspicion::Convicted } else { Suspicion::Suspect };
    mark(
        connection,
        statements,
        request,
        &Marking { ids: chosen, losses: 1, full: true, suspicion },
    )
    .await
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
    let mut claimed = rows
        .iter()
        .map(|row| events::event(row).map(|(event, _)| event))
        .collect::<Result<Vec<_>, _>>()?;
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
