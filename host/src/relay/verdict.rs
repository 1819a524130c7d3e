//! Asking routes and plugins what is to be published for each event of a batch.
//!
//! Called by the batch worker, and by the preview of pending rows. One call per plugin version and batch;
//! what goes wrong is the verdict of the event it went wrong on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::event::{Delivery, Event, LaneName, Outcome};
use crate::failure::{Cause, Failure};
use crate::routing::{Candidate, Route, in_share};
use crate::transform::Plugins;

use super::plan::Judged;
use super::rules::Rules;
use super::shadow::{Decided, Shadows};
use super::trial::Trials;

/// Who decides on an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judge {
    /// The plugin of that name.
    Plugin(String),
    /// The route, or the row itself.
    Row,
    /// Nobody; the event fails for this reason.
    Nobody(Failure),
}

/// Which version of a plugin is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Current,
    Candidate,
}

/// What a lane adds to the rules: versions on trial, and candidates that run in the shadow.
pub(super) struct Observers<'a> {
    pub(super) trials: &'a Mutex<Trials>,
    pub(super) shadows: &'a Shadows,
}

/// One verdict per event, in order.
pub(super) async fn judge<'a>(
    lane: &LaneName,
    events: &[Event],
    rules: &'a Rules,
    observers: Option<&Observers<'_>>,
) -> Vec<Judged<'a>> {
    let mut judged: Vec<Judged<'a>> = Vec::with_capacity(events.len());
    let mut asked: BTreeMap<(String, Version), Vec<usize>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        let route = rules.routes.find(&event.event_type).map(|(_, route)| route);
        let verdict = match who(event, route, &*rules.plugins) {
            Judge::Plugin(name) => {
                let version = version(event, route);
                asked.entry((name, version)).or_default().push(index);
                // Replaced below; stands only if a plugin broke the contract.
                Err(Failure::new(Cause::PluginUnavailable, "the plugin gave no verdict"))
            }
            Judge::Row => Ok(Outcome::Deliver(vec![Delivery::default()])),
            Judge::Nobody(failure) => Err(failure),
        };
        judged.push(Judged { verdict, route, stamp: None });
    }
    for ((name, version), indices) in asked {
        ask(lane, events, rules, &name, version, &indices, &mut judged, observers).await;
        if let Some(observers) = observers {
            shadow(lane, events, rules, &name, &indices, &judged, observers.shadows);
        }
    }
    judged
}

/// Which version decides on this event.
fn version(event: &Event, route: Option<&Route>) -> Version {
    match route.and_then(|route| route.candidate) {
        Some(Candidate::Share(share)) if in_share(event, share) => Version::Candidate,
        _ => Version::Current,
    }
}

#[expect(clippy::too_many_arguments, reason = "a batch's parts; the one caller is above")]
async fn ask(
    lane: &LaneName,
    events: &[Event],
    rules: &Rules,
    name: &str,
    version: Version,
    indices: &[usize],
    judged: &mut [Judged<'_>],
    observers: Option<&Observers<'_>>,
) {
    // Without a candidate its share is decided by the version that decides the others.
    let candidate = match version {
        Version::Candidate => rules.plugins.candidate(name),
        Version::Current => None,
    };
    let plugin = match candidate.map_or_else(|| rules.plugins.find(name), Ok) {
        Ok(plugin) => plugin,
        Err(reason) => {
            for index in indices {
                judged[*index].verdict = Err(Failure::new(Cause::PluginUnavailable, &reason));
            }
            return;
        }
    };
    let asked: Vec<&Event> = indices.iter().map(|index| &events[*index]).collect();
    let mut done = plugin.transform(lane, &asked).await;
    if let Some(observers) = observers {
        let mut trials = observers.trials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = trials.judge(lane, &asked, &mut done) {
            rules.plugins.condemn(&done.stamp, &why);
        }
    }
    let stamp = Bytes::from(done.stamp.to_string());
    for (index, verdict) in indices.iter().zip(done.verdicts) {
        judged[*index].verdict = verdict;
        judged[*index].stamp = Some(stamp.clone());
    }
}

/// Lets the candidate decide too, where the route says so.
fn shadow(
    lane: &LaneName,
    events: &[Event],
    rules: &Rules,
    name: &str,
    indices: &[usize],
    judged: &[Judged<'_>],
    shadows: &Shadows,
) {
    let in_shadow = |index: &&usize| {
        let route = judged[**index].route;
        route.is_some_and(|route| route.candidate == Some(Candidate::Shadow))
    };
    let indices: Vec<usize> = indices.iter().filter(in_shadow).copied().collect();
    if indices.is_empty() {
        return;
    }
    let Some(candidate) = rules.plugins.candidate(name) else { return };
    if !shadows.has_room(name, indices.len()) {
        return;
    }
    let decided = Decided {
        plugin: name.to_owned(),
        events: indices.iter().map(|index| events[*index].clone()).collect(),
        verdicts: indices.iter().map(|index| judged[*index].verdict.clone()).collect(),
    };
    shadows.compare(lane, candidate, decided);
}

fn who(event: &Event, route: Option<&Route>, plugins: &dyn Plugins) -> Judge {
    match &event.defect {
        Some(defect) => Judge::Nobody(Failure::new(Cause::RowUnreadable, defect)),
        None => decider(&event.event_type, event.topic.as_deref(), route, plugins),
    }
}

/// Who decides on events of that type. `topic` is the row's own, if it has one.
pub fn decider(
    event_type: &str,
    topic: Option<&str>,
    route: Option<&Route>,
    plugins: &dyn Plugins,
) -> Judge {
    let missing = |text| Judge::Nobody(Failure::new(Cause::RouteMissing, text));
    if let Some(route) = route {
        if let Some(why) = &route.blocked {
            return missing(why.clone());
        }
        return route.plugin.clone().map_or(Judge::Row, Judge::Plugin);
    }
    let mut wanting = plugins.wanting(event_type);
    match (wanting.len(), topic) {
        (1, _) => Judge::Plugin(wanting.remove(0)),
        (0, Some(_)) => Judge::Row,
        (0, None) => missing(format!(
            "no route, no plugin and no topic for event type '{event_type}': add a [[routes]] entry"
        )),
        _ => missing(format!(
            "plugins {} all want event type '{event_type}': add a [[routes]] entry that names one",
            wanting.join(", ")
        )),
    }
}
