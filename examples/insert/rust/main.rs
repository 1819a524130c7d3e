//! Writes an order and the event that tells of it, in one transaction, with sqlx.
//!
//! Run it with `DATABASE_URL` set and an order id; with the word `fail` after it, it fails before the
//! commit, and neither has ever been there. [`place_order`] is what the README shows. It knows nothing
//! of Kafka and nothing of Haulier but the outbox table.

use anyhow::{Context as _, ensure};
use serde_json::json;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

/// An order as a customer places it.
struct Order<'a> {
    id: &'a str,
    customer_id: &'a str,
    total_cents: i64,
}

/// Commits both rows or, when it returns an error, neither.
async fn place_order(
    database: &mut PgConnection,
    order: &Order<'_>,
    fail: bool,
) -> anyhow::Result<()> {
    let payload = json!({
        "id": order.id,
        "customer_id": order.customer_id,
        "total_cents": order.total_cents,
    });
    // snippet:start
    let mut transaction = database.begin().await?;
    // The order's own row comes first. Its lock makes the transactions of one order take turns, so
    // that the ids of their events are in commit order.
    sqlx::query("INSERT INTO orders (id, customer_id, total_cents) VALUES ($1, $2, $3)")
        .bind(order.id)
        .bind(order.customer_id)
        .bind(order.total_cents)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', $1, 'order.created', $2::json)",
    )
    .bind(order.id)
    .bind(payload.to_string())
    .execute(&mut *transaction)
    .await?;
    // snippet:end
    ensure!(!fail, "failed on purpose");
    // snippet:start
    transaction.commit().await?;
    // snippet:end
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let id = words.next().context("usage: insert ORDER_ID [fail]")?;
    let fail = words.next().is_some_and(|word| word == "fail");
    let url = std::env::vars().find(|(name, _)| name == "DATABASE_URL");
    let (_, url) =
        url.context("DATABASE_URL is not set: write postgres://user:password@host/database")?;
    let mut database = PgConnection::connect(&url).await.context("the database does not answer")?;
    let order = Order { id: &id, customer_id: "c-17", total_cents: 1250 };
    place_order(&mut database, &order, fail).await.context("the order is not placed")
}
