//! The contract between the relay and whatever decides what is published for an event.
//!
//! The plugin host implements it; the relay calls it once per plugin and batch. An implementation
//! never touches the database or the broker, and never fails a batch for one event.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{Event, LaneName, Outcome};
use crate::failure::{Failure, PluginStamp};

/// One verdict per event, in the order of the events, and the plugin version that gave them.
#[derive(Debug)]
pub struct Transformed {
    /// Exactly as many entries as there were events.
    pub verdicts: Vec<Result<Outcome, Failure>>,
    /// Who decided.
    pub stamp: PluginStamp,
}

/// One plugin, ready to be called. The version behind it may change between two batches.
#[async_trait]
pub trait Transform: Send + Sync {
    /// Decides every event of the batch. Events arrive in id order per ordering key.
    ///
    /// Never fails as a whole: what goes wrong is the verdict of the event it went wrong on.
    async fn transform(&self, lane: &LaneName, events: &[&Event]) -> Transformed;
}

/// How a plugin name is found, and which plugin wants an event type that no route names.
pub trait Plugins: Send + Sync {
    /// The plugin of that name.
    ///
    /// # Errors
    /// A text that says why there is none at present: not in the folder, or refused and why.
    fn find(&self, name: &str) -> Result<Arc<dyn Transform>, String>;

    /// The names of the plugins whose manifest wants `event_type`, sorted: the loaded ones, and those
    /// that were refused after they had said what they want.
    fn wanting(&self, event_type: &str) -> Vec<String>;

    /// The plugins in use, by name.
    fn stamps(&self) -> Vec<PluginStamp>;

    /// Everything that keeps a plugin from running, one line each, for readiness and logs.
    fn troubles(&self) -> Vec<String>;
}
