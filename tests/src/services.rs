//! Where the services are that `tests/services up` started.

/// A variable that `tests/services env` prints.
///
/// # Panics
/// When it is not set: the tests need real services.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `make test`, or `tests/services up` and `eval \"$(tests/services env)\"`")
    })
}

/// Runs `tests/services` with these words, such as `["kill", "kafka"]`.
///
/// # Panics
/// When it fails.
pub fn control(words: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/services");
    let status =
        std::process::Command::new(script).args(words).status().expect("tests/services runs");
    assert!(status.success(), "tests/services {} failed", words.join(" "));
}
