//! From a file and the environment to a checked [`Config`], or to everything that is wrong.
//!
//! The command line calls it. It reads the file and the files that secrets are kept in, and
//! nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Config;
use crate::settings::{Document, Place, Problem, Problems, Settings};

/// The file that is read where none is named.
pub const DEFAULT_FILE: &str = "haulier.toml";

/// Settings are written by people; a larger file is the wrong one.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The least that works, shown where there is nothing at all.
const MINIMAL: &str = r#"
    [sources.main]
    url = { env = "DATABASE_URL" }
    table = "outbox"

    [sinks.main]
    type = "kafka"
    bootstrap_servers = "localhost:9092"

    [[routes]]
    event_type = "*"
    topic = "{aggregate_type}""#;

/// Reads the file at `path`, or [`DEFAULT_FILE`] if it is there, lays the `HAULIER__…` variables
/// of `environment` over it, and checks the whole. Secrets kept in variables are taken from the
/// same `environment`.
///
/// # Errors
/// Everything that is wrong, warnings included, if at least one problem stops the start.
pub fn load(
    path: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, Problems> {
    let environment: BTreeMap<String, String> = environment.collect();
    let file = path.unwrap_or(Path::new(DEFAULT_FILE));
    let name = file.display().to_string();
    let text = match read(file) {
        Ok(text) => Some(text),
        Err(problem) if problem.absent && path.is_none() => None,
        Err(problem) => {
            let place = Place::Document(name.as_str().into());
            return Err(Problems::new(vec![Problem::error(place, "", problem.message)]));
        }
    };
    if text.is_none() && !Settings::any_override(&environment) {
        let message = format!(
            "there are no settings: write this file, name another with --config, or set \
             HAULIER__… variables; the least that works is\n{MINIMAL}"
        );
        let place = Place::Document(name.as_str().into());
        return Err(Problems::new(vec![Problem::error(place, "", message)]));
    }
    let document = text.as_deref().map(|text| Document {
        name: &name,
        folder: file.parent().unwrap_or(Path::new("")),
        text,
    });
    let mut config = assemble(document, environment)?;
    config.file = text.is_some().then(|| file.to_owned());
    Ok(config)
}

/// Checks a text that would be the file at `file`, with these variables.
///
/// # Errors
/// As [`load`].
pub fn check_text(
    text: &str,
    file: &Path,
    environment: BTreeMap<String, String>,
) -> Result<Config, Problems> {
    let name = file.display().to_string();
    let folder = file.parent().unwrap_or(Path::new(""));
    assemble(Some(Document { name: &name, folder, text }), environment)
}

fn assemble(
    document: Option<Document<'_>>,
    environment: BTreeMap<String, String>,
) -> Result<Config, Problems> {
    let settings = Settings::new(document, environment);
    let mut config = Config::read(settings.root());
    let problems = Problems::new(settings.into_problems());
    if problems.errors() > 0 {
        return Err(problems);
    }
    config.warnings = problems;
    Ok(config)
}

/// Why there is no text.
pub(super) struct Unreadable {
    absent: bool,
    /// What is wrong with the file, and what to do.
    pub(super) message: String,
}

/// The text of a file of reasonable size.
pub(super) fn read(path: &Path) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    let outcome =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = outcome {
        let absent = error.kind() == io::ErrorKind::NotFound;
        let message = if absent {
            "there is no such file: create it, or name another with --config".to_owned()
        } else {
            format!("the file cannot be read: {error}")
        };
        return Err(Unreadable { absent, message });
    }
    let refuse = |message: String| Err(Unreadable { absent: false, message });
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return refuse(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).or_else(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..valid).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        refuse(format!("line {line} is not UTF-8, as TOML must be"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::{Pooler, Retention, SinkKind};
    use crate::event::Ordering;
    use crate::retry::OnFailed;
    use crate::routing::KeyRule;
    use crate::sink::PublishMode;
    use crate::store::{PayloadType, Settle};
    use crate::telemetry::LogFormat;

    /// A folder that is removed in the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("haulier-load-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pair = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        variables.iter().map(pair).collect()
    }

    fn parse(text: &str, variables: &[(&str, &str)]) -> Result<Config, Problems> {
        let document = Document { name: "h.toml", folder: Path::new("conf"), text };
        assemble(Some(document), environment(variables))
    }

    /// The problems of a text, one line each.
    fn problems(text: &str) -> Vec<String> {
        let problems = match parse(text, &[]) {
            Ok(config) => config.warnings,
            Err(problems) => problems,
        };
        problems.iter().map(ToString::to_string).collect()
    }

    /// The problems of a text after a source and a sink that are fine: its lines count from 6.
    fn problems_after_base(text: &str) -> Vec<String> {
        let base = "[sources.a]\nurl = \"postgres://h/d\"\ntable = \"outbox\"\n\
                    [sinks]\nk = { type = \"kafka\", bootstrap_servers = \"h:1\" }\n";
        problems(&format!("{base}{text}"))
    }

    const FULL: &str = r#"
[sources.orders]
url = { env = "DATABASE_URL" }
table = "app.outbox"
shards = 16
payload_type = "bytea"
settle = "mark"
retention = "7d"
retention_batch = 50
pooler = "transaction"
max_connections = 8

[lanes.default]
sources = ["orders"]
sink = "main"
ordering = "total"
publish = "per_key_sync"
batch_rows = 10
batch_bytes = "1MiB"
in_flight = 2
lease = "30s"
poll_interval = "1s"
max_attempts = 3
first_backoff = "2s"
max_backoff = "1m"
on_failed = "halt_key"

[sinks.main]
type = "kafka"
bootstrap_servers = "localhost:9092"
publish_timeout = "15s"
max_record_bytes = "1000000"

[sinks.main.librdkafka]
"linger.ms" = 5
sasl.password = { env = "KAFKA_PASSWORD" }
enable.ssl.certificate.verification = true

[plugin_host]
folder = "wasm"
workers = 3

[plugins.order-events]
settings = { currency = "EUR", nested = [1, { a = true }] }
memory = "64MiB"

[[routes]]
event_type = ["order.*", "invoice.*"]
plugin = "order-events"

[[routes]]
event_type = "*"
topic = "app.{aggregate_type}"
key = "/customer/id"
headers = { "X-Env" = "prod", "A" = "b" }

[admin]
listen = "off"
ready_stall = "1m"

[log]
format = "json"
level = "info,haulier::relay=debug"

[relay]
instance = "pod-1"
grace = "5s"
"#;

    const SECRETS: [(&str, &str); 2] =
        [("DATABASE_URL", "postgres://u:MARKER@h/d?sslmode=require"), ("KAFKA_PASSWORD", "MARKER")];

    #[test]
    fn every_setting_arrives() {
        let config = parse(FULL, &SECRETS).unwrap();
        assert_eq!(config.warnings.iter().count(), 0, "{}", config.warnings);
        let source = config.source("orders").unwrap();
        assert_eq!(source.url.expose(), SECRETS[0].1);
        assert_eq!((source.table.as_str(), source.shards), ("app.outbox", 16));
        assert_eq!(source.payload_type, PayloadType::Bytea);
        assert_eq!((source.settle, source.pooler), (Settle::Mark, Pooler::Transaction));
        let retention = Retention {
            age: Duration::from_secs(7 * 86_400),
            interval: Duration::from_secs(60),
            batch: 50,
        };
        assert_eq!(source.retention, Some(retention));
        assert_eq!(source.max_connections, 8);

        let [(name, lane)] = config.lane_names().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(name.to_string(), "orders/default");
        assert_eq!((&*lane.sink, lane.publish), ("main", PublishMode::PerKeySync));
        assert_eq!(lane.config.ordering, Ordering::Total);
        assert_eq!((lane.config.batch_rows, lane.config.batch_bytes), (10, 1 << 20));
        assert_eq!((lane.config.in_flight, lane.config.lease), (2, Duration::from_secs(30)));
        assert_eq!(lane.config.retry.max_attempts, 3);
        assert_eq!(lane.config.retry.on_failed, OnFailed::HaltKey);

        let SinkKind::Kafka(kafka) = &config.sink("main").unwrap().kind else {
            panic!("not kafka")
        };
        assert_eq!(kafka.bootstrap_servers, "localhost:9092");
        assert_eq!(kafka.max_record_bytes, 1_000_000);
        let options = kafka.librdkafka.iter();
        let options: Vec<_> =
            options.map(|(name, value)| (name.as_str(), value.expose())).collect();
        let expected = [
            ("enable.ssl.certificate.verification", "true"),
            ("linger.ms", "5"),
            ("sasl.password", "MARKER"),
        ];
        assert_eq!(options, expected);

        assert_eq!(config.plugin_host.folder, Path::new("conf/wasm"));
        assert_eq!(config.plugin_host.workers, 3);
        let plugin = &config.plugins[0];
        let settings = r#"{"currency":"EUR","nested":[1,{"a":true}]}"#;
        assert_eq!((&*plugin.name, plugin.settings.expose()), ("order-events", settings));
        assert_eq!((plugin.limits.memory, plugin.limits.fan_out), (64 << 20, 100));

        let routes: Vec<_> = config.routes.iter().collect();
        assert_eq!(routes[0].patterns.len(), 2);
        assert_eq!(routes[0].plugin.as_deref(), Some("order-events"));
        assert_eq!(routes[1].key, Some(KeyRule::Pointer("/customer/id".into())));
        let headers: Vec<_> = routes[1].headers.iter().map(|header| &*header.name).collect();
        assert_eq!(headers, ["X-Env", "A"]);
        assert_eq!(config.admin.listen, None);
        assert_eq!(config.log.format, LogFormat::Json);
        assert_eq!(config.relay.instance, "pod-1");
        assert_eq!(config.relay.grace, Duration::from_secs(5));
    }

    #[test]
    fn the_minimal_example_is_enough() {
        let config = parse(MINIMAL, &SECRETS).unwrap();
        assert_eq!(config.warnings.iter().count(), 0);
        let lanes: Vec<_> = config.lane_names().map(|(name, _)| name.to_string()).collect();
        assert_eq!(lanes, ["main/default"]);
        assert_eq!(config.lanes[0].config, crate::relay::LaneConfig::default());
        assert_eq!(config.admin.listen.unwrap().to_string(), "127.0.0.1:9464");
        assert!(config.relay.instance.ends_with(&std::process::id().to_string()));
    }

    #[test]
    fn many_mistakes_are_all_reported_where_they_are() {
        let text = r#"[sources.orders]
url = "mysql://u:MARKER@h/d"
tabel = "outbox"
shards = 0
retention = "7d"
[sources."a b"]
url = 5
table = ""
[lanes.fast]
sources = ["order", "a b"]
sink = "mian"
ordering = "keys"
lease = "5s"
batch_bytes = "8 megs"
[sinks.main]
type = "kafka"
bootstrap_server = "localhost:9092"
[sinks.main.librdkafka]
"sasl.password" = ["MARKER"]
[plugins.p]
event_deadline = "0ms"
[[routes]]
event_type = "order.*"
topic = "orders.{aggregate}"
key = "customer/id"
[[routes]]
topic = "or ders"
[admin]
listen = "localhost"
[log]
level = "inffo"
format = "xml"
[relais]
[relay]
grace = 20
"#;
        let found = problems(text);
        let expected = [
            "2:7: sources.orders.url: is a MySQL or MariaDB URL, which cannot be a source",
            "3:1: sources.orders.tabel: unknown key; did you mean 'table'?",
            "4:10: sources.orders.shards: must be from 1 to 4096",
            "5:13: sources.orders.retention: only has a meaning with settle = \"mark\"",
            "6:1: sources.\"a b\": a source's name has 1 to 64 letters",
            "7:7: sources.\"a b\".url: expected a string, { env = \"NAME\" } or",
            "8:9: sources.\"a b\".table: '' has a part that is empty",
            "10:11: lanes.fast.sources: there is no source 'order', there is orders, a b; \
             did you mean 'orders'?",
            "11:8: lanes.fast.sink: there is no sink 'mian', there is main; did you mean 'main'?",
            "12:12: lanes.fast.ordering: \"keys\" is none of \"key\", \"none\", \"total\"; \
             did you mean 'key'?",
            "14:15: lanes.fast.batch_bytes: is not a size such as \"8MiB\"",
            "17:1: sinks.main.bootstrap_server: unknown key; did you mean 'bootstrap_servers'?",
            "19:19: sinks.main.librdkafka.\"sasl.password\": expected a string, { env",
            "21:18: plugins.p.event_deadline: must be from",
            "24:9: routes[0].topic: '{aggregate}' is no field; there are event_type",
            "25:7: routes[0].key: must be a field (event_type",
            "26:1: routes[1].event_type: is missing: write event_type = \"order.*\"",
            "27:9: routes[1].topic: ' ' cannot be in a topic's name",
            "29:10: admin.listen: must be an IP address and a port",
            "31:9: log.level: 'inffo' is no level",
            "32:10: log.format: \"xml\" is none of \"text\", \"json\"",
            "33:2: relais: unknown key; did you mean 'relay'?",
            "35:9: relay.grace: expected a duration such as",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(&format!("h.toml:{expected}")), "{found}\n{expected}");
            assert!(!found.contains("MARKER"), "{found}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_reported() {
        let cases = [
            (
                "[lanes.default]\nlease = \"19s\"\n",
                "7:9: lanes.default.lease: a lease of 19s is too short",
            ),
            ("[lanes.x]\n", "6:2: warning: lanes: there is no lane 'default'"),
            ("[lanes.default]\nsources = []\n", "7:11: lanes.default.sources: is empty"),
            (
                "[lanes.default]\nsources = [\"a\", \"a\"]\n",
                "7:11: lanes.default.sources: names 'a' twice",
            ),
            (
                "[lanes.default]\nfirst_backoff = \"10m\"\n",
                "7:17: lanes.default.first_backoff: first_backoff (10m) must not",
            ),
            (
                "[lanes.default]\nmax_backoff = \"10ms\"\n",
                "7:15: lanes.default.max_backoff: first_backoff (1s) must not",
            ),
            (
                "[sources.b]\nurl = \"postgres://h/d\"\ntable = \"outbox\"\n",
                "6:1: sources.b: is the same table of the same database as source 'a'",
            ),
            (
                "[sources.b]\nurl = \"postgres://h/d\"\ntable = \"o\"\n[lanes.default]\nsources = \"a\"\n",
                "6:1: warning: sources.b: no lane carries this source",
            ),
            (
                "[sources.b]\nurl = \"postgres://h/d\"\ntable = \"o\"\nsettle = \"mark\"\nretention_batch = 5\n",
                "10:19: sources.b.retention_batch: only has a meaning with retention,",
            ),
            (
                "[sinks.s]\ntype = \"stdout\"\n[lanes.default]\n",
                "8:1: lanes.default.sink: is missing: there are several, name one of k, s",
            ),
            (
                "[sinks.s]\ntype = \"rabbit\"\nhost = 1\n[lanes.default]\nsink = \"k\"\n",
                "7:8: sinks.s.type: \"rabbit\" is none of",
            ),
            ("[[routes]]\nevent_type = \"x\"\n", "6:1: routes[0]: does nothing"),
            (
                "[[routes]]\nevent_type = []\ntopic = \"t\"\n",
                "7:14: routes[0].event_type: is empty",
            ),
            (
                "[[routes]]\nevent_type = \"x\"\ntopic = \"..\"\n",
                "8:9: routes[0].topic: '..' cannot",
            ),
            (
                "[[routes]]\nevent_type = \"x\"\nheaders = { \"\" = \"v\" }\n",
                "8:11: routes[0].headers: a header's name cannot be empty",
            ),
            (
                "[[routes]]\nevent_type = \"x\"\nkey = \"topik\"\n",
                "8:7: routes[0].key: must be a field",
            ),
            (
                "[[routes]]\nevent_type = \"a.*\"\ntopic = \"t\"\n[[routes]]\nevent_type = [\"a.b.*\", \"a.\"]\ntopic = \"t\"\n",
                "10:14: warning: routes[1].event_type: is never reached: routes[0]",
            ),
        ];
        for (text, expected) in cases {
            let found = problems_after_base(text);
            let expected = format!("h.toml:{expected}");
            assert!(found[0].starts_with(&expected), "{found:#?}\n{expected}");
            assert_eq!(found.len(), 1, "{found:#?}");
        }
    }

    #[test]
    fn routes_that_can_be_reached_are_not_warned_of() {
        let text = "[[routes]]\nevent_type = \"a.*\"\nkey = \"null\"\n[[routes]]\n\
                    event_type = [\"a.b\", \"b\"]\nplugin = \"p\"\n[[routes]]\nevent_type = \"*\"\n\
                    headers = { a = \"b\" }\n";
        assert_eq!(problems_after_base(text), Vec::<String>::new());
    }

    #[test]
    fn the_environment_alone_is_enough() {
        let variables = [
            ("HAULIER__SOURCES__ORDERS__URL__ENV", "DATABASE_URL"),
            ("HAULIER__SOURCES__ORDERS__TABLE", "outbox"),
            ("HAULIER__SINKS__MAIN__TYPE", "kafka"),
            ("HAULIER__SINKS__MAIN__BOOTSTRAP_SERVERS", "a:1, b:2"),
            ("HAULIER__SINKS__MAIN__LIBRDKAFKA__SASL_PASSWORD", "MARKER"),
            ("HAULIER__ROUTES__0__EVENT_TYPE", "order.*,invoice.*"),
            ("HAULIER__ROUTES__0__TOPIC", "t"),
            ("HAULIER__LANES__DEFAULT__BATCH_ROWS", "5"),
            ("HAULIER_CONFIG", "not a setting"),
            SECRETS[0],
        ];
        let config = load(None, environment(&variables).into_iter()).unwrap();
        assert_eq!(config.lanes[0].config.batch_rows, 5);
        assert_eq!(config.sources[0].url.expose(), SECRETS[0].1);
        assert_eq!(config.routes.iter().next().unwrap().patterns.len(), 2);
        let SinkKind::Kafka(kafka) = &config.sinks[0].kind else { panic!("not kafka") };
        assert_eq!(kafka.bootstrap_servers, "a:1,b:2");
        assert_eq!(kafka.librdkafka["sasl.password"].expose(), "MARKER");
    }

    #[test]
    fn without_anything_a_minimal_example_is_shown() {
        let problems = load(None, environment(&[("PATH", "/bin")]).into_iter()).unwrap_err();
        let text = problems.to_string();
        assert!(text.starts_with("haulier.toml: there are no settings"), "{text}");
        assert!(text.contains("[sources.main]"), "{text}");
    }

    #[test]
    fn files_are_read_and_their_absence_is_explained() {
        let folder = Folder::new("files");
        folder.write("url", "postgres://h/d\r\n");
        let text = "[sources.a]\nurl = { file = \"url\" }\ntable = \"t\"\n\
                    [sinks.s]\ntype = \"stdout\"\n";
        let path = folder.write("h.toml", text);
        let none = || std::iter::empty();
        let config = load(Some(&path), none()).unwrap();
        assert_eq!(config.sources[0].url.expose(), "postgres://h/d");

        let path = folder.write("bad.toml", &text.replace("\"url\"", "\"absent\""));
        let message = load(Some(&path), none()).unwrap_err().to_string();
        assert!(message.contains("bad.toml:2:7: sources.a.url: the file "), "{message}");
        assert!(message.contains("cannot be read: No such file"), "{message}");

        let absent = folder.0.join("absent.toml");
        let message = load(Some(&absent), none()).unwrap_err().to_string();
        assert!(message.contains("absent.toml: there is no such file: create it"), "{message}");
        let message = load(Some(&folder.0), none()).unwrap_err().to_string();
        assert!(message.contains("the file cannot be read"), "{message}");
        let path = folder.0.join("latin1.toml");
        std::fs::write(&path, b"a = 1\nb = \"\xe9\"\n").unwrap();
        let message = load(Some(&path), none()).unwrap_err().to_string();
        assert!(message.contains("line 2 is not UTF-8"), "{message}");
    }

    #[test]
    fn missing_secrets_are_named_and_not_shown() {
        let text = "[sources.a]\nurl = { env = \"NOPE\" }\ntable = \"t\"\n[sinks.s]\n\
                    type = \"kafka\"\nbootstrap_servers = \"h\"\n[sinks.s.librdkafka]\n\
                    \"a\" = { env = \"MAR-KER\" }\n\"b\" = { env = \"EMPTY\" }\n\
                    \"c\" = { env = \"NOPE\", file = \"x\" }\n\"d\" = {}\n";
        let problems = parse(text, &[("EMPTY", "")]).unwrap_err();
        let found: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "h.toml:2:7: sources.a.url: the environment variable NOPE is not set",
            "h.toml:8:7: sinks.s.librdkafka.a: env must be the name of a variable: letters, \
             digits and '_'",
            "h.toml:9:7: sinks.s.librdkafka.b: the environment variable EMPTY is empty",
            "h.toml:10:7: sinks.s.librdkafka.c: expected either env or file, found both",
        ];
        assert_eq!(found, expected);
    }

    /// All that could be printed about a text and its variables.
    fn everything(text: &str, variables: &[(&str, &str)]) -> String {
        match parse(text, variables) {
            Ok(config) => format!("{config:?} {config:#?} {}", config.warnings),
            Err(problems) => format!("{problems} {problems:?}"),
        }
    }

    #[test]
    fn no_secret_is_ever_shown_however_broken_the_file_is() {
        let text = "log.level = \"info\"\n[sources.a]\nurl = \"postgres://u:MARKER@h/d\"\n\
                    table = \"t\"\nsettle = \"mark\"\n[sinks.s]\ntype = \"kafka\"\n\
                    bootstrap_servers = \"h:1\"\n[sinks.s.librdkafka]\n\
                    \"sasl.password\" = 'MARKER=\"x\"'\nssl.key.password = \"[MARKER]\"\n\
                    \"ssl.key.pem\" = \"\"\"\nMARKER = 1\n[MARKER]\nMARKER\n\"\"\"\n\
                    [plugins.p]\nsettings = { token = \"MARKER\" }\n\
                    [[routes]]\nevent_type = \"*\"\ntopic = \"t\"\n";
        assert!(!everything(text, &[]).contains("MARKER"));
        let pieces =
            ["", "\"", "'", "[", "]", "=", "\n", "{", "}", ".", ",", "\\", "x", "#", "\"\"\""];
        let inside = |at: usize| {
            let mut markers = text.match_indices("MARKER");
            markers.any(|(start, marker)| start < at && at < start + marker.len())
        };
        for at in (0..text.len()).filter(|at| !inside(*at)) {
            for (piece, removed) in pieces.iter().flat_map(|piece| [(piece, 0), (piece, 1)]) {
                if removed == 1 && text[at..].starts_with('M') {
                    continue;
                }
                let broken = format!("{}{piece}{}", &text[..at], &text[at + removed..]);
                let shown = everything(&broken, &[]);
                assert!(!shown.contains("MARKER"), "{broken}\n{shown}");
            }
        }
    }

    #[test]
    fn no_secret_of_the_environment_is_ever_shown() {
        let names = [
            "HAULIER__SOURCES__ORDERS__URL",
            "HAULIER__SOURCES__ORDERS__URL__ENV",
            "HAULIER__SOURCES__ORDERS__URL__X",
            "HAULIER__SOURCES__NEW__URL",
            "HAULIER__SOURCES__ORDERS__URI",
            "HAULIER__SOURCES",
            "HAULIER__SINKS__MAIN",
            "HAULIER__SINKS__MAIN__LIBRDKAFKA",
            "HAULIER__SINKS__MAIN__LIBRDKAFKA__SASL_PASSWORD",
            "HAULIER__SINKS__MAIN__LIBRDKAFKA__SASL_PASSWORD__ENV",
            "HAULIER__PLUGINS__ORDER_EVENTS__SETTINGS__TOKEN",
            "HAULIER__ROUTES__9",
            "HAULIER____",
            "DATABASE_URL",
            "KAFKA_PASSWORD",
        ];
        let values = [
            "MARKER",
            "mysql://u:MARKER@h/d",
            "postgres://u:MARKER@h/d?sslmode=x",
            "{ env = \"MARKER-\" }",
            "{ MARKER",
            "{ sasl = [\"MARKER\"] }",
            "[\"MARKER\"]",
        ];
        for name in names {
            for value in values {
                let variables = [&SECRETS[..], &[(name, value)]].concat();
                let shown = everything(FULL, &variables);
                // A variable's name may be shown, and such a value has been given as a name.
                let named = name.ends_with("__ENV") && value == "MARKER";
                assert!(named || !shown.contains("MARKER"), "{name}={value}\n{shown}");
            }
        }
    }
}
