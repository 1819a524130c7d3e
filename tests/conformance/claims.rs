//! Claiming: each event once, in order, within limits.

use std::collections::BTreeSet;
use std::time::Duration;

use haulier::event::Ordering;
use haulier::store::Look;

use crate::harness::{
    AN_INSTANT, BY_KEY, BY_ROW, Harness, NewEvent, USUAL, Wish, claim, claim_soon, ids, lane,
    of_key, publish, sorted,
};

async fn each_event_once<H: Harness>(wish: Wish) {
    let outbox = H::make(USUAL).await;
    let events: Vec<NewEvent> = (0..100).map(|n| of_key(&format!("key-{n}"))).collect();
    let inserted = outbox.insert(&events).await;
    let (a, b, c, d) = (outbox.store(), outbox.store(), outbox.store(), outbox.store());
    let wish = Wish { rows: 50, ..wish };
    // Opened before, so that the four claims really meet.
    outbox.store().open_lane(&lane("default"), wish.ordering).await.expect("opens");
    let (a, b, c, d) =
        tokio::join!(claim(&*a, wish), claim(&*b, wish), claim(&*c, wish), claim(&*d, wish));
    let mut all = Vec::new();
    for batch in [a, b, c, d].iter().flatten() {
        all.extend(ids(batch));
        publish(&*outbox.store(), batch).await;
    }
    // What a claimer passed over because another had it locked is there for the next look.
    while let Some(batch) = claim(&*outbox.store(), wish).await {
        all.extend(ids(&batch));
        publish(&*outbox.store(), &batch).await;
    }
    assert_eq!(all.len(), 100, "no event is claimed twice");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), inserted.into_iter().collect());
}

pub(crate) async fn leases_give_each_event_once<H: Harness>() {
    each_event_once::<H>(BY_KEY).await;
}

pub(crate) async fn row_claims_give_each_event_once<H: Harness>() {
    each_event_once::<H>(BY_ROW).await;
}

pub(crate) async fn total_order_has_one_holder<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("a"), of_key("b"), of_key("c"), of_key("d")]).await;
    let wish = Wish { ordering: Ordering::Total, rows: 3, ..BY_KEY };
    let store = outbox.store();
    let first = claim(&*store, wish).await.expect("work");
    assert_eq!(ids(&first), inserted[..3]);
    assert!(claim(&*store, wish).await.is_none(), "the lane has one holder");
    publish(&*store, &first).await;
    assert_eq!(ids(&claim(&*store, wish).await.expect("work")), inserted[3..]);
}

pub(crate) async fn events_of_a_shard_come_in_id_order<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let events: Vec<NewEvent> = (0..200).map(|n| of_key(&format!("key-{}", n % 7))).collect();
    let inserted = outbox.insert(&events).await;
    let store = outbox.store();
    let batch = claim(&*store, Wish { rows: 1000, ..BY_KEY }).await.expect("work");
    assert_eq!(sorted(&batch), inserted);
    for shard in &batch.shards {
        let of_shard: Vec<_> = batch
            .events
            .iter()
            .filter(|event| event.shard == *shard)
            .map(|event| event.id)
            .collect();
        assert!(of_shard.is_sorted(), "shard {shard}: {of_shard:?}");
    }
    let keys: BTreeSet<_> =
        batch.events.iter().map(|event| (event.aggregate_id.clone(), event.shard)).collect();
    assert_eq!(keys.len(), 7, "a key never spans two shards");
}

pub(crate) async fn a_batch_is_limited_by_rows_and_by_bytes<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let large = |n: usize| NewEvent {
            payload: Some(format!("\"{}\"", "x".repeat(n)).into_bytes()),
            ..of_key("k")
        };
        let inserted = outbox.insert(&[large(3000), large(500), large(500), large(500)]).await;
        let store = outbox.store();
        let wish = Wish { bytes: 1100, ..wish };
        let first = claim(&*store, wish).await.expect("work");
        assert_eq!(ids(&first), inserted[..1], "one event always comes, however large");
        assert!(first.full);
        publish(&*store, &first).await;
        let second = claim(&*store, wish).await.expect("work");
        assert_eq!(ids(&second), inserted[1..3], "two fit");
        publish(&*store, &second).await;
        outbox.insert(&[large(1), large(1)]).await;
        let third = claim(&*store, Wish { rows: 2, ..wish }).await.expect("work");
        assert_eq!(third.events.len(), 2);
    }
}

pub(crate) async fn a_late_commit_with_a_lower_id_is_claimed<H: Harness>() {
    for wish in [BY_KEY, BY_ROW, Wish { ordering: Ordering::Total, ..BY_KEY }] {
        let outbox = H::make(USUAL).await;
        let store = outbox.store();
        let late = outbox
            .insert_late(&of_key("a"), async || {
                let higher = outbox.insert(&[of_key("b")]).await;
                let batch = claim(&*store, wish).await.expect("work");
                assert_eq!(ids(&batch), higher);
                publish(&*store, &batch).await;
            })
            .await;
        assert_eq!(ids(&claim_soon(&*store, Wish { look: Look::Quick, ..wish }).await), [late]);
    }
}

pub(crate) async fn an_event_that_is_not_due_waits_alone<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let later = NewEvent { due_in: 3600.0, ..of_key("k") };
        let soon = NewEvent { due_in: 5.0, ..of_key("k") };
        let inserted = outbox.insert(&[later, of_key("k"), soon]).await;
        let store = outbox.store();
        let batch = claim(&*store, wish).await.expect("work");
        assert_eq!(ids(&batch), inserted[1..2]);
        publish(&*store, &batch).await;
        assert_eq!(
            ids(&claim_soon(&*store, Wish { look: Look::Quick, ..wish }).await),
            inserted[2..]
        );
    }
}

pub(crate) async fn other_lanes_are_left_alone<H: Harness>() {
    for wish in [BY_KEY, BY_ROW, Wish { ordering: Ordering::Total, ..BY_KEY }] {
        let outbox = H::make(USUAL).await;
        let slow = NewEvent { lane: "slow", ..of_key("k") };
        let inserted = outbox.insert(&[slow, of_key("k")]).await;
        let store = outbox.store();
        assert_eq!(ids(&claim(&*store, wish).await.expect("work")), inserted[1..]);
        assert!(claim(&*store, wish).await.is_none());
        assert_eq!(
            ids(&claim(&*store, Wish { lane: "slow", ..wish }).await.expect("work")),
            inserted[..1]
        );
    }
}

pub(crate) async fn a_renewed_lease_is_kept_and_a_lost_one_is_told<H: Harness>() {
    renewal::<H>(BY_KEY).await;
}

pub(crate) async fn row_claims_are_renewed_and_lost_the_same_way<H: Harness>() {
    renewal::<H>(BY_ROW).await;
}

async fn renewal<H: Harness>(wish: Wish) {
    let outbox = H::make(USUAL).await;
    outbox.insert(&[of_key("k")]).await;
    let store = outbox.store();
    let held = claim(&*store, Wish { lease: AN_INSTANT, ..wish }).await.expect("work");
    let minute = Duration::from_secs(60);
    assert!(store.renew(&lane("default"), &held.claim(), minute).await.expect("renews"));
    assert!(claim(&*store, wish).await.is_none(), "a renewed claim is not taken");
    assert!(store.renew(&lane("default"), &held.claim(), AN_INSTANT).await.expect("renews"));
    let taken = claim_soon(&*store, wish).await;
    assert_eq!(ids(&taken), ids(&held));
    assert!(!store.renew(&lane("default"), &held.claim(), minute).await.expect("answers"));
}
