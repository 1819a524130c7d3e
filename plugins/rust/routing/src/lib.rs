//! Sends orders to a topic per event type, keyed by customer; test orders are dropped.
//!
//! The host calls it for `order.*`. The payload is read as far as needed and never copied. What it
//! does is what `jobs/routing.jsonl` says, as in every other language.

use haulier_sdk::{Delivery, Event, Id, Manifest, Needs, Plugin, Settings, Verdict, reject};
use haulier_sdk::{Failure, Outcome};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The plugin is its settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// What every topic starts with, before a dot.
    topic_prefix: String,
}

impl Default for Routing {
    fn default() -> Self {
        Self { topic_prefix: "shop".to_owned() }
    }
}

/// The part of the payload that matters. Raw, because the key must have every digit, and because a
/// test order is one whatever else is wrong with it.
#[derive(Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    customer: Option<&'a RawValue>,
    #[serde(borrow)]
    test: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Customer<'a> {
    #[serde(borrow)]
    id: Id<'a>,
}

impl Plugin for Routing {
    fn manifest() -> Manifest {
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .event_types(["order.*"])
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse()
    }

    fn transform(&self, event: &Event) -> Verdict {
        let order = parse(event.payload.as_deref().unwrap_or_default())?;
        if order.test.is_some_and(|test| test.get() == "true") {
            return Ok(Outcome::drop("test order"));
        }
        let customer = order.customer.map_or("", RawValue::get);
        let Customer { id } = serde_json::from_str(customer).map_err(|_| no_customer())?;
        let topic = [self.topic_prefix.as_str(), ".", event.event_type.as_str()].concat();
        Ok(Delivery::to(topic).key(id).into())
    }
}

fn parse(payload: &[u8]) -> Result<Order<'_>, Failure> {
    let not_json = || reject("payload is not JSON");
    let text = str::from_utf8(payload).map_err(|_| not_json())?;
    serde_json::from_str(text).map_err(|_| match serde_json::from_str(text) {
        // JSON, but no object.
        Ok(IgnoredAny) => no_customer(),
        Err(_) => not_json(),
    })
}

fn no_customer() -> Failure {
    reject("payload has no customer.id")
}

haulier_sdk::export!(Routing);

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(payload: &str) -> Verdict {
        Routing::default().transform(&Event::new("order.paid").with_payload(payload))
    }

    #[test]
    fn the_key_has_every_digit() {
        let expected = Delivery::to("shop.order.paid").key("12345678901234567890").into();
        assert_eq!(verdict(r#"{"customer":{"id":12345678901234567890}}"#), Ok(expected));
    }

    #[test]
    fn a_test_order_is_dropped_whatever_else_it_is() {
        assert_eq!(verdict(r#"{"customer":3,"test":true}"#), Ok(Outcome::drop("test order")));
    }

    #[test]
    fn what_is_no_order_is_rejected() {
        for payload in [r#"{"customer":{"id":null}}"#, r#"{"customer":"c"}"#, "{}", "3"] {
            assert_eq!(verdict(payload), Err(reject("payload has no customer.id")), "{payload}");
        }
        for payload in ["{} x", "3 x", ""] {
            assert_eq!(verdict(payload), Err(reject("payload is not JSON")), "{payload}");
        }
    }

    #[test]
    fn an_unknown_setting_is_refused_by_name() {
        let text = Routing::new(Settings::from(r#"{"prefix":"x"}"#)).expect_err("unknown");
        assert!(text.contains("`prefix`"), "{text}");
    }
}
