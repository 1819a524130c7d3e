//! `[sources.NAME]`: which outbox tables there are and how their rows are kept.
//!
//! Read by config, used by the store and by `migrate`. It never connects and never prints a URL.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::{Secret, Section, closest};
use crate::store::{PayloadType, Settle, check_database_url, check_table_name};

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

/// The values of `sslmode` in a PostgreSQL URL.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

const URL_EXAMPLE: &str = "{ env = \"DATABASE_URL\" }";

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
    /// The database, `postgres://…` with TLS parameters such as `sslmode` and `sslrootcert`.
    pub url: Secret,
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
        let url = section.required_secret("url", URL_EXAMPLE);
        if let Some(Err(message)) = url.as_ref().map(|url| check_url(url.expose())) {
            section.error("url", message);
        }
        let table = section.string("table").unwrap_or_else(|| DEFAULT_TABLE.to_owned());
        if let Err(message) = check_table_name(&table) {
            section.error("table", message);
        }
        let settle = section.choice(
            "settle",
            &[("delete", Settle::Delete), ("mark", Settle::Mark)],
            Settle::default(),
        );
        let poolers = [("session", Pooler::Session), ("transaction", Pooler::Transaction)];
        let shards = section.integer("shards", SHARDS, DEFAULT_SHARDS);
        let payload_type =
            section.choice("payload_type", &PayloadType::ALL, PayloadType::default());
        let retention = read_retention(section, settle);
        let pooler = section.choice("pooler", &poolers, Pooler::default());
        let max_connections =
            section.integer("max_connections", MAX_CONNECTIONS, DEFAULT_MAX_CONNECTIONS);
        Some(Self {
            name: name.into(),
            url: url?,
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

/// Whether `url` names a database that the relay works with. Says nothing of what is in it.
fn check_url(url: &str) -> Result<(), String> {
    const ADVICE: &str = "only PostgreSQL works as a source at present: write \
                          postgres://user:password@host:5432/database";
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("is not a database URL; {ADVICE}"));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "postgres" | "postgresql" => {}
        "mysql" | "mariadb" => return Err(format!("is a MySQL or MariaDB URL; {ADVICE}")),
        "sqlite" => return Err(format!("is an SQLite URL; {ADVICE}")),
        _ => return Err(format!("is not a PostgreSQL URL; {ADVICE}")),
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    if address.is_empty() && query.is_empty() {
        return Err(format!("names no host; {ADVICE}"));
    }
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if matches!(name, "sslmode" | "ssl-mode") && !SSL_MODES.contains(&value) {
            let modes = SSL_MODES.join(", ");
            let meant = closest(value, SSL_MODES);
            let meant = meant.map_or(String::new(), |mode| format!("; did you mean '{mode}'?"));
            return Err(format!("has an unknown {name}; there are {modes}{meant}"));
        }
    }
    check_database_url(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_postgres_urls_pass_and_none_is_shown() {
        for good in [
            "postgres://u:p@h/db",
            "postgresql://h",
            "postgres:///db?host=/run/postgresql",
            "postgres://h/db?sslmode=verify-full&sslrootcert=/ca.pem",
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
            ("MARKER://x", "not a PostgreSQL URL"),
            ("postgres://u:MARKER@h/db?sslmode=verify_full", "did you mean 'verify-full'"),
            ("postgres://u:p@h/db?sslmode=MARKER", "unknown sslmode"),
        ] {
            let message = check_url(bad).unwrap_err();
            assert!(message.contains(says), "{message}");
            assert!(!message.contains("MARKER"), "{message}");
        }
    }
}
