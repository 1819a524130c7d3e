//! Rows as events: bytes, keys, headers.

use haulier::event::OrderingKey;
use haulier::store::Look;

use crate::harness::{
    BY_KEY, BY_ROW, Harness, Making, NewEvent, USUAL, Wish, claim, of_key, sorted,
};

const SMALL: Wish = Wish { look: Look::Quick, ..BY_KEY };

pub(crate) async fn payloads_are_kept_byte_for_byte<H: Harness>() {
    let json = [
        r#"{"b":1.00,  "a":[],"n":null,"b":2}"#,
        "\"\\u0000 and \u{1f600}\"",
        "12345678901234567890.10",
    ];
    let bytes: [&[u8]; 4] = [b"\0\x01\xff\0", b"", "\u{1f600}".as_bytes(), b"{not json"];
    let all = json
        .iter()
        .map(|text| (false, text.as_bytes()))
        .chain(bytes.iter().map(|raw| (true, *raw)));
    for (binary, payload) in all {
        for wish in [SMALL, BY_ROW] {
            let outbox = H::make(Making { binary, ..USUAL }).await;
            let some = NewEvent { payload: Some(payload.to_vec()), ..of_key("k") };
            let none = NewEvent { payload: None, ..of_key("k") };
            outbox.insert(&[some, none]).await;
            let batch = claim(&*outbox.store(), wish).await.expect("work");
            assert_eq!(batch.events[0].payload.as_deref(), Some(payload));
            assert_eq!(batch.events[1].payload, None);
        }
    }
}

pub(crate) async fn keys_tell_null_from_empty<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let key = |aggregate: Option<&str>, partition: Option<&str>| NewEvent {
        key: aggregate.map(str::to_owned),
        partition_key: partition.map(str::to_owned),
        ..of_key("")
    };
    let inserted = outbox
        .insert(&[
            key(None, None),
            key(Some(""), None),
            key(Some("a"), None),
            key(Some("a"), Some("")),
            key(Some("a"), Some(r"p\x41ü")),
        ])
        .await;
    let batch = claim(&*outbox.store(), SMALL).await.expect("work");
    assert_eq!(sorted(&batch), inserted);
    let mut events: Vec<_> = batch.events.iter().collect();
    events.sort_by_key(|event| event.id);
    let found: Vec<OrderingKey> = events.iter().map(|event| event.ordering_key()).collect();
    let expected = [None, Some(""), Some("a"), Some(""), Some(r"p\x41ü")];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.0.as_deref(), expected.map(str::as_bytes));
    }
}

pub(crate) async fn headers_of_every_sort_are_read<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let headers =
        r#"{"traceparent":"00-1","n":1.50,"b":true,"z":null,"o":{"k":1},"traceparent":"00-2"}"#;
    outbox.insert(&[NewEvent { headers: Some(headers.to_owned()), ..of_key("k") }]).await;
    let batch = claim(&*outbox.store(), SMALL).await.expect("work");
    let found: Vec<_> = batch.events[0]
        .headers
        .iter()
        .map(|header| (header.name.as_str(), header.value.as_deref()))
        .collect();
    let text = |value: &'static str| Some(value.as_bytes());
    assert_eq!(
        found,
        [
            ("traceparent", text("00-1")),
            ("n", text("1.50")),
            ("b", text("true")),
            ("z", None),
            ("o", text(r#"{"k":1}"#)),
            ("traceparent", text("00-2")),
        ]
    );
}

pub(crate) async fn a_row_with_unreadable_headers_comes_with_its_defect<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let odd = NewEvent { headers: Some("17".to_owned()), ..of_key("k") };
    outbox.insert(&[odd, of_key("k")]).await;
    let batch = claim(&*outbox.store(), SMALL).await.expect("work");
    assert!(batch.events[0].defect.as_deref().is_some_and(|defect| defect.contains("headers")));
    assert_eq!(batch.events[1].defect, None);
}
