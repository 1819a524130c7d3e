//! A first look at somebody's database: which outboxes are there, and what waits in them.
//!
//! Called by `haulier init`, before there are settings. The SQL is with each adapter. It only
//! reads, in steps of bounded size, and shows nothing of a URL.

use std::path::Path;
use std::time::Duration;

use super::names::COLUMNS;
use super::{Database, postgres, sqlite};

/// Waiting rows of one table that are looked at: enough to see its event types, few enough to be
/// read in a moment.
pub(super) const SAMPLE_ROWS: i64 = 10_000;
/// Lanes of one table that are looked at.
pub(super) const MAX_LANES: i64 = 64;
/// Tables that are looked at; a person reads the outcome.
pub(super) const MAX_TABLES: i64 = 500;
/// Sources of one registry that are looked at.
pub(super) const MAX_SOURCES: i64 = 100;

/// How long the whole look may take: a person waits.
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// What a column of an outbox is usually called, without underscores and in lower case.
const TELLING: [&str; 4] = ["payload", "aggregate", "eventtype", "topic"];

/// What a look at a database found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Which database it is.
    pub database: Database,
    /// Whether it is there; an SQLite file may not be yet.
    pub exists: bool,
    /// Tables that Haulier can carry.
    pub outboxes: Vec<FoundOutbox>,
    /// Tables that look like an outbox of another layout.
    pub others: Vec<OtherTable>,
    /// Table names without a schema that are in use for something that is no outbox of ours.
    pub taken: Vec<String>,
}

/// A table with Haulier's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundOutbox {
    /// Its name as settings have it.
    pub table: String,
    /// Its schema, where it has one that must be named.
    pub schema: Option<String>,
    /// The source it is registered as.
    pub registered: Option<Registered>,
    /// What waits in it; `None` if that could not be read.
    pub waiting: Option<Waiting>,
}

/// What `migrate` has noted of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The source's name.
    pub source: String,
    /// Its shards per lane.
    pub shards: i64,
}

/// The PENDING rows of a table, or the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The lanes that rows name, in order.
    pub lanes: Vec<String>,
    /// The event types, in order.
    pub types: Vec<EventType>,
    /// How many rows were looked at.
    pub rows: u64,
    /// Whether there are more than were looked at.
    pub more: bool,
}

/// The waiting rows of one event type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventType {
    /// The type.
    pub name: String,
    /// How many rows.
    pub rows: u64,
    /// How many of them name a topic themselves.
    pub with_topic: u64,
}

/// A table that looks like an outbox, of another layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherTable {
    /// Its name as settings would have it.
    pub table: String,
    /// Its columns.
    pub columns: Vec<String>,
}

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The URL cannot be used; the text goes on after "the URL".
    #[error("the database URL {0}")]
    Url(String),
    /// The database does not answer, or not as it should.
    #[error("the database cannot be looked at")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SurveyError {
    pub(super) fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(cause.into())
    }

    pub(super) fn too_slow() -> Self {
        Self::unavailable(format!("not done after {LOOK_TIMEOUT:?}"))
    }
}

/// Looks at the database of `url`; a relative path in it starts at `folder`. Changes nothing.
///
/// # Errors
/// When the URL cannot be used or the database cannot be read. An SQLite file that is not there is
/// no error if its folder is.
pub async fn survey(url: &str, folder: &Path) -> Result<Survey, SurveyError> {
    let database = Database::of(url).map_err(SurveyError::Url)?;
    database.check_url(url).map_err(SurveyError::Url)?;
    match database {
        Database::Postgres => postgres::survey(url).await,
        Database::Sqlite => sqlite::survey(url, folder).await,
    }
}

/// Whether these are the columns of an outbox of ours.
pub(super) fn is_ours(columns: &[String]) -> bool {
    COLUMNS.iter().all(|ours| columns.iter().any(|column| column.eq_ignore_ascii_case(ours)))
}

/// Whether a table of that name with these columns looks like an outbox.
pub(super) fn looks_like_one(table: &str, columns: &[String]) -> bool {
    let table = table.to_lowercase();
    let named = table.contains("outbox") || table.contains("event");
    let telling = |column: &String| {
        let column = column.to_lowercase().replace('_', "");
        TELLING.iter().any(|word| column.starts_with(word))
    };
    named && columns.iter().any(telling)
}

/// Whether these are the columns of the table that sources are registered in.
pub(super) fn is_registry(columns: &[String]) -> bool {
    ["source", "table_name", "shards"].iter().all(|name| columns.iter().any(|found| found == name))
}

impl Survey {
    /// Nothing found yet.
    pub(super) fn empty(database: Database, exists: bool) -> Self {
        Self { database, exists, outboxes: Vec::new(), others: Vec::new(), taken: Vec::new() }
    }
}

impl Waiting {
    /// Adds the sample of one lane, of at most `limit` rows: type, whether the rows name a topic, and
    /// how many they are.
    pub(super) fn add_lane(&mut self, groups: Vec<(String, bool, i64)>, limit: i64) {
        let before = self.rows;
        for (name, with_topic, rows) in groups {
            self.add(name, with_topic, rows);
        }
        self.more |= i64::try_from(self.rows - before).is_ok_and(|rows| rows >= limit);
    }

    /// Adds a group of rows that a sample has counted.
    fn add(&mut self, name: String, with_topic: bool, rows: i64) {
        let rows = u64::try_from(rows).unwrap_or_default();
        self.rows += rows;
        let at = match self.types.binary_search_by(|known| known.name.cmp(&name)) {
            Ok(at) => at,
            Err(at) => {
                self.types.insert(at, EventType { name, rows: 0, with_topic: 0 });
                at
            }
        };
        if let Some(found) = self.types.get_mut(at) {
            found.rows += rows;
            found.with_topic += if with_topic { rows } else { 0 };
        }
    }

    /// How many rows of a lane are looked at, so that all lanes are seen.
    pub(super) fn share(lanes: usize) -> i64 {
        SAMPLE_ROWS / i64::try_from(lanes).unwrap_or(MAX_LANES).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_outbox_is_known_by_name_and_columns() {
        for (table, names, expected) in [
            ("outbox", ["id", "aggregatetype", "payload"].as_slice(), true),
            ("OutboxEvent", &["Id", "EventType"], true),
            ("domain_events", &["id", "payload_json"], true),
            ("outbox", &["id", "name"], false),
            ("orders", &["id", "payload"], false),
        ] {
            assert_eq!(looks_like_one(table, &columns(names)), expected, "{table}");
        }
        assert!(is_ours(&columns(&COLUMNS)));
        assert!(!is_ours(&columns(&COLUMNS[1..])));
    }

    #[test]
    fn samples_add_up_by_type() {
        let mut waiting = Waiting::default();
        waiting.add("b".into(), false, 2);
        waiting.add("a".into(), true, 1);
        waiting.add("b".into(), true, 3);
        let found: Vec<_> =
            waiting.types.iter().map(|t| (t.name.as_str(), t.rows, t.with_topic)).collect();
        assert_eq!(found, [("a", 1, 1), ("b", 5, 3)]);
        assert_eq!(waiting.rows, 6);
    }
}
