//! PostgreSQL under the suite.

use std::sync::Arc;

use haulier::store::{Outbox, PayloadType, PostgresStore, Store, StoreConfig};
use haulier_tests::database::Database;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::harness::{Harness, Making, NewEvent};

pub(crate) struct Postgres {
    pub(crate) database: Database,
    store: Arc<PostgresStore>,
    binary: bool,
}

/// The config of a source on this database.
pub(crate) fn config(database: &Database, making: Making) -> StoreConfig {
    StoreConfig {
        source: "orders".into(),
        url: database.url.clone(),
        folder: std::path::PathBuf::new(),
        table: "outbox".into(),
        shards: making.shards,
        payload_type: if making.binary { PayloadType::Bytea } else { PayloadType::Json },
        settle: making.settle,
        transaction_pooler: false,
        max_connections: 8,
        whole_lane_index: true,
    }
}

impl Postgres {
    async fn insert_one(&self, connection: &mut PgConnection, event: &NewEvent) -> i64 {
        let payload = if self.binary { "$4" } else { "convert_from($4, 'UTF8')::json" };
        let sql = format!(
            "INSERT INTO outbox (lane, aggregate_type, aggregate_id, event_type, partition_key, headers, payload, available_at) \
             VALUES ($1, 'thing', $2, 'thing.changed', $3, $5::json, {payload}, now() + make_interval(secs => $6)) RETURNING id"
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(event.lane)
            .bind(&event.key)
            .bind(&event.partition_key)
            .bind(&event.payload)
            .bind(&event.headers)
            .bind(event.due_in)
            .fetch_one(connection)
            .await
            .expect("inserts")
    }
}

impl Harness for Postgres {
    async fn make(making: Making) -> Self {
        let database = Database::fresh().await;
        let store = PostgresStore::new(config(&database, making)).expect("a config");
        store.migrate().await.expect("migrates");
        Self { database, store: Arc::new(store), binary: making.binary }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn outbox(&self) -> Arc<dyn Outbox> {
        Arc::clone(&self.store) as Arc<dyn Outbox>
    }

    async fn insert(&self, events: &[NewEvent]) -> Vec<i64> {
        let mut transaction = self.database.pool.begin().await.expect("begins");
        let mut ids = Vec::new();
        for event in events {
            ids.push(self.insert_one(&mut transaction, event).await);
        }
        transaction.commit().await.expect("commits");
        ids
    }

    async fn insert_late(&self, event: &NewEvent, during: impl AsyncFnOnce()) -> i64 {
        let mut transaction = self.database.pool.begin().await.expect("begins");
        let id = self.insert_one(&mut transaction, event).await;
        during().await;
        transaction.commit().await.expect("commits");
        id
    }

    async fn row(&self, id: i64) -> Option<(String, i32, Option<String>)> {
        let row = sqlx::query("SELECT status, attempts, failure_kind FROM outbox WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.database.pool)
            .await
            .expect("reads")?;
        Some((row.get(0), row.get(1), row.get(2)))
    }

    async fn failure_text(&self, id: i64) -> Option<String> {
        sqlx::query_scalar("SELECT last_error FROM outbox WHERE id = $1")
            .bind(id)
            .fetch_one(&self.database.pool)
            .await
            .expect("reads")
    }

    async fn age_published(&self, id: i64, seconds: f64) {
        sqlx::query("UPDATE outbox SET published_at = published_at - make_interval(secs => $2) WHERE id = $1")
            .bind(id)
            .bind(seconds)
            .execute(&self.database.pool)
            .await
            .expect("updates");
    }

    async fn age_instance(&self, instance: &str, seconds: f64) {
        sqlx::query("UPDATE haulier_instance SET seen_at = seen_at - make_interval(secs => $2) WHERE instance = $1")
            .bind(instance)
            .bind(seconds)
            .execute(&self.database.pool)
            .await
            .expect("updates");
    }
}
