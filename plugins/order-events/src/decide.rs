//! What happens to one event. Pure: the same event and settings give the same verdict, always.
//!
//! `lib.rs` calls [`decide`] for each event of a batch.

use haulier_sdk::{Delivery, Event, Outcome, Verdict, json, reject};

use crate::payload::{Cancellation, Cancelled, Created, Invoice, Paid};
use crate::settings::Settings;

/// Everything that concerns a customer's orders, keyed by customer.
const ORDERS: &str = "orders";
/// Invoices, keyed by order.
const BILLING: &str = "billing";
/// The latest state of each order; compacted, keyed by order.
const SNAPSHOTS: &str = "order-snapshots";

/// The verdict on one event.
pub(crate) fn decide(settings: &Settings, event: &Event) -> Verdict {
    let snapshots = || Delivery::to(settings.topic(SNAPSHOTS));
    match event.event_type.as_str() {
        "order.created" => created(settings, event),
        "order.paid" => paid(settings, event),
        "order.cancelled" => cancelled(settings, event),
        "order.snapshot" => Ok(snapshots().into()),
        "order.deleted" => Ok(snapshots().tombstone().into()),
        internal if internal.starts_with("order.internal.") => {
            Ok(Outcome::drop("internal to the order service"))
        }
        // Not dropped: a type that nobody thought of should be seen, not lost.
        unknown => Err(reject(format!("no rule for event type '{unknown}'"))),
    }
}

fn created(settings: &Settings, event: &Event) -> Verdict {
    let order: Created = event.json()?;
    Ok(Delivery::to(settings.topic(ORDERS)).key(order.customer_id.into_key()).into())
}

fn paid(settings: &Settings, event: &Event) -> Verdict {
    let order: Paid = event.json()?;
    let invoice = json(&Invoice {
        order_id: &order.id,
        customer_id: &order.customer_id,
        amount_cents: order.total_cents,
        currency: &order.currency,
    })?;
    let orders = Delivery::to(settings.topic(ORDERS)).key(order.customer_id.into_key());
    let billing = Delivery::to(settings.topic(BILLING)).key(order.id.into_key()).payload(invoice);
    Ok(vec![orders, billing].into())
}

fn cancelled(settings: &Settings, event: &Event) -> Verdict {
    let order: Cancelled = event.json()?;
    let cancellation =
        json(&Cancellation { order_id: &order.id, reason: order.reason.as_deref() })?;
    let orders = Delivery::to(settings.topic(ORDERS)).key(order.customer_id.into_key());
    Ok(orders.payload(cancellation).into())
}

#[cfg(test)]
mod tests {
    use haulier_sdk::{Failure, RecordKey, RecordPayload};

    use super::*;

    fn event(event_type: &str, payload: Option<&str>) -> Event {
        Event {
            id: "1".to_owned(),
            aggregate_type: "order".to_owned(),
            aggregate_id: "o-1".to_owned(),
            event_type: event_type.to_owned(),
            headers: Vec::new(),
            payload: payload.map(|text| text.as_bytes().to_vec()),
            attributes: Vec::new(),
        }
    }

    fn verdict(event_type: &str, payload: Option<&str>) -> Verdict {
        decide(&Settings::default(), &event(event_type, payload))
    }

    fn rejection(event_type: &str, payload: Option<&str>) -> String {
        match verdict(event_type, payload) {
            Err(Failure::Reject(text)) => text,
            other => panic!("expected a rejection, got {other:?}"),
        }
    }

    #[test]
    fn a_created_order_is_keyed_by_customer_and_not_copied() {
        let Ok(Outcome::Deliver(delivery)) =
            verdict("order.created", Some(r#"{"id":1,"customer_id":17,"lines":[]}"#))
        else {
            panic!("expected one delivery")
        };
        assert_eq!(delivery.topic.as_deref(), Some("orders"));
        assert!(matches!(delivery.key, RecordKey::Bytes(key) if key == b"17"));
        assert!(matches!(delivery.payload, RecordPayload::Unchanged));
    }

    #[test]
    fn a_paid_order_becomes_an_order_record_and_an_invoice() {
        let payload = r#"{"id":"o-1","customer_id":"c-1","total_cents":1250,"currency":"EUR"}"#;
        let Ok(Outcome::FanOut(deliveries)) = verdict("order.paid", Some(payload)) else {
            panic!("expected a fan-out")
        };
        let topics: Vec<_> = deliveries.iter().map(|it| it.topic.as_deref()).collect();
        assert_eq!(topics, [Some("orders"), Some("billing")]);
        let RecordPayload::Bytes(invoice) = &deliveries[1].payload else {
            panic!("expected a new payload")
        };
        assert_eq!(
            String::from_utf8_lossy(invoice),
            r#"{"order_id":"o-1","customer_id":"c-1","amount_cents":1250,"currency":"EUR"}"#
        );
    }

    #[test]
    fn a_cancellation_carries_no_customer_data() {
        let payload = r#"{"id":"o-1","customer_id":"c-1","reason":"late","email":"a@b"}"#;
        let Ok(Outcome::Deliver(delivery)) = verdict("order.cancelled", Some(payload)) else {
            panic!("expected one delivery")
        };
        let RecordPayload::Bytes(bytes) = delivery.payload else {
            panic!("expected a new payload")
        };
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"order_id":"o-1","reason":"late"}"#);
    }

    #[test]
    fn a_deleted_order_leaves_a_tombstone() {
        let Ok(Outcome::Deliver(delivery)) = verdict("order.deleted", None) else {
            panic!("expected one delivery")
        };
        assert!(matches!(delivery.payload, RecordPayload::Tombstone));
        assert!(matches!(delivery.key, RecordKey::Default));
    }

    #[test]
    fn internal_events_are_dropped_and_unknown_ones_rejected() {
        assert!(matches!(verdict("order.internal.audit", None), Ok(Outcome::Drop(_))));
        assert!(rejection("order.shipped", None).contains("order.shipped"));
    }

    #[test]
    fn a_bad_payload_is_rejected_with_the_place() {
        assert!(rejection("order.created", Some("{oops")).contains("line 1 column 2"));
        assert!(rejection("order.created", Some("{}")).contains("customer_id"));
        assert!(rejection("order.created", None).contains("no payload"));
    }

    #[test]
    fn the_prefix_goes_before_every_topic() {
        let settings = Settings { topic_prefix: "staging.".to_owned() };
        let Ok(Outcome::Deliver(delivery)) = decide(&settings, &event("order.snapshot", None))
        else {
            panic!("expected one delivery")
        };
        assert_eq!(delivery.topic.as_deref(), Some("staging.order-snapshots"));
    }
}
