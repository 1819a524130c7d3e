//! The bench's guest for the boundary alone: a topic by event type, the payload not even handed over.
//!
//! `make bench` measures it. Never use it for anything else.

use haulier_sdk::{Delivery, Event, Manifest, NoSettings, Plugin, Settings, Verdict};

struct Route;

impl Plugin for Route {
    fn manifest() -> Manifest {
        Manifest::new("bench-route", env!("CARGO_PKG_VERSION")).event_types(["bench.*"])
    }

    fn new(settings: Settings) -> Result<Self, String> {
        settings.parse::<NoSettings>().map(|_| Self)
    }

    fn transform(&self, event: &Event) -> Verdict {
        Ok(Delivery::to(["out.", event.event_type.as_str()].concat()).into())
    }
}

haulier_sdk::export!(Route);
