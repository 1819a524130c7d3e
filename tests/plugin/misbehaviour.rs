//! Whatever one event makes a plugin do, the other events of its batch get their verdicts, and the
//! process goes on.

use std::sync::Arc;
use std::time::Duration;

use haulier::failure::Cause;
use haulier::plugin::PluginConfig;
use haulier::transform::Plugins;
use serde_json::json;

use crate::guests::{Folder, batch, component, event, failed, lane, misbehaving, run};

/// One culprit at place 31 among 50, found with the marker and without it.
async fn one_in_fifty(event_type: &str, cause: Cause, text: &str) {
    for settings in [json!({}), json!({ "no_marker": true })] {
        let (_folder, host) = misbehaving(settings).await;
        let done = run(&host, "misbehave", &batch(50, &[(31, event_type)])).await;
        let failures = failed(done, &[31], cause);
        assert!(failures[0].message.contains(text), "{}", failures[0]);
        // The next batch does not suffer.
        failed(run(&host, "misbehave", &batch(50, &[])).await, &[], cause);
    }
}

#[tokio::test]
async fn a_panic_is_told_with_its_text_and_place() {
    one_in_fifty("test.panic", Cause::PluginTrap, "event 31 panics").await;
    one_in_fifty("test.panic", Cause::PluginTrap, "unreachable").await;
    one_in_fifty("test.panic", Cause::PluginTrap, "\nat 0:").await;
}

#[tokio::test]
async fn a_guest_that_exits_has_failed() {
    one_in_fifty("test.exit", Cause::PluginTrap, "exit").await;
}

#[tokio::test]
async fn an_endless_loop_is_stopped() {
    one_in_fifty("test.loop", Cause::PluginTimeout, "of computing").await;
}

#[tokio::test]
async fn an_endless_sleep_is_stopped() {
    let (_folder, host) = misbehaving(json!({})).await;
    let done = run(&host, "misbehave", &batch(10, &[(3, "test.sleep")])).await;
    let failures = failed(done, &[3], Cause::PluginTimeout);
    assert!(failures[0].message.contains("of waiting"), "{}", failures[0]);
}

#[tokio::test]
async fn a_stack_overflow_is_a_trap() {
    one_in_fifty("test.stack", Cause::PluginTrap, "stack").await;
}

#[tokio::test]
async fn memory_has_a_limit() {
    one_in_fifty("test.memory", Cause::PluginMemory, "at most 67108864 are allowed").await;
}

#[tokio::test]
async fn the_number_of_results_is_checked() {
    one_in_fifty("test.no-result", Cause::PluginOutput, "0 results for 1 events").await;
    one_in_fifty("test.two-results", Cause::PluginOutput, "2 results for 1 events").await;
}

#[tokio::test]
async fn what_comes_back_has_limits() {
    one_in_fifty("test.huge", Cause::PluginOutput, "more than the host takes").await;
    one_in_fifty("test.fan-out-100k", Cause::PluginOutput, "more than the host takes").await;
    one_in_fifty("test.fan-out-101", Cause::PluginOutput, "101 deliveries").await;
    one_in_fifty("test.empty-topic", Cause::PluginOutput, "empty topic").await;
    one_in_fifty("test.partition", Cause::PluginOutput, "partition -1").await;
    one_in_fifty("test.100-mb", Cause::PluginOutput, "more than the host takes").await;
    one_in_fifty("test.control-topic", Cause::TopicIllegal, "control characters").await;
    one_in_fifty("test.control-header", Cause::HeaderInvalid, "control characters").await;
    one_in_fifty("test.utf8-topic", Cause::PluginOutput, "malformed data").await;
    one_in_fifty("test.utf8-header", Cause::PluginOutput, "malformed data").await;
}

#[tokio::test]
async fn floods_of_words_harm_nobody() {
    for flood in ["test.log-flood", "test.print-flood"] {
        // Taking the words up is the host's work on the guest's time, and slow in an unoptimised host:
        // it is the words that are looked at here, so time is no object.
        let mut config = PluginConfig::default();
        config.limits.event_deadline = Duration::from_secs(10);
        let folder = Folder::new().with("misbehave.wasm", component("misbehave"));
        let host = folder.load_with("misbehave", config).await;
        let done = run(&host, "misbehave", &batch(50, &[(31, flood)])).await;
        failed(done, &[], Cause::PluginTrap);
    }
}

#[tokio::test]
async fn several_culprits_are_told_apart() {
    for settings in [json!({}), json!({ "no_marker": true })] {
        let (_folder, host) = misbehaving(settings).await;
        let special =
            [(0, "test.panic"), (7, "test.memory"), (25, "test.stack"), (49, "test.panic")];
        let done = run(&host, "misbehave", &batch(50, &special)).await;
        let causes: Vec<_> = done
            .verdicts
            .iter()
            .enumerate()
            .filter_map(|(place, verdict)| Some((place, verdict.as_ref().err()?.cause)))
            .collect();
        let expected = [
            (0, Cause::PluginTrap),
            (7, Cause::PluginMemory),
            (25, Cause::PluginTrap),
            (49, Cause::PluginTrap),
        ];
        assert_eq!(causes, expected);
    }
}

#[tokio::test]
async fn a_plugin_that_always_panics_fails_every_event_for_itself() {
    let (_folder, host) = misbehaving(json!({})).await;
    let all: Vec<(usize, &str)> = (0..256).map(|place| (place, "test.panic")).collect();
    let places: Vec<usize> = (0..256).collect();
    failed(run(&host, "misbehave", &batch(256, &all)).await, &places, Cause::PluginTrap);
}

#[tokio::test]
async fn a_plugin_that_always_hangs_is_given_up_and_nobody_is_blamed_for_it() {
    for hang in ["test.loop", "test.sleep"] {
        let (_folder, host) = misbehaving(json!({})).await;
        let all: Vec<(usize, &str)> = (0..256).map(|place| (place, hang)).collect();
        let done = run(&host, "misbehave", &batch(256, &all)).await;
        let causes: Vec<Cause> =
            done.verdicts.iter().filter_map(|it| it.as_ref().err().map(|it| it.cause)).collect();
        let count = |cause| causes.iter().filter(|it| **it == cause).count();
        assert!(count(Cause::PluginTimeout) >= 1, "{causes:?}");
        assert_eq!(count(Cause::PluginTimeout) + count(Cause::PluginUnavailable), 256);
        // 256 events may compute 2.56 s, and as much again is spent on finding who is at fault: each takes
        // 100 ms of it, so that most of them cannot have been tried.
        assert!(count(Cause::PluginUnavailable) > 128, "{causes:?}");
    }
}

#[tokio::test]
async fn a_busy_plugin_does_not_hold_up_the_callers_threads() {
    // 20 ms for each of 10 events: slow, within the batch's 100 ms no longer, but honest work.
    let folder = Folder::new().with("misbehave.wasm", component("misbehave"));
    let mut config = PluginConfig { settings: json!({ "spin_ms": 20 }), ..PluginConfig::default() };
    config.limits.event_deadline = Duration::from_millis(200);
    let host = Arc::new(folder.load_with("misbehave", config).await);
    let busy = {
        let host = host.clone();
        tokio::spawn(async move { run(&host, "misbehave", &batch(10, &[])).await })
    };
    // This test has one thread; were the guest on it, the loop below would not turn.
    let mut turns = 0;
    while !busy.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        turns += 1;
    }
    assert!(turns > 20, "{turns}");
    failed(busy.await.expect("no panic"), &[], Cause::PluginTimeout);
}

#[tokio::test]
async fn innocent_plugins_do_not_time_out_on_a_crowded_machine() {
    let folder = Folder::new().with("misbehave.wasm", component("misbehave"));
    let mut config = folder.config();
    config.workers = 1;
    let plugin = PluginConfig { settings: json!({ "spin_ms": 5 }), ..PluginConfig::default() };
    config.plugins.insert("misbehave".to_owned(), plugin);
    let host = haulier::plugin::PluginHost::load(config).await.expect("the host starts");
    let plugin = host.find("misbehave").expect("it is loaded");
    // 16 lanes on one thread: each gets a sixteenth, and takes far longer than its deadline.
    let work = (0..16).map(|number| {
        let plugin = plugin.clone();
        tokio::spawn(async move {
            let events = batch(10, &[]);
            let events: Vec<_> = events.iter().collect();
            plugin.transform(&lane(&format!("lane-{number}")), &events).await
        })
    });
    let work: Vec<_> = work.collect();
    for done in work {
        failed(done.await.expect("no panic"), &[], Cause::PluginTimeout);
    }
}

#[tokio::test]
async fn a_plugin_that_is_dear_to_start_is_used_again_and_retired_before_it_is_full() {
    let (_folder, host) = misbehaving(json!({ "start_ms": 2 })).await;
    // Ten leaks fill the memory; forty must pass all the same, since instances are retired in time.
    for id in 0..40 {
        let done = run(&host, "misbehave", &[event(id, "test.leak")]).await;
        failed(done, &[], Cause::PluginMemory);
    }
    // A trap in between costs only its own event.
    let done = run(&host, "misbehave", &batch(50, &[(31, "test.panic")])).await;
    failed(done, &[31], Cause::PluginTrap);
}

#[tokio::test]
async fn a_caller_that_gives_up_stops_the_guest() {
    let (_folder, host) = misbehaving(json!({})).await;
    let plugin = host.find("misbehave").expect("it is loaded");
    let hang = event(1, "test.sleep");
    let (lane, events) = (lane("default"), [&hang]);
    let given_up = plugin.transform(&lane, &events);
    assert!(tokio::time::timeout(Duration::from_millis(20), given_up).await.is_err());
    drop(plugin);
    failed(run(&host, "misbehave", &batch(50, &[])).await, &[], Cause::PluginTrap);
}
