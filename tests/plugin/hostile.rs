//! Hostile events by the hundred: the process stays alive, and as small as it was.

use std::time::Duration;

use haulier::plugin::PluginConfig;

use crate::guests::{Folder, batch, component, run};

/// What one event of each batch does, and whether it fails for it.
const ATTACKS: [(&str, bool); 13] = [
    ("test.loop", true),
    ("test.memory", true),
    ("test.stack", true),
    ("test.panic", true),
    ("test.two-results", true),
    ("test.huge", true),
    ("test.100-mb", true),
    ("test.fan-out-100k", true),
    ("test.utf8-topic", true),
    ("test.utf8-header", true),
    ("test.control-topic", true),
    ("test.control-header", true),
    ("test.log-flood", false),
];

const BATCHES: usize = 1000;

/// Enough for every attack to have been met many times before the first look: what the allocator keeps in
/// reserve for threads and large answers comes together over some hundred batches, and then stays.
const WARM_UP: usize = 30 * ATTACKS.len();

/// Resident memory of this process, in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_thousand_hostile_batches_leave_the_process_as_it_was() {
    let mut config = PluginConfig::default();
    // What an attack may compute before it is stopped: less, for the sake of the test's length.
    config.limits.batch_deadline_min = Duration::from_millis(30);
    // The host of the tests is not optimised, and takes words and answers up slowly.
    config.limits.event_deadline = Duration::from_millis(30);
    let folder = Folder::new().with("misbehave.wasm", component("misbehave"));
    let host = folder.load_with("misbehave", config).await;
    let mut before = 0.0;
    for number in 0..WARM_UP + BATCHES {
        if number == WARM_UP {
            before = resident();
        }
        let (attack, fails) = ATTACKS[number % ATTACKS.len()];
        let place = number * 7 % 500;
        let done = run(&host, "misbehave", &batch(500, &[(place, attack)])).await;
        let failed: Vec<usize> = done
            .verdicts
            .iter()
            .enumerate()
            .filter_map(|(place, verdict)| verdict.is_err().then_some(place))
            .collect();
        let expected: &[usize] = if fails { &[place] } else { &[] };
        assert_eq!(failed, expected, "{attack}: {:?}", done.verdicts[place]);
    }
    let after = resident();
    let growth = (after - before) / before;
    assert!(growth < 0.1, "{before} KiB before, {after} KiB after {BATCHES} batches");
}
