"""Writes an order and the event that tells of it, in one transaction, with psycopg.

Run it with DATABASE_URL set and an order id; with the word "fail" after it, it fails before the
commit, and neither has ever been there.
"""

import os
import sys

import psycopg
from psycopg.types.json import Json


def place_order(connection: psycopg.Connection, order: dict, fail: bool) -> None:
    """Commits both rows or, when it raises, neither."""
    # snippet:start
    with connection.transaction():
        # The order's own row comes first. Its lock makes the transactions of one order take
        # turns, so that the ids of their events are in commit order.
        connection.execute(
            "INSERT INTO orders (id, customer_id, total_cents)"
            " VALUES (%(id)s, %(customer_id)s, %(total_cents)s)",
            order,
        )
        connection.execute(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)"
            " VALUES ('order', %s, 'order.created', %s)",
            (order["id"], Json(order)),
        )
        # snippet:end
        if fail:
            raise RuntimeError("failed on purpose")


def main() -> None:
    if len(sys.argv) < 2 or "DATABASE_URL" not in os.environ:
        sys.exit("usage: DATABASE_URL=postgres://… python order.py ORDER_ID [fail]")
    order = {"id": sys.argv[1], "customer_id": "c-17", "total_cents": 1250}
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        place_order(connection, order, fail=sys.argv[2:] == ["fail"])


if __name__ == "__main__":
    main()
