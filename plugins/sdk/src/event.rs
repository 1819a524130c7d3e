//! Reading an [`Event`], and making one for a test.
//!
//! Plugins call it. Reading never copies.

use serde::Deserialize;

use crate::{Event, Failure, reject};

/// Reading.
impl Event {
    /// The payload read as JSON into `T`, which may borrow from it (`&str`, [`Id`](crate::Id),
    /// `&serde_json::value::RawValue`). Name only the fields you need: skipping one costs less than
    /// half of reading it, and a `serde_json::Value` costs more than twice as much as a type.
    ///
    /// # Errors
    /// A rejection that names the event type and what is wrong where, if there is no payload (the
    /// row has none, or the manifest does not need it), or it is not JSON, or not a `T`.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        let Some(bytes) = &self.payload else {
            return Err(reject(format!("{} has no payload", self.event_type)));
        };
        serde_json::from_slice(bytes).map_err(|error| {
            reject(format!("the payload of {} is unreadable: {error}", self.event_type))
        })
    }

    /// The attribute of that name: a fact about the row, such as `created-at-ms`. The WIT lists them.
    /// `None` if the row has none such, or the manifest does not need attributes.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of the first header of that name; case matters. `None` if there is none, if its
    /// value is NULL, or if the manifest does not need headers. `headers` has them all, in order.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.as_deref())
    }
}

/// For tests: an event as the host would give it.
impl Event {
    /// An event of this type with the id `1` and nothing else: set the public fields, or chain the
    /// functions below.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self {
            id: "1".to_owned(),
            aggregate_type: String::new(),
            aggregate_id: String::new(),
            event_type: event_type.into(),
            headers: Vec::new(),
            payload: None,
            attributes: Vec::new(),
        }
    }

    /// With this payload.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// With this object the event is about.
    #[must_use]
    pub fn with_aggregate(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate_type = kind.into();
        self.aggregate_id = id.into();
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// With one more attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Named<'a> {
        name: &'a str,
    }

    #[test]
    fn a_payload_is_borrowed_from() {
        let event = Event::new("t").with_payload(r#"{"name":"Ada","age":36}"#);
        assert_eq!(event.json(), Ok(Named { name: "Ada" }));
    }

    #[test]
    fn a_payload_that_does_not_fit_is_rejected_with_type_and_place() {
        let rejection = |event: &Event| match event.json::<Named<'_>>() {
            Err(Failure::Reject(text)) => text,
            other => panic!("expected a rejection, got {other:?}"),
        };
        assert_eq!(rejection(&Event::new("t")), "t has no payload");
        let text = rejection(&Event::new("t").with_payload("{oops"));
        assert!(text.starts_with("the payload of t is unreadable: "), "{text}");
        assert!(text.ends_with("line 1 column 2"), "{text}");
        assert!(rejection(&Event::new("t").with_payload("{}")).contains("`name`"));
    }

    #[test]
    fn facts_are_found_by_name() {
        let mut event = Event::new("t").with_header("a", "1").with_header("a", "2");
        event.headers.push(("null".to_owned(), None));
        let event = event.with_attribute("lane", "3");
        assert_eq!(event.header("a"), Some(b"1".as_slice()));
        assert_eq!(event.header("null"), None);
        assert_eq!(event.header("A"), None);
        assert_eq!(event.attribute("lane"), Some("3"));
        assert_eq!(event.attribute("topic"), None);
    }
}
