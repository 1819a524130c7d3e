//! Whether every test that GUARANTEES.md names is there.
//!
//! A name is a path: the tier, the file, the test (`e2e::order::total_order_is_the_order_of_ids`), a module of
//! the host in place of tier and file (`relay::sim::…`), or a whole file of a tier (`e2e::status`).

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The tiers whose tests are named by file.
const TIERS: [&str; 5] = ["conformance", "e2e", "guests", "plugin", "sink"];

/// The paths of tests that a text names.
fn named(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.contains("::") && !name.contains(' ')).collect()
}

/// The files that a module's tests may be in.
fn files(root: &Path, parts: &[&str]) -> Vec<PathBuf> {
    let base = match parts {
        [tier, rest @ ..] if TIERS.contains(tier) && !rest.is_empty() => {
            root.join("tests").join(tier).join(rest.join("/"))
        }
        parts => root.join("host/src").join(parts.join("/")),
    };
    vec![base.with_extension("rs"), base.join("mod.rs"), base.join("tests.rs")]
}

/// Why there is no such test, if there is none.
fn missing(root: &Path, name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split("::").collect();
    let there = |parts: &[&str]| files(root, parts).into_iter().find(|file| file.is_file());
    if let [tier, _] = parts[..]
        && TIERS.contains(&tier)
    {
        return there(&parts).is_none().then(|| format!("there is no file of {name}"));
    }
    let (test, module) = parts.split_last()?;
    let Some(file) = there(module) else {
        return Some(format!("there is no file of {name}"));
    };
    let text = fs::read_to_string(&file).unwrap_or_default();
    let found = [format!("fn {test}("), format!("fn {test}<")].iter().any(|it| text.contains(it));
    (!found).then(|| format!("{} has no test {test}", file.display()))
}

#[test]
fn every_promise_is_shown_by_a_test_that_is_there() {
    let text = fs::read_to_string(root().join("GUARANTEES.md")).expect("the guarantees");
    let names = named(&text);
    assert!(names.len() > 40, "{} tests are named", names.len());
    let missing: Vec<String> = names.iter().filter_map(|name| missing(root(), name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_test_that_is_not_there_is_missed() {
    let there = "tidy";
    assert!(!TIERS.contains(&there), "this file is not looked into");
    for gone in ["e2e::order::no_such_test", "e2e::no_such_file", "relay::nowhere::test"] {
        assert!(missing(root(), gone).is_some(), "{gone}");
    }
    assert_eq!(missing(root(), "e2e::order::total_order_is_the_order_of_ids"), None);
}
