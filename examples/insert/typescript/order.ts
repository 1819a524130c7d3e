/**
 * Writes an order and the event that tells of it, in one transaction, with node-postgres.
 *
 * Run it with DATABASE_URL set and an order id; with the word "fail" after it, it fails before the
 * commit, and neither has ever been there.
 */
import { Client } from "pg";

interface Order {
  id: string;
  customer_id: string;
  total_cents: number;
}

/** Commits both rows or, when it throws, neither. */
async function placeOrder(client: Client, order: Order, fail: boolean): Promise<void> {
  // snippet:start
  await client.query("BEGIN");
  try {
    // The order's own row comes first. Its lock makes the transactions of one order take turns, so
    // that the ids of their events are in commit order.
    await client.query("INSERT INTO orders (id, customer_id, total_cents) VALUES ($1, $2, $3)", [
      order.id, order.customer_id, order.total_cents,
    ]);
    await client.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
       VALUES ('order', $1, 'order.created', $2)`,
      [order.id, JSON.stringify(order)],
    );
    // snippet:end
    if (fail) {
      throw new Error("failed on purpose");
    }
    // snippet:start
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
  // snippet:end
}

const [id, word] = process.argv.slice(2);
const url = process.env.DATABASE_URL;
if (id === undefined || url === undefined) {
  console.error("usage: DATABASE_URL=postgres://… node dist/order.js ORDER_ID [fail]");
  process.exit(64);
}
const client = new Client({ connectionString: url });
await client.connect();
try {
  await placeOrder(client, { id, customer_id: "c-17", total_cents: 1250 }, word === "fail");
} finally {
  await client.end();
}
