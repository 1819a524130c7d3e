-- Writes an order and the event that tells of it, in one transaction, with psql:
--
--     psql "$DATABASE_URL" -v id=4711 -f order.sql
--
-- With `-v fail=1` as well it fails before the commit, and neither has ever been there.

\set ON_ERROR_STOP on

-- snippet:start
BEGIN;

-- The order's own row comes first. Its lock makes the transactions of one order take turns, so
-- that the ids of their events are in commit order.
INSERT INTO orders (id, customer_id, total_cents)
VALUES (:'id', 'c-17', 1250);

INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
VALUES ('order', :'id', 'order.created',
        json_build_object('id', :'id', 'customer_id', 'c-17', 'total_cents', 1250));
-- snippet:end

\if :{?fail}
  DO $$ BEGIN RAISE EXCEPTION 'failed on purpose'; END $$;
\endif

-- snippet:start

COMMIT;
-- snippet:end
