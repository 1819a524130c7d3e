//! A soak of half a minute, so that the tool itself cannot rot. `make soak` is the real one.

use std::time::Duration;

use haulier_tests::soak::{self, Kind, Plan};

use crate::scenario::turn;

#[tokio::test(flavor = "multi_thread")]
async fn a_short_soak_holds() {
    let _turn = turn().await;
    let length = Duration::from_secs(30);
    let report = soak::run(&Plan { length, seed: 5, kinds: Kind::QUICK.to_vec() }).await;
    assert!(report.events > 500 && report.faults.values().sum::<usize>() >= 3, "{report}");
}
