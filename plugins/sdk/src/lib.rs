//! What a Haulier plugin is written with: implement [`Plugin`], [`export!`] it, done.
//!
//! ```
//! use haulier_sdk::{Delivery, Event, Manifest, Needs, Plugin, Settings, Verdict, reject};
//! use serde::Deserialize;
//!
//! /// The settings are the plugin: `[plugins.routing.settings] topic_prefix = "shop"`.
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Routing {
//!     topic_prefix: String,
//! }
//!
//! impl Plugin for Routing {
//!     fn manifest() -> Manifest {
//!         Manifest::new("routing", env!("CARGO_PKG_VERSION")).event_types(["order.*"])
//!     }
//!
//!     fn new(settings: Settings) -> Result<Self, String> {
//!         settings.parse()
//!     }
//!
//!     fn transform(&self, event: &Event) -> Verdict {
//!         if event.aggregate_id.is_empty() {
//!             return Err(reject("expected an aggregate id, found none"));
//!         }
//!         let topic = format!("{}.{}", self.topic_prefix, event.event_type);
//!         Ok(Delivery::to(topic).key(event.aggregate_id.as_str()).into())
//!     }
//! }
//!
//! haulier_sdk::export!(Routing);
//! ```
//!
//! Build it for `wasm32-wasip2` as a `cdylib`; the file that cargo leaves is the component. The same
//! code runs natively in unit tests, without a host: make an event with [`Event::new`] and call
//! `transform`. A plugin has no network, no files and no clock; [`Plugin`] says what it must not do.
//!
//! The limits named in this documentation are the defaults; the operator may change them per plugin.
//! This crate never does I/O and keeps nothing but the plugin that was made from the settings.

#[doc(hidden)]
pub mod bindings;
mod event;
#[doc(hidden)]
pub mod guest;
mod id;
mod json;
pub mod log;
mod manifest;
mod settings;
mod verdict;

#[doc(inline)]
pub use crate::bindings::exports::haulier::relay::transformer::{Manifest, Needs};
#[doc(inline)]
pub use crate::bindings::haulier::relay::types::{
    Delivery, Event, Failure, Header, Outcome, RecordKey, RecordPayload,
};
pub use crate::id::Id;
pub use crate::json::json;
pub use crate::settings::{NoSettings, Settings};
pub use crate::verdict::{Verdict, reject, retry};

/// What a plugin provides.
///
/// An instance lives for one batch or for many, as the host sees fit, and there may be several at
/// once. So an answer may depend on the event and the settings only: not on other events, on earlier
/// calls, on the time or on chance. The host gives the same event again after a crash, to find out
/// which event of a batch made the plugin panic, or for a dry run, and expects the same answer.
pub trait Plugin: Sized {
    /// Who the plugin is and what it reads of an event. Asked once when the file is loaded, before
    /// there are settings; may take 1 s.
    fn manifest() -> Manifest;

    /// Makes the plugin from the operator's settings; called once per instance, may take 1 s.
    /// [`Settings::parse`] is all that most need.
    ///
    /// # Errors
    /// What is wrong with the settings, naming the setting. The text is shown when the host starts,
    /// and the plugin is not used.
    fn new(settings: Settings) -> Result<Self, String>;

    /// Decides one event. May take 10 ms.
    ///
    /// # Errors
    /// [`reject`] for an event that is wrong and will stay wrong, [`retry`] for one that may work
    /// later; either uses up an attempt. A panic is a bug: the host finds the event that did it and
    /// keeps the panic's text, but it costs a new instance. Never panic on purpose.
    fn transform(&self, event: &Event) -> Verdict;
}
