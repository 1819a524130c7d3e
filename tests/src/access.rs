//! Access rules of the test broker, for topics of a test's own.
//!
//! They hold for those who log in ([`crate::kafka::address`] takes anyone, and asks for nothing).
//! Made by the broker's own command, since librdkafka's bindings have no call for it.

use std::process::Command;

use crate::kafka;
use crate::services::variable;

/// What the login of the tests may still do with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// See it, but not write to it.
    Sight,
    /// Nothing.
    Nothing,
}

/// Takes rights to a topic away from the login of the tests. Takes effect a moment later.
///
/// # Panics
/// When the broker's command fails.
pub fn forbid(topic: &str, left: Left) {
    // A topic with any rule is closed to all whom none lets in.
    let user = match left {
        Left::Sight => variable("HAULIER_TEST_KAFKA_USER"),
        Left::Nothing => "nobody".to_owned(),
    };
    let principal = format!("User:{user}");
    rules(&["--add", "--allow-principal", &principal, "--operation", "Describe", "--topic", topic]);
}

/// Opens a topic to all again. Takes effect a moment later.
///
/// # Panics
/// When the broker's command fails.
pub fn permit(topic: &str) {
    rules(&["--remove", "--force", "--topic", topic]);
}

fn rules(words: &[&str]) {
    let libs = format!("{}/*", variable("HAULIER_TEST_KAFKA_LIBS"));
    let output = Command::new("java")
        .args(["-XX:TieredStopAtLevel=1", "-cp", &libs, "org.apache.kafka.tools.AclCommand"])
        .args(["--bootstrap-server", &kafka::address()])
        .args(words)
        .output()
        .expect("java runs");
    // It says what went wrong on either stream, not always with an exit code.
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Error"), "{words:?}: {said}");
}
