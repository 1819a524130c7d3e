//! The bench's guest for a usual job: parse the payload into a typed struct, take the key from it.
//!
//! `make bench` measures it beside the same lines of native Rust. Never use it for anything else.

use haulier_sdk::{
    Delivery, Event, Manifest, Needs, NoSettings, Plugin, Settings, Verdict, reject,
};
use serde::Deserialize;

struct Parse;

/// The fields of the bench's events that are looked at; the others are passed over.
#[derive(Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    customer: Customer<'a>,
    total_cents: u64,
}

#[derive(Deserialize)]
struct Customer<'a> {
    id: &'a str,
}

impl Plugin for Parse {
    fn manifest() -> Manifest {
        Manifest::new("bench-parse", env!("CARGO_PKG_VERSION"))
            .event_types(["bench.*"])
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse::<NoSettings>().map(|_| Self)
    }

    fn transform(&self, event: &Event) -> Verdict {
        let payload = event.payload.as_deref().unwrap_or_default();
        let order: Order<'_> =
            serde_json::from_slice(payload).map_err(|error| reject(error.to_string()))?;
        let topic = if order.total_cents > 100_000 { "orders.large" } else { "orders" };
        Ok(Delivery::to(topic).key(order.customer.id).into())
    }
}

haulier_sdk::export!(Parse);
