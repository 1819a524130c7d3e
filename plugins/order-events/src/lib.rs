//! The example plugin: it decides where the events of an order service go.
//!
//! Read it as the pattern for your own. This file is the whole of what a plugin has to provide (a
//! type and three functions); what it decides is in `decide.rs`, as plain functions with unit tests
//! that run natively (`cargo test --target <your machine's target>`). The host calls it, event by
//! event. It never does I/O, and keeps nothing between two events but its settings.
//!
//! | event type         | what happens                                                             |
//! |--------------------|--------------------------------------------------------------------------|
//! | `order.created`    | to `orders`, key from the payload's `customer_id`, payload unchanged     |
//! | `order.paid`       | two records: `orders` as above, and a small invoice to `billing`         |
//! | `order.cancelled`  | to `orders`, payload rewritten to order id and reason                    |
//! | `order.snapshot`   | to the compacted topic `order-snapshots`, key and payload as they are    |
//! | `order.deleted`    | a tombstone in `order-snapshots`                                         |
//! | `order.internal.*` | dropped: nobody outside the order service may see it                     |
//! | anything else      | rejected, and so is a payload that is not what the table above expects   |

mod decide;
mod payload;
mod settings;

use haulier_sdk::{Event, Manifest, Needs, Plugin, Verdict};

use crate::settings::Settings;

/// The plugin: what the settings say is all it keeps.
#[derive(Debug)]
pub struct OrderEvents {
    settings: Settings,
}

impl Plugin for OrderEvents {
    fn manifest() -> Manifest {
        // Headers and attributes are not read here, so the host need not hand them over.
        Manifest::new("order-events", env!("CARGO_PKG_VERSION"))
            .event_types(["order.*"])
            .needs(Needs::PAYLOAD)
    }

    fn new(settings: haulier_sdk::Settings) -> Result<Self, String> {
        Settings::parse(settings.json()).map(|settings| Self { settings })
    }

    fn transform(&self, event: &Event) -> Verdict {
        decide::decide(&self.settings, event)
    }
}

haulier_sdk::export!(OrderEvents);
