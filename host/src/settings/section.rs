//! One table of the settings: which keys it has, which were asked for, and what is wrong in it.
//!
//! Used by every component that reads its configuration. The getters for single values are in the
//! sibling module `values`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use super::describe::{ANY_NAME, Notes};
use super::problem::{Place, Problem};
use super::tree::{Entry, Node, Table, Value};
use super::{Context, Settings};
use crate::words::closest;

/// An unknown key's message lists the known ones up to this many; more is a wall of text.
const MAX_LISTED_KEYS: usize = 24;

/// A table of settings. Getters mark the keys they are asked for; [`Section::finish`] reports the
/// others, so every section must be finished.
#[must_use = "unknown keys are only reported by finish()"]
pub struct Section<'a> {
    pub(super) context: &'a Context,
    path: String,
    place: &'a Place,
    /// `None` where the table is not there or is something else.
    table: Option<&'a Table>,
    /// Whether something else stands in its place, so that "missing" would be a second complaint.
    broken: bool,
    asked: RefCell<BTreeSet<String>>,
    missing: RefCell<Vec<(String, String)>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(context: &'a Context, node: &'a Node) -> Self {
        let table = match &node.value {
            Value::Table(table) => Some(table),
            _ => None,
        };
        Self::new(context, String::new(), &node.place, table)
    }

    fn new(context: &'a Context, path: String, place: &'a Place, table: Option<&'a Table>) -> Self {
        Self {
            context,
            path,
            place,
            table,
            broken: false,
            asked: RefCell::default(),
            missing: RefCell::default(),
        }
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &str) -> bool {
        self.look(key).is_some()
    }

    /// The table `key`; an empty one if it is not there.
    pub fn section(&self, key: &str) -> Section<'a> {
        let path = self.path_of(key);
        match self.look(key) {
            None => Self::new(self.context, path, self.place, None),
            Some(node) => self.open(path, node),
        }
    }

    /// The tables of `key`, each with its name, in the order in which they were written.
    pub fn tables(&self, key: &str) -> Vec<(String, Section<'a>)> {
        let all = self.section(key);
        if self.notes().is_some() {
            let path = all.path_of(ANY_NAME);
            return vec![(ANY_NAME.to_owned(), Self::new(self.context, path, self.place, None))];
        }
        let found = all.entries().into_iter().map(|(name, entry)| {
            let path = all.path_of(name);
            (name.to_owned(), self.open(path, &entry.node))
        });
        found.collect()
    }

    /// The tables of the list `key`.
    pub fn table_list(&self, key: &str) -> Vec<Section<'a>> {
        if self.notes().is_some() {
            let path = format!("{}[]", self.path_of(key));
            return vec![Self::new(self.context, path, self.place, None)];
        }
        let Some(node) = self.look(key) else {
            return Vec::new();
        };
        let Some(items) = elements(node) else {
            self.wrong(key, node, &format!("a list of tables, each written as [[{key}]]"));
            return Vec::new();
        };
        let path = self.path_of(key);
        let open = |(index, item)| self.open(format!("{path}[{index}]"), item);
        items.into_iter().enumerate().map(open).collect()
    }

    /// Where `key` was set; where the section is, if it was not.
    pub fn place(&self, key: &str) -> Place {
        match self.look(key) {
            Some(node) => node.place.clone(),
            None => self.place.clone(),
        }
    }

    /// The full path of `key`, such as `sinks.main.type`.
    pub fn path_of(&self, key: &str) -> String {
        let bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let quoted = if !key.is_empty() && key.chars().all(bare) {
            key.to_owned()
        } else {
            format!("{key:?}")
        };
        match self.path.as_str() {
            "" => quoted,
            path => format!("{path}.{quoted}"),
        }
    }

    /// Notes that what `key` is set to will not do.
    pub fn error(&self, key: &str, message: impl Into<String>) {
        self.error_suggesting(key, message, None);
    }

    /// Notes that what `key` is set to will not do, and what was probably meant.
    pub fn error_suggesting(
        &self,
        key: &str,
        message: impl Into<String>,
        suggestion: Option<&str>,
    ) {
        let problem = Problem::error(self.place(key), self.path_of(key), message);
        self.context.note(problem.suggesting(suggestion));
    }

    /// Notes that what `key` is set to deserves a look.
    pub fn warning(&self, key: &str, message: impl Into<String>) {
        let problem = Problem::warning(self.place(key), self.path_of(key), message);
        self.context.note(problem);
    }

    /// Notes that the section as a whole will not do.
    pub fn whole_error(&self, message: impl Into<String>) {
        let problem = Problem::error(self.place.clone(), self.path.clone(), message);
        self.context.note(problem);
    }

    /// Notes that the section as a whole deserves a look.
    pub fn whole_warning(&self, message: impl Into<String>) {
        let problem = Problem::warning(self.place.clone(), self.path.clone(), message);
        self.context.note(problem);
    }

    /// Notes that `key` is needed and not there. Held back until [`Section::finish`], which knows
    /// whether it is there under a misspelt name.
    pub fn missing(&self, key: &str, remedy: impl Into<String>) {
        self.ask(key);
        self.describe_required(key);
        if self.is_complete() {
            self.missing.borrow_mut().push((key.to_owned(), remedy.into()));
        }
    }

    /// Whether everything that was written could be read. Where it could not, a name that is not
    /// there is no mistake.
    pub fn is_complete(&self) -> bool {
        !self.broken && !self.context.damaged()
    }

    /// A path as it is written in settings, relative to the file's folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.context.folder.join(path)
    }

    /// The value of a variable of the environment the settings were made with.
    pub fn variable(&self, name: &str) -> Option<&'a str> {
        self.context.environment.get(name).map(String::as_str)
    }

    /// Ends the section without reporting the keys that nobody asked for; for a table that cannot
    /// be judged because the key that says what it is is wrong.
    pub fn abandon(self) {
        self.report_missing(&BTreeSet::new());
    }

    /// Ends the section: reports keys that nobody asked for, and what is missing.
    pub fn finish(self) {
        let mut misspelt = BTreeSet::new();
        let asked = self.asked.borrow();
        for (key, entry) in self.table.map(Table::in_order).unwrap_or_default() {
            if asked.contains(key) {
                continue;
            }
            let known = || asked.iter().map(String::as_str);
            let unset = known().filter(|known| !self.there(known));
            let meant = closest(key, unset).or_else(|| closest(key, known()));
            if meant.is_none() && self.context.doubtful(&entry.place) {
                // It may be no key at all; what is nearly a known key is one.
                continue;
            }
            misspelt.extend(meant.map(str::to_owned));
            let message = match meant {
                None if asked.len() <= MAX_LISTED_KEYS && !asked.is_empty() => {
                    format!("unknown key; there are {}", known().collect::<Vec<_>>().join(", "))
                }
                _ => "unknown key".to_owned(),
            };
            let problem = Problem::error(entry.place.clone(), self.path_of(key), message);
            self.context.note(problem.suggesting(meant));
        }
        drop(asked);
        self.report_missing(&misspelt);
    }

    fn report_missing(&self, misspelt: &BTreeSet<String>) {
        for (key, remedy) in self.missing.borrow_mut().drain(..) {
            if !misspelt.contains(&key) {
                let message = format!("is missing: {remedy}");
                let problem = Problem::error(self.place.clone(), self.path_of(&key), message);
                self.context.note(problem);
            }
        }
    }

    fn open(&self, path: String, node: &'a Node) -> Section<'a> {
        let table = match &node.value {
            Value::Table(table) => Some(table),
            Value::Raw { literal: Some(literal), .. } => match &literal.value {
                Value::Table(table) => Some(table),
                _ => None,
            },
            _ => None,
        };
        let mut section = Self::new(self.context, path, &node.place, table);
        if table.is_none() {
            section.broken = true;
            section.whole_error(format!("expected a table, found {}", node.value.sort()));
        }
        section
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Where keys are described, if that is all that is wanted.
    pub(super) fn notes(&self) -> Option<&'a Notes> {
        self.context.notes.as_ref()
    }

    fn ask(&self, key: &str) {
        self.asked.borrow_mut().insert(key.to_owned());
    }

    fn there(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.entries.contains_key(key))
    }

    /// The value of `key`, marked as asked for.
    pub(super) fn look(&self, key: &str) -> Option<&'a Node> {
        self.ask(key);
        Some(&self.table?.entries.get(key)?.node)
    }

    /// All entries in the order in which they were written, without those in a broken part of
    /// the file.
    pub(super) fn entries(&self) -> Vec<(&'a str, &'a Entry)> {
        let all = self.table.map(Table::in_order).unwrap_or_default();
        let trusted = |(_, entry): &(&str, &Entry)| !self.context.doubtful(&entry.place);
        all.into_iter().filter(trusted).collect()
    }

    /// Notes that `key` holds another sort of value than `expected`.
    pub(super) fn wrong(&self, key: &str, node: &Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.value.sort());
        let problem = Problem::error(node.place.clone(), self.path_of(key), message);
        self.context.note(problem);
    }
}

/// The elements of a list; also of a table that variables have made with the keys 0, 1, 2 …
fn elements(node: &Node) -> Option<Vec<&Node>> {
    match &node.value {
        Value::List(items) => Some(items.iter().collect()),
        Value::Raw { literal: Some(literal), .. } => match &literal.value {
            Value::List(items) => Some(items.iter().collect()),
            _ => None,
        },
        Value::Table(table) if matches!(node.place, Place::Variable(_)) => {
            let at = |index: usize| table.entries.get(&index.to_string()).map(|e| &e.node);
            (0..table.entries.len()).map(at).collect()
        }
        _ => None,
    }
}

impl std::fmt::Debug for Section<'_> {
    /// Names the section and none of its values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("path", &self.path).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Settings {
    /// Shows no value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::Document;
    use super::*;

    /// What is wrong after `read` has read `text`.
    fn problems(text: &str, read: impl FnOnce(&Section<'_>)) -> Vec<String> {
        let document = Document { name: "f", folder: Path::new(""), text };
        let settings = Settings::new(Some(document), std::collections::BTreeMap::new());
        let root = settings.root();
        read(&root);
        root.finish();
        let problems = super::super::Problems::new(settings.into_problems());
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_keys_come_with_what_was_meant_and_replace_missing_ones() {
        let text = "[s]\nbootstrap_server = 1\nzzz = 2\n\"a b\" = 3\n";
        let found = problems(text, |root| {
            let section = root.section("s");
            section.required_string("bootstrap_servers", "x");
            section.required_string("table", "outbox");
            section.finish();
        });
        let expected = [
            "f:1:1: s.table: is missing: write table = \"outbox\"",
            "f:2:1: s.bootstrap_server: unknown key; did you mean 'bootstrap_servers'?",
            "f:3:1: s.zzz: unknown key; there are bootstrap_servers, table",
            "f:4:1: s.\"a b\": unknown key; there are bootstrap_servers, table",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_wrong_type_says_what_was_found_and_what_is_expected() {
        let text = "a = 1\nb = \"x\"\nc = []\nd = {}\ne = 1.5\nf = 1979-05-27\ng = true\nh = 9\n";
        let second = Duration::from_secs(1);
        let found = problems(text, |root| {
            root.string("a");
            root.integer("b", 1..=9, 3_u16);
            root.duration("c", second..=second, second);
            root.strings("d");
            root.boolean("e", true);
            root.section("f").finish();
            root.size("g", 1..=9, 3);
            root.secret("h");
        });
        let expected = [
            "f:1:5: a: expected a string, found an integer",
            "f:2:5: b: expected an integer such as 3, found a string",
            "f:3:5: c: expected a duration such as \"500ms\", \"10s\", \"5m\", \"2h\" or \"7d\", found a list",
            "f:4:5: d: expected a string or a list of strings, found a table",
            "f:5:5: e: expected true or false, found a float",
            "f:6:5: f: expected a table, found a date or time",
            "f:7:5: g: expected a size such as \"8MiB\", \"512KiB\", \"1MB\" or a number of bytes, found a boolean",
            "f:8:5: h: expected a string, { env = \"NAME\" } or { file = \"path\" }, found an integer",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn values_out_of_range_say_the_range() {
        let text = "a = 10\nb = -1\nc = 99999999999999999999999999999999999999999999\nd = \"1h\"\n\
                    e = \"8GiB\"\nf = \"kez\"\ng = \"10\"\n";
        let (low, high) = (Duration::from_millis(1), Duration::from_secs(60));
        let found = problems(text, |root| {
            for key in ["a", "b", "c"] {
                assert_eq!(root.integer(key, 1..=9, 3_u16), 3);
            }
            root.duration("d", low..=high, low);
            root.size("e", 1024..=1 << 20, 1024);
            root.choice("f", &[("key", 1), ("none", 2)], 1);
            root.duration("g", low..=high, low);
        });
        let expected = [
            "f:1:5: a: must be from 1 to 9",
            "f:2:5: b: must be from 1 to 9",
            "f:3:5: c: must be from 1 to 9",
            "f:4:5: d: must be from 1ms to 1m",
            "f:5:5: e: must be from 1KiB to 1MiB",
            "f:6:5: f: \"kez\" is none of \"key\", \"none\"; did you mean 'key'?",
            "f:7:5: g: \"10\" is not a duration such as \"500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn values_of_every_sort_are_read() {
        let text = "i = 0x10\nb = false\nd = \"2m\"\ns = 2048\nl = [\"x\", \"y\"]\n\
                    j = { z = [1, 2.5, true, \"t\"], a = {} }\n[m]\nz = \"1\"\na = \"2\"\n\
                    [[t]]\nk = \"0\"\n[[t]]\nk = \"1\"\n";
        let found = problems(text, |root| {
            assert_eq!(root.integer("i", 1..=99, 3_usize), 16);
            assert!(!root.boolean("b", true));
            let day = Duration::from_secs(86_400);
            assert_eq!(root.duration("d", Duration::ZERO..=day, day), Duration::from_secs(120));
            assert_eq!(root.size("s", 0..=9999, 1), 2048);
            assert_eq!(root.strings("l").unwrap(), ["x", "y"]);
            let json = root.json("j").unwrap().to_string();
            assert_eq!(json, r#"{"z":[1,2.5,true,"t"],"a":{}}"#);
            let map = root.string_map("m");
            let pairs: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(pairs, [("z", "1"), ("a", "2")]);
            for (index, section) in root.table_list("t").into_iter().enumerate() {
                assert_eq!(section.string("k").unwrap(), index.to_string());
                assert_eq!(section.path_of("k"), format!("t[{index}].k"));
                section.finish();
            }
            assert!(!root.section("absent").has("x"));
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn after_a_syntax_error_only_what_is_certain_is_reported() {
        let text = "[s]\nunknown = 1\nnumber = \"x\"\nbroken = x\nzz = 1\nmesure = 2\n\
                    broken2 = y\nmeasure = \"x\"\n";
        let found = problems(text, |root| {
            let section = root.section("s");
            section.integer("number", 1..=9, 3_u16);
            section.integer("measure", 1..=9, 3_u16);
            section.required_string("missing", "x");
            section.choice("none", &[("key", 1)], 1);
            section.finish();
        });
        let starts: Vec<_> = found.iter().map(|line| &line[..8]).collect();
        let expected = ["f:2:1: s", "f:3:10: ", "f:4:10: ", "f:6:1: s", "f:7:11: ", "f:8:11: "];
        assert_eq!(starts, expected, "{found:#?}");
    }
}
