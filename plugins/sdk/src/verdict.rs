//! Saying what is to happen with an event: [`Delivery`], [`Outcome`] and [`Failure`] as sentences.
//!
//! Plugins call it. What is not said stays what route and row say; nothing is checked here, the host
//! does that.

use crate::{Delivery, Event, Failure, Outcome, RecordKey, RecordPayload};

/// The answer for one event.
pub type Verdict = Result<Outcome, Failure>;

/// This event is wrong and will stay wrong. The text is for the person who will look at it: what was
/// expected, what was found. It is cut at 4 KiB.
pub fn reject(text: impl Into<String>) -> Failure {
    Failure::Reject(text.into())
}

/// This event may work later though nothing about it changes, which is rare in a pure function. The
/// text is cut at 4 KiB.
pub fn retry(text: impl Into<String>) -> Failure {
    Failure::Retry(text.into())
}

impl Outcome {
    /// Publish one record, all of it as route and row say.
    #[must_use]
    pub const fn unchanged() -> Self {
        Self::Deliver(Delivery::unchanged())
    }

    /// Publish nothing, on purpose. The text says why; the event is counted as dropped.
    pub fn drop(text: impl Into<String>) -> Self {
        Self::Drop(text.into())
    }
}

impl From<Delivery> for Outcome {
    fn from(delivery: Delivery) -> Self {
        Self::Deliver(delivery)
    }
}

/// Publish several, in this order; at most 100. If one fails the event is retried whole, and those
/// already published are published again. Empty publishes nothing and counts as published.
impl From<Vec<Delivery>> for Outcome {
    fn from(deliveries: Vec<Delivery>) -> Self {
        Self::FanOut(deliveries)
    }
}

impl Delivery {
    /// A record in this topic, which must not be empty; all else is what route and row say.
    pub fn to(topic: impl Into<String>) -> Self {
        Self { topic: Some(topic.into()), ..Self::unchanged() }
    }

    /// A record in the topic that the route names, else the row; all else is theirs too.
    #[must_use]
    pub const fn unchanged() -> Self {
        Self {
            topic: None,
            key: RecordKey::Default,
            payload: RecordPayload::Unchanged,
            headers: None,
            partition: None,
            timestamp_ms: None,
        }
    }

    /// With this key. Empty is a key too: see [`Delivery::no_key`].
    #[must_use]
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = RecordKey::Bytes(key.into());
        self
    }

    /// Without a key, on purpose: the record goes to any partition, so nothing keeps its order.
    #[must_use]
    pub fn no_key(mut self) -> Self {
        self.key = RecordKey::Null;
        self
    }

    /// With this payload; may be empty. Do not give the event's own: it is kept unless you say
    /// otherwise, and is then not copied. All that a batch returns may be 4 times its size and 1 MiB.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = RecordPayload::Bytes(payload.into());
        self
    }

    /// With a NULL payload: a compacted topic forgets the key.
    #[must_use]
    pub fn tombstone(mut self) -> Self {
        self.payload = RecordPayload::Tombstone;
        self
    }

    /// With one more header. The first one takes the place of the row's own headers; call
    /// [`Delivery::headers_of`] before to keep those. The host's own (`X-Event-Type` and so on) are
    /// added in any case.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.get_or_insert_default().push((name.into(), Some(value.into())));
        self
    }

    /// With a copy of the event's headers, in place of any said before. The manifest must need
    /// headers, or there are none.
    #[must_use]
    pub fn headers_of(mut self, event: &Event) -> Self {
        self.headers = Some(event.headers.clone());
        self
    }

    /// Without the row's own headers.
    #[must_use]
    pub fn no_headers(mut self) -> Self {
        self.headers = Some(Vec::new());
        self
    }

    /// To this partition, 0 or more, instead of the one that the key leads to.
    #[must_use]
    pub const fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// With this timestamp, milliseconds since 1970, instead of the time of publishing.
    #[must_use]
    pub const fn timestamp_ms(mut self, timestamp: i64) -> Self {
        self.timestamp_ms = Some(timestamp);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_left_to_route_and_row() {
        let delivery = Delivery::to("orders");
        assert_eq!(delivery.topic.as_deref(), Some("orders"));
        assert_eq!(Delivery { topic: None, ..delivery }, Delivery::unchanged());
        assert_eq!(Outcome::from(Delivery::unchanged()), Outcome::unchanged());
    }

    #[test]
    fn a_header_replaces_the_rows_own_unless_they_are_asked_for() {
        let event = Event::new("t").with_header("a", "1");
        let headers = |delivery: Delivery| delivery.headers.map(|headers| headers.len());
        assert_eq!(headers(Delivery::unchanged().header("b", "2")), Some(1));
        assert_eq!(headers(Delivery::unchanged().headers_of(&event).header("b", "2")), Some(2));
        assert_eq!(headers(Delivery::unchanged().no_headers()), Some(0));
        assert_eq!(headers(Delivery::unchanged()), None);
    }

    #[test]
    fn no_key_is_not_an_empty_key() {
        assert_eq!(Delivery::unchanged().no_key().key, RecordKey::Null);
        assert_eq!(Delivery::unchanged().key("").key, RecordKey::Bytes(Vec::new()));
    }
}
