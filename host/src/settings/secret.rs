//! A text that cannot be printed by accident.
//!
//! Settings hand out passwords, database URLs and client options in it; adapters take them out
//! with [`Secret::expose`]. It has no serialisation, on purpose, and the getters that read it never
//! say what they found.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use super::problem::{Place, Problem};
use super::section::Section;
use super::tree::{Entry, Node, Table, Value};

/// A secret is a password or a few certificates; a larger file is the wrong one.
const MAX_SECRET_BYTES: u64 = 256 * 1024;

/// What a secret may look like, for messages.
const SECRET_FORM: &str = "a string, { env = \"NAME\" } or { file = \"path\" }";

/// What is printed in place of every secret.
const MASK: &str = "***";

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself. Whoever calls this must not print or log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Section<'_> {
    /// A secret: a text, or where it is kept.
    pub fn secret(&self, key: &str) -> Option<Secret> {
        self.describe(key, || "secret".to_owned(), || None);
        let node = self.look(key)?;
        self.note_if_wrong(key, node, self.read_secret(node))
    }

    /// A secret that must be there; `example` shows how it is written.
    pub fn required_secret(&self, key: &str, example: &str) -> Option<Secret> {
        if !self.has(key) {
            self.missing(key, format!("write {key} = {example}"));
        }
        self.secret(key)
    }

    /// A table of options for somebody else's software: any name, with a text, number, truth value
    /// or secret. Names with dots may be written as nested tables. All are treated as secrets.
    pub fn options(&self, key: &str) -> BTreeMap<String, Secret> {
        self.describe(
            key,
            || "table of texts, numbers, truth values and secrets".to_owned(),
            || None,
        );
        let section = self.section(key);
        let mut found = BTreeMap::new();
        section.collect_options("", &mut found);
        let secrets = found.into_iter().map(|(name, (secret, _))| (name, secret));
        secrets.collect()
    }

    fn collect_options(&self, prefix: &str, found: &mut BTreeMap<String, (Secret, Place)>) {
        for (key, Entry { place, node }) in self.entries() {
            let name = format!("{prefix}{key}");
            let value = match &node.value {
                Value::Table(table) if !table.is_reference() => {
                    let inner = self.section(key);
                    inner.collect_options(&format!("{name}."), found);
                    continue;
                }
                Value::Integer(number) => Ok(Secret::new(number.to_string())),
                Value::Boolean(value) => Ok(Secret::new(value.to_string())),
                Value::Float(number) => Ok(Secret::new(number.to_string())),
                _ => self.read_secret(node),
            };
            let Some(value) = self.note_if_wrong(key, node, value) else {
                continue;
            };
            let by_variable = |place: &Place| matches!(place, Place::Variable(_));
            match found.get(&name) {
                // Dotted and nested spellings of one name: the variable's wins over the file's.
                Some((_, first)) if by_variable(first) && !by_variable(place) => {}
                Some((_, first)) if by_variable(first) == by_variable(place) => {
                    self.error(key, format!("'{name}' is already set at {first}"));
                }
                _ => {
                    found.insert(name, (value, place.clone()));
                }
            }
        }
    }

    fn note_if_wrong(
        &self,
        key: &str,
        node: &Node,
        secret: Result<Secret, String>,
    ) -> Option<Secret> {
        let note = |message: &String| {
            let problem = Problem::error(node.place.clone(), self.path_of(key), message);
            self.context.note(problem);
        };
        secret.inspect_err(note).ok()
    }

    fn read_secret(&self, node: &Node) -> Result<Secret, String> {
        match &node.value {
            Value::Text(text) => Ok(Secret::new(text.as_str())),
            Value::Raw { text, literal } => match literal.as_deref() {
                Some(Node { value: Value::Table(table), .. }) if table.is_reference() => {
                    self.follow(table)
                }
                _ => Ok(Secret::new(text.as_str())),
            },
            Value::Table(table) => self.follow(table),
            other => Err(format!("expected {SECRET_FORM}, found {}", other.sort())),
        }
    }

    /// The secret that `{ env = … }` or `{ file = … }` refers to.
    fn follow(&self, table: &Table) -> Result<Secret, String> {
        if !table.is_reference() {
            return Err(format!("expected {SECRET_FORM}, found another table"));
        }
        let by_variable = |entry: &Entry| matches!(entry.place, Place::Variable(_));
        let mut entries: Vec<_> = table.in_order();
        if entries.iter().filter(|(_, entry)| by_variable(entry)).count() == 1 {
            // The environment says where the secret is now.
            entries.retain(|(_, entry)| by_variable(entry));
        }
        let [(kind, entry)] = entries.as_slice() else {
            return Err("expected either env or file, found both".to_owned());
        };
        let name = match &entry.node.value {
            Value::Text(text) | Value::Raw { text, .. } => text.as_str(),
            other => {
                return Err(format!("expected {SECRET_FORM}, found {} in it", other.sort()));
            }
        };
        match *kind {
            "env" => self.kept_in_variable(name),
            _ => self.kept_in_file(name),
        }
    }

    fn kept_in_variable(&self, name: &str) -> Result<Secret, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(plain) {
            // Not shown: whoever got this wrong may have written the secret itself.
            return Err("env must be the name of a variable: letters, digits and '_'".to_owned());
        }
        match self.variable(name) {
            None => Err(format!("the environment variable {name} is not set")),
            Some("") => Err(format!("the environment variable {name} is empty")),
            Some(text) => Ok(Secret::new(text)),
        }
    }

    fn kept_in_file(&self, name: &str) -> Result<Secret, String> {
        let path = self.resolve(name);
        let shown = path.display();
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("the file {shown} cannot be read: {error}"))?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_SECRET_BYTES {
            let limit = MAX_SECRET_BYTES / 1024;
            return Err(format!("the file {shown} is larger than {limit} KiB"));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| format!("the file {shown} is not UTF-8"))?;
        match text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text)) {
            _ if text.trim().is_empty() => Err(format!("the file {shown} is empty")),
            Some(line) => Ok(Secret::new(line)),
            None => Ok(Secret::new(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_only_seen_when_exposed() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {secret:#?}"), "*** *** ***");
        assert_eq!(secret.expose(), "hunter2");
    }
}
