//! What operators look at: events, held keys, the audit record.
//!
//! Called by the store for the operators' desk. It only reads, but for the audit record; what changes
//! events is next door in `change`. Every list is bounded. Any value may stand in any column, so texts are
//! read as bytes.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Sqlite};

use super::events::{KEY_BYTES, SIZE, Statements, list};
use super::{Connection, FAR, NOW, SqliteStore, change, ids, now, sql_limit};
use crate::event::EventId;
use crate::failure::PluginStamp;
use crate::store::StoreError;
use crate::store::desk::{
    AuditEntry, AuditId, Audited, Behind, Change, Changed, Desk, DueIn, EventSeen, EventState,
    EventWhole, HeldKey, HeldQuery, Horizon, MOST_BEHIND, Selection, Wanted,
};
use crate::store::standing::age;

/// How a row stands at `now`, in the words of [`EventState`].
pub(super) fn state_at(now: i64) -> String {
    format!(
        "CASE WHEN e.status <> 'PENDING' THEN lower(e.status) \
         WHEN e.failure_kind IS NULL OR e.available_at <= {now} THEN 'pending' \
         WHEN e.available_at >= {FAR} THEN 'halted' ELSE 'waiting' END"
    )
}

fn columns(now: i64) -> String {
    let text = |name: &str| format!("CAST(e.{name} AS BLOB)");
    format!(
        "e.id, {lane}, {state}, {KEY_BYTES}, {aggregate_type}, {aggregate_id}, {event_type}, {topic}, \
         CAST(e.attempts AS INTEGER), CAST(e.created_at AS INTEGER), CAST(e.published_at AS INTEGER), \
         CASE WHEN e.available_at < {FAR} THEN max(0, e.available_at - {now}) END, {reason}, {error}, \
         {plugin}, {version}, {hash}, {redelivery}, CASE WHEN e.payload IS NOT NULL THEN {SIZE} END",
        state = state_at(now),
        lane = text("lane"),
        aggregate_type = text("aggregate_type"),
        aggregate_id = text("aggregate_id"),
        event_type = text("event_type"),
        topic = text("topic"),
        reason = text("failure_kind"),
        error = text("last_error"),
        plugin = text("failure_plugin"),
        version = text("failure_version"),
        hash = text("failure_hash"),
        redelivery = text("redelivery"),
    )
}

/// A text column that was read as bytes.
fn text(row: &SqliteRow, at: usize) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(at)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn word(row: &SqliteRow, at: usize) -> Result<String, sqlx::Error> {
    text(row, at).map(Option::unwrap_or_default)
}

pub(super) fn state(name: &str) -> Result<EventState, sqlx::Error> {
    EventState::named(name).ok_or_else(|| {
        sqlx::Error::Decode(format!("a row has the status '{name}', which is none").into())
    })
}

fn seen(row: &SqliteRow) -> Result<EventSeen, sqlx::Error> {
    let plugin = match text(row, 14)? {
        None => None,
        Some(name) => Some(PluginStamp { name, version: word(row, 15)?, hash: word(row, 16)? }),
    };
    Ok(EventSeen {
        id: EventId(row.try_get(0)?),
        lane: word(row, 1)?,
        state: state(row.try_get(2)?)?,
        key: text(row, 3)?,
        aggregate_type: word(row, 4)?,
        aggregate_id: text(row, 5)?,
        event_type: word(row, 6)?,
        topic: text(row, 7)?,
        attempts: u32::try_from(row.try_get::<i64, _>(8)?).unwrap_or_default(),
        created_at_ms: row.try_get(9)?,
        published_at_ms: row.try_get(10)?,
        due: DueIn::of_millis_left(row.try_get(11)?),
        reason: text(row, 12)?,
        error: text(row, 13)?,
        plugin,
        redelivery: text(row, 17)?,
        payload_bytes: row.try_get::<Option<i64>, _>(18)?.map(|n| u64::try_from(n).unwrap_or(0)),
    })
}

/// Adds the conditions of a selection.
fn narrow(query: &mut QueryBuilder<Sqlite>, selection: &Selection, now: i64) {
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
        query.push(" AND e.id IN (SELECT value FROM json_each(");
        query.push_bind(list(&ids(some))).push("))");
    }
    if !states.is_empty() {
        let failed = "e.status = 'PENDING' AND e.failure_kind IS NOT NULL AND e.available_at";
        let one = |state: &EventState| match state {
            EventState::Pending => "e.status = 'PENDING'".to_owned(),
            EventState::Processing => "e.status = 'PROCESSING'".to_owned(),
            EventState::Published => "e.status = 'PUBLISHED'".to_owned(),
            EventState::Failed => "e.status = 'FAILED'".to_owned(),
            EventState::Waiting => format!("({failed} > {now} AND e.available_at < {FAR})"),
            EventState::Halted => format!("({failed} >= {FAR})"),
        };
        let any: Vec<String> = states.iter().map(one).collect();
        query.push(" AND (").push(any.join(" OR ")).push(")");
    }
    if let Some(lane) = lane {
        query.push(" AND e.lane = ").push_bind(lane.clone());
    }
    if let Some(key) = key {
        query.push(format!(" AND {KEY_BYTES} = CAST(")).push_bind(key.clone()).push(" AS BLOB)");
    }
    if let Some(event_type) = event_type {
        // LIKE does not tell upper from lower case here.
        query.push(" AND e.event_type GLOB ").push_bind(glob(event_type));
    }
    if let Some(reason) = reason {
        query.push(" AND e.failure_kind = ").push_bind(reason.clone());
    }
    if let Some(reason) = except_reason {
        query.push(" AND e.failure_kind IS NOT ").push_bind(*reason);
    }
    for (bound, comparison) in [(since_ms, ">="), (until_ms, "<")] {
        if let Some(at) = bound {
            query.push(format!(" AND CAST(e.created_at AS INTEGER) {comparison} ")).push_bind(*at);
        }
    }
}

/// A pattern with `*` as one for GLOB, in which `?` and `[` mean something too.
fn glob(pattern: &str) -> String {
    pattern.replace('[', "[[]").replace('?', "[?]")
}

async fn events(
    connection: &mut Connection,
    statements: &Statements,
    selection: &Selection,
    after: EventId,
    limit: usize,
) -> Result<Vec<EventSeen>, sqlx::Error> {
    let now = now(connection).await?;
    let events = &statements.tables.events;
    let mut query =
        QueryBuilder::new(format!("SELECT {} FROM {events} e WHERE e.id > ", columns(now)));
    query.push_bind(after.0);
    narrow(&mut query, selection, now);
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
    let now = now(connection).await?;
    let sql = format!(
        "SELECT {columns}, CAST(e.headers AS BLOB), CAST(e.payload AS BLOB), \
           EXISTS (SELECT 1 FROM {held} h WHERE h.source = ?1 AND h.event_id = e.id), \
           CASE WHEN e.status = 'PROCESSING' THEN e.claim_owner WHEN e.status = 'PENDING' \
             AND e.available_at <= {now} THEN \
             (SELECT l.owner FROM {leases} l WHERE l.source = ?1 AND l.lane = e.lane \
               AND l.shard IN (e.shard, -1) AND l.token IS NOT NULL AND l.expires_at > {now} \
               AND l.highest_id >= e.id LIMIT 1) END \
         FROM {events} e WHERE e.id = ?2",
        columns = columns(now),
        held = statements.tables.held_keys,
        leases = statements.tables.leases,
        events = statements.tables.events,
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(id.0)
        .persistent(false)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(EventWhole {
        seen: seen(&row)?,
        headers: text(&row, 19)?,
        payload: row.try_get(20)?,
        holds_key: row.try_get(21)?,
        owner: row.try_get(22)?,
    }))
}

async fn horizon(
    connection: &mut Connection,
    statements: &Statements,
) -> Result<Horizon, sqlx::Error> {
    let sql = format!("SELECT coalesce(max(id), 0), {NOW} FROM {}", statements.tables.events);
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?;
    Ok(Horizon { highest: EventId(row.try_get(0)?), now_ms: row.try_get(1)? })
}

async fn held_keys(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    query: &HeldQuery<'_>,
) -> Result<Vec<HeldKey>, sqlx::Error> {
    let now = now(connection).await?;
    // A hold whose key is not the event's own is one of a whole lane.
    let sql = format!(
        "SELECT CAST(h.lane AS BLOB), h.key, h.event_id, coalesce(w.status = 'PENDING', 0), \
           CAST(h.reason AS BLOB), CASE WHEN h.until < {FAR} THEN max(0, h.until - {now}) END, \
           {now} - h.held_at, CASE WHEN w.id IS NULL OR NOT ?8 THEN 0 \
             WHEN coalesce(CAST(coalesce(w.partition_key, w.aggregate_id) AS BLOB), x'') = h.key THEN \
             (SELECT count(*) FROM (SELECT 1 FROM {events} e WHERE e.lane = h.lane AND e.shard = w.shard \
               AND e.status = 'PENDING' AND {KEY_BYTES} = h.key LIMIT {MOST_BEHIND})) \
           ELSE (SELECT count(*) FROM (SELECT 1 FROM {events} e WHERE e.lane = h.lane \
               AND e.status = 'PENDING' LIMIT {MOST_BEHIND})) END \
         FROM {held} h LEFT JOIN {events} w ON w.id = h.event_id \
         WHERE h.source = ?1 AND (?2 IS NULL OR h.lane = ?2) AND (?3 IS NULL OR h.key = CAST(?3 AS BLOB)) \
           AND (?4 IS NULL OR (h.lane, h.key) > (?4, CAST(?5 AS BLOB))) \
           AND (?7 IS NULL OR h.reason = ?7) \
         ORDER BY h.lane, h.key LIMIT ?6",
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
    let held_key = |row: &SqliteRow| {
        Ok(HeldKey {
            lane: word(row, 0)?,
            key: word(row, 1)?,
            event: EventId(row.try_get(2)?),
            event_pending: row.try_get(3)?,
            reason: word(row, 4)?,
            until: DueIn::of_millis_left(row.try_get(5)?),
            held_for: age(row.try_get(6)?),
            waiting: u64::try_from(row.try_get::<i64, _>(7)?).unwrap_or_default(),
        })
    };
    rows.iter().map(held_key).collect()
}

async fn drop_hold(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    lane: &str,
    key: &str,
) -> Result<bool, sqlx::Error> {
    let sql = format!(
        "DELETE FROM {held} AS h WHERE h.source = ?1 AND h.lane = ?2 AND h.key = CAST(?3 AS BLOB) \
           AND NOT EXISTS (SELECT 1 FROM {events} e WHERE e.id = h.event_id AND e.status = 'PENDING')",
        held = statements.tables.held_keys,
        events = statements.tables.events,
    );
    let dropped = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(lane)
        .bind(key)
        .execute(connection)
        .await?;
    Ok(dropped.rows_affected() > 0)
}

async fn begin_audit(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    entry: &AuditEntry<'_>,
) -> Result<AuditId, sqlx::Error> {
    let sql = format!(
        "INSERT INTO {} (source, actor, via, action, selection, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        statements.tables.audit
    );
    let done = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(entry.actor)
        .bind(entry.via)
        .bind(entry.action)
        .bind(entry.selection)
        .bind(entry.note)
        .execute(connection)
        .await?;
    Ok(AuditId(done.last_insert_rowid()))
}

async fn end_audit(
    connection: &mut Connection,
    statements: &Statements,
    id: AuditId,
) -> Result<(), sqlx::Error> {
    let now = now(connection).await?;
    let sql = format!("UPDATE {} SET ended_at = ?2 WHERE id = ?1", statements.tables.audit);
    sqlx::query(AssertSqlSafe(sql)).bind(id.0).bind(now).execute(connection).await.map(|_| ())
}

async fn audits(
    connection: &mut Connection,
    statements: &Statements,
    source: &str,
    limit: usize,
) -> Result<Vec<Audited>, sqlx::Error> {
    let sql = format!(
        "SELECT id, at, ended_at, actor, via, action, selection, note, events, lowest_id, highest_id \
         FROM {} WHERE source = ?1 ORDER BY id DESC LIMIT ?2",
        statements.tables.audit,
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(source)
        .bind(sql_limit(limit))
        .fetch_all(connection)
        .await?;
    let audited = |row: &SqliteRow| {
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
impl Desk for SqliteStore {
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
            let mut connection = self.pool.acquire().await?;
            drop_hold(&mut connection, statements, &self.config.source, lane, key).await
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
