//! The demo's application: a shop whose writers commit orders and their events in one transaction.
//!
//! Run by the demo. It knows the outbox table as any application does, and keeps a log of its own of
//! what it committed, written in the same transactions. Never talks to the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::Rng as _;
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{Any, AnyPool, AssertSqlSafe, Executor as _, Row, Transaction};

use super::ledger::Committed;

/// Customers; their orders are what has an order.
const CUSTOMERS: u32 = 50;
/// One transaction in so many is rolled back, at its very end.
const ROLLBACK_SHARE: u32 = 10;

/// The shop's database.
pub(super) struct Shop {
    pool: AnyPool,
    /// What stands before a table's name, such as `demo.`.
    schema: String,
    /// How a transaction begins.
    begin: &'static str,
    /// Events that may still be written.
    budget: AtomicUsize,
    pub(super) counts: Counts,
}

/// What the writers have done so far.
#[derive(Default)]
pub(super) struct Counts {
    /// Events committed.
    pub(super) committed: AtomicUsize,
    /// Transactions rolled back.
    pub(super) rolled_back: AtomicUsize,
}

/// One event of an order.
struct NewEvent {
    event_type: &'static str,
    /// Set where the record is about the customer; else the order is the key.
    partition_key: Option<String>,
    payload: Option<String>,
}

/// One step in an order's life, written in one transaction.
struct Step {
    order_id: String,
    customer_id: String,
    status: &'static str,
    total_cents: i64,
    events: Vec<NewEvent>,
}

impl Shop {
    /// Connects. `schema` is the PostgreSQL schema with the outbox, or `None` on SQLite.
    pub(super) async fn open(
        url: &str,
        schema: Option<&str>,
        writers: u32,
        events: usize,
    ) -> Result<Self, sqlx::Error> {
        install_default_drivers();
        let sqlite = schema.is_none();
        let pool = AnyPoolOptions::new()
            .max_connections(writers)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if sqlite {
                        // Enough for a file that nothing but a crash of the machine can harm.
                        connection.execute("PRAGMA synchronous = NORMAL").await?;
                    }
                    Ok(())
                })
            })
            .connect(url)
            .await?;
        let schema = schema.map_or_else(String::new, |schema| format!("{schema}."));
        let shop = Self {
            pool,
            schema,
            begin: if sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" },
            budget: AtomicUsize::new(events),
            counts: Counts::default(),
        };
        shop.create_tables().await?;
        Ok(shop)
    }

    async fn create_tables(&self) -> Result<(), sqlx::Error> {
        for table in [
            "customers (id text PRIMARY KEY, steps bigint NOT NULL)",
            "orders (id text PRIMARY KEY, customer_id text NOT NULL, status text NOT NULL, total_cents bigint NOT NULL)",
            "event_log (outbox_id bigint PRIMARY KEY, ordering_key text NOT NULL, event_type text NOT NULL)",
        ] {
            let sql = format!("CREATE TABLE {}{table}", self.schema);
            sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// One writer: takes orders until the budget is spent.
    pub(super) async fn write(self: Arc<Self>, writer: u32) -> Result<(), sqlx::Error> {
        for number in 0_u32.. {
            let order = format!("order-{writer}-{number}");
            let customer = format!("customer-{}", rand::rng().random_range(0..CUSTOMERS));
            let total = i64::from(rand::rng().random_range(100..20_000_u32));
            let fate = rand::rng().random_range(0..100_u32);
            for step in steps(&order, &customer, total, fate) {
                if !self.take(step).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes a step, after rolled back tries perhaps; false when nothing may be written any more.
    async fn take(&self, mut step: Step) -> Result<bool, sqlx::Error> {
        let granted = self.grant(step.events.len());
        if granted == 0 {
            return Ok(false);
        }
        step.events.truncate(granted);
        loop {
            let mut transaction = self.pool.begin_with(self.begin).await?;
            self.carry_out(&mut transaction, &step).await?;
            if rand::rng().random_range(0..ROLLBACK_SHARE) > 0 {
                transaction.commit().await?;
                self.counts.committed.fetch_add(granted, Ordering::Relaxed);
                return Ok(true);
            }
            // The payment failed: neither the order nor its events have ever been there.
            transaction.rollback().await?;
            self.counts.rolled_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes up to `wanted` from the budget.
    fn grant(&self, wanted: usize) -> usize {
        let mut granted = 0;
        let _ = self.budget.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            granted = left.min(wanted);
            Some(left - granted)
        });
        granted
    }

    async fn carry_out(
        &self,
        transaction: &mut Transaction<'static, Any>,
        step: &Step,
    ) -> Result<(), sqlx::Error> {
        let schema = &self.schema;
        // First of all the customer's row, which this locks: one transaction of a customer at a time.
        let sql = format!(
            "INSERT INTO {schema}customers (id, steps) VALUES ($1, 1) \
             ON CONFLICT (id) DO UPDATE SET steps = customers.steps + 1"
        );
        sqlx::query(AssertSqlSafe(sql)).bind(&step.customer_id).execute(&mut **transaction).await?;
        let sql = format!(
            "INSERT INTO {schema}orders (id, customer_id, status, total_cents) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (id) DO UPDATE SET status = excluded.status"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(&step.order_id)
            .bind(&step.customer_id)
            .bind(step.status)
            .bind(step.total_cents)
            .execute(&mut **transaction)
            .await?;
        for event in &step.events {
            let sql = format!(
                "INSERT INTO {schema}outbox (aggregate_type, aggregate_id, event_type, partition_key, payload) \
                 VALUES ('order', $1, $2, $3, $4) RETURNING id"
            );
            let id: i64 = sqlx::query(AssertSqlSafe(sql))
                .bind(&step.order_id)
                .bind(event.event_type)
                .bind(event.partition_key.as_deref())
                .bind(event.payload.as_deref())
                .fetch_one(&mut **transaction)
                .await?
                .try_get(0)?;
            let sql = format!(
                "INSERT INTO {schema}event_log (outbox_id, ordering_key, event_type) VALUES ($1, $2, $3)"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(id)
                .bind(event.partition_key.as_deref().unwrap_or(&step.order_id))
                .bind(event.event_type)
                .execute(&mut **transaction)
                .await?;
        }
        Ok(())
    }

    /// What was committed, from the log.
    pub(super) async fn committed(&self) -> Result<Vec<Committed>, sqlx::Error> {
        let sql =
            format!("SELECT outbox_id, ordering_key, event_type FROM {}event_log", self.schema);
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        let read = |row: &sqlx::any::AnyRow| {
            Ok(Committed { id: row.try_get(0)?, key: row.try_get(1)?, event_type: row.try_get(2)? })
        };
        rows.iter().map(read).collect()
    }

    /// Whether every event has left the outbox.
    pub(super) async fn outbox_is_empty(&self) -> Result<bool, sqlx::Error> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {}outbox LIMIT 1) one", self.schema);
        let left: i64 = sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await?.try_get(0)?;
        Ok(left == 0)
    }

    /// Removes the schema with all that the demo made in it.
    pub(super) async fn drop_schema(&self) -> Result<(), sqlx::Error> {
        let Some(schema) = self.schema.strip_suffix('.') else { return Ok(()) };
        let sql = format!("DROP SCHEMA {schema} CASCADE");
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.map(|_| ())
    }

    /// Closes the connections.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// An order's life: most are paid, some cancelled, a few wait for ever.
fn steps(order: &str, customer: &str, total_cents: i64, fate: u32) -> Vec<Step> {
    let step = |status, events| Step {
        order_id: order.to_owned(),
        customer_id: customer.to_owned(),
        status,
        total_cents,
        events,
    };
    let of_customer = |event_type, extra: serde_json::Value| {
        let mut payload = serde_json::json!({
            "id": order, "customer_id": customer, "total_cents": total_cents, "placed_at_ms": now_ms(),
        });
        if let (Some(fields), serde_json::Value::Object(extra)) = (payload.as_object_mut(), extra) {
            fields.extend(extra);
        }
        NewEvent {
            event_type,
            partition_key: Some(customer.to_owned()),
            payload: Some(payload.to_string()),
        }
    };
    let of_order = |event_type, payload: Option<serde_json::Value>| NewEvent {
        event_type,
        partition_key: None,
        payload: payload.map(|payload| payload.to_string()),
    };
    let snapshot = |status| serde_json::json!({ "id": order, "status": status });
    let nothing = serde_json::json!({});
    let mut life = vec![step("created", vec![of_customer("order.created", nothing)])];
    match fate {
        0..75 => life.push(step(
            "paid",
            vec![
                of_customer("order.paid", serde_json::json!({ "currency": "EUR" })),
                of_order("order.snapshot", Some(snapshot("paid"))),
            ],
        )),
        75..95 => life.push(step(
            "cancelled",
            vec![
                of_customer("order.cancelled", serde_json::json!({ "reason": "changed my mind" })),
                // No payload: a tombstone in the compacted topic.
                of_order("order.deleted", None),
            ],
        )),
        _ => {}
    }
    life
}

/// Milliseconds since the epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or_default()
}
