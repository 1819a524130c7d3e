//! Shard leases: creating, claiming and renewing them.
//!
//! Called by the store for lanes with `ordering = "key"` or `"total"`. The protocol stands in prose at
//! the top of the store contract. SQLite has one writer at a time, so BEGIN IMMEDIATE stands in for
//! SKIP LOCKED: a claim has the file to itself for the short time it takes. For the same reason ids
//! are in commit order, and no look can miss a late commit. No event row is written here.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::events::{self, Due, SIZE, Statements, list, shard_list};
use super::{Connection, SqliteStore, millis, sql_limit};
use crate::event::{Event, LaneName, Ordering};
use crate::store::suspicion::{
    History, Locked, Lost, fitting_ids, leased_batch, rows_per_shard, taken,
};
use crate::store::tables::WHOLE_LANE;
use crate::store::{Batch, BatchClaim, ClaimRequest, Look};

/// Creates the lease rows of a lane; those that exist are left alone.
pub(super) async fn create(
    connection: &mut Connection,
    statements: &Statements,
    lane: &LaneName,
    shards: &[i32],
) -> Result<(), sqlx::Error> {
    let leases = &statements.tables.leases;
    let shards = shard_list(shards);
    let missing = format!(
        "SELECT EXISTS (SELECT 1 FROM json_each(?3) j WHERE NOT EXISTS \
           (SELECT 1 FROM {leases} l WHERE l.source = ?1 AND l.lane = ?2 AND l.shard = j.value))"
    );
    // A look first: opening a lane that is there already waits for no writer.
    let missing: bool = sqlx::query_scalar(AssertSqlSafe(missing))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&shards)
        .fetch_one(&mut *connection)
        .await?;
    if !missing {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {leases} (source, lane, shard) SELECT ?1, ?2, j.value FROM json_each(?3) j \
         WHERE true ON CONFLICT DO NOTHING"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(&shards)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Claims due work of free shards.
pub(super) async fn claim(
    store: &SqliteStore,
    statements: &Statements,
    request: &ClaimRequest<'_>,
) -> Result<Option<Batch>, sqlx::Error> {
    let mut connection = store.pool.acquire().await?;
    let now = super::now(&mut connection).await?;
    let untidy =
        request.look == Look::Full && is_untidy(&mut connection, statements, request, now).await?;
    if !untidy && candidates(&mut connection, statements, request, now).await?.is_empty() {
        return Ok(None);
    }
    drop(connection);
    let mut transaction = store.begin().await?;
    let connection = &mut *transaction;
    // Taken once for the whole claim, and after the lock.
    let now = super::now(connection).await?;
    if untidy {
        tidy_up(connection, statements, request, now).await?;
    }
    let candidates = candidates(connection, statements, request, now).await?;
    let mut locked = look_at(connection, statements, request, &candidates).await?;
    // Those served longest ago first, as they were found.
    locked
        .sort_by_key(|lease| candidates.iter().position(|shard| *shard == i64::from(lease.shard)));
    // A suspect batch has no company.
    let (suspects, others): (Vec<Locked>, Vec<Locked>) =
        locked.into_iter().partition(|lease| lease.history.suspect_id.is_some());
    let mut batch = None;
    for some in suspects.chunks(1).chain((!others.is_empty()).then_some(&others[..])) {
        batch = take(connection, statements, request, some, now).await?;
        if batch.is_some() {
            break;
        }
    }
    transaction.commit().await?;
    Ok(batch)
}

/// Shards that are free and have due work that nothing holds, those served longest ago first; or the
/// one lease of a whole lane.
async fn candidates(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<Vec<i64>, sqlx::Error> {
    let (due, which) = match request.ordering {
        Ordering::Total => (Due::of_lane(&statements.tables), "l.shard = -1"),
        Ordering::Key | Ordering::None => {
            (Due::of_shard(&statements.tables, "l.shard"), "l.shard >= 0")
        }
    };
    let sql = format!(
        "SELECT l.shard FROM {leases} l WHERE l.source = ?1 AND l.lane = ?2 AND {which} \
           AND (l.token IS NULL OR l.expires_at <= ?3) \
           AND EXISTS (SELECT 1 FROM {from} WHERE {filter}) \
         ORDER BY l.served_at, l.shard LIMIT ?4",
        leases = statements.tables.leases,
        from = due.from,
        filter = due.filter,
    );
    sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(now)
        .bind(sql_limit(request.max_shards))
        .fetch_all(connection)
        .await
}

async fn look_at(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    candidates: &[i64],
) -> Result<Vec<Locked>, sqlx::Error> {
    let sql = format!(
        "SELECT shard, token, taken, highest_id, losses, lost_token, suspect_id, suspect_limit, \
           alone_id, alone_losses FROM {} \
         WHERE source = ?1 AND lane = ?2 AND shard IN (SELECT value FROM json_each(?3))",
        statements.tables.leases,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(list(candidates))
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
        locked.push(Locked { shard: row.try_get(0)?, history, stale: false });
    }
    Ok(locked)
}

/// Reads the due events of these shards up to the limits, and writes the leases of those that had any.
async fn take(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    locked: &[Locked],
    now: i64,
) -> Result<Option<Batch>, sqlx::Error> {
    let due = due_ids(connection, statements, request, locked, now).await?;
    let mut ids = fitting_ids(&due, request.max_bytes);
    ids.sort_unstable();
    let mut found = events::read(connection, statements, &request.lane.source, now, &ids).await?;
    if request.ordering == Ordering::Total {
        found.iter_mut().for_each(|event| event.shard = WHOLE_LANE);
    }
    let place = |event: &Event| locked.iter().position(|lease| lease.shard == event.shard);
    found.sort_by_key(|event| (place(event), event.id));
    let batch = leased_batch(request, locked, found);
    if let Some(batch) = &batch {
        for (shard, (taken, highest)) in taken(&batch.events) {
            if let Some(lease) = locked.iter().find(|lease| lease.shard == shard) {
                write(connection, statements, request, lease, now, (taken, highest)).await?;
            }
        }
    }
    Ok(batch)
}

/// Ids and sizes of due events, shard by shard, in id order within a shard.
async fn due_ids(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    locked: &[Locked],
    now: i64,
) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let per_shard = sql_limit(rows_per_shard(request, locked));
    let due = match request.ordering {
        Ordering::Total => Due::of_lane(&statements.tables),
        Ordering::Key | Ordering::None => Due::of_shard(&statements.tables, "?5"),
    };
    let sql = format!(
        "SELECT e.id, {SIZE} FROM {} WHERE {} ORDER BY {} LIMIT ?4",
        due.from, due.filter, due.order
    );
    let mut found = Vec::new();
    for lease in locked {
        let query = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&*request.lane.source)
            .bind(&*request.lane.lane)
            .bind(now)
            .bind(per_shard)
            .bind(lease.shard);
        for row in query.fetch_all(&mut *connection).await? {
            found.push((row.try_get(0)?, row.try_get(1)?));
        }
    }
    Ok(found)
}

async fn write(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    lease: &Locked,
    now: i64,
    (taken, highest): (i32, i64),
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET token = ?4, owner = ?5, expires_at = ?6 + ?7, served_at = ?6, taken = ?8, \
           highest_id = ?9, losses = ?10, lost_token = ?11, suspect_id = ?12, suspect_limit = ?13, \
           alone_id = ?14, alone_losses = ?15 WHERE source = ?1 AND lane = ?2 AND shard = ?3",
        statements.tables.leases,
    );
    let history = &lease.history;
    sqlx::query(AssertSqlSafe(sql))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(lease.shard)
        .bind(request.token.as_uuid())
        .bind(request.owner)
        .bind(now)
        .bind(millis(request.lease))
        .bind(taken)
        .bind(highest)
        .bind(history.losses)
        .bind(history.lost_token)
        .bind(history.suspect_id)
        .bind(history.suspect_limit)
        .bind(history.alone_id)
        .bind(history.alone_losses)
        .execute(connection)
        .await
        .map(|_| ())
}

/// What a full look clears away: holds that are over and whose event is no longer waiting (somebody
/// has settled it by hand), and rows under expired claims from when the lane had no order.
fn untidiness(statements: &Statements) -> [(String, &'static str); 2] {
    let (held, events) = (&statements.tables.held_keys, &statements.tables.events);
    let holds = format!(
        "{held} AS h WHERE h.source = ?1 AND h.lane = ?2 AND h.until <= ?3 AND NOT EXISTS \
           (SELECT 1 FROM {events} e WHERE e.id = h.event_id AND e.status = 'PENDING')"
    );
    // ?1 is named so that all statements here take the same values.
    let rows = format!(
        "{events} AS e WHERE ?1 IS NOT NULL AND e.lane = ?2 AND e.status = 'PROCESSING' AND e.claim_expires_at <= ?3"
    );
    let give_back =
        "SET status = 'PENDING', claim_owner = NULL, claim_token = NULL, claim_expires_at = NULL";
    [(holds, ""), (rows, give_back)]
}

async fn is_untidy(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<bool, sqlx::Error> {
    let [(holds, _), (rows, _)] = untidiness(statements);
    let rows = if statements.row_claims {
        format!("EXISTS (SELECT 1 FROM {rows})")
    } else {
        "false".to_owned()
    };
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {holds}) OR {rows}");
    sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&*request.lane.source)
        .bind(&*request.lane.lane)
        .bind(now)
        .fetch_one(connection)
        .await
}

async fn tidy_up(
    connection: &mut Connection,
    statements: &Statements,
    request: &ClaimRequest<'_>,
    now: i64,
) -> Result<(), sqlx::Error> {
    let [(holds, _), (rows, give_back)] = untidiness(statements);
    let rows = rows.replacen(" WHERE", &format!(" {give_back} WHERE"), 1);
    let mut statements_to_run = vec![format!("DELETE FROM {holds}")];
    if statements.row_claims {
        statements_to_run.push(format!("UPDATE {rows}"));
    }
    for sql in statements_to_run {
        sqlx::query(AssertSqlSafe(sql))
            .bind(&*request.lane.source)
            .bind(&*request.lane.lane)
            .bind(now)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
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
        "UPDATE {} SET expires_at = {now} + ?5 WHERE source = ?1 AND lane = ?2 \
           AND shard IN (SELECT value FROM json_each(?3)) AND token = ?4",
        statements.tables.leases,
        now = super::NOW,
    );
    let renewed = sqlx::query(AssertSqlSafe(sql))
        .bind(&*lane.source)
        .bind(&*lane.lane)
        .bind(shard_list(&batch.shards))
        .bind(batch.token.as_uuid())
        .bind(millis(lease))
        .execute(connection)
        .await?;
    Ok(usize::try_from(renewed.rows_affected()).is_ok_and(|rows| rows == batch.shards.len()))
}
