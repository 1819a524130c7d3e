//! `[sources.NAME]`: which outbox tables there are and how their rows are kept.
//!
//! Read by config, used by the store and by `migrate`. It never connects and never prints a URL.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::{Meaning, Secret, Section};
use crate::store::{Database, PayloadType, Settle};

/// The name in every example.
const DEFAULT_TABLE: &str = "outbox";

/// Shards of a lane: enough for many instances to find a free one, few enough to look through.
const DEFAULT_SHARDS: u16 = 256;
/// The lease table has a row per lane and shard.
const SHARDS: RangeInclusive<u16> = 1..=4096;

/// Lanes, batches in flight, settles and looks at the lanes share these.
const DEFAULT_MAX_CONNECTIONS: u32 = 16;
const MAX_CONNECTIONS: RangeInclusive<u32> = 2..=1000;

/// Rows that are published need no hurry to go.
const DEFAULT_RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// One delete is short enough not to be in anyone's way.
const DEFAULT_RETENTION_BATCH: usize = 1000;
const RETENTION: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3650 * DAY);
const RETENTION_INTERVAL: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(DAY);
const RETENTION_BATCH: RangeInclusive<usize> = 1..=100_000;
const DAY: u64 = 86_400;

const URL_EXAMPLE: &str = "{ env = \"DATABASE_URL\" }";

const INTRO: &str = "Where events come from: one section per outbox table.";

/// What the keys mean, for the reference.
const MEANINGS: [Meaning; 10] = [
    Meaning::new(
        "url",
        "`postgres://user:password@host:5432/database`, with \
         `?sslmode=verify-full&sslrootcert=/path/ca.pem` for TLS, or `sqlite:path/to/file.db`",
    ),
    Meaning::new("table", "by the rules of SQL: `outbox`, `app.outbox`, `'\"App\".\"Outbox\"'`"),
    Meaning::new("shards", "per lane; fixed by the first migrate"),
    Meaning::new(
        "payload_type",
        "type of the payload column, used when migrate makes the table; no `jsonb` with SQLite",
    ),
    Meaning::new("settle", "whether published rows are deleted or marked PUBLISHED"),
    Meaning::new("retention", "with `\"mark\"` only: how long marked rows stay")
        .usually("for ever"),
    Meaning::new("retention_interval", "with retention only: pause between two passes"),
    Meaning::new("retention_batch", "with retention only: most rows of one DELETE"),
    Meaning::new("pooler", "`\"transaction\"` behind a pooler in transaction mode"),
    Meaning::new("max_connections", "most connections at once"),
];

/// What stands between the relay and the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// Nothing, or a pooler that gives a connection for a session.
    #[default]
    Session,
    /// A pooler that gives a connection for a transaction: no cached statements.
    Transaction,
}

/// When rows marked PUBLISHED are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long they stay.
    pub age: Duration,
    /// How often the table is looked through.
    pub interval: Duration,
    /// Most rows of one delete.
    pub batch: usize,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    /// Its name in the settings.
    pub name: Arc<str>,
    /// The database: `postgres://…` with TLS parameters such as `sslmode` and `sslrootcert`, or
    /// `sqlite:path`.
    pub url: Secret,
    /// Where a relative path of a database file starts: the folder of the settings.
    pub folder: PathBuf,
    /// The table, with its schema perhaps, quoted as in SQL.
    pub table: String,
    /// Shards of each lane, fixed by `migrate`.
    pub shards: u16,
    /// The payload column's type, for `migrate`.
    pub payload_type: PayloadType,
    /// What happens to a row that is published.
    pub settle: Settle,
    /// When rows marked PUBLISHED are deleted; `None` keeps them.
    pub retention: Option<Retention>,
    /// What stands between the relay and the database.
    pub pooler: Pooler,
    /// Most connections at once.
    pub max_connections: u32,
}

impl SourceSettings {
    /// Reads one source; `None` where nothing sensible can be made of it.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        section.document(INTRO, &MEANINGS);
        let url = section.required_secret("url", URL_EXAMPLE);
        let table = section.string_or("table", DEFAULT_TABLE);
        let database = check_names(section, url.as_ref().map(Secret::expose), &table);
        let settle = section.choice(
            "settle",
            &[("delete", Settle::Delete), ("mark", Settle::Mark)],
            Settle::default(),
        );
        let poolers = [("session", Pooler::Session), ("transaction", Pooler::Transaction)];
        let shards = section.integer("shards", SHARDS, DEFAULT_SHARDS);
        let payload_type =
            section.choice("payload_type", &PayloadType::ALL, PayloadType::default());
        if database == Some(Database::Sqlite) && payload_type == PayloadType::Jsonb {
            section.error(
                "payload_type",
                "SQLite keeps no jsonb: write \"json\", \"text\" or \"bytea\"",
            );
        }
        let retention = read_retention(section, settle);
        let pooler = section.choice("pooler", &poolers, Pooler::default());
        let max_connections =
            section.integer("max_connections", MAX_CONNECTIONS, DEFAULT_MAX_CONNECTIONS);
        Some(Self {
            name: name.into(),
            url: url?,
            folder: section.resolve(""),
            table,
            shards,
            payload_type,
            settle,
            retention,
            pooler,
            max_connections,
        })
    }
}

/// Checks the URL and the table's name for the database that the URL is for.
fn check_names(section: &Section<'_>, url: Option<&str>, table: &str) -> Option<Database> {
    let database = url.and_then(|url| {
        let known = Database::of(url).and_then(|database| {
            database.check_url(url)?;
            Ok(database)
        });
        known.map_err(|message| section.error("url", message)).ok()
    });
    let checked = match database {
        Some(database) => database.check_table_name(table),
        None => Database::check_any_table_name(table),
    };
    if let Err(message) = checked {
        section.error("table", message);
    }
    database
}

fn read_retention(section: &Section<'_>, settle: Settle) -> Option<Retention> {
    let age = section.optional_duration("retention", RETENTION);
    let retention = Retention {
        age: age.unwrap_or_default(),
        interval: section.duration(
            "retention_interval",
            RETENTION_INTERVAL,
            DEFAULT_RETENTION_INTERVAL,
        ),
        batch: section.integer("retention_batch", RETENTION_BATCH, DEFAULT_RETENTION_BATCH),
    };
    for key in ["retention", "retention_interval", "retention_batch"] {
        if !section.has(key) {
            continue;
        }
        if settle == Settle::Delete {
            section.error(
                key,
                "only has a meaning with settle = \"mark\": with \"delete\" no published row stays",
            );
        } else if !section.has("retention") {
            section.error(key, "only has a meaning with retention, such as retention = \"7d\"");
        }
    }
    age.map(|_| retention)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_url(url: &str) -> Result<(), String> {
        Database::of(url)?.check_url(url)
    }

    #[test]
    fn unreadable_urls_are_refused_and_none_is_shown() {
        for good in [
            "postgres://u:p@h/db",
            "postgresql://h",
            "postgres:///db?host=/run/postgresql",
            "postgres://h/db?sslmode=verify-full&sslrootcert=/ca.pem",
            "sqlite:shop.db",
            "sqlite:///var/lib/shop/shop.db",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for (bad, says) in [
            ("", "not a database URL"),
            ("postgres://", "names no host"),
            ("postgres://u:MARK#ER@h/d", "percent-encoded"),
            ("postgres://h:99999/d", "65535"),
            ("MARKER", "not a database URL"),
            ("mysql://u:MARKER@h/db", "MySQL"),
            ("MARKER://x", "neither a PostgreSQL nor an SQLite URL"),
            ("sqlite::memory:", "a file"),
            ("sqlite:", "a file"),
            ("postgres://u:MARKER@h/db?sslmode=verify_full", "did you mean 'verify-full'"),
            ("postgres://u:p@h/db?sslmode=MARKER", "unknown sslmode"),
        ] {
            let message = check_url(bad).unwrap_err();
            assert!(message.contains(says), "{message}");
            assert!(!message.contains("MARKER"), "{message}");
        }
    }
}
