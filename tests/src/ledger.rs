//! What was committed: a table that a trigger on the outbox fills in the same transaction.
//!
//! So a rolled-back event is not in it, and a commit whose answer was lost is, whatever the writer
//! believes. The checker in `history` compares it with what arrived.

use sqlx::{PgPool, Row};

use crate::database::Database;

/// One committed event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its id.
    pub id: i64,
    /// Its ordering key.
    pub key: Option<String>,
    /// The topic its row names.
    pub topic: Option<String>,
    /// Its payload as the table holds it.
    pub payload: Option<String>,
}

/// How a row that is still in the outbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It waits to be published, or is being published.
    Open,
    /// It is set aside as FAILED.
    Parked,
}

/// Keeps a ledger of the table `outbox` from now on.
///
/// # Panics
/// When the database refuses.
pub async fn keep(database: &Database) {
    database
        .run(
            "CREATE TABLE committed (id bigint PRIMARY KEY, key text, topic text, payload text, \
               event_type text); \
             CREATE FUNCTION note_committed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               INSERT INTO committed VALUES (NEW.id, coalesce(NEW.partition_key, NEW.aggregate_id), \
                 NEW.topic, NEW.payload::text, NEW.event_type); \
               RETURN NULL; END $$; \
             CREATE TRIGGER note_committed AFTER INSERT ON outbox \
               FOR EACH ROW EXECUTE FUNCTION note_committed()",
        )
        .await;
}

/// All that was committed for `topic`, in id order.
///
/// # Panics
/// When the database refuses.
pub async fn committed(pool: &PgPool, topic: &str) -> Vec<Committed> {
    let rows =
        sqlx::query("SELECT id, key, topic, payload FROM committed WHERE topic = $1 ORDER BY id")
            .bind(topic)
            .fetch_all(pool)
            .await
            .expect("the ledger answers");
    let read = |row: &sqlx::postgres::PgRow| Committed {
        id: row.get(0),
        key: row.get(1),
        topic: row.get(2),
        payload: row.get(3),
    };
    rows.iter().map(read).collect()
}

/// What is left in the outbox for `topic` and not published, in id order.
///
/// # Panics
/// When the database refuses.
pub async fn left(pool: &PgPool, topic: &str) -> Vec<(i64, Standing)> {
    let sql = "SELECT id, status = 'FAILED' FROM outbox WHERE topic = $1 AND status <> 'PUBLISHED' ORDER BY id";
    let rows: Vec<(i64, bool)> =
        sqlx::query_as(sql).bind(topic).fetch_all(pool).await.expect("rows");
    let standing = |parked| if parked { Standing::Parked } else { Standing::Open };
    rows.into_iter().map(|(id, parked)| (id, standing(parked))).collect()
}
