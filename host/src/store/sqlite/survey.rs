//! A first look at an SQLite file, for `haulier init`.
//!
//! Called by [`crate::store::survey()`]. Opens the file for reading only and never makes it. The
//! rows are read along the index of pending rows, a limited number of them.

use std::path::Path;
use std::time::Duration;

use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row};

use super::schema;
use super::{Connection, options};
use crate::store::names::TableName;
use crate::store::survey::{
    LOOK_TIMEOUT, MAX_LANES, MAX_SOURCES, MAX_TABLES, OtherTable, Registered, Survey, SurveyError,
    Waiting, is_ours, is_registry, looks_like_one,
};
use crate::store::tables::Tables;
use crate::store::{Database, FoundOutbox};

/// How long a writer that keeps the whole file to itself is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Looks at the file of `url`; a relative path starts at `folder`.
///
/// # Errors
/// When it cannot be read, or cannot be made later because its folder is missing.
pub(in crate::store) async fn survey(url: &str, folder: &Path) -> Result<Survey, SurveyError> {
    let options = options(url, folder).map_err(SurveyError::Url)?;
    let file = options.get_filename().to_owned();
    if !file.exists() {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            let text = format!("there is no folder {}", parent.display());
            return Err(SurveyError::unavailable(text));
        }
        return Ok(Survey::empty(Database::Sqlite, false));
    }
    let options = options.read_only(true).busy_timeout(BUSY_TIMEOUT);
    let looked = tokio::time::timeout(LOOK_TIMEOUT, async {
        let mut connection = options.connect().await?;
        let survey = look(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(survey)
    });
    looked.await.map_err(|_| SurveyError::too_slow())?.map_err(SurveyError::unavailable)
}

async fn look(connection: &mut Connection) -> Result<Survey, sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         ORDER BY name LIMIT ?1",
    )
    .bind(MAX_TABLES)
    .fetch_all(&mut *connection)
    .await?;
    let registered = registered(connection, &names).await?;
    let mut survey = Survey::empty(Database::Sqlite, true);
    for name in names {
        let table = TableName::new(None, name.clone());
        let columns = schema::columns(connection, &table.sql()).await?;
        if !is_ours(&columns) {
            if looks_like_one(&name, &columns) {
                survey.others.push(OtherTable { table: table.written(), columns });
            }
            survey.taken.push(name.to_ascii_lowercase());
            continue;
        }
        let same =
            |(known, _): &&(TableName, Registered)| known.sql().eq_ignore_ascii_case(&table.sql());
        let known = registered.iter().find(same);
        // The registry's spelling of the name is the one to keep.
        let spelt = known.map_or(&table, |(spelt, _)| spelt).written();
        survey.outboxes.push(FoundOutbox {
            waiting: waiting(connection, &spelt).await?,
            table: spelt,
            schema: None,
            registered: known.map(|(_, registered)| registered.clone()),
        });
    }
    Ok(survey)
}

async fn registered(
    connection: &mut Connection,
    names: &[String],
) -> Result<Vec<(TableName, Registered)>, sqlx::Error> {
    if names.iter().all(|name| name != "haulier_source") {
        return Ok(Vec::new());
    }
    let columns = schema::columns(connection, "haulier_source").await?;
    if !is_registry(&columns) {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(
        "SELECT source, table_name, shards FROM haulier_source ORDER BY source LIMIT ?1",
    )
    .bind(MAX_SOURCES)
    .fetch_all(connection)
    .await?;
    let mut found = Vec::new();
    for row in rows {
        let registered = Registered { source: row.try_get(0)?, shards: row.try_get(2)? };
        if let Ok(table) = TableName::parse(&row.try_get::<String, _>(1)?) {
            found.push((table, registered));
        }
    }
    Ok(found)
}

/// What waits in the table; `None` where there is no index to read that by.
async fn waiting(connection: &mut Connection, table: &str) -> Result<Option<Waiting>, sqlx::Error> {
    let Ok(tables) = Tables::new(table) else { return Ok(None) };
    match sample(connection, &tables).await {
        Ok(waiting) => Ok(Some(waiting)),
        Err(sqlx::Error::Database(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn sample(connection: &mut Connection, tables: &Tables) -> Result<Waiting, sqlx::Error> {
    let from = format!(
        "FROM {} INDEXED BY {} WHERE status = 'PENDING'",
        tables.events,
        tables.index("haulier_due")
    );
    // From lane to lane along the index, without reading what lies between.
    let lanes = format!(
        "WITH RECURSIVE found(lane) AS (SELECT (SELECT lane {from} ORDER BY lane LIMIT 1) UNION ALL \
           SELECT (SELECT lane {from} AND lane > found.lane ORDER BY lane LIMIT 1) \
           FROM found WHERE lane IS NOT NULL) \
         SELECT lane FROM found WHERE lane IS NOT NULL LIMIT ?1"
    );
    let lanes: Vec<String> = sqlx::query_scalar(AssertSqlSafe(lanes))
        .bind(MAX_LANES)
        .fetch_all(&mut *connection)
        .await?;
    let limit = Waiting::share(lanes.len());
    let sql = format!(
        "SELECT event_type, topic IS NOT NULL, count(*) FROM (\
           SELECT event_type, topic {from} AND lane = ?1 ORDER BY shard, id LIMIT ?2) \
         GROUP BY 1, 2"
    );
    let mut waiting = Waiting::default();
    for lane in &lanes {
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(lane)
            .bind(limit)
            .fetch_all(&mut *connection)
            .await?;
        let groups = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
        waiting.add_lane(groups.collect::<Result<_, sqlx::Error>>()?, limit);
    }
    waiting.lanes = lanes;
    Ok(waiting)
}
