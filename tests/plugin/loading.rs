//! Bad files are refused with a text that helps, and stop nobody else.

use std::fs;

use haulier::plugin::{Config, PluginConfig, PluginHost};
use haulier::transform::Plugins;
use serde_json::json;

use crate::guests::{Folder, batch, component, misbehave, run};

/// The trouble that this file is, beside a good plugin that loads all the same.
async fn trouble(bytes: impl AsRef<[u8]>) -> String {
    let folder = Folder::new().with("bad.wasm", bytes).with("good.wasm", component("order_events"));
    let host = folder.load().await;
    assert_eq!(
        host.in_use().iter().map(|it| it.stamp.name.clone()).collect::<Vec<_>>(),
        ["order-events"]
    );
    assert!(host.find("order-events").is_ok());
    let missing = host.find("wanted").err().expect("there is no such plugin");
    assert!(missing.contains("wanted") && missing.contains("bad.wasm"), "{missing}");
    let [trouble] = &host.troubles()[..] else { panic!("one trouble: {:?}", host.troubles()) };
    assert!(trouble.contains("bad.wasm") && !trouble.contains('\n'), "{trouble}");
    trouble.clone()
}

async fn assert_trouble(bytes: impl AsRef<[u8]>, expected: &[&str]) {
    let trouble = trouble(bytes).await;
    for text in expected {
        assert!(trouble.contains(text), "{text:?} is not in: {trouble}");
    }
}

#[tokio::test]
async fn files_that_are_no_components() {
    assert_trouble("", &["empty"]).await;
    assert_trouble("hello", &["not a WebAssembly file"]).await;
    let whole = component("order_events");
    assert_trouble(&whole[..whole.len() / 2], &["damaged or cut off"]).await;
    assert_trouble(b"\0asm\x01\0\0\0", &["core WebAssembly module", "wasm32-wasip2"]).await;
    let mut broken = whole;
    let middle = broken.len() / 2;
    broken[middle..middle + 64].fill(0xff);
    trouble(broken).await;
}

#[tokio::test]
async fn components_that_are_no_plugins() {
    assert_trouble(
        component("other_world"),
        &["another world", "testing:other/greeter@1.0.0", "haulier:relay/plugin@0.1.0"],
    )
    .await;
    assert_trouble(
        component("other_version"),
        &["haulier:relay/transformer 0.2.0", "speaks 0.1.0"],
    )
    .await;
}

#[tokio::test]
async fn files_and_sockets_cannot_even_be_imported() {
    assert_trouble(component("trespass"), &["imports wasi:", "no plugin may have"]).await;
}

#[tokio::test]
async fn plugins_that_cannot_say_who_they_are() {
    assert_trouble(misbehave("loop"), &["describe itself", "1000 ms of computing"]).await;
    assert_trouble(misbehave("trap"), &["describe itself", "describe panics"]).await;
    assert_trouble(misbehave("no-name"), &["has the name \"\""]).await;
    assert_trouble(misbehave("long-name"), &["has the name \"xxx"]).await;
    assert_trouble(misbehave("twice"), &["\"test.*\" twice"]).await;
}

#[tokio::test]
async fn settings_are_tried_at_once() {
    let folder = Folder::new().with("m.wasm", component("misbehave"));
    for (settings, expected) in [
        (json!({ "spin": 1 }), "refuses its settings: unknown field `spin`"),
        (json!([1]), "not a table"),
        (json!({ "configure": "trap" }), "configure panics"),
        (json!({ "configure": "loop" }), "of computing"),
    ] {
        let config = PluginConfig { settings, ..PluginConfig::default() };
        let host = folder.load_with("misbehave", config).await;
        let text = host.find("misbehave").err().expect("it is refused");
        assert!(text.contains(expected), "{text}");
        assert!(host.troubles()[0].contains(expected), "{:?}", host.troubles());
    }
}

#[tokio::test]
async fn settings_are_not_told_to_everyone() {
    let folder = Folder::new().with("m.wasm", component("misbehave"));
    let settings = json!({ "spin_ms": "hunter2-\"SECRET\"" });
    let config = PluginConfig { settings, ..PluginConfig::default() };
    let host = folder.load_with("misbehave", config).await;
    let trouble = &host.troubles()[0];
    assert!(trouble.contains("refuses its settings: invalid type"), "{trouble}");
    assert!(!trouble.contains("hunter2") && !trouble.contains("SECRET"), "{trouble}");
}

#[tokio::test]
async fn files_have_a_size_limit() {
    let folder = Folder::new().with("m.wasm", component("misbehave"));
    let mut config = PluginConfig::default();
    config.limits.file_size = 1000;
    let host = folder.load_with("misbehave", config).await;
    assert!(host.troubles()[0].contains("at most 1000 are allowed"), "{:?}", host.troubles());

    let mut config = folder.config();
    config.limits.file_size = 1000;
    let host = PluginHost::load(config).await.expect("the host starts");
    assert!(host.troubles()[0].contains("at most 1000 are allowed"), "{:?}", host.troubles());
}

#[tokio::test]
async fn the_first_file_of_a_name_is_used() {
    let good = component("order_events");
    let folder = Folder::new().with("a.wasm", &good).with("b.wasm", &good);
    let host = folder.load().await;
    assert!(host.find("order-events").is_ok());
    let [trouble] = &host.troubles()[..] else { panic!("one trouble") };
    assert!(trouble.contains("b.wasm") && trouble.contains("as a.wasm does"), "{trouble}");
}

#[tokio::test]
async fn only_files_that_ask_for_it_are_loaded() {
    let folder = Folder::new()
        .with(".hidden.wasm", "x")
        .with("notes.txt", "x")
        .with("upload.wasm.part", "x");
    fs::create_dir(folder.path().join("folder.wasm")).expect("a folder");
    let host = folder.load().await;
    assert_eq!(host.troubles(), Vec::<String>::new());
    assert_eq!(host.in_use().len(), 0);
}

#[tokio::test]
async fn a_missing_folder_matters_only_if_plugins_are_configured() {
    let mut config = Config { folder: "no/such/folder".into(), workers: 1, ..Config::default() };
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    assert_eq!(host.troubles(), Vec::<String>::new());
    assert!(host.find("x").err().expect("no plugin").contains("no/such/folder"));

    config.plugins.insert("wanted".to_owned(), PluginConfig::default());
    let host = PluginHost::load(config).await.expect("the host starts");
    let troubles = host.troubles();
    assert_eq!(troubles.len(), 2, "{troubles:?}");
    assert!(troubles[1].contains("[plugins.wanted]"), "{troubles:?}");
}

#[tokio::test]
async fn the_host_can_be_dropped_while_a_plugin_is_in_use() {
    let folder = Folder::new().with("m.wasm", component("misbehave"));
    let host = folder.load().await;
    let plugin = host.find("misbehave").expect("it is loaded");
    drop(host);
    drop(plugin);
    let host = folder.load().await;
    assert_eq!(run(&host, "misbehave", &batch(1, &[])).await.verdicts.len(), 1);
}
