//! Traffic: writers that go on until they are told to stop, as applications do.
//!
//! Transactions of one to eight events, hot and rare keys, rollbacks, and transactions that commit
//! late, behind others with higher ids. Each key belongs to one writer, so that its events are
//! serialised. A database that refuses for a while costs a writer a pause and nothing else. What was
//! committed is for the `ledger` to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sqlx::PgPool;
use tokio::task::JoinSet;

/// Pause of a writer that the database refused.
const PATIENCE: Duration = Duration::from_millis(200);
/// Longest time a late transaction stays open behind its insert.
const LATEST: Duration = Duration::from_millis(400);

/// What to write.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topics that rows name; a key's rows name always the same one.
    pub topics: Vec<String>,
    /// Keys that get four fifths of the events.
    pub hot: usize,
    /// Keys that share the rest.
    pub rare: usize,
    /// Writers at once.
    pub writers: usize,
    /// Pause of a writer between two transactions.
    pub pause: Duration,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Plan {
    /// Some hundred events a second for one topic.
    pub fn new(topic: &str) -> Self {
        Self {
            topics: vec![topic.to_owned()],
            hot: 8,
            rare: 400,
            writers: 4,
            pause: Duration::from_millis(25),
            seed: 1,
        }
    }
}

/// What the writers did, as they know it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Events of transactions that were committed.
    pub committed: usize,
    /// Transactions that were rolled back on purpose.
    pub rolled_back: usize,
    /// Transactions that were committed late.
    pub late: usize,
    /// Transactions that the database refused or whose answer was lost.
    pub refused: usize,
}

/// Running writers.
pub struct Traffic {
    ends: Arc<AtomicBool>,
    writers: JoinSet<Counts>,
}

impl Traffic {
    /// Starts the writers.
    ///
    /// # Panics
    /// When the keys cannot be shared out evenly.
    pub fn start(pool: &PgPool, plan: &Plan) -> Self {
        let fair = |keys: usize| keys.is_multiple_of(plan.writers);
        assert!(fair(plan.hot) && fair(plan.rare), "each key belongs to one writer");
        let ends = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for number in 0..plan.writers {
            let (pool, plan, ends) = (pool.clone(), plan.clone(), Arc::clone(&ends));
            writers.spawn(async move {
                let seed = plan.seed.wrapping_mul(1000).wrapping_add(number as u64);
                let random = StdRng::seed_from_u64(seed);
                Writer { number, plan, random, counts: Counts::default() }.run(&pool, &ends).await
            });
        }
        Self { ends, writers }
    }

    /// Lets the writers finish what they are at, and ends.
    ///
    /// # Panics
    /// When a writer did.
    pub async fn stop(mut self) -> Counts {
        self.ends.store(true, Ordering::Relaxed);
        let mut sum = Counts::default();
        while let Some(ended) = self.writers.join_next().await {
            let counts = ended.expect("a writer ends in good order");
            sum.committed += counts.committed;
            sum.rolled_back += counts.rolled_back;
            sum.late += counts.late;
            sum.refused += counts.refused;
        }
        sum
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Commit,
    CommitLate(Duration),
    RollBack,
}

struct Writer {
    number: usize,
    plan: Plan,
    random: StdRng,
    counts: Counts,
}

impl Writer {
    async fn run(mut self, pool: &PgPool, ends: &AtomicBool) -> Counts {
        while !ends.load(Ordering::Relaxed) {
            let keys: Vec<usize> =
                (0..self.random.random_range(1..=8)).map(|_| self.key()).collect();
            let end = match self.random.random_range(0..40) {
                0 | 1 => End::RollBack,
                2 => End::CommitLate(LATEST.mul_f64(self.random.random_range(0.2..=1.0))),
                _ => End::Commit,
            };
            match self.transaction(pool, &keys, end).await {
                Ok(()) => {
                    self.counts.rolled_back += usize::from(end == End::RollBack);
                    self.counts.late += usize::from(matches!(end, End::CommitLate(_)));
                    self.counts.committed += if end == End::RollBack { 0 } else { keys.len() };
                }
                Err(_) => {
                    self.counts.refused += 1;
                    tokio::time::sleep(PATIENCE).await;
                }
            }
            tokio::time::sleep(self.plan.pause).await;
        }
        self.counts
    }

    /// One of this writer's keys.
    fn key(&mut self) -> usize {
        let hot = self.random.random_range(0..5) > 0;
        let (from, keys) = if hot { (0, self.plan.hot) } else { (self.plan.hot, self.plan.rare) };
        let share = (keys / self.plan.writers).max(1);
        let own = self.random.random_range(0..share) * self.plan.writers + self.number;
        from + own
    }

    async fn transaction(
        &self,
        pool: &PgPool,
        keys: &[usize],
        end: End,
    ) -> Result<(), sqlx::Error> {
        let names: Vec<String> = keys.iter().map(|key| format!("key-{key}")).collect();
        let topics: Vec<&str> =
            keys.iter().map(|key| &*self.plan.topics[key % self.plan.topics.len()]).collect();
        let note = if end == End::RollBack { "rolled back" } else { "committed" };
        let mut transaction = pool.begin().await?;
        sqlx::query(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) \
             SELECT 'thing', k, 'thing.changed', t, json_build_object('key', k, 'note', $3::text) \
             FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(k, t, n) ORDER BY n",
        )
        .bind(&names)
        .bind(&topics)
        .bind(note)
        .execute(&mut *transaction)
        .await?;
        match end {
            End::Commit => transaction.commit().await,
            End::CommitLate(after) => {
                tokio::time::sleep(after).await;
                transaction.commit().await
            }
            End::RollBack => transaction.rollback().await,
        }
    }
}
