//! The README's reference of all settings is the one that the code gives.

use haulier_tests::snapshot;

const START: &str = "<!-- reference:start -->\n";
const END: &str = "<!-- reference:end -->";

#[test]
fn the_readme_holds_the_reference_of_this_code() {
    let file = crate::root().join("README.md");
    let text = std::fs::read_to_string(&file).expect("a README");
    let found = text.split_once(START).and_then(|(before, rest)| {
        let (block, after) = rest.split_once(END)?;
        Some((before, block, after))
    });
    let Some((before, block, after)) = found else {
        panic!(
            "README.md has no lines {} and {END}, with the reference between them",
            START.trim()
        );
    };
    let reference = format!("\n{}\n", haulier::config::reference());
    if snapshot::updating() {
        std::fs::write(&file, format!("{before}{START}{reference}{END}{after}")).expect("writes");
        return;
    }
    snapshot::assert_same("README.md, the reference of the settings,", block, &reference);
}
