//! Wraps every event as a CloudEvent 1.0 in structured JSON mode.
//!
//! No event type leads to it by itself; routes do. A payload that is JSON is taken over byte for byte
//! as `data`, any other as `data_base64`. What it does is what `jobs/cloudevents.jsonl` says, as in
//! every other language.

mod base64;
mod time;

use haulier_sdk::{Delivery, Event, Header, Manifest, Needs, Plugin, Settings, Verdict, reject};
use serde::Deserialize;
use serde::de::IgnoredAny;

const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// The plugin is its settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CloudEvents {
    /// What every `source` starts with, before a slash and the aggregate type.
    source: String,
}

impl Default for CloudEvents {
    fn default() -> Self {
        Self { source: "/haulier".to_owned() }
    }
}

impl Plugin for CloudEvents {
    fn manifest() -> Manifest {
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .needs(Needs::PAYLOAD | Needs::HEADERS | Needs::ATTRIBUTES)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse()
    }

    fn transform(&self, event: &Event) -> Verdict {
        // The row's own content type is that of the payload, which is no longer what is sent.
        let kept = |header: &&Header| !header.0.eq_ignore_ascii_case("content-type");
        let mut delivery = Delivery::unchanged().payload(self.wrapped(event)?);
        delivery.headers = Some(event.headers.iter().filter(kept).cloned().collect());
        Ok(delivery.header("content-type", CONTENT_TYPE).into())
    }
}

impl CloudEvents {
    fn wrapped(&self, event: &Event) -> Result<String, haulier_sdk::Failure> {
        let payload = event.payload.as_deref();
        // The rest is short; base64 makes four of three.
        let mut out = String::with_capacity(512 + payload.map_or(0, |bytes| bytes.len() * 4 / 3));
        out.push_str(r#"{"specversion":"1.0""#);
        let mut field = |name: &str, value: &str| {
            let value = serde_json::to_string(value)
                .map_err(|error| reject(format!("{name} cannot be written: {error}")))?;
            for part in [",\"", name, "\":", value.as_str()] {
                out.push_str(part);
            }
            Ok(())
        };
        field("id", &event.id)?;
        field("source", &[self.source.as_str(), "/", event.aggregate_type.as_str()].concat())?;
        field("type", &event.event_type)?;
        if !event.aggregate_id.is_empty() {
            field("subject", &event.aggregate_id)?;
        }
        let created = event.attribute("created-at-ms").and_then(|ms| ms.parse().ok());
        if let Some(time) = created.and_then(time::rfc3339) {
            field("time", &time)?;
        }
        match payload.map(|bytes| (bytes, json(bytes))) {
            None => {}
            Some((_, Some(text))) => {
                field("datacontenttype", "application/json")?;
                out.push_str(r#","data":"#);
                out.push_str(text);
            }
            Some((bytes, None)) => {
                field("datacontenttype", "application/octet-stream")?;
                out.push_str(r#","data_base64":""#);
                base64::push(&mut out, bytes);
                out.push('"');
            }
        }
        out.push('}');
        Ok(out)
    }
}

/// The text of these bytes, if they are JSON.
fn json(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok().map(|_| text)
}

haulier_sdk::export!(CloudEvents);

#[cfg(test)]
mod tests {
    use haulier_sdk::{Outcome, RecordPayload};

    use super::*;

    fn wrapped(event: &Event) -> (String, Vec<Header>) {
        let Ok(Outcome::Deliver(delivery)) = CloudEvents::default().transform(event) else {
            panic!("expected a delivery")
        };
        let RecordPayload::Bytes(payload) = delivery.payload else { panic!("expected a payload") };
        (String::from_utf8(payload).expect("JSON"), delivery.headers.expect("headers"))
    }

    #[test]
    fn a_payload_that_is_no_json_is_encoded() {
        let start = r#"{"specversion":"1.0","id":"1","source":"/haulier/","type":"t""#;
        let with = |payload: &[u8]| wrapped(&Event::new("t").with_payload(payload)).0;
        let octets = r#","datacontenttype":"application/octet-stream","data_base64":""#;
        assert_eq!(with(b""), format!("{start}{octets}\"}}"));
        assert_eq!(with(b"\"\xff\""), format!("{start}{octets}Iv8i\"}}"));
        let json = r#","datacontenttype":"application/json","data": 1e999 }"#;
        assert_eq!(with(b" 1e999 "), [start, json].concat());
    }

    #[test]
    fn there_is_one_content_type() {
        let event = Event::new("t").with_header("Content-Type", "text/plain").with_header("a", "1");
        let (_, headers) = wrapped(&event);
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "content-type"]);
    }

    #[test]
    fn an_unknown_setting_is_refused_by_name() {
        let text = CloudEvents::new(Settings::from(r#"{"src":"x"}"#)).expect_err("unknown");
        assert!(text.contains("`src`"), "{text}");
    }
}
