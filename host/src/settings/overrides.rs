//! Settings from environment variables named `HAULIER__…`, laid over the tree of the file.
//!
//! The parts between double underscores are the path. A part names an existing key whatever its
//! case, with `-`, `_` and `.` alike; where there is none, it names a new key in lower case, and
//! in a `librdkafka` table `_` becomes `.`. A number names a position in a list. Values stay texts
//! that the getters read. Nothing here prints a variable's value.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::problem::{Place, Problem};
use super::tree::{Entry, Node, Table, Value, literal};
use crate::words::fold;

/// How the names of overriding variables start.
pub(super) const PREFIX: &str = "HAULIER__";

/// What stands between the parts of a name.
const SEPARATOR: &str = "__";

/// Settings are nowhere near as deep; the walk is recursive, so its depth has a limit.
const MAX_PARTS: usize = 16;

/// The table of client options, whose names are written with dots.
const DOTTED_TABLE: &str = "librdkafka";

struct Variable<'a> {
    place: Place,
    text: &'a str,
}

/// Lays the `HAULIER__…` variables of `environment` over `root`.
pub(super) fn apply(
    root: &mut Node,
    environment: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) {
    let mut variables: Vec<(Vec<&str>, &str, &str)> = environment
        .iter()
        .filter_map(|(name, text)| {
            let parts = name.strip_prefix(PREFIX)?.split(SEPARATOR).collect();
            Some((parts, name.as_str(), text.as_str()))
        })
        .collect();
    // Positions in numeric order, so that a list grows from its end.
    variables.sort_by_key(|(parts, _, _)| {
        let sortable = |part: &&str| match part.parse::<u32>() {
            Ok(number) => format!("{number:010}"),
            Err(_) => part.to_lowercase(),
        };
        parts.iter().map(sortable).collect::<Vec<_>>()
    });
    for (parts, name, text) in variables {
        let place = Place::Variable(Arc::from(name));
        let outcome = if parts.iter().any(|part| part.is_empty()) {
            Err(format!(
                "has an empty part: the name is {PREFIX} and the parts of a path with {SEPARATOR} \
                 between them, such as {PREFIX}RELAY{SEPARATOR}GRACE"
            ))
        } else if parts.len() > MAX_PARTS {
            Err(format!("has more than {MAX_PARTS} parts, no setting is as deep"))
        } else {
            let variable = Variable { place: place.clone(), text };
            set(root, "", &parts, &variable)
        };
        if let Err(message) = outcome {
            problems.push(Problem::error(place, "", message));
        }
    }
}

/// Puts the variable at `parts` below `node`, whose own key is `key`.
fn set(node: &mut Node, key: &str, parts: &[&str], variable: &Variable<'_>) -> Result<(), String> {
    let Some((part, rest)) = parts.split_first() else {
        return replace(node, variable);
    };
    if becomes_reference(node, part, rest) {
        *node = empty_table(variable);
    }
    match &mut node.value {
        Value::Table(table) => set_in_table(table, key, part, rest, variable),
        Value::List(items) => set_in_list(items, key, part, rest, variable),
        Value::Raw { .. } => {
            Err(format!("contradicts {}, which sets '{key}' to one value", node.place))
        }
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => Err(format!(
            "contradicts {}, where '{key}' is {}, not a table",
            node.place,
            node.value.sort()
        )),
    }
}

/// Whether a plain text of the file gives way to `…__ENV` or `…__FILE`.
fn becomes_reference(node: &Node, part: &str, rest: &[&str]) -> bool {
    let reference = part.eq_ignore_ascii_case("env") || part.eq_ignore_ascii_case("file");
    reference && rest.is_empty() && matches!(node.value, Value::Text(_))
}

fn set_in_table(
    table: &mut Table,
    key: &str,
    part: &str,
    rest: &[&str],
    variable: &Variable<'_>,
) -> Result<(), String> {
    let folded = fold(part);
    let mut matching = table.entries.keys().filter(|known| fold(known) == folded);
    let name = match (matching.next(), matching.next()) {
        (Some(only), None) => only.clone(),
        (Some(one), Some(other)) => {
            return Err(format!("may mean '{one}' or '{other}', both are there"));
        }
        (None, _) if key == DOTTED_TABLE => folded.replace('_', "."),
        (None, _) => part.to_lowercase(),
    };
    if let Some(entry) = table.entries.get_mut(&name) {
        return set(&mut entry.node, &name, rest, variable);
    }
    let mut node = empty_table(variable);
    match rest {
        [] => node.value = raw(variable),
        _ => set(&mut node, &name, rest, variable)?,
    }
    let entry = Entry { place: variable.place.clone(), node };
    table.entries.insert(name, entry);
    Ok(())
}

fn set_in_list(
    items: &mut Vec<Node>,
    key: &str,
    part: &str,
    rest: &[&str],
    variable: &Variable<'_>,
) -> Result<(), String> {
    let count = items.len();
    let index: usize =
        part.parse().map_err(|_| format!("'{key}' is a list: name a position, 0 to {count}"))?;
    if index > count {
        return Err(format!("'{key}' has no position {index}: the next free one is {count}"));
    }
    if index == count {
        items.push(empty_table(variable));
        if rest.is_empty()
            && let Some(last) = items.last_mut()
        {
            last.value = raw(variable);
            return Ok(());
        }
    }
    match items.get_mut(index) {
        Some(item) => set(item, key, rest, variable),
        None => Ok(()),
    }
}

fn replace(node: &mut Node, variable: &Variable<'_>) -> Result<(), String> {
    if let Place::Variable(other) = &node.place {
        return Err(match node.value {
            Value::Table(_) => format!("contradicts {other}, which sets a key below it"),
            _ => format!("sets the same as {other}"),
        });
    }
    let value = raw(variable);
    let is_table = |value: &Value| matches!(value, Value::Table(_));
    let gives_table =
        matches!(&value, Value::Raw { literal: Some(node), .. } if is_table(&node.value));
    match &node.value {
        Value::Table(table) if !table.is_reference() && !gives_table => {
            let place = &node.place;
            Err(format!(
                "contradicts {place}, where this is a table: name one of its keys after another \
                 {SEPARATOR}, or give a TOML table such as {{ key = \"value\" }}"
            ))
        }
        _ => {
            *node = Node { place: variable.place.clone(), value };
            Ok(())
        }
    }
}

fn raw(variable: &Variable<'_>) -> Value {
    Value::Raw {
        text: variable.text.to_owned(),
        literal: literal(variable.text, &variable.place).map(Box::new),
    }
}

fn empty_table(variable: &Variable<'_>) -> Node {
    Node { place: variable.place.clone(), value: Value::Table(Table::default()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Document, Problems, Section, Settings};
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pair = |(name, text): &(&str, &str)| (format!("HAULIER__{name}"), (*text).to_owned());
        variables.iter().map(pair).collect()
    }

    /// What is wrong after `read` has read `text` with `variables` over it.
    fn problems(
        text: &str,
        variables: &[(&str, &str)],
        read: impl FnOnce(&Section<'_>),
    ) -> Vec<String> {
        let document = Document { name: "f", folder: Path::new(""), text };
        let settings = Settings::new(Some(document), environment(variables));
        let root = settings.root();
        read(&root);
        let problems = Problems::new(settings.into_problems());
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_variable_finds_existing_keys_whatever_their_spelling() {
        let text = "[plugins.order-events]\nMemory = \"1MiB\"\n[plugins.a_b]\n\
                    [s.librdkafka]\n\"linger.ms\" = 5\n";
        let variables = [
            ("PLUGINS__ORDER_EVENTS__MEMORY", "2MiB"),
            ("plugins__A_B__fan_out", "7"),
            ("S__LIBRDKAFKA__LINGER_MS", "9"),
            ("S__LIBRDKAFKA__SASL_PASSWORD", "p"),
            ("NEW__DEEP__KEY", "v"),
        ];
        let found = problems(text, &variables, |root| {
            let plugin = root.section("plugins").section("order-events");
            assert_eq!(plugin.size("Memory", 0..=usize::MAX, 0), 2 << 20);
            let plugin = root.section("plugins").section("a_b");
            assert_eq!(plugin.integer("fan_out", 0..=9, 0_u8), 7);
            let options = root.section("s").options("librdkafka");
            let options: Vec<_> = options.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
            assert_eq!(options, [("linger.ms", "9"), ("sasl.password", "p")]);
            assert_eq!(root.section("new").section("deep").string("key").unwrap(), "v");
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn texts_are_read_as_the_getter_needs_them() {
        let variables = [
            ("I", " 1_000 "),
            ("B", "Yes"),
            ("L", "a, b"),
            ("M", "[\"a,b\", 'c']"),
            ("T", "{ x = 1, y = { z = \"2\" } }"),
            ("J__N", "5"),
            ("J__S", "five"),
            ("J__O", "{\"a\": [1]}"),
            ("J__Q", "\"5\""),
            ("E", ""),
        ];
        let found = problems("", &variables, |root| {
            assert_eq!(root.integer("i", 0..=9999, 0_u32), 1000);
            assert!(root.boolean("b", false));
            assert_eq!(root.strings("l").unwrap(), ["a", "b"]);
            assert_eq!(root.strings("m").unwrap(), ["a,b", "c"]);
            assert_eq!(root.section("t").section("y").string("z").unwrap(), "2");
            let json = root.json("j").unwrap();
            let expected = serde_json::json!({ "n": 5, "s": "five", "o": { "a": [1] }, "q": "5" });
            assert_eq!(json, expected);
            assert_eq!(root.string("e").unwrap(), "");
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn positions_address_and_extend_lists() {
        let text = "[[routes]]\ntopic = \"a\"\n";
        let variables = [
            ("ROUTES__0__TOPIC", "b"),
            ("ROUTES__1__TOPIC", "c"),
            ("ROUTES__2", "{ topic = \"d\" }"),
            ("NEW__10__K", "10"),
            ("NEW__0__K", "0"),
            ("NEW__1__K", "1"),
            ("ROUTES__7__TOPIC", "x"),
            ("ROUTES__X__TOPIC", "x"),
        ];
        let found = problems(text, &variables, |root| {
            let topics = root.table_list("routes").into_iter();
            let topics: Vec<_> = topics.filter_map(|route| route.string("topic")).collect();
            assert_eq!(topics, ["b", "c", "d"]);
            // Position 10 leaves a gap, so that this is no list.
            assert!(root.table_list("new").is_empty());
        });
        let expected = [
            "HAULIER__NEW__0__K: new: expected a list of tables, each written as [[new]], found a table",
            "HAULIER__ROUTES__7__TOPIC: 'routes' has no position 7: the next free one is 3",
            "HAULIER__ROUTES__X__TOPIC: 'routes' is a list: name a position, 0 to 3",
        ];
        assert_eq!(found, expected);
        let variables = [("NEW__1__K", "1"), ("NEW__0__K", "0")];
        let found = problems("", &variables, |root| {
            assert_eq!(root.table_list("new").len(), 2);
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn contradictions_are_errors_that_name_the_variable_and_no_value() {
        let text = "[t]\nk = 1\na-b = 1\na_b = 2\n";
        let variables = [
            ("T", "MARKER"),
            ("T__K__X", "MARKER"),
            ("T__A_B", "MARKER"),
            ("N", "MARKER"),
            ("N__X", "MARKER"),
            ("t__K", "MARKER"),
            ("T__k", "MARKER"),
            ("", "MARKER"),
            ("A____B", "MARKER"),
            ("1__2__3__4__5__6__7__8__9__10__11__12__13__14__15__16__17", "MARKER"),
        ];
        let found = problems(text, &variables, |_| {});
        let expected = [
            "HAULIER__: has an empty part",
            "HAULIER__1__2__3__4__5__6__7__8__9__10__11__12__13__14__15__16__17: has more than 16",
            "HAULIER__A____B: has an empty part",
            "HAULIER__N__X: contradicts HAULIER__N, which sets 'n' to one value",
            "HAULIER__T: contradicts f:1:1, where this is a table",
            "HAULIER__T__A_B: may mean 'a-b' or 'a_b', both are there",
            "HAULIER__T__K__X: contradicts HAULIER__T__k, which sets 'k' to one value",
            "HAULIER__t__K: sets the same as HAULIER__T__k",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
            assert!(!found.contains("MARKER"), "{found}");
        }
    }

    #[test]
    fn a_secret_may_move_between_file_and_environment() {
        let text = "a = { env = \"NOT_SET\" }\nb = \"plain\"\nc = { file = \"none\" }\n";
        let variables = [("A", "x"), ("B__ENV", "HAULIER__A"), ("C__ENV", "HAULIER__A")];
        let found = problems(text, &variables, |root| {
            for key in ["a", "b", "c"] {
                assert_eq!(root.secret(key).unwrap().expose(), "x", "{key}");
            }
        });
        // The variable a secret is kept in may be any, though this one is also a setting.
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn an_unknown_key_names_its_variable() {
        let settings = Settings::new(None, environment(&[("RELAY__GRASE", "1s")]));
        let relay = settings.root().section("relay");
        relay.string("grace");
        relay.finish();
        let problems = Problems::new(settings.into_problems());
        assert_eq!(
            problems.to_string(),
            "HAULIER__RELAY__GRASE: relay.grase: unknown key; did you mean 'grace'?"
        );
    }
}
