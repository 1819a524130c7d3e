-- For lanes with ordering = "none" or "total", which read a whole lane in id order.
CREATE INDEX IF NOT EXISTS {index_lane} ON {table} (lane, id) WHERE status = 'PENDING';
-- Claims to recover in lanes with ordering = "none".
CREATE INDEX IF NOT EXISTS {index_claims} ON {table} (lane, claim_expires_at) WHERE status = 'PROCESSING';
