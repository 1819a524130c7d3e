//! `make soak`: a soak with random faults, ten minutes or `MINUTES`, from a random seed or `SEED`.
//!
//! Prints the seed first and the counts at the end. Ends with a panic, and so not with 0, when an
//! invariant did not hold.

#![expect(clippy::print_stdout, reason = "it is a command, and this is what it has to say")]

use std::time::Duration;

use haulier_tests::soak::{self, Kind, Plan};

/// A number from the environment; empty is the same as not given.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")))
}

#[tokio::main]
async fn main() {
    let minutes = number("MINUTES").unwrap_or(10);
    let seed = number("SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("soak: {minutes} minutes, SEED={seed}");
    let length = Duration::from_secs(60 * minutes);
    let report = soak::run(&Plan { length, seed, kinds: Kind::ALL.to_vec() }).await;
    println!("{report}");
    println!("soak: {minutes} minutes, SEED={seed}: every invariant holds");
}
