//! A deterministic simulation of the relay: whole instances on a virtual clock, with everything drawn from a seed.
//!
//! Compiled for tests. Each run has one to four instances of the real relay (`relay::run`) on one table, and a
//! driver that kills, freezes, stops and restarts them, takes database, broker and topics away, loses answers
//! and reloads the rules, while writers commit events of which some fail, some are dropped and some kill. The
//! table (`store::memory`), the sink (`broker`) and the plugins (`plugin`) are the simulation's; claims, held keys,
//! retries, settlement, circuits, suspicion and reload are the relay's own. What must hold is checked at each
//! step (`checks`, `order`) and once everything has come to rest.
//!
//! A failure prints its seed. `HAULIER_SIM_SEED=n` runs that one and prints its whole history,
//! `HAULIER_SIM_SEEDS=n` says how many are run. The same seed gives the same history on every machine.

mod broker;
mod checks;
mod driver;
mod link;
mod order;
mod plugin;
mod scenario;
mod world;

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use self::driver::Driver;
use self::world::{Flaw, Shared, Step};
use crate::store::Planted;

/// Runs in a test, unless the environment says otherwise.
const SEEDS: u64 = 3_000;
/// Steps that are shown of a run that failed.
const SHOWN: usize = 60;
/// Failures after which no more seeds are tried.
const MOST_FAILURES: usize = 3;
/// Runs in which a fault on purpose must have been found.
const MOST_RUNS_TO_FIND: u64 = 400;

/// What came of one run.
struct Outcome {
    violations: Vec<String>,
    steps: Vec<(u64, Step)>,
    digest: u64,
    settings: String,
}

/// One run.
fn run(seed: u64, flaw: Flaw) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        crate::clock::simulated::since(Some(tokio::time::Instant::now()));
        crate::retry::seeded::by(Some(seed));
        let world = Shared::new(seed, flaw);
        Driver::new(world.clone()).run().await;
        let mut world = world.lock();
        Outcome {
            violations: std::mem::take(&mut world.violations),
            digest: world.digest(),
            steps: std::mem::take(&mut world.steps),
            settings: world.scenario.summary(),
        }
    });
    drop(runtime);
    crate::clock::simulated::since(None);
    crate::retry::seeded::by(None);
    outcome
}

/// The end of a history, or all of it, for people.
fn told(seed: u64, outcome: &Outcome, most: usize) -> String {
    let left_out = outcome.steps.len().saturating_sub(most);
    let mut text = format!("seed {seed}: {}\n... {left_out} steps before\n", outcome.settings);
    for (at, step) in &outcome.steps[left_out..] {
        let _ = writeln!(text, "{at:>8} {step:?}");
    }
    for violation in &outcome.violations {
        let _ = writeln!(text, "VIOLATED {violation}");
    }
    text
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs seeds on all cores until they are through or enough of them have failed. Returns what failed.
fn run_all(seeds: u64, flaw: Flaw, most_failures: usize) -> Vec<(u64, Outcome)> {
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let full = || failed.lock().expect("no panic").len() >= most_failures;
    let work = || {
        while !full() {
            let seed = next.fetch_add(1, Memory::Relaxed);
            if seed >= seeds {
                break;
            }
            let outcome = run(seed, flaw);
            if !outcome.violations.is_empty() {
                failed.lock().expect("no panic").push((seed, outcome));
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|threads| {
        for _ in 0..cores {
            threads.spawn(work);
        }
    });
    failed.into_inner().expect("no panic")
}

#[test]
fn what_must_hold_holds_for_every_seed() {
    if let Some(seed) = setting("HAULIER_SIM_SEED") {
        let outcome = run(seed, Flaw::None);
        let text = told(seed, &outcome, usize::MAX);
        assert!(outcome.violations.is_empty(), "{text}");
        // Nothing is wrong with it; who asks for one seed wants to see what happens.
        std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).expect("it is shown");
        return;
    }
    let seeds = setting("HAULIER_SIM_SEEDS").unwrap_or(SEEDS);
    let failed = run_all(seeds, Flaw::None, MOST_FAILURES);
    let texts: Vec<String> =
        failed.iter().map(|(seed, outcome)| told(*seed, outcome, SHOWN)).collect();
    assert!(failed.is_empty(), "{}\nRun one by HAULIER_SIM_SEED=n", texts.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..40 {
        let (first, second) = (run(seed, Flaw::None), run(seed, Flaw::None));
        let differs = first
            .steps
            .iter()
            .zip(&second.steps)
            .position(|(a, b)| format!("{a:?}") != format!("{b:?}"));
        assert_eq!(first.digest, second.digest, "seed {seed}, from step {differs:?} on");
    }
}

#[test]
fn faults_on_purpose_are_found() {
    let flaws = [
        Flaw::Table(Planted::SettlesWithoutToken),
        Flaw::Table(Planted::IgnoresHeldKeys),
        Flaw::Table(Planted::ReadsBeforeLocking),
        Flaw::Table(Planted::IgnoresLeases),
        Flaw::Table(Planted::ForgetsLosses),
        Flaw::Table(Planted::KeepsLeases),
        Flaw::NoFence,
        Flaw::SlotGoesOn,
        Flaw::FalseAcknowledgements,
    ];
    for flaw in flaws {
        let failed = run_all(MOST_RUNS_TO_FIND, flaw, 1);
        assert!(!failed.is_empty(), "{flaw:?} was not found in {MOST_RUNS_TO_FIND} runs");
        if std::env::var_os("HAULIER_SIM_SHOW").is_some() {
            let (seed, outcome) = &failed[0];
            let text = format!("{flaw:?}: seed {seed}: {:?}\n", outcome.violations);
            std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes())
                .expect("it is shown");
        }
    }
}
