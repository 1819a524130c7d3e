//! Describing the settings by reading none: every key that is asked for, in what form, with what
//! default, and what it means.
//!
//! A reader says what its keys mean with [`Section::document`]; form, range and default are noted by
//! the getters as they are asked, so that a description cannot differ from what is read. Only
//! [`Settings::describing`] notes anything. No value that somebody has set is ever in it.

use std::cell::RefCell;

use super::section::Section;
use super::{Settings, tree};

/// What stands for a name that people choose.
pub(super) const ANY_NAME: &str = "NAME";

/// What a key means, for people.
#[derive(Debug, Clone, Copy)]
pub struct Meaning {
    key: &'static str,
    text: &'static str,
    usually: Option<&'static str>,
}

impl Meaning {
    /// `key` means this: a phrase or two, without a full stop.
    pub const fn new(key: &'static str, text: &'static str) -> Self {
        Self { key, text, usually: None }
    }

    /// Says in words what the default is, where it is no constant.
    #[must_use]
    pub const fn usually(self, default: &'static str) -> Self {
        Self { usually: Some(default), ..self }
    }
}

/// A section with all the keys it can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its path, such as `sources.NAME`; that of a list ends in `[]`.
    pub path: String,
    /// What it is for.
    pub intro: &'static str,
    /// Its keys, in the order in which they are documented.
    pub keys: Vec<DescribedKey>,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedKey {
    /// Its name.
    pub key: String,
    /// What it may be set to, in words; empty if nobody asks for it.
    pub form: String,
    /// What it is where it is not set.
    pub default: Unset,
    /// What it means; empty if nobody says so.
    pub meaning: &'static str,
}

/// What a key is where it is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unset {
    /// It must be set.
    Required,
    /// Nothing.
    Nothing,
    /// This value, as it is written in TOML.
    Value(String),
    /// This, in words.
    Words(&'static str),
}

/// Where descriptions are noted, while they are.
#[derive(Debug, Default)]
pub(super) struct Notes(RefCell<Vec<Description>>);

impl Notes {
    fn at(&self, path: &str, change: impl FnOnce(&mut Description)) {
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(|known| known.path == path).unwrap_or_else(|| {
            all.push(Description { path: path.to_owned(), intro: "", keys: Vec::new() });
            all.len() - 1
        });
        if let Some(description) = all.get_mut(at) {
            change(description);
        }
    }

    /// Notes a key; what is known of it already is kept where `change` leaves it.
    fn key(&self, path: &str, key: &str, change: impl FnOnce(&mut DescribedKey)) {
        self.at(path, |description| {
            let keys = &mut description.keys;
            let at = keys.iter().position(|known| known.key == key).unwrap_or_else(|| {
                keys.push(DescribedKey {
                    key: key.to_owned(),
                    form: String::new(),
                    default: Unset::Nothing,
                    meaning: "",
                });
                keys.len() - 1
            });
            if let Some(described) = keys.get_mut(at) {
                change(described);
            }
        });
    }
}

impl Settings {
    /// Empty settings that note what they are asked for.
    pub fn describing() -> Self {
        let mut settings = Self::new(None, std::collections::BTreeMap::new());
        settings.root.value = tree::Value::Table(tree::Table::default());
        settings.context.notes = Some(Notes::default());
        settings
    }

    /// What was noted, section by section in the order in which they were read.
    pub fn into_descriptions(self) -> Vec<Description> {
        self.context.notes.map(|notes| notes.0.into_inner()).unwrap_or_default()
    }
}

impl Section<'_> {
    /// Says what this section is for and what its keys mean.
    pub fn document(&self, intro: &'static str, meanings: &[Meaning]) {
        let Some(notes) = self.notes() else { return };
        notes.at(self.path(), |description| description.intro = intro);
        for meaning in meanings {
            notes.key(self.path(), meaning.key, |described| {
                described.meaning = meaning.text;
                if let Some(words) = meaning.usually {
                    described.default = Unset::Words(words);
                }
            });
        }
    }

    /// Notes that `key` is asked for, may look like `form`, and is `default` if it is not set.
    pub(super) fn describe(
        &self,
        key: &str,
        form: impl FnOnce() -> String,
        default: impl FnOnce() -> Option<String>,
    ) {
        let Some(notes) = self.notes() else { return };
        notes.key(self.path(), key, |described| {
            described.form = form();
            if let (Unset::Nothing, Some(value)) = (&described.default, default()) {
                described.default = Unset::Value(value);
            }
        });
    }

    /// Notes what `key` is if it is not set.
    pub(super) fn describe_default(&self, key: &str, default: impl FnOnce() -> String) {
        let Some(notes) = self.notes() else { return };
        notes.key(self.path(), key, |described| {
            if described.default == Unset::Nothing {
                described.default = Unset::Value(default());
            }
        });
    }

    /// Notes that `key` must be set.
    pub(super) fn describe_required(&self, key: &str) {
        let Some(notes) = self.notes() else { return };
        // Only of keys that are documented: of whole sections it is said elsewhere.
        notes.at(self.path(), |description| {
            let found = description.keys.iter_mut().find(|known| known.key == key);
            if let Some(described) = found {
                described.default = Unset::Required;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_asked_for_is_described() {
        let settings = Settings::describing();
        let root = settings.root();
        for (name, section) in root.tables("things") {
            assert_eq!(name, ANY_NAME);
            section.document(
                "Things.",
                &[
                    Meaning::new("url", "where"),
                    Meaning::new("size", "how large"),
                    Meaning::new("cores", "how many").usually("all"),
                    Meaning::new("gone", "no more"),
                ],
            );
            section.required_secret("url", "x");
            section.integer("cores", 1..=9, 3_u8);
            section.size("size", 1024..=2048, 1024);
            section.choice("mode", &[("a", 1), ("b", 2)], 2);
            section.duration("wait", Duration::ZERO..=Duration::from_secs(60), Duration::ZERO);
            section.finish();
        }
        for section in root.table_list("items") {
            section.string("topic");
            section.finish();
        }
        root.finish();
        let found = settings.into_descriptions();
        assert_eq!(found[0].path, "things.NAME");
        assert_eq!(found[1].path, "items[]");
        let shown: Vec<_> = found[0]
            .keys
            .iter()
            .map(|key| (key.key.as_str(), key.form.as_str(), &key.default, key.meaning))
            .collect();
        let value = |text: &str| Unset::Value(text.to_owned());
        let expected = [
            ("url", "secret", &Unset::Required, "where"),
            ("size", "size, 1KiB to 2KiB", &value("\"1KiB\""), "how large"),
            ("cores", "integer, 1 to 9", &Unset::Words("all"), "how many"),
            ("gone", "", &Unset::Nothing, "no more"),
            ("mode", "`\"a\"`, `\"b\"`", &value("\"b\""), ""),
            ("wait", "duration, 0ms to 1m", &value("\"0ms\""), ""),
        ];
        assert_eq!(shown, expected);
    }
}
