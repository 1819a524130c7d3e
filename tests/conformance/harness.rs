//! What a database's harness can do for the suite, and short words for the contract's calls.

use std::sync::Arc;
use std::time::Duration;

use haulier::event::{Event, EventId, LaneName, Ordering};
use haulier::failure::{Cause, Failure};
use haulier::store::{
    Action, Batch, ClaimRequest, Look, Outbox, Settle, Settled, Settlement, Store, Suspicion, Token,
};
use haulier_tests::process::eventually;

/// One row as an application inserts it.
#[derive(Clone)]
pub(crate) struct NewEvent {
    pub(crate) lane: &'static str,
    pub(crate) key: Option<String>,
    pub(crate) partition_key: Option<String>,
    pub(crate) headers: Option<String>,
    pub(crate) payload: Option<Vec<u8>>,
    /// Seconds from now until it is due.
    pub(crate) due_in: f64,
}

/// An event of that key in the default lane, due now.
pub(crate) fn of_key(key: &str) -> NewEvent {
    NewEvent {
        lane: "default",
        key: Some(key.to_owned()),
        partition_key: None,
        headers: None,
        payload: Some(b"{}".to_vec()),
        due_in: 0.0,
    }
}

/// How the outbox of a test is to be made.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    pub(crate) settle: Settle,
    /// Whether payloads are arbitrary bytes rather than JSON.
    pub(crate) binary: bool,
    pub(crate) shards: u16,
}

/// JSON payloads, settled by deletion, sixteen shards.
pub(crate) const USUAL: Making = Making { settle: Settle::Delete, binary: false, shards: 16 };

/// A database that the suite can be run on.
pub(crate) trait Harness: Sized {
    /// A migrated, empty outbox of its own.
    async fn make(making: Making) -> Self;
    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;
    /// The same, with what commands do with it.
    fn outbox(&self) -> Arc<dyn Outbox>;
    /// Commits rows in one transaction and gives their ids in order.
    async fn insert(&self, events: &[NewEvent]) -> Vec<i64>;
    /// Runs `during` while a transaction is open that has inserted this event, then commits it.
    async fn insert_late(&self, event: &NewEvent, during: impl AsyncFnOnce()) -> i64;
    /// Status, attempts and stored failure kind of a row, or `None` when it is gone.
    async fn row(&self, id: i64) -> Option<(String, i32, Option<String>)>;
    /// The stored text of a row's last failure.
    async fn failure_text(&self, id: i64) -> Option<String>;
    /// Makes a published row older.
    async fn age_published(&self, id: i64, seconds: f64);
    /// Makes it longer ago that an instance was heard of.
    async fn age_instance(&self, instance: &str, seconds: f64);
}

/// The lane of the tests.
pub(crate) fn lane(name: &str) -> LaneName {
    LaneName { source: "orders".into(), lane: name.into() }
}

/// What a claim of the tests asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) lane: &'static str,
    pub(crate) ordering: Ordering,
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    pub(crate) lease: Duration,
    pub(crate) look: Look,
    pub(crate) shards: usize,
}

/// A thousand rows by leases, for a minute.
pub(crate) const BY_KEY: Wish = Wish {
    lane: "default",
    ordering: Ordering::Key,
    rows: 1000,
    bytes: 1 << 20,
    lease: Duration::from_secs(60),
    look: Look::Full,
    shards: 256,
};

/// The same by row claims.
pub(crate) const BY_ROW: Wish = Wish { ordering: Ordering::None, ..BY_KEY };

/// A claim so short that it has expired by the time anyone else looks.
pub(crate) const AN_INSTANT: Duration = Duration::from_millis(1);

pub(crate) async fn claim(store: &dyn Store, wish: Wish) -> Option<Batch> {
    let lane = lane(wish.lane);
    store.open_lane(&lane, wish.ordering).await.expect("the lane opens");
    store
        .claim(&ClaimRequest {
            lane: &lane,
            ordering: wish.ordering,
            token: Token::fresh(),
            owner: "test",
            lease: wish.lease,
            max_rows: wish.rows,
            max_bytes: wish.bytes,
            max_shards: wish.shards,
            look: wish.look,
        })
        .await
        .expect("the store claims")
}

/// Claims until there is something to be had.
pub(crate) async fn claim_soon(store: &dyn Store, wish: Wish) -> Batch {
    let mut batch = None;
    eventually(Duration::from_secs(30), async || {
        batch = claim(store, wish).await;
        batch.is_some()
    })
    .await;
    batch.expect("due work is claimable within half a minute")
}

/// Settles every event of a batch as `decide` says.
pub(crate) async fn settle(
    store: &dyn Store,
    batch: &Batch,
    decide: impl Fn(&Event) -> Action,
) -> Settled {
    let settlements: Vec<Settlement> = batch
        .events
        .iter()
        .map(|event| Settlement {
            id: event.id,
            shard: event.shard,
            key: event.ordering_key(),
            holds_key: event.holds_key,
            action: decide(event),
        })
        .collect();
    store.settle(&lane("default"), &batch.claim(), &settlements).await.expect("the store settles")
}

pub(crate) async fn publish(store: &dyn Store, batch: &Batch) -> Settled {
    settle(store, batch, |_| Action::Published).await
}

pub(crate) fn ids(batch: &Batch) -> Vec<i64> {
    batch.events.iter().map(|event| event.id.0).collect()
}

pub(crate) fn sorted(batch: &Batch) -> Vec<i64> {
    let mut found = ids(batch);
    found.sort_unstable();
    found
}

pub(crate) fn failure() -> Failure {
    Failure::new(Cause::PluginRejected, "no")
}

pub(crate) fn is(event: &Event, id: i64) -> bool {
    event.id == EventId(id)
}

pub(crate) fn suspect(batch: &Batch) -> bool {
    batch.suspicion == Suspicion::Suspect
}
