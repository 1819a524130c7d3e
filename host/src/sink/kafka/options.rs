//! From the sink's config to librdkafka's: our defaults, the options passed through, and those
//! that may not be touched because a promise rests on them.
//!
//! Called when a sink is made and by `haulier check`. It never talks to a broker, and no text it
//! returns holds a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::producer::BaseProducer;

use super::Config;
use super::context::Context;
use super::producer::Kind;

/// What we set unless the options say otherwise.
const DEFAULTS: [(&str, &str); 11] = [
    ("client.id", "haulier"),
    // A batch of the relay arrives in one burst; a millisecond lets it gather.
    ("linger.ms", "1"),
    // Small enough that a topic with a low `max.message.bytes` refuses single records and not
    // whole batches of small ones; large enough that larger ones gain nothing measurable.
    ("batch.size", "131072"),
    // A consumer must be able to read what the relay writes: not every client library comes with
    // lz4, snappy or zstd. So no compression unless it is asked for.
    ("compression.codec", "none"),
    // A lane never holds more than this in the producer; a full queue waits.
    ("queue.buffering.max.messages", "20000"),
    ("queue.buffering.max.kbytes", "65536"),
    ("socket.keepalive.enable", "true"),
    // Back soon after an outage: librdkafka's ten seconds would be most of a publish timeout.
    ("reconnect.backoff.max.ms", "2000"),
    ("socket.connection.setup.timeout.ms", "10000"),
    // A topic's existence is known before anything is sent to it; if it goes away, say so soon.
    ("topic.metadata.propagation.max.ms", "5000"),
    // The relay has metrics of its own.
    ("enable.metrics.push", "false"),
];

/// The shortest publish timeout: a round trip, an election and two polls have to fit.
const MIN_PUBLISH_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_PUBLISH_TIMEOUT: Duration = Duration::from_secs(600);
/// The bounds librdkafka sets for `message.max.bytes`.
const RECORD_BYTES: std::ops::RangeInclusive<usize> = 1_000..=1_000_000_000;

/// What is wrong with an option's value, or with its being set at all.
fn reserved(name: &str, value: &str) -> Option<&'static str> {
    let value = value.trim();
    let problem = match name {
        "acks" | "request.required.acks" if value != "all" && value != "-1" => {
            "published means acknowledged by all in-sync replicas; only \"all\" is possible"
        }
        "enable.idempotence" if value != "true" => {
            "order rests on the idempotent producer; it cannot be switched off"
        }
        "enable.gapless.guarantee" if value != "true" => {
            "without it records behind a refused one overtake it; it cannot be switched off"
        }
        "max.in.flight" | "max.in.flight.requests.per.connection"
            if !value.parse().is_ok_and(|count: u32| (1..=5).contains(&count)) =>
        {
            "a broker remembers five batches of a producer; use 1 to 5"
        }
        "message.timeout.ms" | "delivery.timeout.ms" => {
            "librdkafka would drop single records and send those behind them; use publish_timeout"
        }
        "retries" | "message.send.max.retries" => {
            "records are retried until publish_timeout; use that"
        }
        "transactional.id" => "the relay does not use transactions: delivery is at least once",
        "bootstrap.servers" | "metadata.broker.list" => "use bootstrap_servers",
        "message.max.bytes" => "use max_record_bytes",
        "topic.metadata.refresh.interval.ms" => "the relay looks at topics itself, every 30 s",
        "partitioner" => {
            "partitions are chosen as the Java client does (murmur2); \
             name one per record to choose otherwise"
        }
        "delivery.report.only.error" if value != "false" => {
            "an acknowledgement is what makes an event published"
        }
        "opaque" | "default_topic_conf" | "interceptors" => "it cannot be set from a config file",
        callback if callback.ends_with("_cb") => "it cannot be set from a config file",
        _ => return None,
    };
    Some(problem)
}

/// Whether the value of option `name` must not be shown.
pub(super) fn is_secret(name: &str) -> bool {
    const PARTS: [&str; 6] = ["password", "secret", "key.pem", "private", "oauthbearer", "token"];
    PARTS.iter().any(|part| name.contains(part))
}

/// `text` without any value of a secret option.
pub(super) fn redact(options: &BTreeMap<String, String>, text: &str) -> String {
    let secrets = options.iter().filter(|(name, value)| is_secret(name) && !value.is_empty());
    secrets.fold(text.to_owned(), |text, (_, value)| text.replace(value.as_str(), "…"))
}

/// librdkafka's config for a producer of `kind`.
pub(super) fn client(config: &Config, kind: Kind) -> ClientConfig {
    let mut client = base(config);
    match kind {
        Kind::Pipelined => {
            // A gap ends the producer: nothing behind it is sent.
            client.set("enable.gapless.guarantee", "true");
        }
        Kind::Careful => {
            // One record a partition is on the way, so there is nothing behind a gap, and a
            // refusal must not hit the records of other partitions. Nor is there anything to
            // gather.
            client.remove("enable.gapless.guarantee");
            client.remove("queue.buffering.max.ms");
            client.set("linger.ms", "0");
        }
    }
    client
}

/// librdkafka's config for a client that only asks.
pub(super) fn probe(config: &Config) -> ClientConfig {
    let mut client = base(config);
    client.set("enable.idempotence", "false");
    client.remove("enable.gapless.guarantee");
    client
}

fn base(config: &Config) -> ClientConfig {
    let mut client = ClientConfig::new();
    for (name, value) in DEFAULTS {
        client.set(name, value);
    }
    for (name, value) in &config.options {
        // The other name of the same option, or whichever is set last would win.
        match name.as_str() {
            "queue.buffering.max.ms" => client.remove("linger.ms"),
            "compression.type" => client.remove("compression.codec"),
            _ => &mut client,
        };
        client.set(name, value);
    }
    client.set("bootstrap.servers", &config.bootstrap_servers);
    client.set("acks", "all");
    client.set("enable.idempotence", "true");
    client.set("message.timeout.ms", "0");
    client.set("message.max.bytes", config.max_record_bytes.to_string());
    let refresh = config.metadata_refresh.as_millis().to_string();
    client.set("topic.metadata.refresh.interval.ms", refresh);
    let debugging = config.options.contains_key("debug");
    client.set_log_level(if debugging { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
    client
}

/// Everything that is wrong with `config`, as pairs of the option's or field's name and a text.
/// Needs no network.
pub fn validate(config: &Config) -> Vec<(String, String)> {
    let mut problems = fields(config);
    for (name, value) in &config.options {
        if let Some(problem) = reserved(name, value) {
            problems.push((name.clone(), problem.to_owned()));
        } else if let Err(error) = ClientConfig::new().set(name, value).create_native_config() {
            problems.push((name.clone(), redact(&config.options, &describe(&error))));
        }
    }
    problems.extend(tokens(config));
    if problems.is_empty() {
        problems.extend(together(config));
    }
    problems
}

fn fields(config: &Config) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut add = |name: &str, problem: String| problems.push((name.to_owned(), problem));
    if config.bootstrap_servers.split(',').all(|server| server.trim().is_empty()) {
        add("bootstrap_servers", "is empty; give at least one host:port".to_owned());
    }
    if !(MIN_PUBLISH_TIMEOUT..=MAX_PUBLISH_TIMEOUT).contains(&config.publish_timeout) {
        let range = format!("must be between {MIN_PUBLISH_TIMEOUT:?} and {MAX_PUBLISH_TIMEOUT:?}");
        add("publish_timeout", range);
    }
    if !RECORD_BYTES.contains(&config.max_record_bytes) {
        let range = format!("must be between {} and {}", RECORD_BYTES.start(), RECORD_BYTES.end());
        add("max_record_bytes", range);
    }
    let refresh = Duration::from_secs(1)..=Duration::from_secs(3600);
    if !refresh.contains(&config.metadata_refresh) {
        let range = format!("must be between {:?} and {:?}", refresh.start(), refresh.end());
        add("metadata_refresh", range);
    }
    problems
}

/// Whether OAUTHBEARER is asked for without saying where tokens come from.
fn tokens(config: &Config) -> Option<(String, String)> {
    let option = |name: &str| config.options.get(name).map(String::as_str);
    let mechanism = option("sasl.mechanism").or(option("sasl.mechanisms"))?;
    let oidc =
        option("sasl.oauthbearer.method").is_some_and(|method| method.eq_ignore_ascii_case("oidc"));
    let unsecured = option("enable.sasl.oauthbearer.unsecure.jwt") == Some("true");
    if !mechanism.eq_ignore_ascii_case("OAUTHBEARER") || oidc || unsecured {
        return None;
    }
    let text = "OAUTHBEARER needs sasl.oauthbearer.method = \"oidc\" and its options, or, for \
                development, enable.sasl.oauthbearer.unsecure.jwt = \"true\"";
    Some(("sasl.mechanism".to_owned(), text.to_owned()))
}

/// What librdkafka finds only when it sees all options together.
fn together(config: &Config) -> Option<(String, String)> {
    let mut client = client(config, Kind::Pipelined);
    let native = match client.create_native_config() {
        Ok(native) => native,
        Err(error) => {
            return Some(("options".to_owned(), redact(&config.options, &describe(&error))));
        }
    };
    let number = |name: &str| native.get(name).ok().and_then(|value| value.parse::<f64>().ok());
    let limit = number("queue.buffering.max.kbytes").unwrap_or(f64::MAX) * 1024.0;
    #[expect(clippy::cast_precision_loss, reason = "only compared, far below 2^52")]
    if limit < config.max_record_bytes as f64 {
        let text = "is less than max_record_bytes: the largest records would never fit";
        return Some(("queue.buffering.max.kbytes".to_owned(), text.to_owned()));
    }
    let linger = number("queue.buffering.max.ms").unwrap_or_default();
    if linger > config.publish_timeout.as_secs_f64() * 250.0 {
        let text = "must be below a quarter of publish_timeout";
        return Some(("linger.ms".to_owned(), text.to_owned()));
    }
    // A client without servers connects to nothing. OIDC would fetch a token all the same, and a
    // mock cluster would listen.
    client.remove("bootstrap.servers");
    client.remove("test.mock.num.brokers");
    client.set_log_level(RDKafkaLogLevel::Emerg);
    if config.options.contains_key("sasl.oauthbearer.method") {
        return None;
    }
    let context = Context::probing("check".into(), &client);
    let made: Result<BaseProducer<Context>, _> =
        BaseProducer::from_config_and_context(&client, context);
    let error = made.err()?;
    Some(("options".to_owned(), redact(&config.options, &describe(&error))))
}

/// librdkafka's own words, without the value that rdkafka adds to them.
pub(super) fn describe(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, text, _, _) | KafkaError::ClientCreation(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> Config {
        let pairs = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config {
            bootstrap_servers: "localhost:9".into(),
            options: pairs.collect(),
            ..Config::default()
        }
    }

    fn names(config: &Config) -> Vec<String> {
        validate(config).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(validate(&with(&[])), Vec::new());
    }

    #[test]
    fn what_a_promise_rests_on_is_refused() {
        for (name, value) in [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("enable.gapless.guarantee", "false"),
            ("max.in.flight", "6"),
            ("max.in.flight.requests.per.connection", "1000"),
            ("message.timeout.ms", "1000"),
            ("delivery.timeout.ms", "1000"),
            ("retries", "3"),
            ("transactional.id", "x"),
            ("bootstrap.servers", "x:1"),
            ("metadata.broker.list", "x:1"),
            ("message.max.bytes", "1000"),
            ("partitioner", "consistent"),
            ("dr_msg_cb", "x"),
            ("delivery.report.only.error", "true"),
        ] {
            assert_eq!(names(&with(&[(name, value)])), [name], "{name}");
        }
    }

    #[test]
    fn saying_what_holds_anyway_is_allowed() {
        let options = [
            ("acks", "-1"),
            ("enable.idempotence", "true"),
            ("max.in.flight", "1"),
            ("linger.ms", "5"),
        ];
        assert_eq!(validate(&with(&options)), Vec::new());
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let mut config = with(&[("no.such.option", "1"), ("linger.ms", "soon"), ("acks", "0")]);
        config.publish_timeout = Duration::from_millis(1);
        config.bootstrap_servers = " , ".into();
        assert_eq!(
            names(&config),
            ["bootstrap_servers", "publish_timeout", "acks", "linger.ms", "no.such.option"]
        );
    }

    #[test]
    fn options_that_contradict_each_other_are_found() {
        assert_eq!(names(&with(&[("queue.buffering.max.kbytes", "1")])).len(), 1);
        assert_eq!(names(&with(&[("linger.ms", "9000")])), ["linger.ms"]);
        let conflict = [("reconnect.backoff.ms", "5000"), ("reconnect.backoff.max.ms", "1000")];
        assert_eq!(names(&with(&conflict)), ["options"]);
        assert_eq!(names(&with(&[("sasl.mechanism", "OAUTHBEARER")])), ["sasl.mechanism"]);
    }

    #[test]
    fn security_features_are_compiled_in() {
        for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let options = [
                ("security.protocol", "sasl_ssl"),
                ("sasl.mechanism", mechanism),
                ("sasl.username", "u"),
                ("sasl.password", "p"),
            ];
            assert_eq!(validate(&with(&options)), Vec::new(), "{mechanism}");
        }
        let native = ClientConfig::new().create_native_config().unwrap();
        let features = native.get("builtin.features").unwrap();
        for feature in [
            "ssl",
            "sasl_plain",
            "sasl_scram",
            "sasl_oauthbearer",
            "oidc",
            "gzip",
            "snappy",
            "lz4",
            "zstd",
        ] {
            assert!(
                features.split(',').any(|have| have.trim() == feature),
                "{feature}: {features}"
            );
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        let config = with(&[
            ("sasl.password", "hunter2"),
            ("ssl.key.password", "hunter3"),
            ("sasl.oauthbearer.client.secret", "hunter4"),
            ("linger.ms", "7"),
        ]);
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter"), "{shown}");
        assert!(shown.contains("linger.ms") && shown.contains('7'), "{shown}");
        assert_eq!(redact(&config.options, "bad value hunter2"), "bad value …");
    }
}
