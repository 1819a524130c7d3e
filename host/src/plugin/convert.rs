//! Events into the contract's types, and the guest's answers back into the domain's.
//!
//! `transform.rs` makes [`Input`]s from a batch; `instance.rs` lends them to the guest and turns its
//! answers into verdicts with [`Answers`]. Pure: what a guest says is checked here, not acted upon.

use bytes::Bytes;

use super::bindings::haulier::relay::types as wit;
use super::config::Limits;
use super::manifest::Needs;
use crate::event::{Delivery, Event, Header, KeyChoice, LaneName, Outcome, PayloadChoice};
use crate::failure::{Cause, Failure};

/// A verdict on one event.
pub(super) type Verdict = Result<Outcome, Failure>;

/// What one event looks like to a plugin: only what it needs, and owned, because guests run on
/// threads of their own. The payload is shared with the event, not copied.
#[derive(Debug)]
pub(super) struct Input {
    id: String,
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    headers: Vec<Header>,
    payload: Option<Bytes>,
    attributes: Vec<(&'static str, String)>,
    bytes: usize,
}

impl Input {
    /// The event as a plugin with these needs sees it.
    pub(super) fn new(event: &Event, lane: &LaneName, needs: Needs) -> Self {
        let mut input = Self {
            id: event.id.to_string(),
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone().unwrap_or_default(),
            event_type: event.event_type.clone(),
            headers: if needs.headers { event.headers.clone() } else { Vec::new() },
            payload: if needs.payload { event.payload.clone() } else { None },
            attributes: if needs.attributes { attributes(event, lane) } else { Vec::new() },
            bytes: 0,
        };
        input.bytes = input.count_bytes();
        input
    }

    /// How many bytes the plugin is given.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn count_bytes(&self) -> usize {
        let headers = self.headers.iter().map(header_bytes);
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + value.len());
        self.id.len()
            + self.aggregate_type.len()
            + self.aggregate_id.len()
            + self.event_type.len()
            + self.payload.as_ref().map_or(0, Bytes::len)
            + headers.sum::<usize>()
            + attributes.sum::<usize>()
    }
}

fn header_bytes(header: &Header) -> usize {
    header.name.len() + header.value.as_ref().map_or(0, Bytes::len)
}

/// The facts that the contract promises under `attributes`.
fn attributes(event: &Event, lane: &LaneName) -> Vec<(&'static str, String)> {
    let mut attributes = vec![
        ("attempt", event.attempts.saturating_add(1).to_string()),
        ("created-at-ms", event.created_at_ms.to_string()),
        ("source", lane.source.as_ref().to_owned()),
        ("lane", lane.lane.as_ref().to_owned()),
    ];
    attributes.extend(event.topic.clone().map(|topic| ("topic", topic)));
    attributes.extend(event.partition_key.clone().map(|key| ("partition-key", key)));
    attributes
}

/// Lists of borrowed parts, which must live somewhere while the guest is called.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    inputs: &'a [&'a Input],
    headers: Vec<Vec<wit::HeaderParam<'a>>>,
    attributes: Vec<Vec<(&'a str, &'a str)>>,
}

impl<'a> Loan<'a> {
    /// Prepares the events for being lent.
    pub(super) fn new(inputs: &'a [&'a Input]) -> Self {
        let headers = |input: &&'a Input| {
            input.headers.iter().map(|it| (it.name.as_str(), it.value.as_deref())).collect()
        };
        let attributes = |input: &&'a Input| {
            input.attributes.iter().map(|(name, value)| (*name, value.as_str())).collect()
        };
        Self {
            inputs,
            headers: inputs.iter().map(headers).collect(),
            attributes: inputs.iter().map(attributes).collect(),
        }
    }

    /// The events in the contract's types.
    pub(super) fn events(&self) -> Vec<wit::Event<'_>> {
        let parts = self.headers.iter().zip(&self.attributes);
        self.inputs
            .iter()
            .zip(parts)
            .map(|(input, (headers, attributes))| wit::Event {
                id: &input.id,
                aggregate_type: &input.aggregate_type,
                aggregate_id: &input.aggregate_id,
                event_type: &input.event_type,
                headers,
                payload: input.payload.as_deref(),
                attributes,
            })
            .collect()
    }
}

/// What the guest answered, in the order of the events.
pub(super) type Answers = Vec<Result<wit::Outcome, wit::Failure>>;

/// The verdicts in the guest's answers, each checked against the limits.
///
/// # Errors
/// A text if the answers are more than the batch may return, though no single event is to blame.
pub(super) fn verdicts(
    answers: Answers,
    inputs: &[&Input],
    limits: &Limits,
) -> Result<Vec<Verdict>, String> {
    let mut returned = 0usize;
    let verdicts = answers
        .into_iter()
        .zip(inputs)
        .map(|(answer, input)| {
            let bytes = answer_bytes(&answer);
            let allowed = limits.output(input.bytes());
            if bytes > allowed {
                return Err(output(format!(
                    "returned {bytes} bytes for an event of {} bytes; at most {allowed} are allowed",
                    input.bytes()
                )));
            }
            returned = returned.saturating_add(bytes);
            verdict(answer, limits)
        })
        .collect();
    let given = inputs.iter().map(|input| input.bytes()).sum();
    let allowed = limits.output(given);
    if returned > allowed {
        return Err(format!(
            "returned {returned} bytes for {} events of {given} bytes; at most {allowed} are allowed",
            inputs.len()
        ));
    }
    Ok(verdicts)
}

fn verdict(answer: Result<wit::Outcome, wit::Failure>, limits: &Limits) -> Verdict {
    match answer {
        Ok(wit::Outcome::Deliver(it)) => Ok(Outcome::Deliver(vec![delivery(it)?])),
        Ok(wit::Outcome::FanOut(all)) if all.len() > limits.fan_out => Err(output(format!(
            "returned {} deliveries for one event; at most {} are allowed",
            all.len(),
            limits.fan_out
        ))),
        Ok(wit::Outcome::FanOut(all)) => {
            Ok(Outcome::Deliver(all.into_iter().map(delivery).collect::<Result<_, _>>()?))
        }
        Ok(wit::Outcome::Drop(reason)) => Ok(Outcome::Drop(reason)),
        Err(wit::Failure::Reject(text)) => Err(Failure::new(Cause::PluginRejected, text)),
        Err(wit::Failure::Retry(text)) => Err(Failure::new(Cause::PluginRetry, text)),
    }
}

fn delivery(it: wit::Delivery) -> Result<Delivery, Failure> {
    if it.topic.as_deref() == Some("") {
        return Err(output("returned a delivery with an empty topic name"));
    }
    // Such a topic cannot exist, and such names could speak to terminals.
    if it.topic.as_ref().is_some_and(|topic| topic.contains(char::is_control)) {
        let text = "the plugin returned a topic name with control characters";
        return Err(Failure::new(Cause::TopicIllegal, text));
    }
    let mut names = it.headers.iter().flatten().map(|(name, _)| name);
    if names.any(|name| name.is_empty() || name.contains(char::is_control)) {
        let text = "the plugin returned a header whose name is empty or has control characters";
        return Err(Failure::new(Cause::HeaderInvalid, text));
    }
    if let Some(partition) = it.partition.filter(|partition| *partition < 0) {
        return Err(output(format!("returned a delivery with the partition {partition}")));
    }
    if it.timestamp_ms.is_some_and(|millis| millis < 0) {
        return Err(output("returned a delivery with a timestamp before 1970"));
    }
    Ok(Delivery {
        topic: it.topic,
        key: match it.key {
            wit::RecordKey::Default => KeyChoice::Default,
            wit::RecordKey::Null => KeyChoice::Null,
            wit::RecordKey::Bytes(bytes) => KeyChoice::Bytes(bytes.into()),
        },
        payload: match it.payload {
            wit::RecordPayload::Unchanged => PayloadChoice::Unchanged,
            wit::RecordPayload::Tombstone => PayloadChoice::Tombstone,
            wit::RecordPayload::Bytes(bytes) => PayloadChoice::Bytes(bytes.into()),
        },
        headers: it.headers.map(|headers| {
            let header =
                |(name, value): wit::HeaderResult| Header { name, value: value.map(Bytes::from) };
            headers.into_iter().map(header).collect()
        }),
        partition: it.partition,
        timestamp_ms: it.timestamp_ms,
    })
}

fn output(text: impl AsRef<str>) -> Failure {
    Failure::new(Cause::PluginOutput, text)
}

fn answer_bytes(answer: &Result<wit::Outcome, wit::Failure>) -> usize {
    match answer {
        Ok(wit::Outcome::Deliver(it)) => delivery_bytes(it),
        Ok(wit::Outcome::FanOut(all)) => all.iter().map(delivery_bytes).sum(),
        Ok(wit::Outcome::Drop(text))
        | Err(wit::Failure::Reject(text) | wit::Failure::Retry(text)) => text.len(),
    }
}

fn delivery_bytes(it: &wit::Delivery) -> usize {
    let key = match &it.key {
        wit::RecordKey::Default | wit::RecordKey::Null => 0,
        wit::RecordKey::Bytes(bytes) => bytes.len(),
    };
    let payload = match &it.payload {
        wit::RecordPayload::Unchanged | wit::RecordPayload::Tombstone => 0,
        wit::RecordPayload::Bytes(bytes) => bytes.len(),
    };
    let headers = it.headers.iter().flatten();
    let headers = headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
    it.topic.as_ref().map_or(0, String::len) + key + payload + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            aggregate_type: "order".to_owned(),
            event_type: "order.created".to_owned(),
            partition_key: Some(String::new()),
            headers: vec![Header { name: "h".to_owned(), value: None }],
            payload: Some(Bytes::from_static(b"{}")),
            attempts: 2,
            created_at_ms: 1000,
            ..Event::bare(7)
        }
    }

    fn lane() -> LaneName {
        LaneName { source: "shop".into(), lane: "default".into() }
    }

    fn plain() -> wit::Delivery {
        wit::Delivery {
            topic: None,
            key: wit::RecordKey::Default,
            payload: wit::RecordPayload::Unchanged,
            headers: None,
            partition: None,
            timestamp_ms: None,
        }
    }

    fn cause(answer: wit::Outcome) -> Option<Cause> {
        verdict(Ok(answer), &Limits::default()).err().map(|failure| failure.cause)
    }

    #[test]
    fn a_plugin_sees_only_what_it_needs() {
        let input = Input::new(&event(), &lane(), Needs::default());
        let inputs = [&input];
        let loan = Loan::new(&inputs);
        let events = loan.events();
        assert_eq!(events[0].id, "7");
        assert_eq!(events[0].aggregate_id, "");
        assert_eq!(events[0].payload, None);
        assert!(events[0].headers.is_empty() && events[0].attributes.is_empty());
    }

    #[test]
    fn a_plugin_sees_all_it_needs() {
        let needs = Needs { payload: true, headers: true, attributes: true };
        let input = Input::new(&event(), &lane(), needs);
        let inputs = [&input];
        let loan = Loan::new(&inputs);
        let events = loan.events();
        assert_eq!(events[0].payload, Some(b"{}".as_slice()));
        assert_eq!(events[0].headers, [("h", None)]);
        // The topic is NULL and so absent; the key is empty and so present.
        assert_eq!(
            events[0].attributes,
            [
                ("attempt", "3"),
                ("created-at-ms", "1000"),
                ("source", "shop"),
                ("lane", "default"),
                ("partition-key", "")
            ]
        );
    }

    #[test]
    fn outcomes_that_cannot_be_used_are_the_events_failure() {
        let empty_topic = wit::Delivery { topic: Some(String::new()), ..plain() };
        let partition = wit::Delivery { partition: Some(-1), ..plain() };
        for bad in [empty_topic, partition] {
            assert_eq!(cause(wit::Outcome::Deliver(bad.clone())), Some(Cause::PluginOutput));
            assert_eq!(cause(wit::Outcome::FanOut(vec![plain(), bad])), Some(Cause::PluginOutput));
        }
        assert_eq!(cause(wit::Outcome::FanOut(vec![plain(); 100])), None);
        assert_eq!(cause(wit::Outcome::FanOut(vec![plain(); 101])), Some(Cause::PluginOutput));
    }

    #[test]
    fn a_fan_out_to_nothing_is_no_failure() {
        let verdict = verdict(Ok(wit::Outcome::FanOut(Vec::new())), &Limits::default());
        assert_eq!(verdict, Ok(Outcome::Deliver(Vec::new())));
    }

    #[test]
    fn too_many_bytes_are_one_events_failure_or_the_batchs() {
        let limits = Limits { output_factor: 0, output_base: 10, ..Limits::default() };
        let input = Input::new(&event(), &lane(), Needs::default());
        let drop = |bytes: usize| Ok(wit::Outcome::Drop("x".repeat(bytes)));

        let one = verdicts(vec![drop(11), drop(10)], &[&input, &input], &limits).expect("usable");
        assert_eq!(one[0].as_ref().map_err(|it| it.cause), Err(Cause::PluginOutput));
        assert!(one[1].is_ok());

        assert!(verdicts(vec![drop(10), drop(1)], &[&input, &input], &limits).is_err());
    }
}
