//! `haulier init`: what it finds in databases and brokers, and that the settings it writes work.

use std::path::Path;
use std::process::Command;

use haulier::cli::{Broker, Findings, Url, settings_text};
use haulier::store::{
    Database as Kind, EventType, FoundOutbox, OtherTable, Registered, Survey, Waiting,
};
use haulier_tests::build;
use haulier_tests::database::{Database, unique};
use haulier_tests::folder::Folder;
use haulier_tests::kafka;
use haulier_tests::process::{Setup, free_port};
use haulier_tests::snapshot;

use crate::scenario::turn;

/// Exit code, standard output, standard error.
type Ended = (Option<i32>, String, String);

/// Runs the binary in `folder`, without a database URL in its environment unless one is given.
fn haulier(folder: &Path, words: &[&str], url: Option<&str>) -> Ended {
    let mut command = Command::new(build::haulier());
    command.args(words).current_dir(folder).env_remove("DATABASE_URL").env_remove("HAULIER_CONFIG");
    if let Some(url) = url {
        command.env("DATABASE_URL", url);
    }
    let output = command.output().expect("haulier starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn written(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("haulier.toml")).expect("settings were written")
}

/// Whether the settings hold these lines, one after the other; comments at their ends do not count.
fn has(text: &str, lines: &[&str]) -> bool {
    let bare: Vec<&str> = text
        .lines()
        .map(|line| line.split_once(" # ").map_or(line, |(setting, _)| setting).trim_end())
        .collect();
    bare.windows(lines.len()).any(|window| window == lines)
}

const INSERT: &str = "INSERT INTO outbox (lane, aggregate_id, event_type, payload, topic) VALUES";

#[test]
fn the_text_is_as_it_was_read_last() {
    let waiting = Waiting {
        lanes: vec!["bulk".into(), "default".into(), "no lane".into()],
        types: vec![
            EventType { name: "export.done".into(), rows: 3, with_topic: 3 },
            EventType { name: "order.created".into(), rows: 5, with_topic: 0 },
            EventType { name: "order.paid".into(), rows: 2, with_topic: 1 },
            EventType { name: "payment\n[sinks.evil]".into(), rows: 1, with_topic: 0 },
        ],
        rows: 11,
        more: true,
    };
    let full = Findings {
        url: Url::Variable,
        survey: Survey {
            database: Kind::Postgres,
            exists: true,
            outboxes: vec![
                FoundOutbox {
                    table: "app.\"Outbox\"".into(),
                    schema: Some("app".into()),
                    registered: Some(Registered { source: "orders".into(), shards: 64 }),
                    waiting: Some(waiting),
                },
                FoundOutbox {
                    table: "billing_outbox".into(),
                    schema: None,
                    registered: None,
                    waiting: None,
                },
            ],
            others: vec![OtherTable {
                table: "outbox_events".into(),
                columns: vec!["id".into(), "aggregatetype".into(), "payload".into()],
            }],
            taken: vec!["outbox_events".into()],
        },
        broker: Some(Broker {
            servers: "kafka-1:9092,kafka-2:9092".into(),
            topics: Some(vec![("order-events".into(), 6), ("orders".into(), 12)]),
        }),
    };
    snapshot::check("init-full", &settings_text(&full).expect("a text"));
    let empty = Findings {
        url: Url::Written("sqlite:shop.db".into()),
        survey: Survey {
            database: Kind::Sqlite,
            exists: false,
            outboxes: Vec::new(),
            others: Vec::new(),
            taken: vec!["outbox".into()],
        },
        broker: None,
    };
    snapshot::check("init-empty", &settings_text(&empty).expect("a text"));
}

#[test]
fn defaults_in_comments_are_the_defaults() {
    let survey = Survey {
        database: Kind::Postgres,
        exists: true,
        outboxes: Vec::new(),
        others: Vec::new(),
        taken: Vec::new(),
    };
    let broker = Some(Broker { servers: "localhost:9092".into(), topics: None });
    let text = settings_text(&Findings { url: Url::Variable, survey, broker }).expect("a text");
    let key = |line: &str| {
        line.strip_prefix("# ").is_some_and(|rest| {
            rest.split_once(" = ").is_some_and(|(key, _)| {
                key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
            })
        })
    };
    let count = text.lines().filter(|line| key(line)).count();
    assert!(count > 20, "{count} defaults in:\n{text}");
    let bare: Vec<&str> =
        text.lines().map(|line| if key(line) { &line[2..] } else { line }).collect();
    let read = |text: &str| {
        let url = ("DATABASE_URL".to_owned(), "postgres://h/d".to_owned());
        haulier::config::check_text(text, Path::new("haulier.toml"), [url].into())
            .unwrap_or_else(|problems| panic!("{:?}\n{text}", problems.iter().collect::<Vec<_>>()))
    };
    assert_eq!(read(&text), read(&bare.join("\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_and_kafka_become_settings_that_carry_events() {
    let _turn = turn().await;
    let database = Database::fresh().await;
    Setup::new(format!(
        "[sources.shop]\nurl = \"{}\"\nshards = 16\n[sinks.out]\ntype = \"stdout\"\n",
        database.url
    ))
    .migrate();
    let (kind, other) = (unique("kind"), unique("other"));
    let topic = format!("{kind}-events");
    kafka::create(&topic, 3, &[]).await;
    database
        .run(format!(
            "{INSERT} ('default', '1', '{kind}.made', '{{}}', NULL), ('bulk', '1', '{kind}.sent', '{{}}', NULL), \
             ('default', '2', '{other}.made', '{{}}', 'elsewhere'); \
             CREATE TABLE outbox_legacy (id bigint, aggregatetype text, payload jsonb)"
        ))
        .await;
    let folder = Folder::new();
    let broker = kafka::address();
    // A mark in the URL stands for its password, which is also the user's name here.
    let url = format!("{}?application_name=HUNTER2", database.url);
    let words = ["init", "--database", &url, "--kafka", &broker];
    let (code, out, err) = haulier(folder.path(), &words, None);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let text = written(folder.path());
    assert!(!text.contains(&url) && !out.contains(&url) && !text.contains("HUNTER2"), "{text}");
    let source =
        ["[sources.shop]", "url = { env = \"DATABASE_URL\" }", "table = \"outbox\"", "shards = 16"];
    assert!(has(&text, &source), "{text}");
    let route =
        ["[[routes]]", &format!("event_type = \"{kind}.*\""), &format!("topic = \"{topic}\"")];
    assert!(has(&text, &route), "{text}");
    assert!(
        text.contains("[lanes.bulk]") && text.contains("is there, with 3 partitions"),
        "{text}"
    );
    assert!(text.contains("another layout; not supported yet: outbox_legacy"), "{text}");
    assert!(text.contains(&format!("need no route: {other}.made")), "{text}");
    for part in
        ["source shop: table outbox, 3 events wait", "export DATABASE_URL", "haulier migrate"]
    {
        assert!(out.contains(part), "{out}");
    }
    // The event whose row names a topic of its own has none to go to; it is not what this is about.
    database.run(format!("DELETE FROM outbox WHERE event_type = '{other}.made'")).await;
    let (code, _, err) = haulier(folder.path(), &["check", "--offline"], Some(&url));
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = haulier(folder.path(), &["migrate"], Some(&url));
    assert_eq!(code, Some(0), "{err}");
    let mut setup = Setup::new(text.replace("\n[admin]\n", "\n"));
    setup.config = setup
        .config
        .lines()
        .filter(|line| !line.starts_with("# listen"))
        .collect::<Vec<_>>()
        .join("\n");
    setup.env = vec![("DATABASE_URL".into(), url.clone())];
    let _instance = setup.start();
    assert_eq!(kafka::read_count(&topic, 2).await.len(), 2);
    database.until("SELECT count(*) FROM outbox", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_suggested_and_not_made() {
    let _turn = turn().await;
    let database = Database::fresh().await;
    Setup::new(format!(
        "[sources.shop]\nurl = \"{}\"\n[sinks.out]\ntype = \"stdout\"\n",
        database.url
    ))
    .migrate();
    let kind = unique("kind").replace('_', "-");
    database.run(format!("{INSERT} ('default', '1', '{kind}.made', '{{}}', NULL)")).await;
    let folder = Folder::new();
    let broker = kafka::address();
    // Twice: asking must not make the topic.
    for force in [&[][..], &["--force"]] {
        let words = [&["init", "--kafka", &broker][..], force].concat();
        let (code, out, err) = haulier(folder.path(), &words, Some(&database.url));
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("which must be created") && !out.contains("export"), "{out}");
        assert!(written(folder.path()).contains("is not there yet: create it"), "{out}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_layout_is_evaded() {
    let database = Database::fresh().await;
    database.run("CREATE TABLE outbox (id bigint, event_type text, payload jsonb)").await;
    let folder = Folder::new();
    let (code, out, err) = haulier(folder.path(), &["init"], Some(&database.url));
    assert_eq!(code, Some(0), "{err}");
    let text = written(folder.path());
    assert!(has(&text, &["table = \"haulier_outbox\""]), "{text}");
    assert!(text.contains("not supported yet: outbox (id, event_type, payload)"), "{text}");
    assert!(out.contains("outbox: of another layout"), "{out}");
    let (code, _, err) = haulier(folder.path(), &["migrate"], Some(&database.url));
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = haulier(folder.path(), &["check"], Some(&database.url));
    assert_eq!(code, Some(0), "{out}{err}");
    // What migrate has made is found again.
    let (_, out, _) = haulier(folder.path(), &["init", "--stdout"], Some(&database.url));
    assert!(
        has(
            &out,
            &["[sources.main]", "url = { env = \"DATABASE_URL\" }", "table = \"haulier_outbox\""]
        ),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_sqlite_file_is_written_as_it_is() {
    let folder = Folder::new();
    let words = ["init", "--database", "sqlite:shop.db"];
    let (code, out, err) = haulier(folder.path(), &words, None);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("a file that is not there yet"), "{out}");
    assert!(!folder.path().join("shop.db").exists(), "looking makes no file");
    let text = written(folder.path());
    assert!(has(&text, &["url = \"sqlite:shop.db\"", "table = \"outbox\""]), "{text}");
    let (code, _, err) = haulier(folder.path(), &["migrate"], None);
    assert_eq!(code, Some(0), "{err}");
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("shop.db"));
    let pool = sqlx::SqlitePool::connect_with(file).await.expect("opens");
    sqlx::raw_sql(
        "INSERT INTO outbox (event_type, aggregate_id, payload) VALUES ('order.made', '1', '{}')",
    )
    .execute(&pool)
    .await
    .expect("inserts");
    pool.close().await;
    std::fs::create_dir(folder.path().join("conf")).expect("a folder");
    let words = ["init", "--database", "sqlite:shop.db", "--output", "conf/relay.toml"];
    let (code, out, err) = haulier(folder.path(), &words, None);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("1 event waits") && out.contains("--config 'conf/relay.toml'"), "{out}");
    let (code, out, err) = haulier(folder.path(), &["check", "-c", "conf/relay.toml"], None);
    assert_eq!(code, Some(0), "{out}{err}");
    let text = std::fs::read_to_string(folder.path().join("conf/relay.toml")).expect("settings");
    let mut setup = Setup::new(text.replace("\n[admin]\n", "\n"));
    setup.config = setup
        .config
        .lines()
        .filter(|line| !line.starts_with("# listen"))
        .collect::<Vec<_>>()
        .join("\n");
    let instance = setup.start();
    instance.logged("\"topic\":\"orders\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_answer_is_said() {
    let folder = Folder::new();
    let nowhere = format!("127.0.0.1:{}", free_port());
    let url = format!("postgres://u:HUNTER2@{nowhere}/d");
    let (code, out, err) = haulier(folder.path(), &["init", "--database", &url], None);
    assert_eq!(code, Some(69), "{out}{err}");
    assert!(err.contains("the database cannot be looked at") && !err.contains("HUNTER2"), "{err}");
    assert!(!folder.path().join("haulier.toml").exists());
    let words = ["init", "--database", "sqlite:none/shop.db"];
    assert_eq!(haulier(folder.path(), &words, None).0, Some(69));
    let words = ["init", "--database", "sqlite:shop.db", "--kafka", &nowhere];
    let (code, out, err) = haulier(folder.path(), &words, None);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains(&nowhere) && out.contains("no answer"), "{out}{err}");
    let text = written(folder.path());
    assert!(
        has(&text, &["type = \"kafka\"", &format!("bootstrap_servers = \"{nowhere}\"")]),
        "{text}"
    );
    let (code, out, err) = haulier(folder.path(), &["check", "--offline"], None);
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn a_file_is_only_replaced_when_that_is_asked_for() {
    let folder = Folder::new();
    let file = folder.path().join("haulier.toml");
    std::fs::write(&file, "precious").expect("writes");
    let words = ["init", "--database", "sqlite:shop.db"];
    let (code, _, err) = haulier(folder.path(), &words, None);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("haulier.toml is there already") && err.contains("--force"), "{err}");
    assert_eq!(written(folder.path()), "precious");
    let (code, _, err) = haulier(folder.path(), &[&words[..], &["--force"]].concat(), None);
    assert_eq!(code, Some(0), "{err}");
    assert!(written(folder.path()).contains("[sources.main]"));
    for bad in ["mysql://u:HUNTER2@h/d", "HUNTER2"] {
        let (code, _, err) = haulier(folder.path(), &["init", "--stdout", "--database", bad], None);
        assert_eq!(code, Some(2), "{err}");
        assert!(!err.contains("HUNTER2"), "{err}");
    }
    // Help shows the variable's name and never its value.
    let (_, out, err) =
        haulier(folder.path(), &["init", "--help"], Some("postgres://u:HUNTER2@h/d"));
    assert!(out.contains("DATABASE_URL") && !out.contains("HUNTER2") && !err.contains("HUNTER2"));
}
