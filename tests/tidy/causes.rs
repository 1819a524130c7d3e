//! The table of causes in `GUARANTEES.md` is the one that the code gives.

use haulier_tests::snapshot;

const START: &str = "<!-- causes -->\n";
const END: &str = "<!-- /causes -->";

#[test]
fn the_guarantees_hold_the_causes_of_this_code() {
    let file = crate::root().join("GUARANTEES.md");
    let text = std::fs::read_to_string(&file).expect("GUARANTEES.md");
    let found = text.split_once(START).and_then(|(before, rest)| {
        let (block, after) = rest.split_once(END)?;
        Some((before, block, after))
    });
    let Some((before, block, after)) = found else {
        panic!(
            "GUARANTEES.md has no lines {} and {END}, with the causes between them",
            START.trim()
        );
    };
    let table = format!("\n{}\n", haulier::failure::table());
    if snapshot::updating() {
        std::fs::write(&file, format!("{before}{START}{table}{END}{after}")).expect("writes");
        return;
    }
    snapshot::assert_same("GUARANTEES.md, the table of causes,", block, &table);
}
