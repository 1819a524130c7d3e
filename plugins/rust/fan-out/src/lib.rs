//! Publishes an invoice as it is, and each of its lines as a record of its own.
//!
//! The host calls it for `invoice.issued`. Texts and amounts are taken over as they are written; no
//! number is parsed. What it does is what `jobs/fan-out.jsonl` says, as in every other language.

use haulier_sdk::{Delivery, Event, Failure, Id, Manifest, Needs, NoSettings, Plugin, Settings};
use haulier_sdk::{Verdict, reject};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// With the invoice itself that is as many records as the host takes for one event.
const MOST_LINES: usize = 99;

/// The plugin; there is nothing to set.
#[derive(Debug)]
pub struct FanOut;

#[derive(Deserialize)]
struct Invoice<'a> {
    #[serde(borrow)]
    invoice: Option<&'a RawValue>,
    #[serde(borrow)]
    lines: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    sku: Option<&'a RawValue>,
    #[serde(borrow)]
    amount: Option<&'a RawValue>,
}

impl Plugin for FanOut {
    fn manifest() -> Manifest {
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .event_types(["invoice.issued"])
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse::<NoSettings>().map(|_| Self)
    }

    fn transform(&self, event: &Event) -> Verdict {
        let parsed = parse(event.payload.as_deref().unwrap_or_default())?;
        let invoice = parsed.invoice.ok_or_else(|| missing("invoice"))?.get();
        let id: Id<'_> = serde_json::from_str(invoice).map_err(|_| missing("invoice"))?;
        let lines = parsed.lines.ok_or_else(|| missing("lines"))?.get();
        let lines: Vec<&RawValue> = serde_json::from_str(lines).map_err(|_| missing("lines"))?;
        if lines.len() > MOST_LINES {
            let (id, found) = (id.as_str(), lines.len());
            return Err(reject(format!(
                "invoice {id} has {found} lines; at most {MOST_LINES} are carried"
            )));
        }
        let mut deliveries = Vec::with_capacity(1 + lines.len());
        deliveries.push(Delivery::to("invoices"));
        for (number, line) in (1..).zip(lines) {
            let key = format!("{}/{number}", id.as_str());
            let payload = record(invoice, number, line)?;
            deliveries.push(Delivery::to("invoice-lines").key(key).payload(payload));
        }
        Ok(deliveries.into())
    }
}

fn parse(payload: &[u8]) -> Result<Invoice<'_>, Failure> {
    let not_json = || reject("payload is not JSON");
    let text = str::from_utf8(payload).map_err(|_| not_json())?;
    serde_json::from_str(text).map_err(|_| match serde_json::from_str(text) {
        // JSON, but no object.
        Ok(IgnoredAny) => missing("invoice"),
        Err(_) => not_json(),
    })
}

/// The record of one line; `invoice` is JSON, as is all that is taken from the line.
fn record(invoice: &str, number: usize, line: &RawValue) -> Result<String, Failure> {
    let lacks = |name: &str| reject(format!("line {number} has no {name}"));
    let line: Line<'_> = serde_json::from_str(line.get()).map_err(|_| lacks("sku"))?;
    let sku = line.sku.ok_or_else(|| lacks("sku"))?;
    let amount = line.amount.ok_or_else(|| lacks("amount"))?;
    Ok(format!(r#"{{"invoice":{invoice},"line":{number},"sku":{sku},"amount":{amount}}}"#))
}

fn missing(name: &str) -> Failure {
    reject(format!("payload has no {name}"))
}

haulier_sdk::export!(FanOut);

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(payload: &str) -> Verdict {
        FanOut.transform(&Event::new("invoice.issued").with_payload(payload))
    }

    #[test]
    fn a_line_keeps_its_texts() {
        let payload = r#"{"invoice":17,"lines":[{"amount":1.50,"sku":"\u00e9"}]}"#;
        let line = r#"{"invoice":17,"line":1,"sku":"\u00e9","amount":1.50}"#;
        let expected =
            vec![Delivery::to("invoices"), Delivery::to("invoice-lines").key("17/1").payload(line)];
        assert_eq!(verdict(payload), Ok(expected.into()));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (payload, text) in [
            (r#"{"invoice":null,"lines":[]}"#, "payload has no invoice"),
            (r#"{"invoice":"i","lines":{}}"#, "payload has no lines"),
            (
                r#"{"invoice":"i","lines":[{"sku":"a","amount":1},{"amount":1}]}"#,
                "line 2 has no sku",
            ),
            (r#"{"invoice":"i","lines":[{"sku":"a"}]}"#, "line 1 has no amount"),
            ("[]", "payload has no invoice"),
            ("[} ", "payload is not JSON"),
            ("", "payload is not JSON"),
        ] {
            assert_eq!(verdict(payload), Err(reject(text)), "{payload}");
        }
    }

    #[test]
    fn any_setting_is_refused_by_name() {
        let text = FanOut::new(Settings::from(r#"{"topic":"x"}"#)).expect_err("unknown");
        assert!(text.contains("`topic`"), "{text}");
    }
}
