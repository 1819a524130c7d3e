//! Writers that commit events as an application does: in transactions, some of which roll back.

use rand::Rng as _;
use sqlx::{AssertSqlSafe, PgPool};

/// What to write.
#[derive(Clone)]
pub struct Workload {
    /// The outbox table, as SQL.
    pub table: String,
    /// The topic every event names.
    pub topic: String,
    /// The lane every event names.
    pub lane: String,
    /// Number of keys: `key-0`, `key-1` and so on.
    pub keys: usize,
    /// Writers at once; each has keys of its own, so a key's writers are serialised.
    pub writers: usize,
}

impl Workload {
    /// A workload for the default table and lane.
    pub fn new(topic: &str, keys: usize) -> Self {
        Self {
            table: "outbox".into(),
            topic: topic.into(),
            lane: "default".into(),
            keys,
            writers: 4,
        }
    }

    /// Commits `count` events in all, `{"seq":n}` counted from `first` per key, and one rolled-back
    /// transaction for every twenty committed. `count` must be a multiple of the number of keys.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn write(&self, pool: &PgPool, first: usize, count: usize) {
        let each = count / self.keys;
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..self.writers {
            let (workload, pool) = (self.clone(), pool.clone());
            writers.spawn(async move {
                let keys: Vec<usize> = (writer..workload.keys).step_by(workload.writers).collect();
                for seq in first..first + each {
                    workload.round(&pool, &keys, seq).await;
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer commits");
        }
    }

    async fn round(&self, pool: &PgPool, keys: &[usize], seq: usize) {
        for some in keys.chunks(5) {
            let phantom = rand::rng().random_range(0..20) == 0;
            if phantom {
                let mut transaction = pool.begin().await.expect("begins");
                self.insert(&mut transaction, some, usize::MAX).await;
                transaction.rollback().await.expect("rolls back");
            }
            let mut transaction = pool.begin().await.expect("begins");
            self.insert(&mut transaction, some, seq).await;
            transaction.commit().await.expect("commits");
        }
    }

    async fn insert(&self, connection: &mut sqlx::PgConnection, keys: &[usize], seq: usize) {
        let sql = format!(
            "INSERT INTO {} (lane, aggregate_type, aggregate_id, event_type, topic, payload) \
             SELECT $1, 'thing', 'key-' || k, 'thing.changed', $2, '{{\"seq\":{seq}}}' FROM unnest($3::int[]) k",
            self.table
        );
        let keys: Vec<i32> =
            keys.iter().map(|key| i32::try_from(*key).expect("few keys")).collect();
        sqlx::query(AssertSqlSafe(sql))
            .bind(&self.lane)
            .bind(&self.topic)
            .bind(keys)
            .execute(connection)
            .await
            .expect("inserts");
    }
}
