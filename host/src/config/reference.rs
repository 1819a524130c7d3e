//! The reference of all settings, as Markdown: what the readers themselves ask for.
//!
//! Printed by `haulier reference`; the README holds the same text. Reads no file, no variable and
//! no value.

use super::Config;
use crate::settings::{DescribedKey, Description, Settings, Unset};

const INTRO: &str = "\
Names in capitals are yours to choose. Durations are a whole number and a unit (`ms`, `s`, `m`, `h`, `d`), sizes
are bytes or a number with a unit such as `KiB`, `MiB` or `MB`. A secret is a text, `{ env = \"VARIABLE\" }` or
`{ file = \"path\" }`. Every key can also be set by a variable: `HAULIER__`, then its path in capitals with `__`
between the parts, as in `HAULIER__LANES__DEFAULT__BATCH_ROWS=500` or `HAULIER__ROUTES__0__TOPIC=orders`.
";

/// The reference.
pub fn reference() -> String {
    let mut text = INTRO.to_owned();
    for section in descriptions() {
        let title = match section.path.strip_suffix("[]") {
            Some(list) => format!("[[{list}]]"),
            None => format!("[{}]", section.path),
        };
        text.push_str(&format!("\n#### `{title}`\n\n{}\n\n", section.intro));
        text.push_str("| key | type and range | default | meaning |\n|---|---|---|---|\n");
        for key in &section.keys {
            text.push_str(&row(key));
        }
    }
    text
}

fn descriptions() -> Vec<Description> {
    let settings = Settings::describing();
    // Only what it asks for counts.
    let _ = Config::read(settings.root());
    settings.into_descriptions()
}

fn row(key: &DescribedKey) -> String {
    let default = match &key.default {
        Unset::Required => "required".to_owned(),
        Unset::Nothing => "none".to_owned(),
        Unset::Value(value) => format!("`{value}`"),
        Unset::Words(words) => (*words).to_owned(),
    };
    let cells = [format!("`{}`", key.key), key.form.clone(), default, key.meaning.to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_says_what_it_means() {
        let sections = descriptions();
        let paths: Vec<_> = sections.iter().map(|section| section.path.as_str()).collect();
        let expected = [
            "sources.NAME",
            "sinks.NAME",
            "lanes.NAME",
            "plugin_host",
            "plugins.NAME",
            "routes[]",
            "routing",
            "admin",
            "log",
            "relay",
        ];
        assert_eq!(paths, expected);
        for section in &sections {
            let path = &section.path;
            assert!(!section.intro.is_empty(), "[{path}] does not say what it is for");
            for key in &section.keys {
                let name = &key.key;
                assert!(!key.meaning.is_empty(), "{path}.{name} does not say what it means");
                assert!(!key.form.is_empty(), "{path}.{name} is documented, but nobody reads it");
            }
        }
    }

    #[test]
    fn the_reference_is_the_same_everywhere() {
        let text = reference();
        for part in
            ["| `shards` | integer, 1 to 4096 | `256` |", "| one per core |", "| required |"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
