//! What operators look at: events, held keys, the audit record.
//!
//! Called by the store for the operators' desk. It only reads, but for the audit record; what changes
//! events is next door in `change`. Every list is bounded.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres, QueryBuilder, Row};

use super::events::{CLOCK, KEY_BYTES, Statements};
use super::{Connection, PostgresStore, change, ids, sql_limit};
use crate::event::EventId;
use crate::failure::PluginStamp;
use crate::store::StoreError;
use crate::store::desk::{
    AuditEntry, AuditId, Audited, Behind, Change, Changed, Desk, DueIn, EventSeen, EventState,
    EventWhole, HeldKey, HeldQuery, Horizon, MOST_BEHIND, Selection, Wanted, like,
};
use crate::store::standing::age;

/// How a row stands, in the words of [`EventState`].
pub(super) const STATE: &str = "CASE WHEN e.status <> 'PENDING' THEN lower(e.status) \
     WHEN e.failure_kind IS NULL OR e.available_at <= clock.now THEN 'pending' \
     WHEN e.available_at = 'infinity' THEN 'halted' ELSE 'waiting' END";

/// The end of the year 9999, in milliseconds since the epoch.
const LAST_MS: i64 = 253_402_300_799_000;

/// The ordering key as text.
const KEY: &str = "coalesce(e.partition_key, e.aggregate_id)";

/// Milliseconds since the epoch; a time without end is the last that can be written.
fn epoch(time: &str) -> String {
    format!(
        "CASE WHEN isfinite({time}) THEN (extract(epoch FROM {time}) * 1000)::bigint \
         WHEN {time} > '-infinity' THEN {LAST_MS} WHEN {time} = '-infinity' THEN 0 END"
    )
}

/// Milliseconds from now until `time`; NULL for a time that never comes.
pub(super) fn left(time: &str) -> String {
    format!(
        "CASE WHEN {time} = 'infinity' THEN NULL WHEN {time} <= clock.now THEN 0 \
         ELSE (extract(epoch FROM {time} - clock.now) * 1000)::bigint END"
    )
}

fn columns(statements: &Statements) -> String {
    format!(
        "e.id, e.lane, {STATE}, {KEY}, e.aggregate_type, e.aggregate_id, e.event_type, e.topic, e.attempts, \
         {created}, {published}, {due}, e.failure_kind, e.last_error, e.failure_plugin, e.failure_version, \
         e.failure_hash, e.redelivery, octet_length({payload})::bigint",
        created = epoch("e.created_at"),
        published = epoch("e.published_at"),
        due = left("e.available_at"),
        payload = statements.payload,
    )
}

pub(super) fn state(name: &str) -> Result<EventState, sqlx::Error> {
    EventState::named(name).ok_or_else(|| {
        sqlx::Error::Decode(format!("a row has the status '{name}', which is none").into())
    })
}

fn seen(row: &PgRow) -> Result<EventSeen, sqlx::Error> {
    let plugin: Option<String> = row.try_get(14)?;
    let part = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let plugin = match plugin {
        None => None,
        Some(name) => Some(PluginStamp { name, version: part(15)?, hash: part(16)? }),
    };
    Ok(EventSeen {
        id: EventId(row.try_get(0)?),
        lane: row.try_get(1)?,
        state: state(row.try_get(2)?)?,
        key: row.try_get(3)?,
        aggregate_type: row.try_get(4)?,
        aggregate_id: row.try_get(5)?,
        event_type: row.try_get(6)?,
        topic: row.try_get(7)?,
        attempts: u32::try_from(row.try_get::<i32, _>(8)?).unwrap_or_default(),
        created_at_ms: row.try_get(9)?,
        published_at_ms: row.try_get(10)?,
        due: DueIn::of_millis_left(row.try_get(11)?),
        reason: row.try_get(12)?,
        error: row.try_get(13)?,
        plugin,
        redelivery: row.try_get(17)?,
        payload_bytes: row.try_get::<Option<i64>, _>(18)?.map(|n| u64::try_from(n).unwrap_or(0)),
    })
}

/// Adds the conditions of a selection.
fn narrow(query: &mut QueryBuilder<Postgres>, selection: &Selection) {
    let Selection {
        ids: some,
        states,
        lane,
        key,
        event_type,
        reason,
        except_reason,
        since_ms,
        until_ms,
    } = selection;
    if !some.is_empty() {
        query.push(" AND e.id = ANY(").push_bind(ids(some)).push(")");
    }
    if !states.is_empty() {
        // As literals, so that partial indexes can serve.
        let one = |state: &EventState| match state {
            EventState::Pending => "e.status = 'PENDING'",
            EventState::Processing => "e.status = 'PROCESSING'",
            EventState::Published => "e.status = 'PUBLISHED'",
            EventState::Failed => "e.status = 'FAILED'",
            EventState::Waiting => {
                "(e.status = 'PENDING' AND e.failure_kind IS NOT NULL AND e.available_at > clock.now \
                   AND e.available_at < 'infinity')"
            }
            EventState::Halted => {
                "(e.status = 'PENDING' AND e.failure_kind IS NOT NULL AND e.available_at = 'infinity')"
            }
        };
        let any: Vec<&str> = states.iter().map(one).collect();
        query.push(" AND (").push(any.join(" OR ")).push(")");
    }
    if let Some(lane) = lane {
        query.push(" AND e.lane = ").push_bind(lane.clone());
    }
    if let Some(key) = key {
        query.push(" AND ").push(KEY).push(" = ").push_bind(key.clone());
    }
    if let Some(event_type) = event_type {
        query.push(" AND e.event_type LIKE ").push_bind(like(event_type));
    }
    if let Some(reason) = reason {
        query.push(" AND e.failure_kind = ").push_bind(reason.clone());
    }
    if let Some(reason) = except_reason {
        query.push(" AND e.failure_kind IS DISTINCT FROM ").push_bind(*reason);
    }
    for (bound, comparison) in [(since_ms, ">="), (until_ms, "<")] {
        if let Some(millis) = bound {
            query.push(format!(" AND e.created_at {comparison} to_timestamp("));
            query.push_bind(*millis as f64 / 1000.0).push(")");
        }
    }
}

async fn events(
    connection: &mut Connection,
    statements: &Statements,
    selection: &Selection,
    after: EventId,
    limit: usize,
) -> Result<Vec<EventSeen>, sqlx::Error> {
    let mut query = QueryBuilder::new(format!(
        "SELECT {} FROM {} e CROSS JOIN {CLOCK} WHERE e.id > ",
        columns(statements),
        statements.tables.events
    ));
    query.push_bind(after.0);
    narrow(&mut query, selection);
    query.push(" ORDER BY e.id LIMIT ").push_bind(sql_limit(limit));
    let rows = query.build().persistent(false).fetch_all(connection).await?;
    rows.iter().map(seen).collect()
}

async fn event(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    id: EventId,
) -> Result<Option<EventWhole>, sqlx::Error> {
    let sql = format!(
        "SELECT {columns}, e.headers::text, convert_to({payload}::text, 'UTF8'), \
           EXISTS (SELECT 1 FROM {held} h WHERE h.source = $1 AND h.event_id = e.id), \
           CASE WHEN e.status = 'PROCESSING' THEN e.claim_owner WHEN e.status = 'PENDING' \
             AND e.available_at <= clock.now THEN \
             (SELECT l.owner FROM {leases} l WHERE l.source = $1 AND l.lane = e.lane \
               AND l.shard IN (e.shard, -1) AND l.token IS NOT NULL AND l.expires_at > clock.now \
               AND l.highest_id >= e.id LIMIT 1) END \
         FROM {events} e CROSS JOIN {CLOCK} WHERE e.id = $2",
        columns = columns(statements),
        payload = statements.payload,
        held = statements.tables.held_keys,
        leases = statements.tables.leases,
        events = statements.tables.events,
    );
    // Bytes are bytes already.
    let sql = if statements.payload == "e.payload" {
        sql.replace("convert_to(e.payload::text, 'UTF8')", "e.payload")
    } else {
        sql
    };
    let row =
        sqlx::query(AssertSqlSafe(sql)).bind(source).bind(id.0).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(EventWhole {
        seen: seen(&row)?,
        headers: row.try_get(19)?,
        payload: row.try_get(20)?,
        holds_key: row.try_get(21)?,
        owner: row.try_get(22)?,
    }))
}

async fn horizon(
    connection: &mut Connection,
    statements: &Statements,
) -> Result<Horizon, sqlx::Error> {
    let sql = format!(
        "SELECT coalesce(max(id), 0), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM {}",
        statements.tables.events
    );
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?;
    Ok(Horizon { highest: EventId(row.try_get(0)?), now_ms: row.try_get(1)? })
}

async fn held_keys(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    query: &HeldQuery<'_>,
) -> Result<Vec<HeldKey>, sqlx::Error> {
    // A hold whose key is not the event's own is one of a whole lane.
    let sql = format!(
        "SELECT h.lane, convert_from(h.key, 'UTF8'), h.event_id, coalesce(w.pending, false), h.reason, \
           {left}, (extract(epoch FROM clock.now - h.held_at) * 1000)::bigint, \
           CASE WHEN w.key IS NULL OR NOT $8 THEN 0 WHEN w.key = h.key THEN \
             (SELECT count(*) FROM (SELECT 1 FROM {events} e WHERE e.lane = h.lane AND e.shard = w.shard \
               AND e.status = 'PENDING' AND {KEY_BYTES} = h.key LIMIT {MOST_BEHIND}) b) \
           ELSE (SELECT count(*) FROM (SELECT 1 FROM {events} e WHERE e.lane = h.lane \
               AND e.status = 'PENDING' LIMIT {MOST_BEHIND}) b) END \
         FROM {held} h CROSS JOIN {CLOCK} LEFT JOIN LATERAL ( \
           SELECT e.status = 'PENDING' AS pending, e.shard, coalesce({KEY_BYTES}, ''::bytea) AS key \
           FROM {events} e WHERE e.id = h.event_id) w ON true \
         WHERE h.source = $1 AND ($2::text IS NULL OR h.lane = $2) \
           AND ($3::text IS NULL OR h.key = convert_to($3, 'UTF8')) \
           AND ($4::text IS NULL OR (h.lane, h.key) > ($4, convert_to($5, 'UTF8'))) \
           AND ($7::text IS NULL OR h.reason = $7) \
         ORDER BY h.lane, h.key LIMIT $6",
        left = left("h.until"),
        events = statements.tables.events,
        held = statements.tables.held_keys,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(query.lane)
        .bind(query.key)
        .bind(query.after.map(|(lane, _)| lane))
        .bind(query.after.map(|(_, key)| key))
        .bind(sql_limit(query.limit))
        .bind(query.reason)
        .bind(query.behind == Behind::Counted)
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter().map(held_key).collect()
}

fn held_key(row: &PgRow) -> Result<HeldKey, sqlx::Error> {
    Ok(HeldKey {
        lane: row.try_get(0)?,
        key: row.try_get(1)?,
        event: EventId(row.try_get(2)?),
        event_pending: row.try_get(3)?,
        reason: row.try_get(4)?,
        until: DueIn::of_millis_left(row.try_get(5)?),
        held_for: age(row.try_get(6)?),
        waiting: u64::try_from(row.try_get::<i64, _>(7)?).unwrap_or_default(),
    })
}

async fn begin_audit(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    entry: &AuditEntry<'_>,
) -> Result<AuditId, sqlx::Error> {
    let sql = format!(
        "INSERT INTO {} (source, actor, via, action, selection, note) VALUES ($1, $2, $3, $4, $5, $6) \
         RETURNING id",
        statements.tables.audit
    );
    let id = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(source)
        .bind(entry.actor)
        .bind(entry.via)
        .bind(entry.action)
        .bind(entry.selection)
        .bind(entry.note)
        .fetch_one(connection)
        .await?;
    Ok(AuditId(id))
}

async fn end_audit(
    connection: &mut Connection,
    statements: &Statements,
    id: AuditId,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE {} SET ended_at = clock_timestamp() WHERE id = $1",
        statements.tables.audit
    );
    sqlx::query(AssertSqlSafe(sql)).bind(id.0).execute(connection).await.map(|_| ())
}

async fn audits(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    limit: usize,
) -> Result<Vec<Audited>, sqlx::Error> {
    let sql = format!(
        "SELECT id, {at}, {ended}, actor, via, action, selection, note, events, lowest_id, highest_id \
         FROM {} WHERE source = $1 ORDER BY id DESC LIMIT $2",
        statements.tables.audit,
        at = epoch("at"),
        ended = epoch("ended_at"),
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(sql_limit(limit))
        .fetch_all(connection)
        .await?;
    let audited = |row: &PgRow| {
        let (lowest, highest): (Option<i64>, Option<i64>) = (row.try_get(9)?, row.try_get(10)?);
        Ok(Audited {
            id: AuditId(row.try_get(0)?),
            at_ms: row.try_get(1)?,
            ended_at_ms: row.try_get(2)?,
            actor: row.try_get(3)?,
            via: row.try_get(4)?,
            action: row.try_get(5)?,
            selection: row.try_get(6)?,
            note: row.try_get(7)?,
            events: u64::try_from(row.try_get::<i64, _>(8)?).unwrap_or_default(),
            range: lowest.zip(highest).map(|(low, high)| (EventId(low), EventId(high))),
        })
    };
    rows.iter().map(audited).collect()
}

#[async_trait]
impl Desk for PostgresStore {
    async fn events(
        &self,
        selection: &Selection,
        after: EventId,
        limit: usize,
    ) -> Result<Vec<EventSeen>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look for events", async {
            let mut connection = self.pool.acquire().await?;
            events(&mut connection, statements, selection, after, limit).await
        })
        .await
    }

    async fn event(&self, id: EventId) -> Result<Option<EventWhole>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at an event", async {
            let mut connection = self.pool.acquire().await?;
            event(&mut connection, statements, &self.config.source, id).await
        })
        .await
    }

    async fn horizon(&self) -> Result<Horizon, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look for the youngest event", async {
            let mut connection = self.pool.acquire().await?;
            horizon(&mut connection, statements).await
        })
        .await
    }

    async fn held_keys(&self, query: &HeldQuery<'_>) -> Result<Vec<HeldKey>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at held keys", async {
            let mut connection = self.pool.acquire().await?;
            held_keys(&mut connection, statements, &self.config.source, query).await
        })
        .await
    }

    async fn change(
        &self,
        change: &Change,
        ids: &[EventId],
        states: &[EventState],
        audit: AuditId,
    ) -> Result<Changed, StoreError> {
        let statements = self.statements().await?;
        self.bounded("change events", async {
            let mut transaction = self.begin().await?;
            let wanted = Wanted { source: &self.config.source, change, ids, states };
            let changed = change::change(&mut transaction, statements, &wanted, audit).await?;
            transaction.commit().await?;
            Ok(changed)
        })
        .await
    }

    async fn drop_hold(&self, lane: &str, key: &str) -> Result<bool, StoreError> {
        let statements = self.statements().await?;
        self.bounded("let a key go", async {
            let mut transaction = self.begin().await?;
            let source = &self.config.source;
            let dropped =
                change::drop_hold(&mut transaction, statements, source, lane, key).await?;
            transaction.commit().await?;
            Ok(dropped)
        })
        .await
    }

    async fn audit(&self, entry: &AuditEntry<'_>) -> Result<AuditId, StoreError> {
        let statements = self.statements().await?;
        self.bounded("begin an audit record", async {
            let mut connection = self.pool.acquire().await?;
            begin_audit(&mut connection, statements, &self.config.source, entry).await
        })
        .await
    }

    async fn audit_ended(&self, id: AuditId) -> Result<(), StoreError> {
        let statements = self.statements().await?;
        self.bounded("end an audit record", async {
            let mut connection = self.pool.acquire().await?;
            end_audit(&mut connection, statements, id).await
        })
        .await
    }

    async fn audits(&self, limit: usize) -> Result<Vec<Audited>, StoreError> {
        let statements = self.statements().await?;
        self.bounded("look at the audit records", async {
            let mut connection = self.pool.acquire().await?;
            audits(&mut connection, statements, &self.config.source, limit).await
        })
        .await
    }
}
