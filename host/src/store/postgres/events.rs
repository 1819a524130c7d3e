//! The statements of one source, built once, and rows as events.
//!
//! Used by the claim, settle and stats modules. A row that cannot be used is still returned, with
//! the reason as its defect: one bad row never fails a batch.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use super::schema::Found;
use crate::event::{Event, EventId};
use crate::json;
use crate::store::tables::Tables;
use crate::store::{PayloadType, Settle};

/// The SQL of one source. Table names are quoted identifiers and types come from the catalogue, so
/// nothing here comes from outside unquoted; every value is bound.
pub(super) struct Statements {
    pub(super) tables: Tables,
    pub(super) settle: Settle,
    /// Whether rows may stand under row claims, and the index to find them is there.
    pub(super) row_claims: bool,
    /// Shards of a lane.
    pub(super) shards: i32,
    columns: String,
    pub(super) payload: String,
}

/// Joins the hold on an event's key, if there is one. LATERAL with LIMIT makes it a look-up by
/// primary key in every plan: one made while nothing was held would compare each event with each hold.
pub(super) fn hold(held_keys: &str, key: &str) -> String {
    format!(
        "LEFT JOIN LATERAL (SELECT h.event_id, h.until FROM {held_keys} h \
           WHERE h.source = $1 AND h.lane = $2 AND h.key = {key} LIMIT 1) h ON true"
    )
}

/// Whether an event is free of its key's hold, as far as a look from `bound` on can tell: a hold that
/// is over lets its key go only where the event it was for is in view.
fn free_from(bound: &str, now: &str) -> String {
    format!("(h.until IS NULL OR (h.until <= {now} AND h.event_id >= {bound}))")
}

/// The ordering key of a lane that is one order as a whole.
pub(super) const WHOLE_LANE_KEY: &str = "''::bytea";

/// One moment for a whole statement. As a column it can bound an index scan, which the volatile
/// function itself cannot; OFFSET keeps the planner from putting the function back.
pub(super) const CLOCK: &str = "(SELECT clock_timestamp() AS now OFFSET 0) clock";

/// Free shards that one full look surveys.
const SURVEYED_AT_ONCE: usize = 32;

/// Names the index that reads a whole lane: see its migration.
pub(super) const WHOLE_LANE: &str = "AND e.attempts >= 0";

/// The ordering key, as bytes to compare. NULL is no key, and nothing holds it.
pub(super) const KEY_BYTES: &str = "convert_to(coalesce(e.partition_key, e.aggregate_id), 'UTF8')";

impl Statements {
    pub(super) fn new(tables: &Tables, found: &Found, settle: Settle) -> Self {
        // Everything but bytes is read as text: for json the cast changes nothing, binary jsonb has a
        // version byte in front, and other types have binary forms of their own.
        let raw = found.payload_type == PayloadType::Bytea.sql();
        let payload = if raw { "e.payload" } else { "e.payload::text" }.to_owned();
        let columns = format!(
            "e.id, e.shard, e.aggregate_type, e.aggregate_id, e.event_type, e.partition_key, e.topic, \
             e.headers::text, {payload}, e.attempts, \
             (extract(epoch FROM e.created_at) * 1000)::float8, \
             (extract(epoch FROM clock.now) - extract(epoch FROM greatest(e.available_at, e.created_at)))::float8, \
             e.redelivery",
        );
        Self {
            tables: tables.clone(),
            settle,
            row_claims: found.whole_lane_index,
            shards: found.shards,
            columns,
            payload,
        }
    }

    /// Shards that are free and have due work that nothing holds, those served longest ago first; or
    /// the one lease of a whole lane. `$1` source, `$2` lane, `$3` most shards, `$4` whether to look
    /// everywhere.
    pub(super) fn candidates(&self, whole_lane: bool) -> AssertSqlSafe<String> {
        let (of_shard, order, which, key) = if whole_lane {
            (WHOLE_LANE, "e.lane, e.id", "l.shard = -1", WHOLE_LANE_KEY)
        } else {
            ("AND e.shard = l.shard", "e.lane, e.shard, e.id", "l.shard >= 0", KEY_BYTES)
        };
        let bound = bound("$4", "clock.now");
        AssertSqlSafe(format!(
            "SELECT l.shard FROM {leases} l CROSS JOIN {CLOCK} CROSS JOIN LATERAL ( \
               SELECT 1 FROM {events} e {hold} WHERE e.lane = l.lane {of_shard} \
                 AND e.status = 'PENDING' AND e.id >= {bound} AND e.available_at <= clock.now \
                 AND {free} ORDER BY {order} LIMIT 1) due \
             WHERE l.source = $1 AND l.lane = $2 AND {which} \
               AND (l.token IS NULL OR l.expires_at <= clock.now) \
             ORDER BY l.served_at LIMIT $3",
            leases = self.tables.leases,
            events = self.tables.events,
            hold = hold(&self.tables.held_keys, key),
            free = free_from(&bound, "clock.now"),
        ))
    }

    /// Locks candidates that are still free. `$1` source, `$2` lane, `$3` shards.
    pub(super) fn lock_leases(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "SELECT l.shard, l.token, l.taken, l.highest_id, l.losses, l.lost_token, l.suspect_id, \
               l.suspect_limit, l.alone_id, l.alone_losses, \
               l.mark_at < clock_timestamp() - interval '30 seconds' \
             FROM {leases} l WHERE l.source = $1 AND l.lane = $2 AND l.shard = ANY($3) \
               AND (l.token IS NULL OR l.expires_at <= clock_timestamp()) \
             FOR UPDATE SKIP LOCKED",
            leases = self.tables.leases,
        ))
    }

    /// Reads due events of locked shards that no held key keeps back, in id order per shard.
    /// `$1` source, `$2` lane, `$3` shards, `$4` everywhere, `$5` rows per shard, `$6` bytes in all.
    ///
    /// One moment is taken for the whole statement, after its snapshot, and the lower bound is
    /// derived from that moment too: with a moment taken earlier, or one per row, an event could
    /// count as not yet due while a younger one of its key does. A hold that is over lets its key go
    /// only where the event it was for is in view: someone may have released it by hand.
    pub(super) fn read_leased(&self, whole_lane: bool) -> AssertSqlSafe<String> {
        let (of_shard, order, key) = if whole_lane {
            (WHOLE_LANE, "e.lane, e.id", WHOLE_LANE_KEY)
        } else {
            ("AND e.shard = s.shard", "e.lane, e.shard, e.id", KEY_BYTES)
        };
        let bound = bound("$4", "clock.now");
        AssertSqlSafe(format!(
            "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now) \
             SELECT {columns}, coalesce(e.held_by = e.id, false), e.leased FROM ( \
               SELECT d.*, s.shard AS leased, \
                 row_number() OVER (ORDER BY s.place, d.id) AS nth, \
                 sum(coalesce(octet_length({size}), 0)::bigint) OVER (ORDER BY s.place, d.id) AS bytes \
               FROM unnest($3::int[]) WITH ORDINALITY AS s(shard, place) \
               JOIN {leases} l ON l.source = $1 AND l.lane = $2 AND l.shard = s.shard \
               CROSS JOIN clock CROSS JOIN LATERAL ( \
                 SELECT e.*, h.event_id AS held_by FROM {events} e \
                 {hold} WHERE e.lane = $2 {of_shard} AND e.status = 'PENDING' AND e.id >= {bound} \
                   AND e.available_at <= clock.now AND {free} \
                 ORDER BY {order} LIMIT $5) d \
             ) e CROSS JOIN clock WHERE e.nth = 1 OR e.bytes <= $6 ORDER BY e.nth",
            columns = self.columns,
            size = self.payload.replace("e.", "d."),
            events = self.tables.events,
            leases = self.tables.leases,
            hold = hold(&self.tables.held_keys, key),
            free = free_from(&bound, "clock.now"),
        ))
    }

    /// Writes a lease. `$1` source, `$2` lane, `$3` token, `$4` owner, `$5` seconds; then arrays:
    /// `$6` shards, `$7` taken, `$8` highest id, `$9` losses, `$10` lost token, `$11` suspect id,
    /// `$12` suspect limit, `$13` alone id, `$14` alone losses.
    pub(super) fn write_leases(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "UPDATE {leases} l SET token = $3, owner = $4, \
               expires_at = clock_timestamp() + make_interval(secs => $5), served_at = clock_timestamp(), \
               taken = u.taken, highest_id = u.highest, losses = u.losses, lost_token = u.lost_token, \
               suspect_id = u.suspect_id, suspect_limit = u.suspect_limit, \
               alone_id = u.alone_id, alone_losses = u.alone_losses \
             FROM unnest($6::int[], $7::int[], $8::bigint[], $9::int[], $10::uuid[], $11::bigint[], \
               $12::int[], $13::bigint[], $14::int[]) \
               AS u(shard, taken, highest, losses, lost_token, suspect_id, suspect_limit, alone_id, alone_losses) \
             WHERE l.source = $1 AND l.lane = $2 AND l.shard = u.shard",
            leases = self.tables.leases,
        ))
    }

    /// A few free shards with pending events, for [`Statements::survey`], those surveyed longest ago:
    /// with a large backlog all of them would be locked for long.
    /// `$1` source, `$2` lane, `$3` shards to leave out.
    pub(super) fn lock_idle(&self, whole_lane: bool) -> AssertSqlSafe<String> {
        let (of_shard, which) = if whole_lane {
            (WHOLE_LANE, "l.shard = -1")
        } else {
            ("AND e.shard = l.shard", "l.shard >= 0")
        };
        AssertSqlSafe(format!(
            "SELECT l.shard FROM {leases} l WHERE l.source = $1 AND l.lane = $2 AND {which} \
               AND l.token IS NULL AND NOT (l.shard = ANY($3)) \
               AND EXISTS (SELECT 1 FROM {events} e WHERE e.lane = l.lane {of_shard} \
                 AND e.status = 'PENDING') \
             ORDER BY l.mark_at LIMIT {SURVEYED_AT_ONCE} FOR UPDATE SKIP LOCKED",
            leases = self.tables.leases,
            events = self.tables.events,
        ))
    }

    /// Brings the bounds of locked shards up to date, so that dead rows, held events and scheduled
    /// events are not walked over again and again. `$1` source, `$2` lane, `$3` shards, `$4` whether
    /// to find out when the next event is due.
    ///
    /// A mark is the highest id seen, with the snapshot's xmax. Once every transaction of that time
    /// has ended, no row at or below it can appear any more (ids come from a sequence without
    /// cache), so bounds derived from it hide nothing, however long a transaction runs. The five
    /// seconds cover a transaction that has its id but not yet its transaction number.
    pub(super) fn survey(&self, whole_lane: bool) -> AssertSqlSafe<String> {
        let (of_shard, key, order) = if whole_lane {
            (WHOLE_LANE, WHOLE_LANE_KEY, ["e.lane, e.id", "e.lane DESC, e.id DESC"])
        } else {
            let order = ["e.lane, e.shard, e.id", "e.lane DESC, e.shard DESC, e.id DESC"];
            ("AND e.shard = l.shard", KEY_BYTES, order)
        };
        let pending =
            format!("e.lane = $2 {of_shard} AND e.status = 'PENDING' AND e.id >= l.floor_id",);
        let passed = "l.mark_xmax <= snap.xmin AND l.mark_at < snap.now - interval '5 seconds'";
        AssertSqlSafe(format!(
            "WITH snap AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin, \
               pg_snapshot_xmax(pg_current_snapshot()) AS xmax, clock_timestamp() AS now), \
             seen AS MATERIALIZED (SELECT l.shard, snap.*, \
               {passed} AS passed, \
               (SELECT e.id FROM {events} e WHERE {pending} ORDER BY {first} LIMIT 1) AS lowest, \
               (SELECT e.id FROM {events} e WHERE {pending} ORDER BY {last} LIMIT 1) AS highest, \
               CASE WHEN $4 AND {passed} THEN coalesce( \
                 (SELECT snap.now FROM {events} e {hold} WHERE {pending} AND e.available_at <= snap.now \
                   AND (h.until IS NULL OR h.until <= snap.now) ORDER BY {first} LIMIT 1), \
                 (SELECT min(greatest(e.available_at, h.until)) FROM {events} e {hold} \
                   WHERE {pending} AND e.id <= l.mark_id), 'infinity') END AS due \
               FROM {leases} l CROSS JOIN snap \
               WHERE l.source = $1 AND l.lane = $2 AND l.shard = ANY($3)) \
             UPDATE {leases} l SET \
               floor_id = CASE WHEN s.passed THEN least(s.lowest, l.mark_id + 1) ELSE l.floor_id END, \
               seen_id = CASE WHEN s.passed AND $4 THEN l.mark_id ELSE l.seen_id END, \
               next_due_at = CASE WHEN s.passed AND $4 THEN s.due ELSE l.next_due_at END, \
               mark_id = greatest(s.highest, l.highest_id, l.mark_id), mark_xmax = s.xmax, mark_at = s.now \
             FROM seen s WHERE l.source = $1 AND l.lane = $2 AND l.shard = s.shard \
               AND (s.passed OR l.mark_xmax IS NULL)",
            first = order[0],
            last = order[1],
            events = self.tables.events,
            leases = self.tables.leases,
            hold = hold(&self.tables.held_keys, key),
        ))
    }

    /// Lets go of holds that are over and whose event is no longer waiting: somebody has settled it by
    /// hand. `$1` source, `$2` lane.
    pub(super) fn drop_stale_holds(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "DELETE FROM {held} h WHERE h.source = $1 AND h.lane = $2 AND h.until <= clock_timestamp() \
               AND NOT EXISTS (SELECT 1 FROM {events} e WHERE e.id = h.event_id AND e.status = 'PENDING')",
            held = self.tables.held_keys,
            events = self.tables.events,
        ))
    }

    /// Gives back rows under expired row claims, left from when the lane had no order. `$1` lane.
    pub(super) fn give_back_rows(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "UPDATE {events} e SET status = 'PENDING', claim_owner = NULL, claim_token = NULL, \
               claim_expires_at = NULL \
             WHERE e.lane = $1 AND e.status = 'PROCESSING' AND e.claim_expires_at <= clock_timestamp()",
            events = self.tables.events,
        ))
    }

    /// Puts shards behind the others. `$1` source, `$2` lane, `$3` shards.
    pub(super) fn note_served(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "UPDATE {leases} SET served_at = clock_timestamp() \
             WHERE source = $1 AND lane = $2 AND shard = ANY($3)",
            leases = self.tables.leases,
        ))
    }

    /// Rows for a row claim, locked. `$1` lane, `$2` rows, with their payload sizes.
    pub(super) fn lock_rows(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "SELECT e.id, coalesce(octet_length({size}), 0)::bigint FROM {events} e \
             WHERE e.lane = $1 AND e.status = 'PENDING' {WHOLE_LANE} AND e.available_at <= clock_timestamp() \
             ORDER BY e.lane, e.id LIMIT $2 FOR UPDATE SKIP LOCKED",
            size = self.payload,
            events = self.tables.events,
        ))
    }

    /// Rows under expired claims, locked, those lost least often first. `$1` lane, `$2` rows.
    pub(super) fn lock_expired_rows(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "SELECT e.id, coalesce(octet_length({size}), 0)::bigint, e.claim_losses FROM {events} e \
             WHERE e.lane = $1 AND e.status = 'PROCESSING' AND e.claim_expires_at <= clock_timestamp() \
             ORDER BY e.claim_losses, e.id LIMIT $2 FOR UPDATE SKIP LOCKED",
            size = self.payload,
            events = self.tables.events,
        ))
    }

    /// Pending rows, read only. `$1` lane, `$2` rows.
    pub(super) fn peek(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "SELECT {columns}, false, e.shard FROM (SELECT e.* FROM {events} e \
               WHERE e.lane = $1 AND e.status = 'PENDING' ORDER BY e.id LIMIT $2) e \
             CROSS JOIN {CLOCK} ORDER BY e.id",
            columns = self.columns,
            events = self.tables.events,
        ))
    }

    /// Marks locked rows as claimed. `$1` ids, `$2` token, `$3` owner, `$4` seconds, `$5` losses to add.
    pub(super) fn claim_rows(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now) \
             UPDATE {events} e SET status = 'PROCESSING', claim_token = $2, claim_owner = $3, \
               claim_expires_at = clock.now + make_interval(secs => $4), claim_losses = e.claim_losses + $5 \
             FROM clock WHERE e.id = ANY($1) RETURNING {columns}, false, 0",
            columns = self.columns,
            events = self.tables.events,
        ))
    }
}

/// The lowest id worth looking at. `everywhere` is the placeholder of the full look.
pub(super) fn bound(everywhere: &str, now: &str) -> String {
    format!(
        "CASE WHEN {everywhere} THEN 0 WHEN l.next_due_at > {now} THEN greatest(l.seen_id + 1, l.floor_id) \
         ELSE l.floor_id END"
    )
}

/// One row of a read or claim statement as an event, with the shard whose lease it is under.
pub(super) fn event(row: &PgRow) -> Result<Event, sqlx::Error> {
    let id = EventId(row.try_get(0)?);
    let (headers, defect) = match row.try_get::<Option<&str>, _>(7)?.map(json::headers) {
        None => (Vec::new(), None),
        Some(Ok(headers)) => (headers, None),
        Some(Err(problem)) => (Vec::new(), Some(problem)),
    };
    let payload = row.try_get_raw(8)?;
    let payload = match sqlx::ValueRef::is_null(&payload) {
        true => None,
        false => Some(Bytes::copy_from_slice(payload.as_bytes().map_err(sqlx::Error::Decode)?)),
    };
    let created_at_ms: f64 = row.try_get(10)?;
    let waited: f64 = row.try_get(11)?;
    let leased: i32 = row.try_get(14)?;
    Ok(Event {
        id,
        shard: leased,
        aggregate_type: row.try_get(2)?,
        aggregate_id: row.try_get(3)?,
        event_type: row.try_get(4)?,
        partition_key: row.try_get(5)?,
        topic: row.try_get(6)?,
        headers,
        payload,
        attempts: u32::try_from(row.try_get::<i32, _>(9)?).unwrap_or_default(),
        created_at_ms: created_at_ms as i64,
        waited: Duration::try_from_secs_f64(waited).unwrap_or_default(),
        redelivery: row.try_get(12)?,
        holds_key: row.try_get(13)?,
        defect,
    })
}
