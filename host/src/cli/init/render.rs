//! The text of `haulier.toml` and what `init` says in the end. Pure.
//!
//! Names come from tables and topics and may be anything: in values they are escaped, in comments
//! nothing of them can end the line.

use std::fmt::{self, Write};
use std::path::Path;

use super::suggest::{Plan, Route, Source, State, Topic};
use super::{Broker, Findings, Url};
use crate::config::{DEFAULT_FILE, DEFAULT_LANE};
use crate::store::Database;
use crate::words::plain;

/// Where the comment beside a setting begins.
const COMMENT_COLUMN: usize = 34;
/// How much of somebody's name a comment shows, and how many names.
const MAX_SHOWN_CHARS: usize = 80;
const MAX_LISTED: usize = 10;

const HEAD: &str = "\
# Settings of Haulier, written by `haulier init`. Lines such as `# lease = \"20s\"` show defaults.
# `haulier check` says whether all this is right and in reach; `haulier reference` explains every key.
";

/// The settings.
///
/// # Errors
/// None: writing to a text cannot fail.
pub(super) fn settings(findings: &Findings, plan: &Plan) -> Result<String, fmt::Error> {
    let mut text = HEAD.to_owned();
    sources(&mut text, findings, plan)?;
    sink(&mut text, findings.broker.as_ref())?;
    routes(&mut text, plan)?;
    lanes(&mut text, plan)?;
    text.push_str(REST);
    Ok(text)
}

fn sources(text: &mut String, findings: &Findings, plan: &Plan) -> fmt::Result {
    text.push_str("\n# ---- Sources: the outbox tables that events come from ----\n\n");
    if findings.url == Url::Variable {
        text.push_str(
            "# The URL may hold a password, so it is not in this file. Set the variable before each command:\n\
             #     export DATABASE_URL=postgres://user:password@host:5432/database\n\
             # or keep the URL in a file: url = { file = \"database-url\" }\n",
        );
    } else if !findings.survey.exists {
        text.push_str("# There is no such file yet: `haulier migrate` makes it.\n");
    }
    for source in &plan.sources {
        one_source(text, findings, source)?;
    }
    for (name, table) in &plan.doubled {
        let (name, table) = (shown(name), shown(table));
        writeln!(
            text,
            "# Found, but left out: table {table}, registered as source '{name}', a name that is taken or\n\
             # cannot be used here. It needs a settings file of its own, or another name.\n"
        )?;
    }
    for other in &findings.survey.others {
        let (table, columns) = (shown(&other.table), listed(&other.columns));
        writeln!(text, "# Found, but of another layout; not supported yet: {table} ({columns})\n")?;
    }
    Ok(())
}

fn one_source(text: &mut String, findings: &Findings, source: &Source) -> fmt::Result {
    match source.state {
        State::Registered => {}
        State::Missing if !findings.survey.exists => {}
        State::Unregistered => {
            text.push_str("# The table is there but not registered: run `haulier migrate` first.\n");
        }
        State::Missing => {
            text.push_str("# The table is not there yet: run `haulier migrate` first.\n");
        }
        State::Evaded => text.push_str(
            "# There is a table called outbox already, of another layout, so this one has another name.\n\
             # It is not there yet: run `haulier migrate` first.\n",
        ),
    }
    writeln!(text, "[sources.{}]", key(&source.name))?;
    match &findings.url {
        Url::Variable => text.push_str("url = { env = \"DATABASE_URL\" }\n"),
        Url::Written(url) => writeln!(text, "url = {}", quoted(url))?,
    }
    writeln!(text, "table = {}", quoted(&source.table))?;
    match source.shards {
        Some(shards) => {
            line(text, &format!("shards = {shards}"), "per lane; fixed by the first migrate")
        }
        None => line(text, "# shards = 256", "per lane, 1 to 4096; fixed by the first migrate"),
    }
    let postgres = findings.survey.database == Database::Postgres;
    let others = if postgres { "jsonb, text, bytea" } else { "text, bytea" };
    let comment = format!("or {others}; for the table that migrate makes");
    line(text, "# payload_type = \"json\"", &comment);
    line(text, "# settle = \"delete\"", "or \"mark\", which keeps published rows");
    line(text, "#     retention = \"7d\"", "with \"mark\" only: how long they are kept");
    if postgres {
        line(text, "# pooler = \"session\"", "\"transaction\" behind one in transaction mode");
    }
    line(text, "# max_connections = 16", "");
    text.push('\n');
    Ok(())
}

fn sink(text: &mut String, broker: Option<&Broker>) -> fmt::Result {
    text.push_str("# ---- Sinks: where they go ----\n\n");
    match broker {
        Some(broker) => {
            match &broker.topics {
                Some(topics) => writeln!(text, "# It answered, with {} topics.", topics.len())?,
                None => text.push_str("# It did not answer when this was written.\n"),
            }
            text.push_str("[sinks.main]\ntype = \"kafka\"\n");
            writeln!(text, "bootstrap_servers = {}", quoted(&broker.servers))?;
            line(text, "# publish_timeout = \"10s\"", "how long the broker may take to answer");
            line(text, "# max_record_bytes = 1_000_000", "the broker must take as much");
        }
        None => text.push_str(
            "# Prints each record as a line of JSON. For Kafka, write in place of the type:\n\
             #     type = \"kafka\"\n\
             #     bootstrap_servers = \"localhost:9092\"\n\
             [sinks.main]\n\
             type = \"stdout\"\n",
        ),
    }
    text.push_str(KAFKA_OPTIONS);
    Ok(())
}

const KAFKA_OPTIONS: &str = "
# TLS and logins are options of librdkafka, passed through:
#     [sinks.main.librdkafka]
#     \"security.protocol\" = \"sasl_ssl\"
#     \"sasl.mechanism\" = \"SCRAM-SHA-512\"
#     \"sasl.username\" = \"haulier\"
#     \"sasl.password\" = { env = \"KAFKA_PASSWORD\" }

";

const ROUTES_HEAD: &str = "\
# ---- Routes: the first that matches an event's type decides ----

# An event that no route, no plugin and no topic in its own row sends anywhere waits, and so does its
# key. A route may also name a plugin, a key and headers:
#     plugin = \"order-events\"
#     key = \"/customer/id\"
#     headers = { origin = \"shop\" }
";

fn routes(text: &mut String, plan: &Plan) -> fmt::Result {
    text.push_str(ROUTES_HEAD);
    if plan.rows == 0 {
        text.push_str(
            "# No event waits yet, so this is only an example:\n\
             #     [[routes]]\n\
             #     event_type = \"order.*\"      # * stands for any characters\n\
             #     topic = \"orders\"\n",
        );
    } else {
        let more = if plan.more_rows { ", and more" } else { "" };
        writeln!(text, "# These are suggestions. Waiting events: {}{more}.", plan.rows)?;
    }
    if !plan.with_topic.is_empty() {
        let types = listed(&plan.with_topic);
        writeln!(text, "# These name a topic in their rows and need no route: {types}")?;
    }
    text.push('\n');
    for route in &plan.routes {
        one_route(text, route)?;
    }
    if plan.more_routes > 0 {
        writeln!(text, "# … and {} more, which are left out here.\n", plan.more_routes)?;
    }
    Ok(())
}

fn one_route(text: &mut String, route: &Route) -> fmt::Result {
    writeln!(text, "# {} waiting: {}", route.rows, listed(&route.types))?;
    if route.overruled > 0 {
        let count = route.overruled;
        writeln!(text, "# Rows among them that name a topic, which this route overrules: {count}")?;
    }
    text.push_str("[[routes]]\n");
    match route.patterns.as_slice() {
        [only] => writeln!(text, "event_type = {}", quoted(only))?,
        several => {
            let several: Vec<_> = several.iter().map(|pattern| quoted(pattern)).collect();
            writeln!(text, "event_type = [{}]", several.join(", "))?;
        }
    }
    let comment = match route.there {
        Topic::There(1) => "is there, with 1 partition".to_owned(),
        Topic::There(partitions) => format!("is there, with {partitions} partitions"),
        Topic::Missing => "is not there yet: create it, or name another".to_owned(),
        Topic::Unknown => "a suggestion; the topic must exist".to_owned(),
    };
    line(text, &format!("topic = {}", quoted(&route.topic)), &comment);
    if !route.others.is_empty() {
        writeln!(text, "# Others that fit: {}", listed(&route.others))?;
    }
    text.push('\n');
    Ok(())
}

fn lanes(text: &mut String, plan: &Plan) -> fmt::Result {
    text.push_str("# ---- Lanes: paths that do not disturb each other ----\n\n");
    writeln!(text, "[lanes.{DEFAULT_LANE}]                   # rows whose INSERT names no lane")?;
    line(
        text,
        "# ordering = \"key\"",
        "\"none\" for no order, \"total\" for one order of all events",
    );
    line(text, "# publish = \"pipelined\"", "or \"per_key_sync\": one record of a key at a time");
    line(text, "# batch_rows = 1000", "most events of a batch");
    line(text, "# batch_bytes = \"8MiB\"", "most payload bytes of a batch");
    line(text, "# in_flight = 4", "most batches at once");
    line(text, "# lease = \"20s\"", "at least twice the sink's publish_timeout");
    line(text, "# poll_interval = \"200ms\"", "longest pause while nothing comes");
    line(text, "# max_attempts = 10", "then on_failed decides");
    line(text, "# first_backoff = \"1s\"", "doubles with each attempt …");
    line(text, "# max_backoff = \"5m\"", "… up to this");
    line(text, "# on_failed = \"park\"", "or \"halt_key\": hold the key until someone decides");
    for (lane, sources) in &plan.lanes {
        writeln!(text, "\n# Rows name this lane. It takes the same keys as {DEFAULT_LANE}.")?;
        writeln!(text, "[lanes.{}]", key(lane))?;
        if plan.sources.len() > 1 {
            let sources: Vec<_> = sources.iter().map(|source| quoted(source)).collect();
            writeln!(text, "sources = [{}]", sources.join(", "))?;
        }
    }
    for lane in &plan.unusable_lanes {
        writeln!(
            text,
            "\n# Rows name the lane '{}', which is no name a lane can have: they stay.",
            shown(lane)
        )?;
    }
    text.push('\n');
    Ok(())
}

const REST: &str = "\
# ---- The process ----

[plugin_host]
# folder = \"plugins\"              # every *.wasm file in it is loaded; relative to this file

[admin]
# listen = \"127.0.0.1:9464\"       # health and metrics, or \"off\"; it has no authentication
# ready_stall = \"30s\"             # due work without progress for so long is not ready

[log]
# level = \"info\"
# format = \"text\"                 # or \"json\"

[relay]
# grace = \"20s\"                   # how long shutdown waits for what is in flight
";

/// What was found, and what to do next. `file` is where the settings went, if to a file; `exported`
/// whether `DATABASE_URL` is already what it must be.
///
/// # Errors
/// None: writing to a text cannot fail.
pub(super) fn summary(
    findings: &Findings,
    plan: &Plan,
    file: Option<&Path>,
    exported: bool,
) -> Result<String, fmt::Error> {
    let mut text = String::new();
    let database = match findings.survey.database {
        Database::Postgres => "PostgreSQL",
        Database::Sqlite => "SQLite",
    };
    let absent = if findings.survey.exists { "" } else { ", a file that is not there yet" };
    writeln!(text, "database: {database}{absent}")?;
    for source in &plan.sources {
        let found = match source.state {
            State::Registered => waiting(findings, source),
            State::Unregistered => format!("{}; not registered yet", waiting(findings, source)),
            State::Missing | State::Evaded => "not there yet".to_owned(),
        };
        writeln!(text, "  source {}: table {}, {found}", source.name, shown(&source.table))?;
    }
    for other in &findings.survey.others {
        writeln!(text, "  {}: of another layout, not supported yet", shown(&other.table))?;
    }
    match &findings.broker {
        Some(Broker { servers, topics: Some(topics) }) => {
            writeln!(text, "broker: {servers}, {} topics", topics.len())?;
        }
        Some(Broker { servers, topics: None }) => writeln!(text, "broker: {servers}, no answer")?,
        None => text.push_str("broker: none given, so records go to standard output\n"),
    }
    for route in &plan.routes {
        let note = match route.there {
            Topic::Missing => ", which must be created",
            Topic::There(_) | Topic::Unknown => "",
        };
        writeln!(text, "route: {} to {}{note}", listed(&route.patterns), route.topic)?;
    }
    if plan.routes.is_empty() {
        text.push_str("route: none yet, since no event waits that needs one\n");
    }
    let Some(file) = file else { return Ok(text) };
    writeln!(text, "\n{} is written. Next:", file.display())?;
    if findings.url == Url::Variable && !exported {
        text.push_str("  export DATABASE_URL='…'    # the URL that was given here\n");
    }
    let option = if file == Path::new(DEFAULT_FILE) {
        String::new()
    } else {
        format!(" --config '{}'", file.display())
    };
    for command in ["migrate", "check", "run"] {
        writeln!(text, "  haulier {command}{option}")?;
    }
    Ok(text)
}

fn waiting(findings: &Findings, source: &Source) -> String {
    let same = findings.survey.outboxes.iter().find(|outbox| outbox.table == source.table);
    match same.and_then(|outbox| outbox.waiting.as_ref()) {
        None => "whose rows could not be read".to_owned(),
        Some(waiting) => match (waiting.rows, waiting.more) {
            (rows, true) => format!("{rows} events wait, or more"),
            (1, false) => "1 event waits".to_owned(),
            (rows, false) => format!("{rows} events wait"),
        },
    }
}

fn line(text: &mut String, setting: &str, comment: &str) {
    text.push_str(setting);
    if !comment.is_empty() {
        let gap = COMMENT_COLUMN.saturating_sub(setting.chars().count()).max(1);
        text.push_str(&" ".repeat(gap));
        text.push_str("# ");
        text.push_str(comment);
    }
    text.push('\n');
}

/// A key of TOML.
fn key(name: &str) -> String {
    let bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.contains('\'') && !text.contains(char::is_control) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(letter))),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A name as a comment shows it: in one line, and cut.
fn shown(name: &str) -> String {
    let cut = plain(&name.chars().take(MAX_SHOWN_CHARS).collect::<String>());
    if name.chars().count() > MAX_SHOWN_CHARS { cut + "…" } else { cut }
}

fn listed(names: &[String]) -> String {
    let some: Vec<_> = names.iter().take(MAX_LISTED).map(|name| shown(name)).collect();
    match names.len().saturating_sub(MAX_LISTED) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_are_put() {
        assert_eq!(quoted("a\nb"), "\"a\\u000Ab\"");
        assert_eq!(quoted(r#""App"."Outbox""#), r#"'"App"."Outbox"'"#);
        assert_eq!(quoted(r#"it's "x""#), r#""it's \"x\"""#);
        assert_eq!(key("a.b"), "\"a.b\"");
        assert_eq!(shown("x\n[sinks.y]"), "x\u{fffd}[sinks.y]");
        assert_eq!(shown(&"x".repeat(100)).chars().count(), MAX_SHOWN_CHARS + 1);
    }
}
