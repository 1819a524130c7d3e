//! The programs in `examples/insert`, run as their users would, on real PostgreSQL and Kafka.
//!
//! Each language has a test. A toolchain that is not on the machine skips its test and says so; one
//! that is there must work, downloads included. What is installed goes to `target/languages`, never
//! into the checkout.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use haulier_tests::build;
use haulier_tests::database::Database;
use haulier_tests::kafka;
use haulier_tests::process::Setup;
use serde_json::{Value, json};
use tokio::process::Command;

/// No step takes longer on a machine that works; a download may be slow.
const STEP_LIMIT: Duration = Duration::from_secs(300);

/// A folder of `examples/insert` and how its program is run.
struct Language<'a> {
    folder: &'static str,
    /// Commands that work where the toolchain is there.
    probes: &'static [&'static [&'static str]],
    /// Commands that install and build, run in a copy of the folder.
    steps: &'static [&'static [&'static str]],
    /// The program; the order id and perhaps `fail` follow.
    program: &'a [&'a str],
}

#[tokio::test(flavor = "multi_thread")]
async fn sql() {
    carries(&Language {
        folder: "sql",
        probes: &[&["psql", "--version"]],
        steps: &[],
        program: &[
            "sh",
            "-c",
            r#"psql "$DATABASE_URL" --no-psqlrc -v "id=$1" ${2:+-v fail=1} -f order.sql"#,
            "sh",
        ],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rust() {
    let binary = build::binary("insert").display().to_string();
    carries(&Language { folder: "rust", probes: &[], steps: &[], program: &[&binary] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn java() {
    carries(&Language {
        folder: "java",
        probes: &[&["javac", "--version"], &["mvn", "--version"]],
        steps: &[&["mvn", "-B", "-ntp", "-q", "dependency:copy-dependencies"]],
        program: &["java", "-cp", "lib/*", "InsertOrder.java"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python() {
    carries(&Language {
        folder: "python",
        probes: &[&["python3", "-c", "import ensurepip, venv"]],
        steps: &[
            &["python3", "-m", "venv", ".venv"],
            &[".venv/bin/pip", "install", "--quiet", "-r", "requirements.txt"],
        ],
        program: &[".venv/bin/python", "order.py"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn go() {
    carries(&Language {
        folder: "go",
        probes: &[&["go", "version"]],
        steps: &[],
        program: &["go", "run", "."],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript() {
    carries(&Language {
        folder: "typescript",
        probes: &[&["node", "--version"], &["npm", "--version"]],
        steps: &[&["npm", "ci", "--silent"], &["npm", "run", "--silent", "build"]],
        program: &["node", "dist/order.js"],
    })
    .await;
}

/// Places one order and lets one fail; the relay must carry the event of the first, and nothing may
/// be left of the second.
async fn carries(language: &Language<'_>) {
    for probe in language.probes {
        if !run(Path::new("."), probe, &[]).await.is_some_and(|output| output.status.success()) {
            skipped(probe[0]);
            return;
        }
    }
    let folder = copied(language.folder);
    for step in language.steps {
        let output = run(&folder, step, &[]).await.expect("its toolchain is there");
        assert!(output.status.success(), "{step:?}: {}", printed(&output));
    }

    let database = Database::fresh().await;
    let topic = kafka::topic(3, &[]).await;
    let setup = Setup::new(format!(
        "[sources.orders]\nurl = \"{}\"\n\
         [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = \"{}\"\n\
         [[routes]]\nevent_type = \"order.created\"\ntopic = \"{topic}\"\n",
        database.url,
        kafka::address()
    ));
    setup.migrate();
    database
        .run(
            "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer_id text NOT NULL, \
             total_cents bigint NOT NULL)",
        )
        .await;

    // An id that a program which pastes it into SQL or JSON would stumble over.
    let id = format!("{} 'no' \"4711\" \\ ü", language.folder);
    let place = async |words: &[&str]| {
        let words: Vec<&str> = language.program.iter().chain(words).copied().collect();
        run(&folder, &words, &[("DATABASE_URL", &database.url)]).await.expect("the program starts")
    };
    let placed = place(&[&id]).await;
    assert!(placed.status.success(), "{}", printed(&placed));
    let refused = place(&["refused", "fail"]).await;
    let text = printed(&refused);
    assert!(!refused.status.success(), "it was to fail: {text}");
    assert!(text.contains("failed on purpose"), "{text}");

    let orders: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT id, customer_id, total_cents FROM orders")
            .fetch_all(&database.pool)
            .await
            .expect("orders");
    assert_eq!(orders, [(id.clone(), "c-17".to_owned(), 1250)]);
    assert_eq!(database.number("SELECT count(*) FROM outbox").await, 1);
    // A sequence does not roll back: the second event was written, and taken back.
    let drawn = "SELECT last_value FROM outbox_id_seq";
    assert_eq!(database.number(drawn).await, 2, "the failing program wrote no event");

    let mut relay = setup.start();
    database.until("SELECT count(*) FROM outbox", 0).await;
    assert!(relay.terminate().await.success(), "{}", relay.log());
    let received = kafka::read_count(&topic, 1).await;
    let [record] = received.as_slice() else { panic!("wanted one record: {received:?}") };
    assert_eq!(record.key.as_deref(), Some(id.as_bytes()));
    assert_eq!(record.header("X-Event-Type"), Some("order.created"));
    assert_eq!(record.header("X-Aggregate-Type"), Some("order"));
    let payload: Value = serde_json::from_slice(record.payload.as_deref().expect("a payload"))
        .expect("the payload is JSON");
    assert_eq!(payload, json!({ "id": id, "customer_id": "c-17", "total_cents": 1250 }));
}

/// Runs a command to its end; `None` when there is no such program.
async fn run(folder: &Path, words: &[&str], env: &[(&str, &str)]) -> Option<Output> {
    let running = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        // In the plain C locale Java and psql would not read the id's letters as UTF-8.
        .env("LC_ALL", "C.UTF-8")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(STEP_LIMIT, running)
        .await
        .unwrap_or_else(|_| panic!("{words:?} takes longer than {STEP_LIMIT:?}"))
        .ok()
}

/// A copy of the example below the target folder, for its tools to install into. What they
/// installed the last time stays.
fn copied(language: &str) -> PathBuf {
    let example = build::root().join("examples/insert").join(language);
    let copy = build::target().join("languages").join(language);
    std::fs::create_dir_all(&copy).expect("a folder");
    for entry in std::fs::read_dir(&example).expect("an example") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("a copy");
        }
    }
    copy
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Tells it past the test harness, which keeps what a passing test prints to itself.
fn skipped(tool: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: no {tool} here");
}
