//! Settling: what becomes of events, and which keys wait.

use std::time::Duration;

use haulier::event::Ordering;
use haulier::failure::{Cause, Failure};
use haulier::store::{Action, Look, Settle};

use crate::harness::{
    BY_KEY, BY_ROW, Harness, Making, NewEvent, USUAL, Wish, claim, claim_soon, failure, ids, is,
    lane, of_key, publish, settle, sorted,
};

const SOON: Duration = Duration::from_millis(700);
const LATER: Duration = Duration::from_secs(3600);

pub(crate) async fn published_events_are_deleted_or_marked<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        for (mode, left) in [(Settle::Delete, None), (Settle::Mark, Some("PUBLISHED"))] {
            let outbox = H::make(Making { settle: mode, ..USUAL }).await;
            let inserted = outbox.insert(&[of_key("a"), of_key("b")]).await;
            let store = outbox.store();
            let batch = claim(&*store, wish).await.expect("work");
            let settled = settle(&*store, &batch, |event| {
                if is(event, inserted[0]) {
                    Action::Published
                } else {
                    Action::Dropped("test".into())
                }
            })
            .await;
            assert!(settled.lost.is_empty());
            for id in inserted {
                assert_eq!(outbox.row(id).await.map(|row| row.0).as_deref(), left);
            }
            assert!(claim(&*store, wish).await.is_none());
        }
    }
}

pub(crate) async fn a_retried_event_holds_its_key<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("other")]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |event| match event.id.0 {
        id if id == inserted[0] => Action::Retry { after: SOON, failure: failure() },
        id if id == inserted[1] => Action::Release,
        _ => Action::Published,
    })
    .await;
    // Another key of any shard flows, and the held one does not.
    let healthy = outbox.insert(&[of_key("healthy")]).await;
    assert_eq!(ids(&claim(&*store, BY_KEY).await.expect("work")), healthy);
    let again = claim_soon(&*store, Wish { look: Look::Quick, ..BY_KEY }).await;
    assert_eq!(ids(&again), inserted[..2], "both come, in order");
    assert_eq!((again.events[0].attempts, again.events[0].holds_key), (1, true));
    assert!(!again.events[1].holds_key);
    publish(&*store, &again).await;
    assert_eq!(store.stats(&lane("default"), Ordering::Key).await.expect("stats").held_keys, 0);
}

pub(crate) async fn without_order_a_retried_event_holds_nothing<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_ROW).await.expect("work");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) {
            Action::Retry { after: LATER, failure: failure() }
        } else {
            Action::Release
        }
    })
    .await;
    assert_eq!(
        outbox.row(inserted[0]).await,
        Some(("PENDING".into(), 1, Some("plugin_rejected".into())))
    );
    assert_eq!(ids(&claim(&*store, BY_ROW).await.expect("work")), inserted[1..]);
}

pub(crate) async fn a_waiting_event_uses_no_attempt<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    let unknown = Failure::new(Cause::TopicUnknown, "no such topic");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) {
            Action::Wait { after: LATER, failure: unknown.clone() }
        } else {
            Action::Release
        }
    })
    .await;
    assert_eq!(
        outbox.row(inserted[0]).await,
        Some(("PENDING".into(), 0, Some("topic_unknown".into())))
    );
    assert!(claim(&*store, BY_KEY).await.is_none(), "the whole key waits");
}

pub(crate) async fn a_parked_event_lets_its_key_go<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
        let store = outbox.store();
        let batch = claim(&*store, wish).await.expect("work");
        settle(&*store, &batch, |event| {
            if is(event, inserted[0]) { Action::Park(failure()) } else { Action::Release }
        })
        .await;
        assert_eq!(
            outbox.row(inserted[0]).await,
            Some(("FAILED".into(), 1, Some("plugin_rejected".into())))
        );
        assert_eq!(ids(&claim(&*store, wish).await.expect("work")), inserted[1..]);
    }
}

pub(crate) async fn a_halted_key_stays_held<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("other")]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) { Action::Halt(failure()) } else { Action::Release }
    })
    .await;
    assert_eq!(ids(&claim(&*store, BY_KEY).await.expect("work")), inserted[2..]);
    assert!(claim(&*store, BY_KEY).await.is_none());
    assert_eq!(store.stats(&lane("default"), Ordering::Key).await.expect("stats").held_keys, 1);
    assert_eq!(outbox.row(inserted[0]).await.map(|row| row.0).as_deref(), Some("PENDING"));
}

pub(crate) async fn total_order_is_held_as_a_whole<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let wish = Wish { ordering: Ordering::Total, ..BY_KEY };
    let inserted = outbox.insert(&[of_key("a"), of_key("b")]).await;
    let store = outbox.store();
    let batch = claim(&*store, wish).await.expect("work");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) {
            Action::Retry { after: SOON, failure: failure() }
        } else {
            Action::Release
        }
    })
    .await;
    assert!(claim(&*store, wish).await.is_none());
    assert_eq!(ids(&claim_soon(&*store, wish).await), inserted);
}

pub(crate) async fn released_events_are_as_before<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let inserted = outbox
            .insert(&[of_key("a"), of_key("b"), NewEvent { due_in: 3600.0, ..of_key("c") }])
            .await;
        let store = outbox.store();
        let batch = claim(&*store, wish).await.expect("work");
        settle(&*store, &batch, |_| Action::Release).await;
        assert_eq!(outbox.row(inserted[0]).await, Some(("PENDING".into(), 0, None)));
        let again = claim(&*store, wish).await.expect("work");
        assert_eq!(sorted(&again), inserted[..2]);
        assert_eq!(again.events[0].attempts, 0);
    }
}

/// Texts that terminals, encodings and databases choke on, and one of a megabyte.
fn odd_texts() -> [String; 5] {
    [
        format!("\0\u{1f600}\\'\"{}", "é\0".repeat(600_000)),
        (0..0x20).filter_map(char::from_u32).chain(['\u{7f}', '\u{80}', '\u{9f}']).collect(),
        "%s $1 ?1 :a @b {} \\u0000 \\x00 E'\\\\' -- /* \"; DROP TABLE x".to_owned(),
        "\u{feff}\u{fffe}\u{ffff}\u{202e}\u{d7ff}\u{e000}\u{10ffff}".to_owned(),
        String::new(),
    ]
}

pub(crate) async fn any_failure_text_can_be_stored<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        for text in odd_texts() {
            let outbox = H::make(USUAL).await;
            let inserted =
                outbox.insert(&[of_key("a"), of_key("b"), of_key("c"), of_key("d")]).await;
            let store = outbox.store();
            let batch = claim(&*store, wish).await.expect("work");
            let odd = Failure::new(Cause::PluginTrap, &text);
            let settled = settle(&*store, &batch, |event| {
                let failure = odd.clone();
                match inserted.iter().position(|id| is(event, *id)) {
                    Some(0) => Action::Park(failure),
                    Some(1) => Action::Retry { after: LATER, failure },
                    Some(2) => Action::Wait { after: LATER, failure },
                    _ => Action::Dropped(failure.message),
                }
            })
            .await;
            assert!(settled.lost.is_empty());
            for (id, status) in inserted.iter().zip(["FAILED", "PENDING", "PENDING"]) {
                let row = outbox.row(*id).await.expect("the row is there");
                assert_eq!((row.0.as_str(), row.2.as_deref()), (status, Some("plugin_trap")));
                assert_eq!(outbox.failure_text(*id).await.as_ref(), Some(&odd.message), "{text:?}");
            }
        }
    }
}

pub(crate) async fn the_standing_of_a_lane_is_told<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let store = outbox.store();
        outbox
            .insert(&[
                of_key("a"),
                of_key("b"),
                of_key("c"),
                NewEvent { due_in: 3600.0, ..of_key("d") },
            ])
            .await;
        store.open_lane(&lane("default"), wish.ordering).await.expect("opens");
        let stats = store.stats(&lane("default"), wish.ordering).await.expect("stats");
        assert_eq!((stats.pending, stats.processing, stats.failed), (4, 0, 0));
        assert!(stats.oldest_due.is_some());
        let batch = claim(&*store, wish).await.expect("work");
        let stats = store.stats(&lane("default"), wish.ordering).await.expect("stats");
        assert_eq!((stats.pending, stats.processing), (1, 3));
        assert_eq!(stats.oldest_due, None, "what is being worked on or not due yet is not overdue");
        settle(&*store, &batch, |event| {
            if event.id == batch.events[0].id { Action::Park(failure()) } else { Action::Published }
        })
        .await;
        let stats = store.stats(&lane("default"), wish.ordering).await.expect("stats");
        assert_eq!((stats.pending, stats.processing, stats.failed), (1, 0, 1));
    }
}

pub(crate) async fn held_keys_starve_nobody<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let store = outbox.store();
    let held: Vec<_> = (0..40).map(|n| of_key(&format!("held-{n}"))).collect();
    outbox.insert(&held).await;
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |_| Action::Halt(failure())).await;
    // Every shard has a held key with events that look due, and one of them something to do.
    let few = Wish { shards: 1, look: Look::Quick, ..BY_KEY };
    for round in 0..3 {
        outbox.insert(&held).await;
        let free = outbox.insert(&[of_key(&format!("free-{round}"))]).await;
        let batch = claim(&*store, few).await.expect("the free key is found at once");
        assert_eq!(ids(&batch), free);
        publish(&*store, &batch).await;
        assert!(claim(&*store, few).await.is_none());
    }
}

pub(crate) async fn events_without_a_key_hold_nothing<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let keyless = NewEvent { key: None, ..of_key("") };
    let inserted = outbox.insert(&[keyless.clone(), keyless]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |event| {
        if is(event, inserted[0]) {
            Action::Retry { after: LATER, failure: failure() }
        } else {
            Action::Release
        }
    })
    .await;
    assert_eq!(ids(&claim(&*store, BY_KEY).await.expect("work")), inserted[1..]);
}
