//! A first look at a PostgreSQL database, for `haulier init`.
//!
//! Called by [`crate::store::survey()`]. One connection, read-only transactions, a limit on every
//! statement. Reads only indexes and the catalogue in full.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row};

use super::Connection;
use crate::store::names::TableName;
use crate::store::survey::{
    LOOK_TIMEOUT, MAX_LANES, MAX_SOURCES, MAX_TABLES, OtherTable, Registered, Survey, SurveyError,
    Waiting, is_ours, is_registry, looks_like_one,
};
use crate::store::{Database, FoundOutbox};

/// How long connecting may take: a person waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '10s'";
/// For the rows: walk the index of pending rows in its order, and nothing else.
const BEGIN_ROWS: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '5s'; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off";

/// Tables by name or by a column that only an outbox of ours has.
const TABLES: &str = "\
    SELECT c.oid::bigint, n.nspname::text, c.relname::text, pg_table_is_visible(c.oid), \
           has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), \
           c.relkind IN ('r', 'p'), \
           ARRAY(SELECT a.attname::text FROM pg_attribute a \
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition \
      AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
      AND (c.relname ~* 'outbox|event' OR c.relname = 'haulier_source' OR EXISTS (\
           SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'claim_losses')) \
    ORDER BY 4 DESC, 2, 3 LIMIT $1";

struct Relation {
    oid: i64,
    schema: String,
    name: String,
    visible: bool,
    readable: bool,
    is_table: bool,
    columns: Vec<String>,
}

impl Relation {
    fn table_name(&self) -> TableName {
        TableName::new((!self.visible).then(|| self.schema.clone()), self.name.clone())
    }

    fn is_registry(&self) -> bool {
        self.name == "haulier_source" && self.readable && is_registry(&self.columns)
    }
}

/// A row of a registry, with the table it means.
struct Registration {
    schema: String,
    oid: i64,
    table: String,
    registered: Registered,
}

/// Looks at the database.
///
/// # Errors
/// When it cannot be reached or does not let us look.
pub(in crate::store) async fn survey(url: &str) -> Result<Survey, SurveyError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| SurveyError::Url("cannot be read".to_owned()))?
        .application_name("haulier")
        // A pooler may stand between.
        .statement_cache_capacity(0)
        .disable_statement_logging();
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, options.connect()).await;
    let mut connection = connected
        .map_err(|_| SurveyError::unavailable(format!("no answer within {CONNECT_TIMEOUT:?}")))?
        .map_err(SurveyError::unavailable)?;
    let looked = tokio::time::timeout(LOOK_TIMEOUT, look(&mut connection)).await;
    let survey = looked.map_err(|_| SurveyError::too_slow())?.map_err(SurveyError::unavailable)?;
    // Everything is known; that the server hears the goodbye does not matter.
    let _ = connection.close().await;
    Ok(survey)
}

async fn look(connection: &mut Connection) -> Result<Survey, sqlx::Error> {
    let mut transaction = connection.begin_with(BEGIN).await?;
    let relations = relations(&mut transaction).await?;
    let mut registrations = Vec::new();
    for relation in relations.iter().filter(|relation| relation.is_registry()) {
        registrations.extend(registered(&mut transaction, relation).await?);
    }
    transaction.rollback().await?;
    let mut survey = Survey::empty(Database::Postgres, true);
    for relation in relations {
        let ours = relation.is_table && is_ours(&relation.columns);
        if relation.visible && !ours {
            survey.taken.push(relation.name.clone());
        }
        if ours {
            survey.outboxes.push(outbox(connection, &relation, &registrations).await?);
        } else if looks_like_one(&relation.name, &relation.columns) {
            let table = relation.table_name().written();
            survey.others.push(OtherTable { table, columns: relation.columns });
        }
    }
    Ok(survey)
}

async fn relations(connection: &mut Connection) -> Result<Vec<Relation>, sqlx::Error> {
    let rows = sqlx::query(TABLES).bind(MAX_TABLES).fetch_all(connection).await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Relation {
            oid: row.try_get(0)?,
            schema: row.try_get(1)?,
            name: row.try_get(2)?,
            visible: row.try_get(3)?,
            readable: row.try_get(4)?,
            is_table: row.try_get(5)?,
            columns: row.try_get(6)?,
        })
    };
    rows.iter().map(read).collect()
}

async fn registered(
    connection: &mut Connection,
    registry: &Relation,
) -> Result<Vec<Registration>, sqlx::Error> {
    let sql = format!(
        "SELECT source, table_name, shards::bigint, coalesce(to_regclass(table_name)::oid::bigint, 0) \
         FROM {} ORDER BY source LIMIT $1",
        TableName::new(Some(registry.schema.clone()), registry.name.clone()).sql()
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(MAX_SOURCES).fetch_all(connection).await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Registration {
            schema: registry.schema.clone(),
            oid: row.try_get(3)?,
            table: row.try_get(1)?,
            registered: Registered { source: row.try_get(0)?, shards: row.try_get(2)? },
        })
    };
    rows.iter().map(read).collect()
}

async fn outbox(
    connection: &mut Connection,
    relation: &Relation,
    registrations: &[Registration],
) -> Result<FoundOutbox, sqlx::Error> {
    // The registry stands beside the table. Its spelling of the name is the one to keep.
    let of_this =
        |known: &&Registration| known.oid == relation.oid && known.schema == relation.schema;
    let known = registrations.iter().find(of_this);
    let spelt = known.and_then(|known| TableName::parse(&known.table).ok());
    let name = spelt.unwrap_or_else(|| relation.table_name());
    let waiting = if relation.readable { waiting(connection, &name.sql()).await? } else { None };
    Ok(FoundOutbox {
        table: name.written(),
        schema: name.schema().map(str::to_owned),
        registered: known.map(|known| known.registered.clone()),
        waiting,
    })
}

/// What waits in the table; `None` where the database refuses to say or takes too long over it.
async fn waiting(connection: &mut Connection, table: &str) -> Result<Option<Waiting>, sqlx::Error> {
    let mut transaction = connection.begin_with(BEGIN_ROWS).await?;
    let sample = sample(&mut transaction, table).await;
    transaction.rollback().await?;
    match sample {
        Ok(waiting) => Ok(Some(waiting)),
        Err(sqlx::Error::Database(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn sample(connection: &mut Connection, table: &str) -> Result<Waiting, sqlx::Error> {
    // From lane to lane along the index, without reading what lies between.
    let next = |condition: &str| {
        format!(
            "SELECT lane FROM {table} WHERE status = 'PENDING'{condition} ORDER BY lane LIMIT 1"
        )
    };
    let lanes = format!(
        "WITH RECURSIVE found(lane) AS (({}) UNION ALL SELECT ({}) FROM found WHERE lane IS NOT NULL) \
         SELECT lane FROM found WHERE lane IS NOT NULL LIMIT $1",
        next(""),
        next(" AND lane > found.lane"),
    );
    let lanes: Vec<String> = sqlx::query_scalar(AssertSqlSafe(lanes))
        .bind(MAX_LANES)
        .fetch_all(&mut *connection)
        .await?;
    let limit = Waiting::share(lanes.len());
    let sql = format!(
        "SELECT event_type, topic IS NOT NULL, count(*) FROM (\
           SELECT event_type, topic FROM {table} WHERE status = 'PENDING' AND lane = $1 \
           ORDER BY shard, id LIMIT $2) AS sample GROUP BY 1, 2"
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
