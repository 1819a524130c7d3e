//! Two instances on one SQLite file under load: order per key, and nothing lost when one is killed.

use std::time::Duration;

use haulier_tests::checker::{Verdict, check};
use haulier_tests::folder::Folder;
use haulier_tests::kafka;
use haulier_tests::process::{Setup, eventually};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::scenario::turn;

const KEYS: usize = 40;
const EACH: usize = 100;

struct Shop {
    _folder: Folder,
    pool: SqlitePool,
    setup: Setup,
    topic: String,
}

async fn shop() -> Shop {
    let folder = Folder::new();
    let topic = kafka::topic(12, &[]).await;
    let file = folder.path().join("shop.db");
    let setup = Setup::new(format!(
        "[sources.orders]\nurl = \"sqlite:{}\"\n\
         [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"{}\"\npublish_timeout = \"2s\"\n\
         [lanes.default]\nlease = \"4s\"\nbatch_rows = 50\n",
        file.display(),
        kafka::address()
    ));
    setup.migrate();
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(60));
    let pool = SqlitePool::connect_with(options).await.expect("opens");
    Shop { _folder: folder, pool, setup, topic }
}

impl Shop {
    /// Four writers with keys of their own commit every event in a transaction; some roll back.
    async fn write(&self) {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let (pool, topic) = (self.pool.clone(), self.topic.clone());
            writers.spawn(async move {
                for seq in 0..EACH {
                    for key in (writer..KEYS).step_by(4) {
                        if (seq + key).is_multiple_of(20) {
                            insert(&pool, &topic, key, usize::MAX, false).await;
                        }
                        insert(&pool, &topic, key, seq, true).await;
                    }
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer commits");
        }
    }

    async fn verdict(&self) -> Verdict {
        let received = kafka::read_count(&self.topic, KEYS * EACH).await;
        check(&received, KEYS, 0, EACH)
    }

    async fn left(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM outbox")
            .fetch_one(&self.pool)
            .await
            .expect("counts")
    }

    async fn drained(&self) {
        let drained = eventually(Duration::from_secs(120), async || self.left().await == 0).await;
        assert!(drained, "{} events are left", self.left().await);
    }
}

async fn insert(pool: &SqlitePool, topic: &str, key: usize, seq: usize, commit: bool) {
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.expect("begins");
    sqlx::query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) \
         VALUES ('thing', ?1, 'thing.changed', ?2, ?3)",
    )
    .bind(format!("key-{key}"))
    .bind(topic)
    .bind(format!("{{\"seq\":{seq}}}"))
    .execute(&mut *transaction)
    .await
    .expect("inserts");
    if commit {
        transaction.commit().await.expect("commits");
    } else {
        transaction.rollback().await.expect("rolls back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_on_one_file_keep_order() {
    let _turn = turn().await;
    let shop = shop().await;
    let mut instances = [shop.setup.start(), shop.setup.start()];
    shop.write().await;
    shop.drained().await;
    assert_eq!(shop.verdict().await, Verdict::default());
    for instance in &mut instances {
        assert!(instance.terminate().await.success(), "{}", instance.log());
    }
    let both = instances.iter().all(|instance| !instance.log().contains("ERROR"));
    assert!(both, "nobody was in trouble");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_instance_had_is_taken_over() {
    let _turn = turn().await;
    let shop = shop().await;
    let mut victim = shop.setup.start();
    let _survivor = shop.setup.start();
    victim.ready().await;
    let killing = async {
        // In the middle of the load, with something in flight.
        let busy = eventually(Duration::from_secs(60), async || {
            victim.metric("haulier_batches_in_flight").await.is_some_and(|batches| batches > 0.0)
        })
        .await;
        assert!(busy, "the victim works");
        victim.kill();
    };
    tokio::join!(shop.write(), killing);
    shop.drained().await;
    let verdict = shop.verdict().await;
    assert_eq!((verdict.lost, verdict.out_of_order, verdict.phantom), (0, 0, 0));
    assert!(verdict.repeated <= 4 * 50, "at most what was in flight: {verdict:?}");
}
