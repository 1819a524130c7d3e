//! Samples: events with the outcome that a plugin should give, one JSON object per line.
//!
//! `haulier plugin test` reads them from a file, `haulier plugin build` puts them into the component,
//! and the host runs those that a component ships before it uses it. Pure.
//!
//! ```json
//! {"event_type": "order.paid", "aggregate_id": "o-1", "payload": {"customer": 7},
//!  "expect": {"deliver": {"topic": "orders", "key": "7", "payload_unchanged": true}}}
//! ```
//!
//! An event has `event_type` and, where they matter, `id`, `aggregate_type`, `aggregate_id`, `headers`
//! (pairs of name and text or null), one of `payload` (JSON, handed over as it is written here),
//! `payload_text` and `payload_base64`, `attributes` (those of the contract) and `settings`. `expect` is
//! one of `deliver`, `fan_out`, `drop`, `reject`, `retry` and `fail` (the stable name of a cause, such as
//! `plugin_trap`). Of a delivery only what is named is compared.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use wasmparser::{Parser, Payload};

use super::expect::Expectation;
use crate::event::{Event, EventId, Header, LaneName};

/// The custom section that holds the samples of a component.
const SECTION: &str = "haulier-samples";

/// Most samples that a component may ship: they are run each time it is loaded.
const MOST_SHIPPED: usize = 1000;

/// One sample.
#[derive(Debug)]
pub struct Sample {
    /// Its line, counted from 1.
    pub line: usize,
    /// What the plugin is asked.
    pub(super) event: Event,
    /// The lane it is in.
    pub(super) lane: LaneName,
    /// What the plugin is configured with, as JSON; nothing said is `{}`.
    pub(super) settings: Option<String>,
    /// What it should answer.
    pub(super) expect: Option<Expectation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<serde_json::Value>,
    event_type: String,
    #[serde(default)]
    aggregate_type: String,
    aggregate_id: Option<String>,
    #[serde(default)]
    headers: Vec<(String, Option<String>)>,
    payload: Option<Box<RawValue>>,
    payload_text: Option<String>,
    payload_base64: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    settings: Option<serde_json::Map<String, serde_json::Value>>,
    expect: Option<serde_json::Value>,
}

impl Sample {
    /// Reads samples; empty lines are passed over.
    ///
    /// # Errors
    /// A text that names the first line that is no sample, and why.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        let numbered = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        numbered
            .map(|(number, line)| {
                Self::parse(number, line).map_err(|error| format!("line {number}: {error}"))
            })
            .collect()
    }

    /// What the plugin is asked, in one word.
    pub fn event_type(&self) -> &str {
        &self.event.event_type
    }

    /// The samples inside a component.
    pub(super) fn shipped(component: &[u8]) -> Result<Vec<Self>, String> {
        let mut depth = 0usize;
        let mut samples = Vec::new();
        for payload in Parser::new(0).parse_all(component) {
            match payload.map_err(|error| error.message().to_owned())? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::CustomSection(section) if depth == 0 && section.name() == SECTION => {
                    let text = std::str::from_utf8(section.data())
                        .map_err(|_| "they are not UTF-8".to_owned())?;
                    samples.extend(Self::read(text)?);
                }
                _ => {}
            }
        }
        if samples.len() > MOST_SHIPPED {
            return Err(format!("there are {}, at most {MOST_SHIPPED} are run", samples.len()));
        }
        Ok(samples)
    }

    /// The component with these samples at its end.
    pub fn ship(mut component: Vec<u8>, samples: &str) -> Vec<u8> {
        let mut content = number(SECTION.len());
        content.extend(SECTION.as_bytes());
        content.extend(samples.as_bytes());
        component.push(0);
        component.extend(number(content.len()));
        component.extend(content);
        component
    }

    fn parse(number: usize, text: &str) -> Result<Self, String> {
        let mut line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let id = match line.id.take() {
            None => i64::try_from(number).unwrap_or(i64::MAX),
            Some(serde_json::Value::String(text)) => {
                text.parse().map_err(|_| format!("'id' {text:?} is not a whole number"))?
            }
            Some(value) => {
                value.as_i64().ok_or_else(|| format!("'id' {value} is not a whole number"))?
            }
        };
        let payload = payload(&mut line)?;
        let expect = line.expect.take().map(Expectation::parse).transpose()?;
        let settings = line.settings.take().map(|it| serde_json::Value::Object(it).to_string());
        let mut event = Event {
            id: EventId(id),
            shard: 0,
            aggregate_type: line.aggregate_type,
            aggregate_id: line.aggregate_id,
            event_type: line.event_type,
            partition_key: None,
            topic: None,
            headers: line
                .headers
                .into_iter()
                .map(|(name, value)| Header { name, value: value.map(Bytes::from) })
                .collect(),
            payload,
            attempts: 0,
            created_at_ms: 0,
            waited: Duration::ZERO,
            redelivery: None,
            holds_key: false,
            defect: None,
        };
        let mut lane = LaneName { source: "samples".into(), lane: "default".into() };
        for (name, value) in line.attributes {
            attribute(&mut event, &mut lane, &name, value)?;
        }
        Ok(Self { line: number, event, lane, settings, expect })
    }
}

fn payload(line: &mut Line) -> Result<Option<Bytes>, String> {
    let json = line.payload.take().map(|raw| Bytes::from(raw.get().to_owned()));
    let text = line.payload_text.take().map(Bytes::from);
    let binary = line.payload_base64.take().map(|text| bytes_of(&text)).transpose()?;
    let mut given = [json, text, binary].into_iter().flatten();
    let payload = given.next();
    match given.next() {
        Some(_) => Err("has more than one of payload, payload_text, payload_base64".to_owned()),
        None => Ok(payload),
    }
}

/// Bytes from base64.
pub(super) fn bytes_of(text: &str) -> Result<Bytes, String> {
    STANDARD
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| format!("{text:?} is not base64: {error}"))
}

/// Sets what the plugin sees as an attribute.
fn attribute(
    event: &mut Event,
    lane: &mut LaneName,
    name: &str,
    value: String,
) -> Result<(), String> {
    let whole = || format!("attribute {name} must be a whole number, not {value:?}");
    match name {
        "attempt" => {
            let attempt: u32 = value.parse().map_err(|_| whole())?;
            event.attempts = attempt.saturating_sub(1);
        }
        "created-at-ms" => event.created_at_ms = value.parse().map_err(|_| whole())?,
        "source" => lane.source = value.into(),
        "lane" => lane.lane = value.into(),
        "topic" => event.topic = Some(value),
        "partition-key" => event.partition_key = Some(value),
        _ => return Err(format!("attribute {name:?} is none of the contract's")),
    }
    Ok(())
}

/// A number as LEB128, which is how WebAssembly writes lengths.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_event() {
        let text = r#"
{"event_type":"a","payload":{"b" : 12345678901234567890},"attributes":{"attempt":"3","topic":"t"}}

{"id":"-7","event_type":"a","headers":[["h",null],["h","x"]],"payload_base64":"AAH/"}"#;
        let samples = Sample::read(text).expect("samples");
        let [first, second] = &samples[..] else { panic!("{samples:?}") };
        assert_eq!((first.line, first.event.id, second.event.id), (2, EventId(2), EventId(-7)));
        assert_eq!(first.event.payload.as_deref(), Some(&br#"{"b" : 12345678901234567890}"#[..]));
        assert_eq!((first.event.attempts, first.event.topic.as_deref()), (2, Some("t")));
        assert_eq!(second.event.payload.as_deref(), Some(&[0, 1, 255][..]));
        assert_eq!(second.event.headers[0].value, None);
    }

    #[test]
    fn what_is_no_sample_is_named() {
        for (line, expected) in [
            ("x", "line 1: expected value"),
            ("{}", "missing field `event_type`"),
            (r#"{"event_type":"a","playload":1}"#, "unknown field `playload`"),
            (r#"{"event_type":"a","payload":1,"payload_text":"1"}"#, "more than one of payload"),
            (r#"{"event_type":"a","payload_base64":"!"}"#, "not base64"),
            (r#"{"event_type":"a","id":1.5}"#, "not a whole number"),
            (r#"{"event_type":"a","attributes":{"x":"1"}}"#, "none of the contract's"),
            (r#"{"event_type":"a","expect":{"send":{}}}"#, "'send'"),
        ] {
            let error = Sample::read(line).expect_err(line);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_component_carries_its_samples() {
        let empty = b"\0asm\x0d\0\x01\0".to_vec();
        assert_eq!(Sample::shipped(&empty).expect("none").len(), 0);
        let line = format!("{{\"event_type\":\"{}\"}}\n", "x".repeat(300));
        let with = Sample::ship(empty, &line);
        assert_eq!(Sample::shipped(&with).expect("one")[0].event_type().len(), 300);
        let broken = Sample::ship(with, "nonsense");
        assert!(Sample::shipped(&broken).expect_err("refused").contains("line 1"));
    }
}
