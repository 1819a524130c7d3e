//! A PostgreSQL database of a test's own.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

use crate::services::variable;

/// A fresh database, reachable by URL and by pool.
pub struct Database {
    /// Its URL.
    pub url: String,
    /// A pool for the test's own statements.
    pub pool: PgPool,
}

/// A name that no other test of this run uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    format!("{prefix}_{}_{}_{nanos}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Database {
    /// Creates an empty database.
    ///
    /// # Panics
    /// When the server of the tests does not answer.
    pub async fn fresh() -> Self {
        let server = variable("HAULIER_TEST_POSTGRES_URL");
        let name = unique("t");
        let admin = PgPoolOptions::new()
            .max_connections(1)
            .connect(&server)
            .await
            .expect("PostgreSQL answers");
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&admin)
            .await
            .expect("creates");
        admin.close().await;
        let base = server.rsplit_once('/').expect("a URL has a path").0;
        let url = format!("{base}/{name}");
        let options = PgConnectOptions::from_str(&url).expect("a URL");
        let pool =
            PgPoolOptions::new().max_connections(16).connect_with(options).await.expect("connects");
        Self { url, pool }
    }

    /// Runs statements.
    ///
    /// # Panics
    /// When one fails.
    pub async fn run(&self, sql: impl Into<String>) {
        let sql = sql.into();
        sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// One number.
    ///
    /// # Panics
    /// When the statement fails.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        let sql = sql.into();
        sqlx::query_scalar(AssertSqlSafe(sql.clone()))
            .fetch_one(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Waits until the statement gives `wanted`.
    ///
    /// # Panics
    /// When it has not after two minutes; says what it gave last.
    pub async fn until(&self, sql: &str, wanted: i64) {
        let mut last = None;
        let reached = crate::process::eventually(std::time::Duration::from_secs(120), async || {
            last = Some(self.number(sql).await);
            last == Some(wanted)
        })
        .await;
        assert!(reached, "{sql}: wanted {wanted}, last saw {last:?}");
    }
}
