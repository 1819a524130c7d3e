//! The contract between the relay and a database: claiming, settling, held keys, recovery.
//!
//! One store serves one source. Databases join behind [`Store`] and must pass the one conformance
//! suite in `tests/conformance`. The relay calls it; a store never publishes and never decides
//! what becomes of an event.
//!
//! # The lease protocol
//!
//! Lanes with `ordering = "key"` or `"total"` are worked by leases. A lease is the right to work on
//! one (source, lane, shard). It is one row: a token made by the host, an owner for people to read,
//! and an expiry on the database's clock.
//!
//! 1. *Claim.* A plain read finds free shards with due work. In one READ COMMITTED transaction those
//!    are locked by primary key, skipping the ones another claimer has locked, and checked again;
//!    then, in a **new statement**, their pending, due, not-held events are read in id order up to
//!    the limits; token, owner, expiry, the number taken and the highest id are written; commit.
//!    Locking first matters: with one snapshot for both, an event that committed in between could be
//!    read after a younger one of its key was published by the shard's previous holder.
//! 2. *Work.* The holder transforms and publishes, and renews while it does. It counts its lease from
//!    before the claim was sent, on a clock that runs through suspend, so it gives up no later than
//!    the database does.
//! 3. *Settle.* One transaction locks the lease rows, keeps those whose token is still its own, and
//!    writes outcomes by exact id, never by range: a late commit may lie inside the range. What
//!    belongs to a lost lease is not written, and is reported as lost. The same transaction releases
//!    the lease.
//!
//! Failure cases. *The holder dies*: the lease expires and anyone takes it; see suspicion below. *The
//! holder is stopped and goes on later*: its token is gone, so its settle writes nothing. *The settle's
//! answer is lost*: settling again is safe, the released token matches nothing and the events are
//! either settled or claimable. *The database restarts*: the same. *Clocks differ*: only the
//! database's clock decides who may claim.
//!
//! # Suspicion
//!
//! A claim that finds an expired token counts a loss and remembers the highest id of the lost batch
//! as suspect. The next batch of that shard is at most half of the lost one, and stays small until
//! that id has been settled; such a batch is flagged, comes with no other shard, and the relay runs it
//! alone in its process. A loss counts against an event only when it was the only one of a
//! flagged batch; the third such loss comes back as [`Suspicion::Convicted`]. A holder that is alive
//! and merely lost its lease clears the suspicion when its settle finds the token gone.
//!
//! # Row claims
//!
//! Lanes with `ordering = "none"` mark the rows themselves: PROCESSING with owner, token and expiry.
//! Settling goes by token. Expired claims are taken again, in ever smaller batches, the last ones
//! alone.

mod calls;
mod database;
mod desk;
#[cfg(test)]
mod memory;
mod names;
mod options;
mod plan;
mod postgres;
mod sqlite;
mod standing;
mod survey;
mod suspicion;
mod tables;

use std::time::Duration;

use async_trait::async_trait;

use crate::event::{Event, EventId, LaneName, Ordering, OrderingKey};
use crate::failure::Failure;

pub use self::database::Database;
pub use self::desk::{
    AuditEntry, AuditId, Audited, Behind, Change, Changed, DISCARDED, Desk, DueIn, EventSeen,
    EventState, EventWhole, HeldKey, HeldQuery, Horizon, MOST_BEHIND, MOST_CHANGED, MOST_LISTED,
    Refusal, Selection,
};
#[cfg(test)]
pub(crate) use self::memory::{Planted, Status, Table};
pub use self::options::{PayloadType, Settle, StoreConfig};
pub use self::postgres::PostgresStore;
pub use self::sqlite::SqliteStore;
pub use self::standing::{
    Expiry, HaltedKeys, Heartbeat, InstanceSeen, LaneFound, LeaseStanding, Life, MOST_HALTED_NAMED,
    MOST_INSTANCES, MOST_LANES_FOUND, MOST_LEASES, Part,
};
pub use self::survey::{
    EventType, FoundOutbox, OtherTable, Registered, Survey, SurveyError, Waiting, survey,
};

/// The secret of one claim, made by the host, never re-used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(uuid::Uuid);

impl Token {
    /// A token nobody has had before.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::new_v4())
    }

    /// The token as the database stores it.
    pub fn as_uuid(self) -> uuid::Uuid {
        self.0
    }
}

/// How thoroughly a claim looks for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// From where the last looks left off: cheap, may miss a late commit.
    Quick,
    /// Everything pending: taken at start and every few seconds.
    Full,
}

/// One request for work.
#[derive(Debug, Clone)]
pub struct ClaimRequest<'a> {
    /// The lane to work on.
    pub lane: &'a LaneName,
    /// The lane's order, which decides between leases and row claims.
    pub ordering: Ordering,
    /// The claim's token.
    pub token: Token,
    /// Who claims, for people to read.
    pub owner: &'a str,
    /// How long the claim is to last.
    pub lease: Duration,
    /// At most this many events.
    pub max_rows: usize,
    /// At most this many payload bytes, but always at least one event.
    pub max_bytes: usize,
    /// From at most this many shards at once; a hint that has no meaning for row claims.
    pub max_shards: usize,
    /// How thoroughly to look.
    pub look: Look,
}

/// What a claim has to say about its events having been in a process that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// Nothing.
    None,
    /// One of the events may kill the process: run the batch with nothing else in the process.
    Suspect,
    /// The one event of this batch was alone in three processes that died: do not run it.
    Convicted,
}

/// Claimed events and the right to work on them.
#[derive(Debug)]
pub struct Batch {
    /// The claim's token.
    pub token: Token,
    /// The order under which it was claimed.
    pub ordering: Ordering,
    /// The shards whose leases came with it; empty for row claims.
    pub shards: Vec<i32>,
    /// The events, in id order within a shard; one order domain never spans two shards.
    pub events: Vec<Event>,
    /// Whether the batch must run alone.
    pub suspicion: Suspicion,
    /// Whether a limit was reached, so that there is probably more due work.
    pub full: bool,
}

/// What becomes of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Acknowledged by the broker: PUBLISHED.
    Published,
    /// Handled by not publishing it, for this reason: PUBLISHED, counted apart.
    Dropped(String),
    /// Failed by itself: one more attempt used, due again after this time, its key held until then.
    Retry {
        /// Time until it is due again.
        after: Duration,
        /// What happened.
        failure: Failure,
    },
    /// Waits for a destination: attempts unchanged, due again after this time, its key held.
    Wait {
        /// Time until it is due again.
        after: Duration,
        /// What it waits for.
        failure: Failure,
    },
    /// Set aside as FAILED; its key goes on.
    Park(Failure),
    /// Stays PENDING with its key held until someone retries or discards it.
    Halt(Failure),
    /// Not decided: goes back as it was.
    Release,
}

/// One event's settlement.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// Which event.
    pub id: EventId,
    /// Its shard, as claimed.
    pub shard: i32,
    /// Its ordering key, for holding it.
    pub key: OrderingKey,
    /// Whether a held key names this event, so that settling it lets the key go.
    pub holds_key: bool,
    /// What becomes of it.
    pub action: Action,
}

/// What a settle did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Events whose outcome was not written because the claim on them was lost.
    pub lost: Vec<EventId>,
    /// Leases (or, for row claims, rows) that were no longer ours.
    pub lost_claims: usize,
}

/// How a lane stands, by the database's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LaneStats {
    /// PENDING events, counted up to [`STATS_COUNT_LIMIT`].
    pub pending: u64,
    /// Events in the batches of live leases or under live row claims.
    pub processing: u64,
    /// FAILED events, counted up to [`STATS_COUNT_LIMIT`].
    pub failed: u64,
    /// Keys held at present.
    pub held_keys: u64,
    /// How long the oldest due, not held, unclaimed event has been due.
    pub oldest_due: Option<Duration>,
    /// Events published since the lane exists, by all instances; 0 where rows are claimed.
    pub published: u64,
}

/// Counts stop here, so that looking at a lane costs the same however much has piled up.
pub const STATS_COUNT_LIMIT: i64 = 1_000_000;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, or refuses for now; the same call may succeed later.
    #[error("source {source_name}: the database is unavailable while trying to {doing}")]
    Unavailable {
        /// The source's name.
        source_name: String,
        /// What was being done.
        doing: &'static str,
        /// The driver's error.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The tables are not what they must be; the text says what to do.
    #[error("source {source_name}: {problem}")]
    Schema {
        /// The source's name.
        source_name: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// The database refused the statement itself.
    #[error("source {source_name}: the database refused to {doing}")]
    Refused {
        /// The source's name.
        source_name: String,
        /// What was being done.
        doing: &'static str,
        /// The driver's error.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// One source's database.
#[async_trait]
pub trait Store: Send + Sync {
    /// Makes sure the tables are there and fit, and that `lane` can be claimed with `ordering`.
    /// Idempotent, and safe to run in many instances at once.
    async fn open_lane(&self, lane: &LaneName, ordering: Ordering) -> Result<(), StoreError>;

    /// Takes due work, or `None` when there is none to be had now. Writes no event row in leased
    /// lanes. Holds no transaction open when it returns.
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Option<Batch>, StoreError>;

    /// Extends a claim by `lease` from now. Returns false when any part of it was lost.
    async fn renew(
        &self,
        lane: &LaneName,
        batch: &BatchClaim,
        lease: Duration,
    ) -> Result<bool, StoreError>;

    /// Writes the outcomes and releases the claim, all in one transaction. May be called again
    /// with the same arguments after an error, at any time.
    async fn settle(
        &self,
        lane: &LaneName,
        batch: &BatchClaim,
        settlements: &[Settlement],
    ) -> Result<Settled, StoreError>;

    /// How the lane stands.
    async fn stats(&self, lane: &LaneName, ordering: Ordering) -> Result<LaneStats, StoreError>;

    /// Deletes at most `limit` PUBLISHED events older than `age`; returns how many. Never touches
    /// an event in another state.
    async fn delete_published(&self, age: Duration, limit: usize) -> Result<u64, StoreError>;

    /// Notes that an instance is there and what it says of itself, in place of what it said before,
    /// and forgets instances that were not heard of for a day.
    async fn heartbeat(&self, beat: &Heartbeat<'_>) -> Result<(), StoreError>;
}

/// What commands do with a source's tables. The relay does not see it.
#[async_trait]
pub trait Outbox: Store + Desk {
    /// The migration as SQL text that a person can read and run.
    fn migration_sql(&self) -> String;

    /// Creates what is missing. Safe to run twice and at the same time.
    async fn migrate(&self) -> Result<(), StoreError>;

    /// Looks whether the tables are there and fit, and says what is wrong, with the remedy.
    async fn check(&self) -> Result<(), StoreError>;

    /// Lanes that have rows which are not published, whether or not anyone knows them; at most
    /// [`MOST_LANES_FOUND`]. Costs a look per lane, however many rows there are.
    async fn lanes_with_rows(&self) -> Result<Vec<LaneFound>, StoreError>;

    /// Leases and row claims that were not given back, by lane and shard; at most [`MOST_LEASES`].
    async fn leases(&self) -> Result<Vec<LeaseStanding>, StoreError>;

    /// Keys of the lane that are held until someone decides.
    async fn halted_keys(&self, lane: &LaneName) -> Result<HaltedKeys, StoreError>;

    /// The instances that have reported within a day, the last heard of first; at most
    /// [`MOST_INSTANCES`].
    async fn instances(&self) -> Result<Vec<InstanceSeen>, StoreError>;

    /// Pending rows of the lane in id order, due or not; claims and changes nothing. Looks at rows one by
    /// one where no index helps.
    async fn peek(&self, lane: &LaneName, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// Closes the connections; calls made later fail.
    async fn close(&self);
}

/// The claim behind a batch, without its events.
#[derive(Debug, Clone)]
pub struct BatchClaim {
    /// The claim's token.
    pub token: Token,
    /// The order under which it was claimed.
    pub ordering: Ordering,
    /// Leased shards; empty for row claims.
    pub shards: Vec<i32>,
    /// Claimed rows; empty for leases.
    pub rows: Vec<EventId>,
}

impl Batch {
    /// The claim behind this batch.
    pub fn claim(&self) -> BatchClaim {
        let rows = match self.ordering {
            Ordering::None => self.events.iter().map(|event| event.id).collect(),
            Ordering::Key | Ordering::Total => Vec::new(),
        };
        BatchClaim { token: self.token, ordering: self.ordering, shards: self.shards.clone(), rows }
    }
}
