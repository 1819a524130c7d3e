-- Haulier's own tables, keyed by source. Times are milliseconds since the epoch.

-- Which table a source is, and how many shards it was given.
CREATE TABLE IF NOT EXISTS {sources} (
    source         TEXT PRIMARY KEY,
    table_name     TEXT NOT NULL UNIQUE,
    shards         INTEGER NOT NULL,
    schema_version INTEGER NOT NULL,
    created_at     INTEGER NOT NULL DEFAULT ({now})
) WITHOUT ROWID;

-- One row per (source, lane, shard): the right to work on that shard. Shard -1 is a whole lane.
CREATE TABLE IF NOT EXISTS {leases} (
    source        TEXT NOT NULL,
    lane          TEXT NOT NULL,
    shard         INTEGER NOT NULL,
    token         BLOB,
    owner         TEXT,
    expires_at    INTEGER,
    -- The batch under the lease: how many events, and the highest id among them.
    taken         INTEGER NOT NULL DEFAULT 0,
    highest_id    INTEGER NOT NULL DEFAULT 0,
    -- Expiries without release, and what they make suspect.
    losses        INTEGER NOT NULL DEFAULT 0,
    lost_token    BLOB,
    suspect_id    INTEGER,
    suspect_limit INTEGER,
    alone_id      INTEGER,
    alone_losses  INTEGER NOT NULL DEFAULT 0,
    published     INTEGER NOT NULL DEFAULT 0,
    served_at     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (source, lane, shard)
) WITHOUT ROWID;

-- Ordering keys whose later events wait.
CREATE TABLE IF NOT EXISTS {held_keys} (
    source   TEXT NOT NULL,
    lane     TEXT NOT NULL,
    key      BLOB NOT NULL,
    until    INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    held_at  INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (source, lane, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {index_held_event} ON {held_keys} (source, event_id);

-- What each instance says of itself, every few seconds; for `haulier status` only.
CREATE TABLE IF NOT EXISTS {instances} (
    source     TEXT NOT NULL,
    instance   TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    stopped_at INTEGER,
    report     TEXT NOT NULL,
    PRIMARY KEY (source, instance)
) WITHOUT ROWID;

-- What operators have done, by command or by the admin port.
CREATE TABLE IF NOT EXISTS {audit} (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    source     TEXT NOT NULL,
    at         INTEGER NOT NULL DEFAULT ({now}),
    ended_at   INTEGER,
    actor      TEXT NOT NULL,
    via        TEXT NOT NULL,
    action     TEXT NOT NULL,
    -- What was asked for, as JSON.
    selection  TEXT NOT NULL,
    note       TEXT,
    -- The events that were changed: how many, and the lowest and highest ids.
    events     INTEGER NOT NULL DEFAULT 0,
    lowest_id  INTEGER,
    highest_id INTEGER
);
