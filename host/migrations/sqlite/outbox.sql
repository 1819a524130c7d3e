-- The outbox of one source. Written by `haulier migrate`; running it again changes nothing.

CREATE TABLE IF NOT EXISTS {table} (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What the application writes; only event_type is required.
    lane             TEXT NOT NULL DEFAULT 'default',
    aggregate_type   TEXT NOT NULL DEFAULT '',
    aggregate_id     TEXT,
    event_type       TEXT NOT NULL,
    partition_key    TEXT,
    topic            TEXT,
    headers          TEXT CHECK (headers IS NULL OR json_valid(headers)),
    payload          {payload_column},
    -- Milliseconds since the epoch; 0 is at once, whatever the clock does.
    available_at     INTEGER NOT NULL DEFAULT 0 CHECK (typeof(available_at) = 'integer'),
    created_at       INTEGER NOT NULL DEFAULT ({now}),
    -- What Haulier writes.
    status           TEXT NOT NULL DEFAULT 'PENDING'
                     CHECK (status IN ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    published_at     INTEGER,
    claim_owner      TEXT,
    claim_token      BLOB,
    claim_expires_at INTEGER,
    claim_losses     INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    failure_kind     TEXT,
    failure_plugin   TEXT,
    failure_version  TEXT,
    failure_hash     TEXT,
    -- What brought the event back after it was parked or published: 'retry/…', 'replay/…'.
    redelivery       TEXT,
    -- The shard of the ordering key: built from functions that give the same in every version.
    shard            INTEGER GENERATED ALWAYS AS ({shard_expression}) STORED
);

-- Pending events, in the order in which a shard is read.
CREATE INDEX IF NOT EXISTS {index_due} ON {table} (lane, shard, id) WHERE status = 'PENDING';
-- What retention deletes.
CREATE INDEX IF NOT EXISTS {index_published} ON {table} (published_at) WHERE status = 'PUBLISHED';
-- What waits for a person.
CREATE INDEX IF NOT EXISTS {index_failed} ON {table} (lane, id) WHERE status = 'FAILED';
