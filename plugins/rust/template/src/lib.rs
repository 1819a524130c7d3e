//! {{name}}: sends each order event to a topic named after its type, keyed by customer.
//!
//! Haulier calls `transform` for every event that is routed here. It never does I/O and keeps nothing
//! between two events but its settings: the same event must get the same answer again.

use haulier_sdk::{Delivery, Event, Id, Manifest, Needs, Outcome, Plugin, Settings, Verdict};
use serde::Deserialize;

/// The plugin is its settings: `[plugins."{{name}}".settings]` in the configuration. A setting that is
/// not named here is refused when the host starts.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transformer {
    /// Put before every topic name, such as `staging.`; empty by default.
    topic_prefix: String,
}

/// The fields of the payload that matter here. All others are skipped, which is cheap.
#[derive(Deserialize)]
struct Order<'a> {
    /// Written as text or as a number; either becomes the key as it is written.
    #[serde(borrow)]
    customer_id: Id<'a>,
}

impl Plugin for Transformer {
    fn manifest() -> Manifest {
        Manifest::new("{{name}}", env!("CARGO_PKG_VERSION"))
            // What is handled when no route names a plugin.
            .event_types(["order.*"])
            // Parts cost time to hand over. There are also HEADERS and ATTRIBUTES.
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse()
    }

    fn transform(&self, event: &Event) -> Verdict {
        if event.event_type.starts_with("order.internal.") {
            return Ok(Outcome::drop("internal to the order service"));
        }
        // A payload that does not fit is rejected, with a text that says where.
        let order: Order = event.json()?;
        let topic = format!("{}{}", self.topic_prefix, event.event_type);
        // What is not said stays as it is in the row: the payload is not copied.
        Ok(Delivery::to(topic).key(order.customer_id).into())
    }
}

haulier_sdk::export!(Transformer);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_keyed_by_customer() {
        let event = Event::new("order.created").with_payload(r#"{"customer_id":"c-7"}"#);
        let expected = Delivery::to("order.created").key("c-7").into();
        assert_eq!(Transformer::default().transform(&event), Ok(expected));
    }
}
