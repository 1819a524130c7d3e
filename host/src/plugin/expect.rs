//! What a sample expects, and verdicts as JSON.
//!
//! `sample.rs` reads an [`Expectation`] with each sample; the self-test and `haulier plugin test` compare
//! it with what the plugin said. What is printed can be used as an expectation. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::convert::Verdict;
use super::sample::bytes_of;
use crate::event::{Delivery, Header, KeyChoice, Outcome, PayloadChoice};
use crate::failure::{Cause, Failure};

/// What a plugin should answer.
#[derive(Debug)]
pub(super) enum Expectation {
    /// Exactly these deliveries; of each, what is named.
    Deliver(Vec<Map<String, Value>>),
    Drop(String),
    /// A failure of that cause, and with that text where one is given.
    Fail(String, Option<String>),
}

/// What can be said of a delivery.
const KEYS: [&str; 12] = [
    "topic",
    "key",
    "key_base64",
    "key_default",
    "payload",
    "payload_text",
    "payload_base64",
    "payload_unchanged",
    "tombstone",
    "headers",
    "partition",
    "timestamp_ms",
];

impl Expectation {
    /// Reads `{"deliver": …}` and its like.
    pub(super) fn parse(value: Value) -> Result<Self, String> {
        let Value::Object(map) = value else {
            return Err("'expect' is not an object".to_owned());
        };
        let mut entries = map.into_iter();
        let (Some((kind, said)), None) = (entries.next(), entries.next()) else {
            return Err("'expect' needs exactly one entry".to_owned());
        };
        let text = |said: Value| match said {
            Value::String(text) => Ok(text),
            _ => Err(format!("'{kind}' needs a text")),
        };
        Ok(match kind.as_str() {
            "deliver" => Self::Deliver(vec![delivery(said)?]),
            "fan_out" => match said {
                Value::Array(list) => {
                    Self::Deliver(list.into_iter().map(delivery).collect::<Result<_, _>>()?)
                }
                _ => return Err("'fan_out' needs a list".to_owned()),
            },
            "drop" => Self::Drop(text(said)?),
            "reject" => Self::Fail(Cause::PluginRejected.code().to_owned(), Some(text(said)?)),
            "retry" => Self::Fail(Cause::PluginRetry.code().to_owned(), Some(text(said)?)),
            "fail" => Self::Fail(text(said)?, None),
            _ => {
                return Err(format!(
                    "'expect' is deliver, fan_out, drop, reject, retry or fail, not '{kind}'"
                ));
            }
        })
    }

    /// Compares.
    ///
    /// # Errors
    /// A text that says what was expected and what was found.
    pub(super) fn check(&self, verdict: &Verdict) -> Result<(), String> {
        let found = || to_json(verdict);
        match (self, verdict) {
            (Self::Deliver(expected), Ok(Outcome::Deliver(deliveries))) => {
                if expected.len() != deliveries.len() {
                    return Err(format!(
                        "expected {} deliveries, found {}: {}",
                        expected.len(),
                        deliveries.len(),
                        found()
                    ));
                }
                let pairs = expected.iter().zip(deliveries).enumerate();
                for (at, (expected, delivery)) in pairs {
                    for (key, wanted) in expected {
                        compare(key, wanted, delivery).map_err(|what| match deliveries.len() {
                            1 => what,
                            _ => format!("delivery {at}: {what}"),
                        })?;
                    }
                }
                Ok(())
            }
            (Self::Drop(expected), Ok(Outcome::Drop(reason))) if expected == reason => Ok(()),
            (Self::Fail(cause, text), Err(failure))
                if cause == failure.cause.code()
                    && text.as_ref().is_none_or(|text| *text == failure.message) =>
            {
                Ok(())
            }
            (Self::Deliver(list), _) => {
                Err(format!("expected {} deliveries, found {}", list.len(), found()))
            }
            (Self::Drop(reason), _) => Err(format!("expected drop {reason:?}, found {}", found())),
            (Self::Fail(cause, text), _) => {
                let text = text.as_ref().map(|text| format!(" {text:?}")).unwrap_or_default();
                Err(format!("expected {cause}{text}, found {}", found()))
            }
        }
    }
}

fn delivery(said: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(map) = said else {
        return Err("a delivery is not an object".to_owned());
    };
    match map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        Some(unknown) => {
            Err(format!("'{unknown}' is nothing of a delivery; there are {}", KEYS.join(", ")))
        }
        None => Ok(map),
    }
}

fn compare(key: &str, wanted: &Value, delivery: &Delivery) -> Result<(), String> {
    let payload = || match &delivery.payload {
        PayloadChoice::Bytes(bytes) => Some(bytes),
        PayloadChoice::Unchanged | PayloadChoice::Tombstone => None,
    };
    let same = match key {
        "topic" => wanted.as_str() == delivery.topic.as_deref(),
        "key" => match (&delivery.key, wanted) {
            (KeyChoice::Null, Value::Null) => true,
            (KeyChoice::Bytes(bytes), Value::String(text)) => bytes == text.as_bytes(),
            _ => false,
        },
        "key_base64" => match &delivery.key {
            KeyChoice::Bytes(bytes) => *bytes == decoded(wanted)?,
            _ => false,
        },
        "key_default" => flag(wanted) == (delivery.key == KeyChoice::Default),
        "payload" => payload().is_some_and(|bytes| {
            serde_json::from_slice::<Value>(bytes).is_ok_and(|found| found == *wanted)
        }),
        "payload_text" => payload()
            .is_some_and(|bytes| wanted.as_str().is_some_and(|text| bytes == text.as_bytes())),
        "payload_base64" => {
            let wanted = decoded(wanted)?;
            payload().is_some_and(|bytes| *bytes == wanted)
        }
        "payload_unchanged" => flag(wanted) == (delivery.payload == PayloadChoice::Unchanged),
        "tombstone" => flag(wanted) == (delivery.payload == PayloadChoice::Tombstone),
        "headers" => delivery.headers.as_deref().map_or(Value::Null, headers_json) == *wanted,
        "partition" => wanted.as_i64() == delivery.partition.map(i64::from),
        _ => wanted.as_i64() == delivery.timestamp_ms,
    };
    if same {
        return Ok(());
    }
    Err(format!("expected {key} {wanted}, found {}", Value::Object(delivery_json(delivery))))
}

fn flag(wanted: &Value) -> bool {
    wanted.as_bool().unwrap_or(true)
}

fn decoded(wanted: &Value) -> Result<Bytes, String> {
    bytes_of(wanted.as_str().unwrap_or_default())
}

/// A verdict in the form of an expectation.
pub(super) fn to_json(verdict: &Verdict) -> Value {
    match verdict {
        Ok(Outcome::Deliver(list)) => match &list[..] {
            [one] => json!({ "deliver": delivery_json(one) }),
            _ => json!({ "fan_out": list.iter().map(delivery_json).collect::<Vec<_>>() }),
        },
        Ok(Outcome::Drop(reason)) => json!({ "drop": reason }),
        Err(Failure { cause: Cause::PluginRejected, message, .. }) => json!({ "reject": message }),
        Err(Failure { cause: Cause::PluginRetry, message, .. }) => json!({ "retry": message }),
        Err(failure) => json!({ "fail": failure.cause.code(), "text": failure.message }),
    }
}

fn delivery_json(delivery: &Delivery) -> Map<String, Value> {
    let mut map = Map::new();
    let mut add = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
    if let Some(topic) = &delivery.topic {
        add("topic", json!(topic));
    }
    match &delivery.key {
        KeyChoice::Default => {}
        KeyChoice::Null => add("key", Value::Null),
        KeyChoice::Bytes(bytes) => match text_or_base64(bytes) {
            Ok(text) => add("key", json!(text)),
            Err(base64) => add("key_base64", json!(base64)),
        },
    }
    match &delivery.payload {
        PayloadChoice::Unchanged => add("payload_unchanged", json!(true)),
        PayloadChoice::Tombstone => add("tombstone", json!(true)),
        PayloadChoice::Bytes(bytes) => match text_or_base64(bytes) {
            Ok(text) => add("payload_text", json!(text)),
            Err(base64) => add("payload_base64", json!(base64)),
        },
    }
    if let Some(headers) = &delivery.headers {
        add("headers", headers_json(headers));
    }
    if let Some(partition) = delivery.partition {
        add("partition", json!(partition));
    }
    if let Some(timestamp) = delivery.timestamp_ms {
        add("timestamp_ms", json!(timestamp));
    }
    map
}

fn headers_json(headers: &[Header]) -> Value {
    let pairs = headers.iter().map(|header| {
        let value = header.value.as_ref().map(|bytes| match text_or_base64(bytes) {
            Ok(text) => json!(text),
            Err(base64) => json!({ "base64": base64 }),
        });
        json!([header.name, value])
    });
    Value::Array(pairs.collect())
}

fn text_or_base64(bytes: &Bytes) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(text: &str) -> Expectation {
        Expectation::parse(serde_json::from_str(text).expect("JSON")).expect("an expectation")
    }

    fn delivered(delivery: Delivery) -> Verdict {
        Ok(Outcome::Deliver(vec![delivery]))
    }

    #[test]
    fn only_what_is_named_is_compared() {
        let verdict = || {
            delivered(Delivery {
                topic: Some("t".to_owned()),
                key: KeyChoice::Bytes(Bytes::from_static(b"k")),
                payload: PayloadChoice::Bytes(Bytes::from_static(b"{\"a\": 1}")),
                headers: Some(vec![Header::text("h", "x")]),
                ..Delivery::default()
            })
        };
        for good in [
            "{}",
            r#"{"topic":"t","key":"k","key_default":false}"#,
            r#"{"payload":{"a":1},"payload_unchanged":false}"#,
            r#"{"payload_text":"{\"a\": 1}","headers":[["h","x"]],"partition":null}"#,
        ] {
            let text = format!("{{\"deliver\":{good}}}");
            assert_eq!(expect(&text).check(&verdict()), Ok(()), "{good}");
        }
        for bad in [
            r#"{"topic":null}"#,
            r#"{"key":null}"#,
            r#"{"payload":{"a":2}}"#,
            r#"{"payload_text":"{\"a\":1}"}"#,
            r#"{"payload_unchanged":true}"#,
            r#"{"tombstone":true}"#,
            r#"{"headers":null}"#,
            r#"{"partition":0}"#,
        ] {
            let text = format!("{{\"deliver\":{bad}}}");
            let error = expect(&text).check(&verdict()).expect_err(bad);
            assert!(error.starts_with("expected "), "{error}");
        }
        assert!(expect(r#"{"fan_out":[]}"#).check(&verdict()).is_err());
        assert!(expect(r#"{"drop":"x"}"#).check(&verdict()).is_err());
    }

    #[test]
    fn what_is_printed_can_be_expected() {
        let failed = |cause| Err(Failure::new(cause, "why"));
        let verdicts = [
            delivered(Delivery::default()),
            delivered(Delivery {
                key: KeyChoice::Null,
                payload: PayloadChoice::Tombstone,
                partition: Some(3),
                timestamp_ms: Some(9),
                ..Delivery::default()
            }),
            delivered(Delivery {
                key: KeyChoice::Bytes(Bytes::from_static(&[255])),
                payload: PayloadChoice::Bytes(Bytes::from_static(&[254])),
                ..Delivery::default()
            }),
            Ok(Outcome::Deliver(vec![])),
            Ok(Outcome::Drop("no".to_owned())),
            failed(Cause::PluginRejected),
            failed(Cause::PluginRetry),
        ];
        for verdict in verdicts {
            let printed = to_json(&verdict);
            let expected = Expectation::parse(printed.clone()).expect("an expectation");
            assert_eq!(expected.check(&verdict), Ok(()), "{printed}");
        }
        assert_eq!(expect(r#"{"fail":"plugin_trap"}"#).check(&failed(Cause::PluginTrap)), Ok(()));
    }
}
