//! The example plugin: it decides where the events of an order service go.
//!
//! Read it as the pattern for your own. This file is the whole of what a plugin has to provide
//! (three functions); what it decides is in `decide.rs`, as plain functions with unit tests that
//! run natively (`cargo test --target <your machine's target>`). The host calls it, once per batch.
//! It never does I/O, and keeps nothing between two batches but its settings.
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

use std::cell::OnceCell;

use crate::exports::haulier::relay::transformer::{Guest, Manifest, Needs};
use crate::haulier::relay::host;
use crate::haulier::relay::types::{Event, Failure, Outcome};
use crate::settings::Settings;

// Everything below `exports` and `haulier` is written by this macro from the WIT files.
wit_bindgen::generate!({ world: "plugin", path: "../../wit" });

thread_local! {
    /// Set by `configure`, which the host calls before the first batch.
    static SETTINGS: OnceCell<Settings> = const { OnceCell::new() };
}

struct OrderEvents;

impl Guest for OrderEvents {
    fn describe() -> Manifest {
        Manifest {
            name: "order-events".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            event_types: vec!["order.*".to_owned()],
            // Headers and attributes are not read here, so the host need not hand them over.
            needs: Needs::PAYLOAD,
        }
    }

    fn configure(settings: String) -> Result<(), String> {
        let parsed = Settings::parse(&settings)?;
        SETTINGS.with(|slot| slot.set(parsed)).map_err(|_| "configured twice".to_owned())
    }

    fn transform(events: Vec<Event>) -> Vec<Result<Outcome, Failure>> {
        SETTINGS.with(|slot| {
            let settings = slot.get_or_init(Settings::default);
            let mut verdicts = Vec::with_capacity(events.len());
            for (index, event) in (0u32..).zip(&events) {
                // Should this event make us panic, the host knows which one it was.
                host::enter(index);
                verdicts.push(decide::decide(settings, event));
            }
            verdicts
        })
    }
}

export!(OrderEvents);
