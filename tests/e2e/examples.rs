//! What the repository shows to users: the settings of Compose and Kubernetes, the dashboard.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use haulier_tests::build;
use serde_json::Value;

use crate::scenario::{Scenario, turn};

fn examples() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root");
    root.join("examples")
}

#[test]
fn the_settings_of_the_examples_are_valid() {
    for file in ["compose/haulier.toml", "kubernetes/haulier.toml"] {
        let output = Command::new(build::haulier())
            .args(["check", "--offline", "--config"])
            .arg(examples().join(file))
            .env("DATABASE_URL", "postgres://haulier:demo@postgres:5432/shop")
            .output()
            .expect("haulier starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {text}");
        assert!(!text.contains("warning"), "{file}: {text}");
        // Health checks and Prometheus come from outside of the container.
        assert!(text.contains("admin port: 0.0.0.0:9464"), "{file}: {text}");
    }
}

/// The queries of all panels and variables.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition"].contains(&name.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("haulier_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_names_metrics_that_are_there() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let mut setup = scenario.setup("").guest("misbehave");
    // Retention has a metric of its own.
    setup.config = setup.config.replacen(
        "[sinks.main]",
        "settle = \"mark\"\nretention = \"1h\"\n[sinks.main]",
        1,
    );
    setup.migrate();
    let instance = setup.start();
    instance.ready().await;
    let (_, metrics) = instance.get("/metrics").await.expect("metrics");
    let series = metrics.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<&str> = series.filter_map(|line| line.split(['{', ' ']).next()).collect();

    let dashboard = std::fs::read_to_string(examples().join("grafana/haulier.json"));
    let dashboard: Value =
        serde_json::from_str(&dashboard.expect("the dashboard")).expect("it is JSON");
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let found = found.join("\n");
    let named = metric_names(&found);
    assert!(named.len() > 15, "the queries are where they are looked for: {named:?}");
    // Only while a candidate runs in the shadow.
    let shadow = "haulier_plugin_shadowed_events_total";
    let missing: Vec<_> = named.difference(&there).filter(|name| **name != shadow).collect();
    assert!(missing.is_empty(), "the dashboard names {missing:?}; there are {there:?}");
    let families = |name: &&str| !name.ends_with("_count") && !name.ends_with("_sum");
    let unseen: Vec<_> = there.difference(&named).filter(|name| families(name)).collect();
    assert!(unseen.is_empty(), "the dashboard does not show {unseen:?}");
}
