//! `haulier demo`: its verdict on a good day and on days with faults, and what it leaves behind.

use std::time::Duration;

use haulier_tests::database::Database;
use haulier_tests::process::{Setup, eventually};
use haulier_tests::{build, kafka};

use crate::scenario::turn;

fn demo(fault: Option<&str>, words: &[&str]) -> (Option<i32>, String) {
    let mut setup = Setup::new("");
    if let Some(fault) = fault {
        setup.env.push(("HAULIER_DEMO_FAULT".into(), fault.into()));
    }
    // Settings of a relay of the caller's own must not matter.
    setup.env.push(("HAULIER__LOG__LEVEL".into(), "nonsense!!".into()));
    let plugin = build::guest("order_events").display().to_string();
    setup.command(&[&["demo", "--plugin", &plugin], words].concat())
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_ends_with_its_verdict() {
    let _turn = turn().await;
    let (code, text) = demo(None, &[]);
    assert_eq!(
        last_line(&text),
        "demo: committed=5000 delivered=5000 lost=0 duplicated=0 out_of_order=0",
        "{text}"
    );
    assert_eq!(code, Some(0));
    for part in [
        "an SQLite file",
        "committed 5,000 of 5,000",
        "rolled back",
        "(p99)",
        "order.created",
        "next: ",
    ] {
        assert!(text.contains(part), "'{part}' is shown: {text}");
    }
    assert!(!text.contains("kept:"), "nothing stays: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_turns_the_verdict() {
    let _turn = turn().await;
    for (fault, figures) in [
        ("lose", "delivered=999 lost=1 duplicated=0 out_of_order=0"),
        ("double", "delivered=1000 lost=0 duplicated=1 out_of_order=0"),
        ("reorder", "delivered=1000 lost=0 duplicated=0 out_of_order=1"),
    ] {
        let (code, text) = demo(Some(fault), &["--events", "1000"]);
        assert_eq!(last_line(&text), format!("demo: committed=1000 {figures}"), "{fault}: {text}");
        assert_eq!(code, Some(1), "{fault}");
        let kept = text.lines().find_map(|line| line.strip_prefix("kept: ")?.split(' ').next());
        let kept = std::path::Path::new(kept.expect("the folder stays to be looked at"));
        for file in ["haulier.toml", "relay-1.log", "relay-2.log", "shop.db"] {
            assert!(kept.join(file).is_file(), "{file} is there");
        }
        std::fs::remove_dir_all(kept).expect("removes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_on_real_services_leaves_nothing_behind() {
    let _turn = turn().await;
    let database = Database::fresh().await;
    let address = kafka::address();
    let before = kafka::names();
    let own_topics = || {
        let names = kafka::names().into_iter();
        let fresh =
            names.filter(|name| name.starts_with("haulier-demo-") && !before.contains(name));
        fresh.collect::<Vec<_>>()
    };
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'haulier_demo%'";
    let words = ["--events", "500", "--postgres", &database.url, "--kafka", &address];
    let (code, text) = demo(None, &words);
    assert_eq!(
        last_line(&text),
        "demo: committed=500 delivered=500 lost=0 duplicated=0 out_of_order=0",
        "{text}"
    );
    assert_eq!(code, Some(0));
    assert_eq!(database.number(schemas).await, 0);
    // The broker forgets a deleted topic a moment later.
    let gone = eventually(Duration::from_secs(30), async || own_topics().is_empty()).await;
    assert!(gone, "left: {:?}", own_topics());
    let (code, text) = demo(None, &[&words[..], &["--keep"]].concat());
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(database.number(schemas).await, 1, "kept");
    assert_eq!(own_topics().len(), 3, "kept");
    let kept = text.lines().find_map(|line| line.strip_prefix("kept: ")?.split(' ').next());
    let kept = std::path::Path::new(kept.expect("the folder is named"));
    let settings = std::fs::read_to_string(kept.join("haulier.toml")).expect("settings");
    assert!(!settings.contains(&database.url), "the URL stays out of the file: {settings}");
    std::fs::remove_dir_all(kept).expect("removes");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let _turn = turn().await;
    let setup = Setup::new("");
    let (code, text) = setup.command(&["demo", "--plugin", "nowhere.wasm"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("nowhere.wasm"), "{text}");
    let (code, text) = demo(None, &["--kafka", "127.0.0.1:1"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("--kafka"), "{text}");
    let (code, text) = demo(None, &["--postgres", "postgres://nobody:SECRET@127.0.0.1:1/none"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("unavailable") && !text.contains("SECRET"), "{text}");
    let (code, text) = demo(None, &["--events", "0"]);
    assert_eq!(code, Some(2), "{text}");
}
