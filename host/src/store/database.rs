//! Which database a URL is for, and whether the URL and a table name can be used with it.
//!
//! Called by config for messages, and by the composition root to choose the adapter. Connects to
//! nothing, and shows nothing of a URL.

use super::names::TableName;
use super::{postgres, sqlite};

const ADVICE: &str = "write postgres://user:password@host:5432/database, or sqlite:path/to/file.db";

/// The databases that can hold an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// SQLite: a file that the applications and the relay share.
    Sqlite,
}

impl Database {
    /// The database that the scheme of `url` names.
    ///
    /// # Errors
    /// A text that says what may be wrong with it.
    pub fn of(url: &str) -> Result<Self, String> {
        let Some((scheme, _)) = url.split_once(':') else {
            return Err(format!("is not a database URL; {ADVICE}"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "sqlite" => Ok(Self::Sqlite),
            "mysql" | "mariadb" => Err(format!(
                "is a MySQL or MariaDB URL, which cannot be a source at present; {ADVICE}"
            )),
            _ => Err(format!("is neither a PostgreSQL nor an SQLite URL; {ADVICE}")),
        }
    }

    /// Whether `url`, of this database, can be read.
    ///
    /// # Errors
    /// A text that says what may be wrong with it.
    pub fn check_url(self, url: &str) -> Result<(), String> {
        match self {
            Self::Postgres => postgres::check_url(url),
            Self::Sqlite => sqlite::check_url(url),
        }
    }

    /// `url` with the path of its file, if it has one, made absolute from the current folder.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn anchored(self, url: &str) -> Result<String, String> {
        match self {
            Self::Postgres => Ok(url.to_owned()),
            Self::Sqlite => sqlite::anchored(url),
        }
    }

    /// Whether `table` is a name that the tables of some database can have.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn check_any_table_name(table: &str) -> Result<(), String> {
        TableName::parse(table).map(|_| ())
    }

    /// Whether `table` is a name that this database's tables can have.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn check_table_name(self, table: &str) -> Result<(), String> {
        let name = TableName::parse(table)?;
        match self {
            Self::Sqlite if name.schema().is_some() => Err(format!(
                "'{table}' names a schema, which SQLite has not: write the table alone"
            )),
            Self::Postgres | Self::Sqlite => Ok(()),
        }
    }
}
