//! From what was found to what the settings should say: names of sources, lanes, routes. Pure.
//!
//! Called by `init`, which hands the outcome to the text in `render`.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use crate::config::{DEFAULT_LANE, is_name};
use crate::store::{FoundOutbox, Survey};

/// Names for a new outbox table, the best first; numbers go on from the last.
const TABLE: &str = "outbox";
const OTHER_TABLE: &str = "haulier_outbox";
/// The name of the only source.
const SOURCE: &str = "main";
/// More routes than a person wants to read are left out.
const MAX_ROUTES: usize = 40;
/// Longest part of a topic's name that is taken from an event type.
const MAX_STEM: usize = 100;

/// What the settings should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    /// Registered sources whose names are taken, with their tables.
    pub(super) doubled: Vec<(String, String)>,
    /// Lanes that rows name, each with the sources whose rows do; the default one is not among them.
    pub(super) lanes: BTreeMap<String, Vec<String>>,
    /// Lanes that rows name and settings cannot.
    pub(super) unusable_lanes: BTreeSet<String>,
    pub(super) routes: Vec<Route>,
    /// Routes that were left out.
    pub(super) more_routes: usize,
    /// Event types whose rows all name a topic.
    pub(super) with_topic: Vec<String>,
    /// Waiting rows that were looked at.
    pub(super) rows: u64,
    /// Whether there are more.
    pub(super) more_rows: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) table: String,
    /// Shards, where the table was migrated with a number of its own.
    pub(super) shards: Option<i64>,
    pub(super) state: State,
}

/// How much of a source is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Table and registration.
    Registered,
    /// The table alone.
    Unregistered,
    /// Nothing.
    Missing,
    /// Nothing, and the name everybody would expect belongs to another table.
    Evaded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) patterns: Vec<String>,
    /// The types seen that it is for.
    pub(super) types: Vec<String>,
    pub(super) rows: u64,
    /// Rows that name a topic, which the route overrules.
    pub(super) overruled: u64,
    pub(super) topic: String,
    pub(super) there: Topic,
    /// Other topics that would fit.
    pub(super) others: Vec<String>,
}

/// What is known of a suggested topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    /// It is there, with so many partitions.
    There(usize),
    /// It is not there.
    Missing,
    /// Nobody could be asked.
    Unknown,
}

/// Decides what to write.
pub(super) fn plan(findings: &Findings) -> Plan {
    let survey = &findings.survey;
    let (sources, doubled) = sources(survey);
    let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unusable_lanes = BTreeSet::new();
    let named = |outbox: &FoundOutbox| sources.iter().find(|source| source.table == outbox.table);
    for outbox in &survey.outboxes {
        let Some(source) = named(outbox) else { continue };
        for lane in outbox.waiting.iter().flat_map(|waiting| &waiting.lanes) {
            if !is_name(lane) {
                unusable_lanes.insert(lane.clone());
            } else if lane != DEFAULT_LANE {
                lanes.entry(lane.clone()).or_default().push(source.name.clone());
            }
        }
    }
    let waiting = || survey.outboxes.iter().filter_map(|outbox| outbox.waiting.as_ref());
    let topics = findings.broker.as_ref().and_then(|broker| broker.topics.as_deref());
    let (mut routes, with_topic) = routes(survey, topics);
    let more_routes = routes.len().saturating_sub(MAX_ROUTES);
    routes.truncate(MAX_ROUTES);
    Plan {
        sources,
        doubled,
        lanes,
        unusable_lanes,
        routes,
        more_routes,
        with_topic,
        rows: waiting().map(|waiting| waiting.rows).sum(),
        more_rows: waiting().any(|waiting| waiting.more),
    }
}

fn sources(survey: &Survey) -> (Vec<Source>, Vec<(String, String)>) {
    let mut sources: Vec<Source> = Vec::new();
    let mut doubled = Vec::new();
    for outbox in &survey.outboxes {
        let Some(registered) = &outbox.registered else { continue };
        let name = registered.source.clone();
        if sources.iter().any(|source| source.name == name) || !is_name(&name) {
            doubled.push((name, outbox.table.clone()));
            continue;
        }
        let shards = Some(registered.shards);
        let table = outbox.table.clone();
        sources.push(Source { name, table, shards, state: State::Registered });
    }
    for outbox in survey.outboxes.iter().filter(|outbox| outbox.registered.is_none()) {
        let name = free_name(&derived_name(outbox), &sources);
        let table = outbox.table.clone();
        sources.push(Source { name, table, shards: None, state: State::Unregistered });
    }
    if sources.is_empty() {
        let table = free_table(&survey.taken);
        let state = if table == TABLE { State::Missing } else { State::Evaded };
        sources.push(Source { name: SOURCE.to_owned(), table, shards: None, state });
    }
    (sources, doubled)
}

/// A name from the table's, without the word everybody uses for it, or from its schema.
fn derived_name(outbox: &FoundOutbox) -> String {
    let table = outbox.table.rsplit('.').next().unwrap_or_default();
    let bare = stem(table);
    let bare = bare.trim_end_matches("-outbox").trim_start_matches("outbox-");
    let schema = outbox.schema.as_deref().map(stem);
    let name = match (bare, schema) {
        (TABLE, Some(schema)) => schema,
        (TABLE, None) => SOURCE.to_owned(),
        (bare, _) => bare.to_owned(),
    };
    name.chars().take(48).collect()
}

fn free_name(wanted: &str, sources: &[Source]) -> String {
    let free = |name: &String| sources.iter().all(|source| source.name != *name);
    numbered(wanted, "-").find(free).unwrap_or_default()
}

fn free_table(taken: &[String]) -> String {
    let free = |name: &String| !taken.contains(name);
    let names = std::iter::once(TABLE.to_owned()).chain(numbered(OTHER_TABLE, "_"));
    names.into_iter().find(free).unwrap_or_default()
}

/// `name`, then `name` with 2, 3 and so on: without end.
fn numbered(name: &str, between: &str) -> impl Iterator<Item = String> {
    let further = (2_u32..).map(move |number| format!("{name}{between}{number}"));
    std::iter::once(name.to_owned()).chain(further)
}

/// Rows of a type, and how many of them name a topic.
type Counts = (u64, u64);

/// Routes for the types that need one, and the types that need none.
fn routes(survey: &Survey, topics: Option<&[(String, usize)]>) -> (Vec<Route>, Vec<String>) {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Counts>> = BTreeMap::new();
    let waiting = survey.outboxes.iter().filter_map(|outbox| outbox.waiting.as_ref());
    for found in waiting.flat_map(|waiting| &waiting.types) {
        let prefix = found.name.split_once('.').map_or(&*found.name, |(prefix, _)| prefix);
        let counts = groups.entry(prefix).or_default().entry(&found.name).or_default();
        counts.0 += found.rows;
        counts.1 += found.with_topic;
    }
    let (mut routes, mut with_topic) = (Vec::new(), Vec::new());
    for (prefix, types) in groups {
        let (named, needy): (Vec<_>, Vec<_>) =
            types.into_iter().partition(|(_, (rows, with_topic))| rows == with_topic);
        with_topic.extend(named.iter().map(|(name, _)| (*name).to_owned()));
        // With a pattern, a route would also overrule the topics that rows of the prefix name. A type
        // without a dot is a pattern of its own beside that of its prefix.
        let dotted = |(name, _): &(&str, Counts)| name.contains('.');
        let (dotted, bare): (Vec<_>, Vec<_>) = needy.into_iter().partition(dotted);
        for (types, wildcard) in [(bare, false), (dotted, named.is_empty())] {
            // An empty type cannot be written as a pattern.
            if !types.is_empty() && types.iter().all(|(name, _)| !name.is_empty()) {
                routes.push(route(prefix, &types, wildcard, topics));
            }
        }
    }
    (routes, with_topic)
}

fn route(
    prefix: &str,
    types: &[(&str, Counts)],
    wildcard: bool,
    topics: Option<&[(String, usize)]>,
) -> Route {
    let names: Vec<String> = types.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stem = stem(prefix);
    let mut fitting = fitting(&stem, topics.unwrap_or_default()).into_iter();
    let (topic, there) = match (fitting.next(), topics) {
        (Some((name, partitions)), _) => (name.clone(), Topic::There(*partitions)),
        (None, Some(_)) => (suggested(&stem), Topic::Missing),
        (None, None) => (suggested(&stem), Topic::Unknown),
    };
    Route {
        patterns: if wildcard { vec![format!("{prefix}.*")] } else { names.clone() },
        types: names,
        rows: types.iter().map(|(_, (rows, _))| rows).sum(),
        overruled: types.iter().map(|(_, (_, with_topic))| with_topic).sum(),
        topic,
        there,
        others: fitting.map(|(name, _)| name.clone()).collect(),
    }
}

/// The topics whose names mean the same thing as `stem`, the best first.
fn fitting<'t>(stem: &str, topics: &'t [(String, usize)]) -> Vec<&'t (String, usize)> {
    let plural = plural(stem);
    let wanted = [
        plural.clone(),
        stem.to_owned(),
        format!("{stem}-events"),
        format!("{plural}-events"),
        format!("{stem}-event"),
    ];
    let mut found = Vec::new();
    for name in &wanted {
        let same = topics.iter().filter(|(topic, _)| self::stem(topic) == *name);
        found.extend(same.filter(|topic| !found.contains(topic)).collect::<Vec<_>>());
    }
    found
}

fn suggested(stem: &str) -> String {
    // Words that were joined are a name of their own, such as order-created.
    if stem.contains('-') { stem.to_owned() } else { plural(stem) }
}

fn plural(stem: &str) -> String {
    let ends = |endings: &[&str]| endings.iter().any(|ending| stem.ends_with(ending));
    if ends(&["ss", "x", "ch", "sh"]) {
        return format!("{stem}es");
    }
    if ends(&["s"]) {
        return stem.to_owned();
    }
    match stem.strip_suffix('y') {
        Some(rest) if !ends(&["ay", "ey", "oy", "uy"]) => format!("{rest}ies"),
        _ => format!("{stem}s"),
    }
}

/// `text` in lower case with hyphens between its words, as a topic may be called.
fn stem(text: &str) -> String {
    let mut stem = String::new();
    let mut small = false;
    for letter in text.chars().take(MAX_STEM) {
        if letter.is_ascii_alphanumeric() {
            if small && letter.is_ascii_uppercase() {
                stem.push('-');
            }
            stem.push(letter.to_ascii_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('-') {
            stem.push('-');
        }
        small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
    }
    let stem = stem.trim_end_matches('-');
    if stem.is_empty() { "event".to_owned() } else { stem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Database, EventType, Registered, Waiting};

    fn outbox(table: &str, source: Option<&str>, types: &[(&str, u64, u64)]) -> FoundOutbox {
        let mut types: Vec<_> = types
            .iter()
            .map(|(name, rows, with_topic)| EventType {
                name: (*name).to_owned(),
                rows: *rows,
                with_topic: *with_topic,
            })
            .collect();
        types.sort_by(|a, b| a.name.cmp(&b.name));
        let rows = types.iter().map(|found| found.rows).sum();
        let lanes = vec!["default".to_owned(), "bulk".to_owned(), "a b".to_owned()];
        FoundOutbox {
            table: table.to_owned(),
            schema: table.split_once('.').map(|(schema, _)| schema.to_owned()),
            registered: source.map(|name| Registered { source: name.to_owned(), shards: 16 }),
            waiting: Some(Waiting { lanes, types, rows, more: false }),
        }
    }

    fn survey(outboxes: Vec<FoundOutbox>, taken: &[&str]) -> Survey {
        Survey {
            database: Database::Postgres,
            exists: true,
            outboxes,
            others: Vec::new(),
            taken: taken.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn named(survey: &Survey) -> Vec<(String, String)> {
        sources(survey).0.into_iter().map(|source| (source.name, source.table)).collect()
    }

    fn pair(name: &str, table: &str) -> (String, String) {
        (name.to_owned(), table.to_owned())
    }

    #[test]
    fn sources_keep_their_names_and_get_one_where_they_have_none() {
        let found = survey(
            vec![
                outbox("outbox", None, &[]),
                outbox("app.outbox", None, &[]),
                outbox("orders_outbox", None, &[]),
                outbox("other.outbox", Some("main"), &[]),
            ],
            &[],
        );
        let expected = [
            pair("main", "other.outbox"),
            pair("main-2", "outbox"),
            pair("app", "app.outbox"),
            pair("orders", "orders_outbox"),
        ];
        assert_eq!(named(&found), expected);
        let twice = survey(
            vec![outbox("a.outbox", Some("x"), &[]), outbox("b.outbox", Some("x"), &[])],
            &[],
        );
        assert_eq!(sources(&twice).1, [pair("x", "b.outbox")]);
    }

    #[test]
    fn a_new_table_evades_those_that_are_there() {
        assert_eq!(named(&survey(Vec::new(), &[])), [pair("main", "outbox")]);
        assert_eq!(named(&survey(Vec::new(), &["outbox"])), [pair("main", "haulier_outbox")]);
        let both = survey(Vec::new(), &["outbox", "haulier_outbox"]);
        assert_eq!(named(&both), [pair("main", "haulier_outbox_2")]);
    }

    #[test]
    fn types_of_a_prefix_share_a_route_unless_rows_name_topics() {
        let types = [
            ("order.created", 2, 0),
            ("order.paid", 3, 0),
            ("order", 1, 0),
            ("InvoiceSent", 1, 0),
            ("user.added", 4, 1),
            ("user.exported", 2, 2),
            ("", 1, 0),
        ];
        let found = survey(vec![outbox("outbox", None, &types)], &[]);
        let topics = [("order-events".to_owned(), 3), ("Orders".to_owned(), 6)];
        let (routes, with_topic) = routes(&found, Some(&topics));
        let shown: Vec<_> = routes
            .iter()
            .map(|route| (route.patterns.join(" "), route.topic.as_str(), route.there))
            .collect();
        let expected = [
            ("InvoiceSent".to_owned(), "invoice-sent", Topic::Missing),
            ("order".to_owned(), "Orders", Topic::There(6)),
            ("order.*".to_owned(), "Orders", Topic::There(6)),
            ("user.added".to_owned(), "users", Topic::Missing),
        ];
        assert_eq!(shown, expected);
        assert_eq!(routes[2].others, ["order-events"]);
        assert_eq!(routes[3].overruled, 1);
        assert_eq!(with_topic, ["user.exported"]);
        assert_eq!(self::routes(&found, None).0[0].there, Topic::Unknown);
    }

    #[test]
    fn lanes_that_rows_name_belong_to_their_sources() {
        let found = survey(vec![outbox("outbox", Some("orders"), &[("a", 1, 0)])], &[]);
        let findings = Findings { url: super::super::Url::Variable, survey: found, broker: None };
        let plan = plan(&findings);
        assert_eq!(plan.lanes, BTreeMap::from([("bulk".to_owned(), vec!["orders".to_owned()])]));
        assert_eq!(plan.unusable_lanes, BTreeSet::from(["a b".to_owned()]));
        assert_eq!(plan.sources[0].shards, Some(16));
    }

    #[test]
    fn names_become_topics() {
        for (text, expected) in [
            ("order", "orders"),
            ("inventory", "inventories"),
            ("day", "days"),
            ("address", "addresses"),
            ("orders", "orders"),
            ("OrderCreated", "order-created"),
            ("é/ü", "events"),
            ("a b", "a-b"),
        ] {
            assert_eq!(suggested(&stem(text)), expected, "{text}");
        }
    }
}
