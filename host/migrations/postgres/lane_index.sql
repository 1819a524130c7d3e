-- For lanes with ordering = "none" or "total", which read a whole lane in id order. The second half
-- of the condition always holds; only the statements that want this index repeat it, so that the
-- planner never takes it to look for one shard.
CREATE INDEX IF NOT EXISTS {index_lane} ON {table} (lane, id) WHERE status = 'PENDING' AND attempts >= 0;
-- Claims to recover in lanes with ordering = "none".
CREATE INDEX IF NOT EXISTS {index_claims} ON {table} (lane, claim_expires_at) WHERE status = 'PROCESSING';
