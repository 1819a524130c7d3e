//! Routes: which plugin or topic an event type goes to, and what a delivery is completed with.
//!
//! Pure. The relay asks; config builds the routes. The first route whose pattern matches wins;
//! where none does, a plugin whose manifest wants the type, and else the row's own topic, decide.

use std::fmt;

use bytes::Bytes;

use crate::event::{Delivery, Event, Header, KeyChoice, LaneName, PayloadChoice, Record};
use crate::failure::{Cause, Failure};
use crate::json::{self, Found};

/// An event-type pattern: `*` stands for any run of characters, all else for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `event_type` fits.
    pub fn matches(&self, event_type: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = event_type.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// A field of the event that a template or key rule may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `event_type`
    EventType,
    /// `aggregate_type`
    AggregateType,
    /// `aggregate_id`
    AggregateId,
    /// `partition_key`
    PartitionKey,
    /// `topic`, the row's own
    Topic,
    /// `source`, its name in the config
    Source,
    /// `lane`
    Lane,
}

impl Field {
    /// Every field with its name in config.
    pub const ALL: [(&'static str, Self); 7] = [
        ("event_type", Self::EventType),
        ("aggregate_type", Self::AggregateType),
        ("aggregate_id", Self::AggregateId),
        ("partition_key", Self::PartitionKey),
        ("topic", Self::Topic),
        ("source", Self::Source),
        ("lane", Self::Lane),
    ];

    /// The field of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }

    fn of<'a>(self, event: &'a Event, lane: &'a LaneName) -> Option<&'a str> {
        match self {
            Self::EventType => Some(&event.event_type),
            Self::AggregateType => Some(&event.aggregate_type),
            Self::AggregateId => event.aggregate_id.as_deref(),
            Self::PartitionKey => event.partition_key.as_deref(),
            Self::Topic => event.topic.as_deref(),
            Self::Source => Some(&lane.source),
            Self::Lane => Some(&lane.lane),
        }
    }

    /// Its name in config.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }
}

/// A topic with `{field}` places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(Field),
}

impl TopicTemplate {
    /// Parses `orders.{aggregate_type}`.
    ///
    /// # Errors
    /// A text that names the place which is no field, or the brace that is not closed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].to_owned()));
            }
            let Some(length) = rest[open..].find('}') else {
                return Err(format!("'{text}' opens a '{{' that it does not close"));
            };
            let name = &rest[open + 1..open + length];
            let known = Field::ALL.map(|(name, _)| name).join(", ");
            let field = Field::parse(name)
                .ok_or_else(|| format!("'{{{name}}}' is no field; there are {known}"))?;
            pieces.push(Piece::Field(field));
            rest = &rest[open + length + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if pieces.is_empty() {
            return Err("a topic cannot be empty".to_owned());
        }
        Ok(Self(pieces))
    }

    /// The text, if it holds no places.
    pub fn as_constant(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn fill(&self, event: &Event, lane: &LaneName) -> Result<String, Failure> {
        let mut topic = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => topic.push_str(text),
                Piece::Field(field) => topic.push_str(field.of(event, lane).ok_or_else(|| {
                    let name = field.name();
                    Failure::new(
                        Cause::TopicMissing,
                        format!("the route's topic needs {name}, which is NULL in this row"),
                    )
                })?),
            }
        }
        Ok(topic)
    }
}

impl fmt::Display for TopicTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Field(field) => write!(f, "{{{}}}", field.name())?,
            }
        }
        Ok(())
    }
}

/// Where a route takes the record key from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// A NULL key, on purpose.
    Null,
    /// A column; NULL there is a NULL key.
    Field(Field),
    /// An RFC 6901 pointer into the JSON payload; JSON null there is a NULL key.
    Pointer(String),
}

/// What a rule does with the candidate version of its plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// The candidate decides the events of this share of the keys, in hundredths of a per cent.
    Share(u16),
    /// The candidate decides too; what it says is compared and counted, and not published.
    Shadow,
}

/// All keys, in the unit of [`Candidate::Share`].
pub const WHOLE_SHARE: u16 = 10_000;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where it is written, for people: `haulier.toml: routes[0]`.
    pub place: String,
    /// It applies to event types that fit any of these.
    pub patterns: Vec<Pattern>,
    /// Why its events must wait, if they must: in place of rules that cannot be read.
    pub blocked: Option<String>,
    /// The plugin that decides, if one does.
    pub plugin: Option<String>,
    /// What the plugin's candidate version is given.
    pub candidate: Option<Candidate>,
    /// Topic for deliveries that name none.
    pub topic: Option<TopicTemplate>,
    /// Key for deliveries that leave it to the route; `None` is the ordering key.
    pub key: Option<KeyRule>,
    /// Constant headers, added after the delivery's own.
    pub headers: Vec<Header>,
}

impl Route {
    /// A rule that takes every event that comes to it and lets it wait: what stands in its place cannot
    /// be read, and might have sent it anywhere.
    pub fn blocking(place: String, why: String) -> Self {
        Self {
            place,
            patterns: vec![Pattern::new("*")],
            blocked: Some(why),
            plugin: None,
            candidate: None,
            topic: None,
            key: None,
            headers: Vec::new(),
        }
    }
}

/// Whether the events of a key belong to the share of a candidate. Every instance says the same, and a
/// key that is in a share is in every larger one: a growing share moves no key back.
pub fn in_share(event: &Event, share: u16) -> bool {
    let key = event.ordering_key().0.unwrap_or_else(|| Bytes::from(event.id.to_string()));
    // FNV-1a: short, and spreads short keys well enough to share them out.
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of this hash depend on few bits of the key; fold the high ones in.
    (hash ^ (hash >> 32)) % u64::from(WHOLE_SHARE) < u64::from(share)
}

/// The routes in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Routes in the order in which they are tried.
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The first route that fits, with its position.
    pub fn find(&self, event_type: &str) -> Option<(usize, &Route)> {
        self.0
            .iter()
            .enumerate()
            .find(|(_, route)| route.patterns.iter().any(|pattern| pattern.matches(event_type)))
    }

    /// These routes, and then those.
    #[must_use]
    pub fn followed_by(mut self, more: impl IntoIterator<Item = Route>) -> Self {
        self.0.extend(more);
        self
    }

    /// All routes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }
}

/// Completes a delivery from route and row; `stamp` names the plugin version that decided, if one did.
///
/// # Errors
/// An event failure: no topic, or no key where the route takes it from.
pub fn complete(
    delivery: Delivery,
    route: Option<&Route>,
    stamp: Option<&Bytes>,
    event: &Event,
    lane: &LaneName,
) -> Result<Record, Failure> {
    let topic = match (delivery.topic, route.and_then(|route| route.topic.as_ref())) {
        (Some(topic), _) => topic,
        (None, Some(template)) => template.fill(event, lane)?,
        (None, None) => event.topic.clone().ok_or_else(|| {
            Failure::new(
                Cause::TopicMissing,
                "neither plugin, route nor row names a topic: set 'topic' in the route or in the row",
            )
        })?,
    };
    let key = match delivery.key {
        KeyChoice::Bytes(bytes) => Some(bytes),
        KeyChoice::Null => None,
        KeyChoice::Default => match route.and_then(|route| route.key.as_ref()) {
            None => event.ordering_key().0,
            Some(KeyRule::Null) => None,
            Some(KeyRule::Field(field)) => {
                field.of(event, lane).map(|text| Bytes::copy_from_slice(text.as_bytes()))
            }
            Some(KeyRule::Pointer(pointer)) => key_at(event, pointer)?,
        },
    };
    let payload = match delivery.payload {
        PayloadChoice::Unchanged => event.payload.clone(),
        PayloadChoice::Tombstone => None,
        PayloadChoice::Bytes(bytes) => Some(bytes),
    };
    let standard = standard_headers(event, stamp);
    let mut headers = Vec::with_capacity(standard.len() + event.headers.len());
    match delivery.headers {
        None => headers.extend(event.headers.iter().cloned()),
        Some(own) => {
            // A trace is not cut because a plugin sets headers.
            let traced = own.iter().any(|header| header.name == TRACE);
            headers.extend(own);
            let rows = event.headers.iter().filter(|header| !traced && header.name == TRACE);
            headers.extend(rows.cloned());
        }
    }
    headers.extend(route.iter().flat_map(|route| route.headers.iter().cloned()));
    // Consumers tell repeats by the relay's own headers: nobody else may set them.
    headers.retain(|header| !OWN_HEADERS.contains(&header.name.as_str()));
    headers.splice(0..0, standard);
    Ok(Record {
        topic,
        key,
        payload,
        headers,
        partition: delivery.partition,
        timestamp_ms: delivery.timestamp_ms,
    })
}

fn key_at(event: &Event, pointer: &str) -> Result<Option<Bytes>, Failure> {
    let payload = event.payload.as_deref().ok_or_else(|| {
        Failure::new(
            Cause::KeyUnreadable,
            format!("the route's key is '{pointer}', but the payload is NULL"),
        )
    })?;
    match json::at_pointer(payload, pointer) {
        Ok(Found::Text(text)) => Ok(Some(Bytes::from(text))),
        Ok(Found::Null) => Ok(None),
        Err(problem) => Err(Failure::new(
            Cause::KeyUnreadable,
            format!("the route's key is '{pointer}': {problem}"),
        )),
    }
}

/// The header that carries a trace on (W3C Trace Context).
const TRACE: &str = "traceparent";

/// The names that only the relay sets, whether a record carries them or not.
const OWN_HEADERS: [&str; 6] = [
    "X-Event-Type",
    "X-Aggregate-Type",
    "X-Outbox-Id",
    "X-Haulier-Plugin",
    "X-Haulier-Attempt",
    "X-Haulier-Redelivery",
];

/// The headers every record carries, ahead of the row's own. One more marks a record of an event that
/// had failed before: others of its records may repeat. Another one marks what an operator has brought
/// back: its successors came first. Where a plugin decided, its version is named.
fn standard_headers(event: &Event, stamp: Option<&Bytes>) -> Vec<Header> {
    let mut headers = Vec::with_capacity(OWN_HEADERS.len());
    headers.push(Header::text("X-Event-Type", event.event_type.clone()));
    headers.push(Header::text("X-Aggregate-Type", event.aggregate_type.clone()));
    headers.push(Header::text("X-Outbox-Id", event.id.to_string()));
    if let Some(stamp) = stamp {
        headers.push(Header::text("X-Haulier-Plugin", stamp.clone()));
    }
    if event.attempts > 0 {
        headers.push(Header::text("X-Haulier-Attempt", (event.attempts + 1).to_string()));
    }
    if let Some(redelivery) = &event.redelivery {
        headers.push(Header::text("X-Haulier-Redelivery", redelivery.clone()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            aggregate_type: "order".into(),
            aggregate_id: Some("o-1".into()),
            event_type: "order.created".into(),
            headers: vec![Header::text("trace", "t")],
            payload: Some(Bytes::from_static(br#"{"customer":{"id":42}}"#)),
            ..Event::bare(7)
        }
    }

    fn lane() -> LaneName {
        LaneName { source: "orders".into(), lane: "default".into() }
    }

    fn route() -> Route {
        Route { blocked: None, ..Route::blocking("routes[0]".into(), String::new()) }
    }

    #[test]
    fn patterns_match_whole_event_types() {
        let fits = |pattern: &str, event_type: &str| Pattern::new(pattern).matches(event_type);
        assert!(fits("order.created", "order.created"));
        assert!(!fits("order.created", "order.created2"));
        assert!(fits("order.*", "order."));
        assert!(fits("*", ""));
        assert!(fits("*.created", "a.b.created"));
        assert!(fits("a*b*c", "a-b-b-c"));
        assert!(!fits("a*b", "a"));
        assert!(!fits("ab*ba", "aba"));
        assert!(!fits("", "x"));
    }

    #[test]
    fn a_topic_template_is_filled_from_the_row() {
        let template = TopicTemplate::parse("app.{aggregate_type}-{lane}").unwrap();
        let route = Route { topic: Some(template), ..route() };
        let record = complete(Delivery::default(), Some(&route), None, &event(), &lane()).unwrap();
        assert_eq!(record.topic, "app.order-default");
        for wrong in ["", "{", "{x}", "a{event_type"] {
            assert!(TopicTemplate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_key_comes_from_delivery_then_route_then_row() {
        let row = Event { topic: Some("t".into()), ..event() };
        let key = |delivery, rule| {
            let route = Route { key: rule, ..route() };
            complete(delivery, Some(&route), None, &row, &lane()).map(|record| record.key)
        };
        let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        assert_eq!(key(Delivery::default(), None).unwrap(), bytes("o-1"));
        let pointer = Some(KeyRule::Pointer("/customer/id".into()));
        assert_eq!(key(Delivery::default(), pointer.clone()).unwrap(), bytes("42"));
        assert_eq!(key(Delivery::default(), Some(KeyRule::Null)).unwrap(), None);
        let null = Delivery { key: KeyChoice::Null, ..Delivery::default() };
        assert_eq!(key(null, pointer).unwrap(), None);
        let missing = key(Delivery::default(), Some(KeyRule::Pointer("/nope".into())));
        assert_eq!(missing.unwrap_err().cause, Cause::KeyUnreadable);
        let partition_key = Some(KeyRule::Field(Field::PartitionKey));
        assert_eq!(key(Delivery::default(), partition_key).unwrap(), None);
    }

    #[test]
    fn no_topic_anywhere_is_a_failure_of_the_event() {
        let failure = complete(Delivery::default(), None, None, &event(), &lane()).unwrap_err();
        assert_eq!(failure.cause, Cause::TopicMissing);
    }

    #[test]
    fn a_trace_outlives_a_plugin_that_sets_headers() {
        let trace = || Header::text("traceparent", "00-a");
        let row = Event { topic: Some("t".into()), headers: vec![trace()], attempts: 2, ..event() };
        let names = |own: Vec<Header>| {
            let delivery = Delivery { headers: Some(own), ..Delivery::default() };
            let record = complete(delivery, None, None, &row, &lane()).unwrap();
            record.headers[3..].iter().map(|header| header.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            names(vec![Header::text("own", "x")]),
            ["X-Haulier-Attempt", "own", "traceparent"]
        );
        assert_eq!(names(vec![trace()]), ["X-Haulier-Attempt", "traceparent"]);
    }

    #[test]
    fn nobody_else_sets_the_headers_of_the_relay() {
        let spoofed = || OWN_HEADERS.map(|name| Header::text(name, "999")).to_vec();
        let row = Event { topic: Some("t".into()), headers: spoofed(), ..event() };
        let route = Route { headers: spoofed(), ..route() };
        let record = complete(Delivery::default(), Some(&route), None, &row, &lane()).unwrap();
        let ids = record.headers.iter().filter(|header| header.name == "X-Outbox-Id");
        assert_eq!(
            ids.map(|header| header.value.as_deref()).collect::<Vec<_>>(),
            [Some(&b"7"[..])]
        );
        assert!(record.headers.iter().all(|header| header.value.as_deref() != Some(&b"999"[..])));
    }

    #[test]
    fn shares_grow_and_are_about_as_large_as_they_say() {
        let keys: Vec<Event> = (0..10_000)
            .map(|n| Event { aggregate_id: Some(format!("o-{n}")), ..event() })
            .collect();
        let share = |share| keys.iter().filter(|event| in_share(event, share)).count();
        assert_eq!((share(0), share(WHOLE_SHARE)), (0, keys.len()));
        for (share, wanted) in [(share(500), 500), (share(5000), 5000)] {
            assert!(share.abs_diff(wanted) < 200, "{share} of {wanted}");
        }
        assert!(keys.iter().all(|event| !in_share(event, 500) || in_share(event, 501)));
    }

    #[test]
    fn headers_stand_in_a_fixed_order() {
        let row = Event { topic: Some("t".into()), ..event() };
        let route = Route { headers: vec![Header::text("const", "c")], ..route() };
        let record = complete(Delivery::default(), Some(&route), None, &row, &lane()).unwrap();
        let names: Vec<_> = record.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["X-Event-Type", "X-Aggregate-Type", "X-Outbox-Id", "trace", "const"]);
        let stamp = Bytes::from_static(b"orders 1.0.0 0123456789ab");
        let record =
            complete(Delivery::default(), Some(&route), Some(&stamp), &row, &lane()).unwrap();
        let plugin = &record.headers[3];
        assert_eq!(
            (plugin.name.as_str(), plugin.value.as_deref()),
            ("X-Haulier-Plugin", Some(&b"orders 1.0.0 0123456789ab"[..]))
        );
    }
}
