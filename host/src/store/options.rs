//! What a store is told about its source: the same for every database.
//!
//! Filled in by the composition root from the settings, read by the adapters. Knows no SQL.

use std::path::PathBuf;

/// The type of the payload column, chosen when the table is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadType {
    /// `json`: checked by the database, kept byte for byte.
    #[default]
    Json,
    /// `jsonb`: normalised by the database; bytes are not kept. PostgreSQL only.
    Jsonb,
    /// `text`: any text.
    Text,
    /// `bytea`: any bytes.
    Bytea,
}

impl PayloadType {
    /// Every type with its name in the settings.
    pub const ALL: [(&'static str, Self); 4] = [
        ("json", Self::Json),
        ("jsonb", Self::Jsonb),
        ("text", Self::Text),
        ("bytea", Self::Bytea),
    ];
}

/// What happens to an event that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settle {
    /// Its row is deleted.
    #[default]
    Delete,
    /// Its row is marked PUBLISHED, and retention deletes it later.
    Mark,
}

/// One source.
#[derive(Clone)]
pub struct StoreConfig {
    /// The source's name; it keys the side tables.
    pub source: String,
    /// Connection URL; secret. Its scheme says which database it is.
    pub url: String,
    /// Where relative paths in the URL of a database file start.
    pub folder: PathBuf,
    /// Table name by the rules of SQL: `outbox`, `app.outbox`, `"App"."Outbox"`.
    pub table: String,
    /// Shards per lane for a new table, 1 to 4096. Fixed once the table exists.
    pub shards: u16,
    /// Payload column for a new table.
    pub payload_type: PayloadType,
    /// What happens to published events.
    pub settle: Settle,
    /// Whether a pooler in transaction mode stands between: no prepared statements are kept then.
    pub transaction_pooler: bool,
    /// Most connections at once.
    pub max_connections: u32,
    /// Whether a lane reads the whole lane in id order, which wants an index of its own.
    pub whole_lane_index: bool,
}

impl std::fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreConfig")
            .field("source", &self.source)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
