//! What would be published for some events under the rules of the moment, without publishing it.
//!
//! The command `haulier plan` uses it on rows that wait. Pure but for the plugins it asks; nothing is
//! counted, held or condemned.

use crate::event::{Event, LaneName, Outcome, Record};
use crate::failure::Failure;
use crate::routing;

use super::rules::Rules;
use super::verdict;

/// What would become of one event.
#[derive(Debug, Clone, PartialEq)]
pub enum Preview {
    /// These records would be published.
    Publish(Vec<Record>),
    /// Nothing would be, on purpose.
    Drop(String),
    /// It would fail.
    Fail(Failure),
}

/// One preview per event, in order, each with the place of the route that matched and the plugin version
/// that decided.
pub async fn preview(
    lane: &LaneName,
    events: &[Event],
    rules: &Rules,
) -> Vec<(Option<String>, Option<String>, Preview)> {
    let judged = verdict::judge(lane, events, rules, None).await;
    let pairs = events.iter().zip(judged);
    pairs
        .map(|(event, judged)| {
            let route = judged.route.map(|route| route.place.clone());
            let plugin =
                judged.stamp.as_ref().map(|stamp| String::from_utf8_lossy(stamp).into_owned());
            let preview = match judged.verdict {
                Ok(Outcome::Drop(reason)) => Preview::Drop(reason),
                Err(failure) => Preview::Fail(failure),
                Ok(Outcome::Deliver(deliveries)) => {
                    let records = deliveries.into_iter().map(|delivery| {
                        let stamp = judged.stamp.as_ref();
                        routing::complete(delivery, judged.route, stamp, event, lane)
                    });
                    match records.collect() {
                        Ok(records) => Preview::Publish(records),
                        Err(failure) => Preview::Fail(failure),
                    }
                }
            };
            (route, plugin, preview)
        })
        .collect()
}
