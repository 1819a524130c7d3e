//! Asking routes and plugins what is to be published for each event of a batch.
//!
//! Called by the batch worker. One call per plugin and batch; what goes wrong is the verdict of the
//! event it went wrong on.

use std::collections::BTreeMap;

use crate::event::{Delivery, Event, LaneName, Outcome};
use crate::failure::{Cause, Failure};
use crate::routing::{Route, Routes};
use crate::transform::Plugins;

use super::plan::Judged;

/// Who decides on an event.
enum Judge {
    Plugin(String),
    /// The route, or the row itself.
    Row,
    Nobody(Failure),
}

/// One verdict per event, in order.
pub(super) async fn judge<'a>(
    lane: &LaneName,
    events: &[Event],
    routes: &'a Routes,
    plugins: &dyn Plugins,
) -> Vec<Judged<'a>> {
    let mut judged: Vec<Judged<'a>> = Vec::with_capacity(events.len());
    let mut by_plugin: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        let route = routes.find(&event.event_type).map(|(_, route)| route);
        let verdict = match who(event, route, plugins) {
            Judge::Plugin(name) => {
                by_plugin.entry(name).or_default().push(index);
                // Replaced below; stands only if a plugin broke the contract.
                Err(Failure::new(Cause::PluginUnavailable, "the plugin gave no verdict"))
            }
            Judge::Row => Ok(Outcome::Deliver(vec![Delivery::default()])),
            Judge::Nobody(failure) => Err(failure),
        };
        judged.push(Judged { verdict, route });
    }
    for (name, indices) in by_plugin {
        match plugins.find(&name) {
            Ok(plugin) => {
                let asked: Vec<&Event> = indices.iter().map(|index| &events[*index]).collect();
                let transformed = plugin.transform(lane, &asked).await;
                for (index, verdict) in indices.into_iter().zip(transformed.verdicts) {
                    judged[index].verdict = verdict;
                }
            }
            Err(reason) => {
                for index in indices {
                    judged[index].verdict = Err(Failure::new(Cause::PluginUnavailable, &reason));
                }
            }
        }
    }
    judged
}

fn who(event: &Event, route: Option<&Route>, plugins: &dyn Plugins) -> Judge {
    if let Some(defect) = &event.defect {
        return Judge::Nobody(Failure::new(Cause::RowUnreadable, defect));
    }
    if let Some(route) = route {
        return route.plugin.clone().map_or(Judge::Row, Judge::Plugin);
    }
    let mut wanting = plugins.wanting(&event.event_type);
    let event_type = &event.event_type;
    match (wanting.len(), &event.topic) {
        (1, _) => Judge::Plugin(wanting.remove(0)),
        (0, Some(_)) => Judge::Row,
        (0, None) => Judge::Nobody(Failure::new(
            Cause::RouteMissing,
            format!(
                "no route, no plugin and no topic for event type '{event_type}': add a [[routes]] entry"
            ),
        )),
        _ => Judge::Nobody(Failure::new(
            Cause::RouteMissing,
            format!(
                "plugins {} all want event type '{event_type}': add a [[routes]] entry that names one",
                wanting.join(", ")
            ),
        )),
    }
}
