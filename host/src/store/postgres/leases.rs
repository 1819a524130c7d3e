//! Shard leases: creating, claiming and renewing them.
//!
//! Called by the store for lanes with `ordering = "key"` or `"total"`. The protocol stands in prose at
//! the top of the store contract; no event row is written here.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::events::{self, Statements};

use super::{Connection, PostgresStore, seconds, sql_limit};
use crate::event::{LaneName, Ordering};
use crate::store::suspicion::{History, Locked, Lost, leased_batch, rows_per_shard, taken};
use crate::store::tables::Tables;
use crate::store::{Batch, BatchClaim, ClaimRequest, Look};

/// Creates the lease rows of a lane; those that exist are left alone.
pub(super) async fn create(
    connection: &mut Connection,
    tables: &Tables,
    lane: &LaneName,
    shards: &[i32],
) -> Result<(), sqlx::Error> {
    if shards.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {} (source, lane, shard) SELECT $1, $2, s FROM unnest($3::int[]) s \
         ON CONFLICT DO NOTHING",
        tables.leases
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(shards)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Claims due work of free shards.
pub(super) async fn claim(
    store: &PostgresStore,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let everywhere = request.look == Look::Full;
    let candidates = candidates(store, statements, request).await?;
    if candidates.is_empty() && !everywhere {
        return Ok(None);
    }
    let mut transaction = store.begin().await?;
    let connection = &mut *transaction;
    if everywhere {
        keep_house(connection, statements, request, &candidates).await?;
    }
    let mut locked = lock(connection, statements, request, &candidates).await?;
    // Those served longest ago first, as they were found.
    locked.sort_by_key(|lease| candidates.iter().position(|shard| *shard == lease.shard));
    // A suspect batch has no company; shards that are not taken are free again at commit.
    let (suspects, others): (Vec<Locked>, Vec<Locked>) =
        locked.into_iter().partition(|lease| lease.history.suspect_id.is_some());
    let mut batch = None;
    for some in suspects.chunks(1).chain((!others.is_empty()).then_some(&others[..])) {
        batch = take(connection, statements, request, some).await?;
        let worked = batch.is_some();
        let shards: Vec<i32> =
            some.iter().filter(|lease| !worked || lease.stale).map(|lease| lease.shard).collect();
        survey(connection, statements, request, &shards, !worked).await?;
        if worked {
            break;
        }
        note_served(connection, statements, request, &shards).await?;
    }
    transaction.commit().await?;
    Ok(batch)
}

/// A plain read, planned anew each time: a plan kept from when the table was empty would be a
/// sequential scan per shard.
async fn candidates(
    store: &PostgresStore,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar(statements.candidates(request.ordering == Ordering::Total))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(sql_limit(request.max_shards))
        .bind(request.look == Look::Full)
        .persistent(false)
        .fetch_all(&store.pool)
        .await
}

async fn lock(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    candidates: &[i32],
) -> Result<Vec<Locked>, sqlx::Error> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(statements.lock_leases())
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(candidates)
        .fetch_all(connection)
        .await?;
    let mut locked = Vec::with_capacity(rows.len());
    for row in rows {
        let token: Option<Uuid> = row.try_get(1)?;
        let history = History {
            losses: row.try_get(4)?,
            lost_token: row.try_get(5)?,
            suspect_id: row.try_get(6)?,
            suspect_limit: row.try_get(7)?,
            alone_id: row.try_get(8)?,
            alone_losses: row.try_get(9)?,
        };
        let (taken, highest_id) = (row.try_get(2)?, row.try_get(3)?);
        let history = match token {
            Some(token) => history.after(Lost { token, taken, highest_id }),
            None => history,
        };
        locked.push(Locked { shard: row.try_get(0)?, history, stale: row.try_get(10)? });
    }
    Ok(locked)
}

/// Reads the events of locked shards in a statement of its own, and writes the leases of those
/// that had any.
async fn take(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    locked: &[Locked],
) -> Result<Option<Batch>, sqlx::Error> {
    let whole_lane = request.ordering == Ordering::Total;
    let per_shard = rows_per_shard(request, locked);
    let shards: Vec<i32> = locked.iter().map(|lease| lease.shard).collect();
    let rows = sqlx::query(statements.read_leased(whole_lane))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(&shards)
        .bind(request.look == Look::Full)
        .bind(sql_limit(per_shard))
        .bind(sql_limit(request.max_bytes))
        .fetch_all(&mut *connection)
        .await?;
    let found = rows.iter().map(events::event).collect::<Result<Vec<_>, _>>()?;
    let batch = leased_batch(request, locked, found);
    if let Some(batch) = &batch {
        write(connection, statements, request, locked, &taken(&batch.events)).await?;
    }
    Ok(batch)
}

async fn write(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    locked: &[Locked],
    of_shard: &HashMap<i32, (i32, i64)>,
) -> Result<(), sqlx::Error> {
    let leased: Vec<(&Locked, i32, i64)> = locked
        .iter()
        .filter_map(|lease| {
            of_shard.get(&lease.shard).map(|(taken, highest)| (lease, *taken, *highest))
        })
        .collect();
    fn column<'a, T>(leased: &[(&'a Locked, i32, i64)], pick: impl Fn(&'a History) -> T) -> Vec<T> {
        leased.iter().map(|(lease, _, _)| pick(&lease.history)).collect()
    }
    sqlx::query(statements.write_leases())
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(seconds(request.lease))
        .bind(leased.iter().map(|(lease, _, _)| lease.shard).collect::<Vec<_>>())
        .bind(leased.iter().map(|(_, taken, _)| *taken).collect::<Vec<_>>())
        .bind(leased.iter().map(|(_, _, highest)| *highest).collect::<Vec<_>>())
        .bind(column(&leased, |history| history.losses))
        .bind(column(&leased, |history| history.lost_token))
        .bind(column(&leased, |history| history.suspect_id))
        .bind(column(&leased, |history| history.suspect_limit))
        .bind(column(&leased, |history| history.alone_id))
        .bind(column(&leased, |history| history.alone_losses))
        .execute(connection)
        .await
        .map(|_| ())
}

/// What a full look does besides looking: brings bounds up to date and clears what others left.
async fn keep_house(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    candidates: &[i32],
) -> Result<(), sqlx::Error> {
    let idle = idle(connection, statements, request, candidates).await?;
    survey(connection, statements, request, &idle, true).await?;
    sqlx::query(statements.drop_stale_holds())
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .execute(&mut *connection)
        .await?;
    if statements.row_claims {
        sqlx::query(statements.give_back_rows())
            .bind(&*request.lane.lane)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// A shard that had nothing to give must not come first again next time.
async fn note_served(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    shards: &[i32],
) -> Result<(), sqlx::Error> {
    sqlx::query(statements.note_served())
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(shards)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Free shards that have pending events and are no candidates, locked.
async fn idle(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    candidates: &[i32],
) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar(statements.lock_idle(request.ordering == Ordering::Total))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(candidates)
        .fetch_all(connection)
        .await
}

async fn survey(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    shards: &[i32],
    find_due: bool,
) -> Result<(), sqlx::Error> {
    if shards.is_empty() {
        return Ok(());
    }
    sqlx::query(statements.survey(request.ordering == Ordering::Total))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(shards)
        .bind(find_due)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Extends leases; false when one of them was lost.
pub(super) async fn renew(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    batch: &BatchClaim,
    lease: Duration,
) -> Result<bool, sqlx::Error> {
    let sql = format!(
        "UPDATE {leases} l SET expires_at = clock_timestamp() + make_interval(secs => $5) \
         FROM (SELECT shard FROM {leases} WHERE source = $1 AND lane = $2 AND shard = ANY($3) AND token = $4 \
           ORDER BY shard FOR UPDATE) own \
         WHERE l.source = $1 AND l.lane = $2 AND l.shard = own.shard AND l.token = $4",
        leases = statements.tables.leases
    );
    let renewed = sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&batch.shards)
        .bind(batch.token.as_uuid())
        .bind(seconds(lease))
        .execute(connection)
        .await?;
    Ok(usize::try_from(renewed.rows_affected()).is_ok_and(|rows| rows == batch.shards.len()))
}
