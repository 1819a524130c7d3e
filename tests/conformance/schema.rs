//! What is PostgreSQL's own: migrating, names, TLS, plans, bounds that hide nothing.

use std::sync::Arc;
use std::time::Duration;

use haulier::event::{EventId, Ordering};
use haulier::store::{
    Action, Change, Look, Outbox, PostgresStore, Refusal, Selection, Settle, Store, StoreConfig,
    StoreError,
};
use haulier_tests::database::Database;
use haulier_tests::process::eventually;
use haulier_tests::services::variable;

use crate::desk::audit;
use crate::harness::{
    BY_KEY, Harness, Making, NewEvent, USUAL, Wish, claim, claim_soon, failure, ids, is, lane,
    of_key, publish, settle,
};
use crate::postgres::{Postgres, config};

async fn store(config: StoreConfig) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::new(config).expect("a config"))
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_again_and_at_the_same_time_changes_nothing() {
    let database = Database::fresh().await;
    let stores = [
        store(config(&database, USUAL)).await,
        store(config(&database, USUAL)).await,
        store(config(&database, USUAL)).await,
    ];
    let (a, b, c) = tokio::join!(stores[0].migrate(), stores[1].migrate(), stores[2].migrate());
    for outcome in [a, b, c] {
        outcome.expect("migrates");
    }
    database.run("INSERT INTO outbox (event_type) VALUES ('x')").await;
    stores[0].migrate().await.expect("migrates again");
    assert_eq!(database.number("SELECT count(*) FROM outbox").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_migration_is_the_one_that_runs() {
    let database = Database::fresh().await;
    let printed =
        store(StoreConfig { table: "app.\"Out box\"".into(), ..config(&database, USUAL) }).await;
    database.run(printed.migration_sql()).await;
    printed.check().await.expect("fits");
    printed.migrate().await.expect("migrates");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_qualified_quoted_and_reserved() {
    let database = Database::fresh().await;
    for (number, table) in [
        "app.outbox",
        r#""App"."Outbox""#,
        "order",
        r#""with ""quotes"" and.dots""#,
        &"é".repeat(30),
    ]
    .into_iter()
    .enumerate()
    {
        let source = format!("source-{number}");
        let store = store(StoreConfig {
            table: table.to_owned(),
            source: source.clone(),
            ..config(&database, USUAL)
        })
        .await;
        store.migrate().await.unwrap_or_else(|error| panic!("{table}: {error:?}"));
        let sql = if table.starts_with('"') {
            table.to_owned()
        } else if table == "order" {
            "\"order\"".to_owned()
        } else {
            table.to_owned()
        };
        database
            .run(format!("INSERT INTO {sql} (event_type, aggregate_id) VALUES ('x', 'k')"))
            .await;
        let lane = haulier::event::LaneName { source: source.into(), lane: "default".into() };
        store.open_lane(&lane, Ordering::Key).await.expect("opens");
        let batch = store
            .claim(&haulier::store::ClaimRequest {
                lane: &lane,
                ordering: Ordering::Key,
                token: haulier::store::Token::fresh(),
                owner: "test",
                lease: Duration::from_secs(60),
                max_rows: 10,
                max_bytes: 1000,
                max_shards: 8,
                look: Look::Full,
            })
            .await
            .expect("claims")
            .expect("work");
        assert_eq!(batch.events.len(), 1, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_with_its_remedy() {
    let database = Database::fresh().await;
    let bare = store(config(&database, USUAL)).await;
    let problem = |error: StoreError| error.to_string();
    let missing = problem(bare.check().await.expect_err("nothing is there"));
    assert!(missing.contains("\"outbox\"") && missing.contains("haulier migrate"), "{missing}");
    database.run("CREATE TABLE foreign_box (id bigint)").await;
    let foreign =
        store(StoreConfig { table: "foreign_box".into(), ..config(&database, USUAL) }).await;
    let unfit = problem(foreign.check().await.expect_err("not ours"));
    assert!(unfit.contains("lacks lane"), "{unfit}");
    bare.migrate().await.expect("migrates");
    let renamed = store(StoreConfig { source: "renamed".into(), ..config(&database, USUAL) }).await;
    let second = problem(renamed.check().await.expect_err("another source has it"));
    assert!(second.contains("not registered"), "{second}");
    let without = Database::fresh().await;
    let plain = store(StoreConfig { whole_lane_index: false, ..config(&without, USUAL) }).await;
    plain.migrate().await.expect("migrates");
    let unindexed =
        problem(plain.open_lane(&lane("default"), Ordering::Total).await.expect_err("no index"));
    assert!(unindexed.contains("haulier migrate"), "{unindexed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_reached_over_tls() {
    let database = Database::fresh().await;
    let ca = variable("HAULIER_TEST_POSTGRES_CA");
    let over_tls = |url: String| StoreConfig { url, ..config(&database, USUAL) };
    let verified =
        store(over_tls(format!("{}?sslmode=verify-full&sslrootcert={ca}", database.url))).await;
    verified.migrate().await.expect("migrates over TLS");
    verified.open_lane(&lane("default"), Ordering::Key).await.expect("opens over TLS");
    let used = database.number("SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE s.ssl AND a.application_name = 'haulier' AND a.datname = current_database()").await;
    assert!(used > 0, "the connection is encrypted");
    let unknown = store(over_tls(format!("{}?sslmode=verify-full", database.url))).await;
    let error = unknown.check().await.expect_err("an unknown authority is refused");
    assert!(!format!("{error:?}").contains("haulier:haulier"), "no secret in {error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_walk_the_index_in_its_order() {
    let outbox = Postgres::make(USUAL).await;
    outbox.database.run("INSERT INTO outbox (event_type, aggregate_id) SELECT 'x', 'key-' || n FROM generate_series(1, 20000) n").await;
    for (sql, index) in [
        (
            "AND e.shard = 3 AND e.status = 'PENDING' ORDER BY e.lane, e.shard, e.id",
            "outbox_haulier_due",
        ),
        (
            "AND e.status = 'PENDING' AND e.attempts >= 0 ORDER BY e.lane, e.id",
            "outbox_haulier_lane",
        ),
    ] {
        let sql = format!(
            "EXPLAIN SELECT 1 FROM outbox e WHERE e.lane = 'default' AND e.id >= 0 {sql} LIMIT 10"
        );
        let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(&outbox.database.pool)
            .await
            .expect("explains");
        let text = plan.join("\n");
        assert!(text.contains(index) && !text.contains("Sort"), "{text}");
    }
}

/// A held and a scheduled event, looked at until the bounds have moved past them.
async fn with_bounds_in_place(outbox: &Postgres, during: impl AsyncFn()) {
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    let first = batch.events[0].id.0;
    settle(&*store, &batch, |event| {
        if is(event, first) { Action::Halt(failure()) } else { Action::Release }
    })
    .await;
    let moved = eventually(Duration::from_secs(60), async || {
        assert!(claim(&*store, BY_KEY).await.is_none());
        during().await;
        outbox
            .database
            .number("SELECT count(*) FROM haulier_lease WHERE next_due_at > now() AND seen_id > 0")
            .await
            > 0
    })
    .await;
    assert!(moved, "bounds come to be");
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_hide_nothing_that_is_due() {
    let outbox = Postgres::make(Making { shards: 1, ..USUAL }).await;
    let store = outbox.store();
    outbox
        .insert(&[of_key("held"), of_key("held"), NewEvent { due_in: 25.0, ..of_key("later") }])
        .await;
    with_bounds_in_place(&outbox, async || {}).await;
    let quick = Wish { look: Look::Quick, ..BY_KEY };
    assert!(claim(&*store, quick).await.is_none());
    let fresh = outbox.insert(&[of_key("fresh"), of_key("held")]).await;
    let batch = claim(&*store, quick).await.expect("a quick look sees what is new");
    assert_eq!(ids(&batch), fresh[..1]);
    publish(&*store, &batch).await;
    let scheduled = claim_soon(&*store, quick).await;
    assert_eq!(
        scheduled.events[0].aggregate_id.as_deref(),
        Some("later"),
        "and what has become due"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_never_pass_a_running_transaction() {
    let outbox = Postgres::make(Making { shards: 1, ..USUAL }).await;
    let store = outbox.store();
    let quick = Wish { look: Look::Quick, ..BY_KEY };
    // A long transaction has id 1; what comes after it is worked on for longer than bounds need.
    let late = outbox
        .insert_late(&of_key("k"), async || {
            outbox.insert(&[of_key("held"), of_key("held")]).await;
            let batch = claim(&*store, BY_KEY).await.expect("work");
            let first = batch.events[0].id.0;
            settle(&*store, &batch, |event| {
                if is(event, first) { Action::Halt(failure()) } else { Action::Release }
            })
            .await;
            let started = std::time::Instant::now();
            eventually(Duration::from_secs(60), async || {
                assert!(claim(&*store, BY_KEY).await.is_none());
                started.elapsed() > Duration::from_secs(12)
            })
            .await;
        })
        .await;
    let successor = outbox.insert(&[of_key("k")]).await;
    let batch = claim(&*store, quick).await.expect("work");
    assert_eq!(
        ids(&batch),
        [late, successor[0]],
        "a quick look still sees the late commit, in order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_released_by_hand_keeps_its_order() {
    let outbox = Postgres::make(Making { shards: 1, ..USUAL }).await;
    let store = outbox.store();
    let held = outbox.insert(&[of_key("held"), of_key("held")]).await;
    with_bounds_in_place(&outbox, async || {}).await;
    outbox
        .database
        .run(format!(
            "UPDATE outbox SET available_at = now() WHERE id = {0}; \
             UPDATE haulier_held_key SET until = now() WHERE event_id = {0}",
            held[0]
        ))
        .await;
    let younger = outbox.insert(&[of_key("held")]).await;
    let quick = Wish { look: Look::Quick, ..BY_KEY };
    assert!(
        claim(&*store, quick).await.is_none(),
        "nothing overtakes what a quick look does not see"
    );
    let batch = claim(&*store, BY_KEY).await.expect("a full look sees all");
    assert_eq!(ids(&batch), [held[0], held[1], younger[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_makes_due_is_found_in_order_wherever_looks_start() {
    let outbox = Postgres::make(Making { settle: Settle::Mark, ..USUAL }).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k")]).await;
    publish(&*store, &claim(&*store, BY_KEY).await.expect("work")).await;
    // As it is after a while: nothing is looked for up to the second event.
    let bound = format!("UPDATE haulier_lease SET floor_id = {}", inserted[2]);
    outbox.database.run(bound).await;
    let audit = audit(&*desk, "replay").await;
    let all: Vec<EventId> = inserted.iter().copied().map(EventId).collect();
    desk.change(&Change::Replay, &all, &[], audit).await.expect("changes");
    let batch = claim(&*store, Wish { look: Look::Quick, ..BY_KEY }).await.expect("work");
    assert_eq!(ids(&batch), inserted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_an_earlier_version_is_brought_up_to_date() {
    let outbox = Postgres::make(USUAL).await;
    outbox
        .database
        .run(
            "ALTER TABLE outbox DROP COLUMN redelivery; DROP TABLE haulier_audit; \
             ALTER TABLE outbox ALTER COLUMN available_at SET DEFAULT now()",
        )
        .await;
    let store = store(config(&outbox.database, USUAL)).await;
    let error = store.check().await.expect_err("it lacks a column").to_string();
    assert!(error.contains("earlier version") && error.contains("haulier migrate"), "{error}");
    store.migrate().await.expect("migrates");
    store.check().await.expect("fits");
    let default = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'outbox' \
         AND column_name = 'available_at' AND column_default LIKE '%-infinity%'";
    assert_eq!(outbox.database.number(default).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_reorders_nothing() {
    let outbox = Postgres::make(USUAL).await;
    outbox
        .database
        .run(
            "INSERT INTO outbox (event_type, aggregate_id, created_at) \
             VALUES ('t', 'k', now() + interval '1 hour'), ('t', 'k', now())",
        )
        .await;
    let batch = claim(&*outbox.store(), BY_KEY).await.expect("work");
    assert!(ids(&batch).is_sorted());
    assert_eq!(batch.events.len(), 2, "an event that came before the clock was set back is due");
}

/// Inserts rows until `done`, and counts them; none of them may wait for anybody's lock.
async fn write_meanwhile(outbox: &Postgres, done: impl Future<Output = ()>) -> usize {
    tokio::pin!(done);
    let mut written = 0;
    loop {
        let insert = async {
            let mut transaction = outbox.database.pool.begin().await.expect("begins");
            sqlx::raw_sql(
                "SET LOCAL lock_timeout = '200ms'; \
                 INSERT INTO outbox (event_type, aggregate_id) VALUES ('t', 'k')",
            )
            .execute(&mut *transaction)
            .await
            .expect("an application's insert waits for nobody");
            transaction.commit().await.expect("commits");
        };
        tokio::select! {
            biased;
            () = &mut done => return written,
            () = insert => written += 1,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_write_while_claims_and_settles_are_open() {
    let outbox = Postgres::make(USUAL).await;
    let store = outbox.store();
    outbox.insert(&[of_key("k")]).await;
    store.open_lane(&lane("default"), Ordering::Key).await.expect("opens");
    // Every claim and every settle stays open for a while after its first write.
    outbox
        .database
        .run(
            "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$; \
             CREATE TRIGGER dawdle AFTER UPDATE ON haulier_lease EXECUTE FUNCTION dawdle(); \
             CREATE TRIGGER dawdle AFTER DELETE ON outbox EXECUTE FUNCTION dawdle()",
        )
        .await;
    let mut batch = None;
    let claiming = write_meanwhile(&outbox, async {
        batch = claim(&*store, BY_KEY).await;
    })
    .await;
    let batch = batch.expect("work");
    let settling = write_meanwhile(&outbox, async {
        publish(&*store, &batch).await;
    })
    .await;
    assert!(
        claiming > 0 && settling > 0,
        "{claiming} beside the claim, {settling} beside the settle"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_makes_no_application_wait() {
    let outbox = Postgres::make(USUAL).await;
    // A table that is up to date is not touched, whoever has it.
    let mut writer = outbox.database.pool.begin().await.expect("begins");
    sqlx::raw_sql("INSERT INTO outbox (event_type) VALUES ('t')")
        .execute(&mut *writer)
        .await
        .expect("inserts");
    let current = store(config(&outbox.database, USUAL)).await;
    let written = write_meanwhile(&outbox, async { current.migrate().await.expect("migrates") });
    written.await;
    // One of an earlier version has to wait for who reads it; applications wait a second at most.
    writer.rollback().await.expect("rolls back");
    outbox.database.run("ALTER TABLE outbox DROP COLUMN redelivery").await;
    let mut reader = outbox.database.pool.begin().await.expect("begins");
    sqlx::raw_sql("SELECT count(*) FROM outbox").execute(&mut *reader).await.expect("reads");
    let migrating = tokio::spawn(async move { current.migrate().await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
         AND datname = current_database() AND application_name = 'haulier'";
    outbox.database.until(waits, 1).await;
    let insert = "SET statement_timeout = '5s'; INSERT INTO outbox (event_type) VALUES ('t')";
    let mut connection = outbox.database.pool.acquire().await.expect("a connection");
    sqlx::raw_sql(insert).execute(&mut *connection).await.expect("waits for no reader");
    reader.rollback().await.expect("rolls back");
    migrating.await.expect("ends").expect("migrates once the reader is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_key_keeps_its_order_wherever_looks_start() {
    let outbox = Postgres::make(USUAL).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k")]).await;
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) { Action::Halt(failure()) } else { Action::Release }
    })
    .await;
    // As it is after a while: nothing is due up to the last one. Then its event is deleted by hand.
    outbox
        .database
        .run(format!(
            "UPDATE haulier_lease SET seen_id = {}, next_due_at = 'infinity'; \
             DELETE FROM outbox WHERE id = {}",
            inserted[2], inserted[0]
        ))
        .await;
    assert!(desk.drop_hold("default", "k").await.expect("drops"));
    let late = outbox.insert(&[of_key("k")]).await;
    let batch = claim(&*store, Wish { look: Look::Quick, ..BY_KEY }).await.expect("work");
    assert_eq!(ids(&batch), [inserted[1], inserted[2], late[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_holds_up_no_relay_and_an_endless_time_breaks_no_list() {
    let outbox = Postgres::make(USUAL).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("a"), of_key("b")]).await;
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |_| Action::Park(failure())).await;
    outbox.database.run("UPDATE outbox SET created_at = 'infinity' WHERE aggregate_id = 'a'").await;
    let mut holder = outbox.database.pool.begin().await.expect("begins");
    let lock = format!("SELECT 1 FROM outbox WHERE id = {} FOR UPDATE", inserted[0]);
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *holder).await.expect("locks");
    let audit = audit(&*desk, "retry").await;
    let all: Vec<EventId> = inserted.iter().copied().map(EventId).collect();
    let changed = desk.change(&Change::Retry, &all, &[], audit).await.expect("changes");
    assert_eq!(changed.done, all[1..]);
    assert_eq!(changed.refused, [(all[0], Refusal::InFlight)]);
    assert_eq!(ids(&claim(&*store, BY_KEY).await.expect("work")), inserted[1..]);
    let seen = desk.events(&Selection::default(), EventId(0), 10).await.expect("a list");
    assert_eq!(seen.len(), 2);
}
