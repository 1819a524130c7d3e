-- Haulier's own tables, one set per schema, keyed by source.

-- Which table a source is, and how many shards it was given.
CREATE TABLE IF NOT EXISTS {sources} (
    source         text PRIMARY KEY,
    table_name     text NOT NULL UNIQUE,
    shards         integer NOT NULL,
    schema_version integer NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);

-- One row per (source, lane, shard): the right to work on that shard. Shard -1 is a whole lane.
CREATE TABLE IF NOT EXISTS {leases} (
    source        text NOT NULL,
    lane          text NOT NULL,
    shard         integer NOT NULL,
    token         uuid,
    owner         text,
    expires_at    timestamptz,
    -- The batch under the lease: how many events, and the highest id among them.
    taken         integer NOT NULL DEFAULT 0,
    highest_id    bigint NOT NULL DEFAULT 0,
    -- Expiries without release, and what they make suspect.
    losses        integer NOT NULL DEFAULT 0,
    lost_token    uuid,
    suspect_id    bigint,
    suspect_limit integer,
    alone_id      bigint,
    alone_losses  integer NOT NULL DEFAULT 0,
    -- Below floor_id nothing is pending. Up to seen_id nothing is due before next_due_at. Both are
    -- derived from a mark: an id that no running transaction can commit below any more.
    floor_id      bigint NOT NULL DEFAULT 0,
    seen_id       bigint NOT NULL DEFAULT 0,
    next_due_at   timestamptz,
    mark_id       bigint NOT NULL DEFAULT 0,
    mark_xmax     xid8,
    mark_at       timestamptz NOT NULL DEFAULT '-infinity',
    published     bigint NOT NULL DEFAULT 0,
    served_at     timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (source, lane, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Ordering keys whose later events wait.
CREATE TABLE IF NOT EXISTS {held_keys} (
    source   text NOT NULL,
    lane     text NOT NULL,
    key      bytea NOT NULL,
    until    timestamptz NOT NULL,
    event_id bigint NOT NULL,
    reason   text NOT NULL,
    held_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, lane, key)
);
CREATE INDEX IF NOT EXISTS {index_held_event} ON {held_keys} (source, event_id);

-- What each instance says of itself, every few seconds; for `haulier status` only.
CREATE TABLE IF NOT EXISTS {instances} (
    source     text NOT NULL,
    instance   text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    stopped_at timestamptz,
    report     text NOT NULL,
    PRIMARY KEY (source, instance)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What operators have done, by command or by the admin port.
CREATE TABLE IF NOT EXISTS {audit} (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source     text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    actor      text NOT NULL,
    via        text NOT NULL,
    action     text NOT NULL,
    -- What was asked for, as JSON.
    selection  text NOT NULL,
    note       text,
    -- The events that were changed: how many, and the lowest and highest ids.
    events     bigint NOT NULL DEFAULT 0,
    lowest_id  bigint,
    highest_id bigint
);
