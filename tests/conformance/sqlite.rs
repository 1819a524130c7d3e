//! SQLite under the suite, and what is its own: names, shards, two writers at once.

use std::path::PathBuf;
use std::sync::Arc;

use haulier::event::Ordering;
use haulier::store::{Outbox, PayloadType, SqliteStore, Store, StoreConfig, StoreError};
use haulier_tests::folder::Folder;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use crate::harness::{
    BY_KEY, Harness, Making, NewEvent, USUAL, Wish, claim, ids, lane, of_key, publish,
};

pub(crate) struct Sqlite {
    pool: SqlitePool,
    store: Arc<SqliteStore>,
    binary: bool,
    folder: Folder,
}

fn config(folder: &Folder, making: Making) -> StoreConfig {
    StoreConfig {
        source: "orders".into(),
        url: "sqlite:outbox.db".into(),
        folder: folder.path().to_owned(),
        table: "outbox".into(),
        shards: making.shards,
        payload_type: if making.binary { PayloadType::Bytea } else { PayloadType::Json },
        settle: making.settle,
        transaction_pooler: false,
        max_connections: 8,
        whole_lane_index: true,
    }
}

fn file(folder: &Folder) -> PathBuf {
    folder.path().join("outbox.db")
}

impl Sqlite {
    async fn insert_one(
        &self,
        connection: &mut SqliteConnection,
        event: &NewEvent,
        id: Option<i64>,
    ) -> i64 {
        let payload = if self.binary { "?4" } else { "CAST(?4 AS TEXT)" };
        // Milliseconds from now; an event that is due is due at once, as by default.
        let sql = format!(
            "INSERT INTO outbox (lane, aggregate_type, aggregate_id, event_type, partition_key, headers, payload, available_at, id) \
             VALUES (?1, 'thing', ?2, 'thing.changed', ?3, ?5, {payload}, \
               CASE WHEN ?6 > 0 THEN CAST((julianday('now') - 2440587.5) * 86400000 + ?6 * 1000 AS INTEGER) ELSE 0 END, ?7) \
             RETURNING id"
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(event.lane)
            .bind(&event.key)
            .bind(&event.partition_key)
            .bind(&event.payload)
            .bind(&event.headers)
            .bind(event.due_in)
            .bind(id)
            .fetch_one(connection)
            .await
            .expect("inserts")
    }
}

impl Harness for Sqlite {
    async fn make(making: Making) -> Self {
        let folder = Folder::new();
        let store = SqliteStore::new(config(&folder, making)).expect("a config");
        store.migrate().await.expect("migrates");
        let options = SqliteConnectOptions::new()
            .filename(file(&folder))
            .busy_timeout(std::time::Duration::from_secs(30));
        let pool = SqlitePool::connect_with(options).await.expect("opens");
        Self { pool, store: Arc::new(store), binary: making.binary, folder }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn outbox(&self) -> Arc<dyn Outbox> {
        Arc::clone(&self.store) as Arc<dyn Outbox>
    }

    async fn insert(&self, events: &[NewEvent]) -> Vec<i64> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.expect("begins");
        let mut ids = Vec::new();
        for event in events {
            ids.push(self.insert_one(&mut transaction, event, None).await);
        }
        transaction.commit().await.expect("commits");
        ids
    }

    /// Nobody else can write while a transaction has written, so the id alone comes late here.
    async fn insert_late(&self, event: &NewEvent, during: impl AsyncFnOnce()) -> i64 {
        let reserved = self.insert(std::slice::from_ref(event)).await[0];
        sqlx::query("DELETE FROM outbox WHERE id = ?1")
            .bind(reserved)
            .execute(&self.pool)
            .await
            .expect("deletes");
        during().await;
        let mut connection = self.pool.acquire().await.expect("a connection");
        self.insert_one(&mut connection, event, Some(reserved)).await
    }

    async fn row(&self, id: i64) -> Option<(String, i32, Option<String>)> {
        let row = sqlx::query("SELECT status, attempts, failure_kind FROM outbox WHERE id = ?1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await
            .expect("reads")?;
        Some((row.get(0), row.get(1), row.get(2)))
    }

    async fn failure_text(&self, id: i64) -> Option<String> {
        sqlx::query_scalar("SELECT last_error FROM outbox WHERE id = ?1")
            .bind(id)
            .fetch_one(&self.pool)
            .await
            .expect("reads")
    }

    async fn age_published(&self, id: i64, seconds: f64) {
        sqlx::query("UPDATE outbox SET published_at = published_at - CAST(?2 * 1000 AS INTEGER) WHERE id = ?1")
            .bind(id)
            .bind(seconds)
            .execute(&self.pool)
            .await
            .expect("updates");
    }

    async fn age_instance(&self, instance: &str, seconds: f64) {
        sqlx::query("UPDATE haulier_instance SET seen_at = seen_at - CAST(?2 * 1000 AS INTEGER) WHERE instance = ?1")
            .bind(instance)
            .bind(seconds)
            .execute(&self.pool)
            .await
            .expect("updates");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_again_and_at_the_same_time_changes_nothing() {
    let folder = Folder::new();
    let store = || SqliteStore::new(config(&folder, USUAL)).expect("a config");
    let stores = [store(), store(), store()];
    let (a, b, c) = tokio::join!(stores[0].migrate(), stores[1].migrate(), stores[2].migrate());
    for outcome in [a, b, c] {
        outcome.expect("migrates");
    }
    let outbox = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file(&folder)))
        .await
        .expect("opens");
    sqlx::query("INSERT INTO outbox (event_type) VALUES ('x')")
        .execute(&outbox)
        .await
        .expect("inserts");
    stores[0].migrate().await.expect("migrates again");
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&outbox).await.expect("counts");
    assert_eq!(count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_quoted_and_reserved() {
    let folder = Folder::new();
    for (number, table) in
        ["order", r#""Out Box""#, r#""with ""quotes"" and.dots""#, &"é".repeat(30)]
            .into_iter()
            .enumerate()
    {
        let source = format!("source-{number}");
        let store = SqliteStore::new(StoreConfig {
            table: table.to_owned(),
            source: source.clone(),
            ..config(&folder, USUAL)
        })
        .expect("a config");
        store.migrate().await.unwrap_or_else(|error| panic!("{table}: {error:?}"));
        store.migrate().await.unwrap_or_else(|error| panic!("{table}, again: {error:?}"));
        for ordering in [Ordering::Key, Ordering::None, Ordering::Total] {
            let name =
                haulier::event::LaneName { source: source.as_str().into(), lane: "default".into() };
            store.open_lane(&name, ordering).await.expect("opens");
            store.stats(&name, ordering).await.expect("looks");
        }
        let sql = if table == "order" { "\"order\"" } else { table };
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file(&folder)))
            .await
            .expect("opens");
        sqlx::query(AssertSqlSafe(format!("INSERT INTO {sql} (event_type) VALUES ('x')")))
            .execute(&pool)
            .await
            .expect("inserts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_with_its_remedy() {
    let folder = Folder::new();
    let problem = |error: StoreError| error.to_string();
    let bare = SqliteStore::new(config(&folder, USUAL)).expect("a config");
    let missing = problem(bare.check().await.expect_err("nothing is there"));
    assert!(missing.contains("outbox.db") && missing.contains("haulier migrate"), "{missing}");
    assert!(!file(&folder).exists(), "looking makes no file");
    let options = SqliteConnectOptions::new().filename(file(&folder)).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.expect("opens");
    sqlx::query("CREATE TABLE outbox (id INTEGER)").execute(&pool).await.expect("creates");
    let unfit = problem(bare.check().await.expect_err("not ours"));
    assert!(unfit.contains("lacks lane"), "{unfit}");
    sqlx::query("DROP TABLE outbox").execute(&pool).await.expect("drops");
    let plain = SqliteStore::new(StoreConfig { whole_lane_index: false, ..config(&folder, USUAL) })
        .expect("a config");
    plain.migrate().await.expect("migrates");
    let unindexed =
        problem(plain.open_lane(&lane("default"), Ordering::Total).await.expect_err("no index"));
    assert!(unindexed.contains("haulier migrate"), "{unindexed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_shape_spread_over_the_shards() {
    let outbox = Sqlite::make(USUAL).await;
    let shapes: [fn(u32) -> String; 5] = [
        |n| format!("order-{n}"),
        |n| format!("{n}"),
        |n| format!("tenant-{n}/a-long-suffix-that-never-changes"),
        |n| format!("a-long-prefix-that-never-changes-and-goes-on/{n}"),
        |n| format!("{:08x}-0000-4000-8000-000000000000", n.wrapping_mul(2_654_435_761)),
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        let events: Vec<NewEvent> = (0..1600).map(|n| of_key(&shape(n))).collect();
        outbox.insert(&events).await;
        let counts: Vec<i64> =
            sqlx::query_scalar("SELECT count(*) FROM outbox GROUP BY shard ORDER BY 1")
                .fetch_all(&outbox.pool)
                .await
                .expect("counts");
        assert_eq!(counts.len(), 16, "shape {number} reaches every shard");
        assert!(counts[0] >= 40 && counts[15] <= 250, "shape {number}: {counts:?}");
        sqlx::query("DELETE FROM outbox").execute(&outbox.pool).await.expect("deletes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_another_type_harms_nobody() {
    let outbox = Sqlite::make(USUAL).await;
    // A number where a text belongs, and bytes that are no text: SQLite stores them.
    sqlx::query("INSERT INTO outbox (event_type, aggregate_id) VALUES (17, 4711), (x'ff', 'k')")
        .execute(&outbox.pool)
        .await
        .expect("inserts");
    let fine = outbox.insert(&[of_key("fine")]).await;
    let batch = claim(&*outbox.store(), Wish { shards: 256, ..BY_KEY }).await.expect("work");
    let of = |key: &str| {
        batch.events.iter().find(|event| event.aggregate_id.as_deref() == Some(key)).expect("there")
    };
    assert_eq!((of("4711").event_type.as_str(), &of("4711").defect), ("17", &None));
    assert!(of("k").defect.as_ref().is_some_and(|defect| defect.contains("event_type")));
    assert!(ids(&batch).contains(&fine[0]));
    let refused =
        sqlx::query("INSERT INTO outbox (event_type, available_at) VALUES ('x', '2026-12-01')")
            .execute(&outbox.pool)
            .await;
    assert!(refused.is_err(), "a time in another unit would never be due");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_at_work_delays_claims_and_breaks_none() {
    let outbox = Sqlite::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k")]).await;
    let writing = outbox.pool.begin_with("BEGIN IMMEDIATE").await.expect("begins");
    let store = outbox.store();
    let claiming = tokio::spawn(async move { claim(&*store, BY_KEY).await });
    // Looking does not wait for the writer.
    outbox.store.check().await.expect("looks");
    writing.rollback().await.expect("rolls back");
    let batch = claiming.await.expect("no panic").expect("work");
    assert_eq!(ids(&batch), inserted);
    publish(&*outbox.store(), &batch).await;
    assert!(outbox.folder.path().exists());
}
