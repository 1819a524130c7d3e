//! An application that takes orders: the order and its event are written in one transaction.
//!
//! Run it with `DATABASE_URL` set and the number of orders to place; a second number says how many a
//! second. The part worth copying is [`place_order`]. It knows nothing of Kafka and nothing of Haulier
//! but the outbox table.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Postgres, Transaction};

/// An order as a customer places it.
struct Order {
    id: String,
    customer_id: String,
    total_cents: i64,
}

/// Writes the order and the event that tells of it. Whoever holds the transaction commits both or
/// neither.
async fn place_order(
    transaction: &mut Transaction<'_, Postgres>,
    order: &Order,
) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO orders (id, customer_id, total_cents) VALUES ($1, $2, $3)")
        .bind(&order.id)
        .bind(&order.customer_id)
        .bind(order.total_cents)
        .execute(&mut **transaction)
        .await?;
    // The whole outbox pattern is this statement. `aggregate_id` is the key: events of one order
    // reach the broker in the order of their inserts.
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) \
         VALUES ('order', $1, 'order.created', json_build_object( \
           'id', $1::text, 'customer_id', $2::text, 'total_cents', $3::bigint))",
    )
    .bind(&order.id)
    .bind(&order.customer_id)
    .bind(order.total_cents)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn run(pool: &PgPool, count: u32, pause: Duration) -> sqlx::Result<u32> {
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS orders ( \
           id text PRIMARY KEY, customer_id text NOT NULL, total_cents bigint NOT NULL)",
    )
    .execute(pool)
    .await?;
    sqlx::query("CREATE SEQUENCE IF NOT EXISTS order_number").execute(pool).await?;
    let mut committed = 0;
    for number in 0..i64::from(count) {
        tokio::time::sleep(pause).await;
        let id: i64 = sqlx::query_scalar("SELECT nextval('order_number')").fetch_one(pool).await?;
        let order = Order {
            id: format!("order-{id}"),
            customer_id: format!("customer-{}", number % 7),
            total_cents: 995 + number,
        };
        let mut transaction = pool.begin().await?;
        place_order(&mut transaction, &order).await?;
        // Every tenth payment fails: neither the order nor its event has ever been there.
        if number % 10 == 9 {
            transaction.rollback().await?;
        } else {
            transaction.commit().await?;
            committed += 1;
        }
    }
    Ok(committed)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(100), |count| count.parse());
    let count = count.context("the first argument is the number of orders")?;
    let rate = std::env::args().nth(2).map(|rate| rate.parse()).transpose();
    let rate: Option<u32> = rate.context("the second argument is how many orders a second")?;
    let pause = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.max(1));
    let url = std::env::vars().find(|(name, _)| name == "DATABASE_URL");
    let (_, url) =
        url.context("DATABASE_URL is not set: write postgres://user:password@host/database")?;
    let pool = PgPoolOptions::new().connect(&url).await.context("the database does not answer")?;
    let committed = run(&pool, count, pause)
        .await
        .context("an order could not be placed; has `haulier migrate` run?")?;
    writeln!(std::io::stdout(), "committed {committed} orders of {count}")?;
    Ok(())
}
