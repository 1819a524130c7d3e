//! The example guests of every language, each on its job, and a new plugin of every language as its author
//! makes it: `haulier plugin new`, `build`, `test`, and into a running host.
//!
//! A toolchain that is not on the machine skips its tests and says so; one that is there must work,
//! downloads included. Needs no database and no broker.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use haulier::plugin::{Config, PluginHost, Sample, Workbench};
use haulier::transform::Plugins as _;
use haulier_tests::build;
use haulier_tests::folder::Folder;

const JOBS: [&str; 4] = ["routing", "redact", "fan-out", "cloudevents"];

/// Whether these programs are on the machine; says so if not.
#[expect(clippy::print_stderr, reason = "a skipped test has to say that it is")]
fn has(language: &str, probes: &[&[&str]]) -> bool {
    let works = |probe: &&[&str]| -> bool {
        let output = Command::new(probe[0]).args(&probe[1..]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let there = probes.iter().all(works);
    assert!(there || std::env::var_os("CI").is_none(), "CI installs the toolchain of {language}");
    if !there {
        eprintln!("skipped: the toolchain of {language} is not on this machine");
    }
    there
}

const NODE: &[&[&str]] = &[&["npm", "--version"]];
const PYTHON: &[&[&str]] = &[&["python3", "-c", "import venv, ensurepip"]];
const PIP: &[&[&str]] = &[&["python3", "-m", "pip", "--version"]];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a script of the plugins folder.
fn script(words: &[&str]) {
    let plugins = build::root().join("plugins");
    let output = Command::new(plugins.join(words[0]))
        .args(&words[1..])
        .current_dir(&plugins)
        .output()
        .expect("the script runs");
    assert!(output.status.success(), "{words:?}: {}", said(&output));
}

/// Runs each job's samples on the guest of that language.
fn does_its_jobs(file: impl Fn(&str) -> PathBuf) {
    let config = Config { state: Some(compiled()), ..Config::default() };
    for job in JOBS {
        let samples = build::root().join("plugins/jobs").join(format!("{job}.jsonl"));
        let text = std::fs::read_to_string(samples).expect("samples");
        let samples = Sample::read(&text).expect("samples");
        let bench = Workbench::open(&file(job), &config).expect("a plugin");
        for sample in &samples {
            let tried = bench.run(sample, None);
            assert!(tried.expected && tried.difference.is_none(), "{job}: {tried:?}");
        }
        let nonsense = sample_with_settings();
        let tried = bench.run(&nonsense, None);
        let text = tried.outcome.to_string();
        assert!(text.contains("no_such_setting"), "{job} names the unknown setting: {text}");
    }
}

/// A sample whose settings nobody knows.
fn sample_with_settings() -> Sample {
    let line = r#"{"event_type":"x","settings":{"no_such_setting":1}}"#;
    Sample::read(line).expect("a sample").remove(0)
}

/// Interpreters take long to compile: what is compiled once is kept for the next run.
fn compiled() -> PathBuf {
    build::target().join("guests-compiled")
}

fn built(suffix: &'static str) -> impl Fn(&str) -> PathBuf {
    move |job| build::root().join(format!("plugins/target/languages/{job}-{suffix}.wasm"))
}

#[test]
fn rust_guests_do_their_jobs() {
    does_its_jobs(|job| build::guest(&format!("{}_rust", job.replace('-', "_"))));
}

#[test]
fn javascript_guests_do_their_jobs() {
    if has("JavaScript", NODE) {
        script(&["build-languages", "javascript"]);
        does_its_jobs(built("js"));
    }
}

#[test]
fn python_guests_do_their_jobs() {
    if has("Python", PYTHON) {
        script(&["build-languages", "python"]);
        does_its_jobs(built("py"));
    }
}

#[test]
fn c_guests_do_their_jobs() {
    if has("C", PIP) {
        script(&["build-c"]);
        does_its_jobs(built("c"));
    }
}

fn haulier(folder: &Path, words: &[&str]) -> Output {
    let tools = |language: &str| build::root().join("plugins/target/tools").join(language);
    Command::new(build::haulier())
        .args(words)
        .current_dir(folder)
        .env("HAULIER_JS_TOOLS", tools("javascript"))
        .env("HAULIER_PY_TOOLS", tools("python"))
        .env("HAULIER_C_TOOLS", tools("c"))
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("haulier starts")
}

/// Makes, builds, tries and loads a new plugin as its author does.
async fn a_new_plugin(language: &str) {
    let folder = Folder::new();
    let name = format!("my-{language}");
    let must = |words: &[&str]| {
        let output = haulier(folder.path(), words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    };
    must(&["plugin", "new", "--lang", language, &name]);
    let again = haulier(folder.path(), &["plugin", "new", "--lang", language, &name]);
    assert!(!again.status.success(), "a folder that is there is not touched");
    let text = must(&["plugin", "build", &name]);
    assert!(text.contains("which passes the 3 samples it ships"), "{text}");
    let file = format!("{name}/{name}.wasm");
    let samples = format!("{name}/samples.jsonl");
    let text = must(&["plugin", "test", &file, "--events", &samples]);
    assert!(text.contains("3 events, 3 compared, 0 not as expected"), "{text}");
    let text = must(&["plugin", "inspect", &file]);
    assert!(text.contains(&format!("{name} 0.1.0")), "{text}");
    assert!(text.contains("haulier:relay/plugin@0.1.0"), "{text}");
    assert!(!text.contains("filesystem") && !text.contains("sockets"), "{text}");

    let config = Config {
        folder: folder.path().join(&name),
        state: Some(compiled()),
        workers: 2,
        ..Config::default()
    };
    let host = PluginHost::load(config).await.expect("the host starts");
    assert_eq!(host.troubles(), Vec::<String>::new());
    assert!(host.find(&name).is_ok());
}

#[tokio::test]
async fn a_new_plugin_in_rust() {
    a_new_plugin("rust").await;
}

#[tokio::test]
async fn a_new_plugin_in_javascript() {
    if has("JavaScript", NODE) {
        script(&["build-languages", "javascript"]);
        a_new_plugin("javascript").await;
    }
}

#[tokio::test]
async fn a_new_plugin_in_python() {
    if has("Python", PYTHON) {
        script(&["build-languages", "python"]);
        a_new_plugin("python").await;
    }
}

#[tokio::test]
async fn a_new_plugin_in_c() {
    if has("C", PIP) {
        script(&["build-c"]);
        a_new_plugin("c").await;
    }
}
