//! Recovery: lost claims, suspicion, retention.

use std::time::Duration;

use haulier::store::{Action, Settle, Suspicion};

use crate::harness::{
    AN_INSTANT, BY_KEY, BY_ROW, Harness, Making, NewEvent, USUAL, Wish, claim, claim_soon, failure,
    ids, of_key, publish, settle, suspect,
};

const SHORT: Wish = Wish { lease: AN_INSTANT, ..BY_KEY };

async fn lost_claim_writes_nothing<H: Harness>(wish: Wish) {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k")]).await;
    let store = outbox.store();
    let first = claim(&*store, Wish { lease: AN_INSTANT, ..wish }).await.expect("work");
    let second = claim_soon(&*store, wish).await;
    assert_eq!(ids(&second), inserted);
    let settled = publish(&*store, &first).await;
    assert_eq!((settled.lost.len(), settled.lost_claims), (1, 1));
    assert!(outbox.row(inserted[0]).await.is_some(), "the lost claim wrote nothing");
    assert!(publish(&*store, &second).await.lost.is_empty());
    assert!(outbox.row(inserted[0]).await.is_none());
}

pub(crate) async fn a_lost_lease_writes_nothing<H: Harness>() {
    lost_claim_writes_nothing::<H>(BY_KEY).await;
}

pub(crate) async fn a_lost_row_claim_writes_nothing<H: Harness>() {
    lost_claim_writes_nothing::<H>(BY_ROW).await;
}

pub(crate) async fn settling_twice_is_safe<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        outbox.insert(&[of_key("k")]).await;
        let store = outbox.store();
        let batch = claim(&*store, wish).await.expect("work");
        publish(&*store, &batch).await;
        let next = outbox.insert(&[of_key("k")]).await;
        publish(&*store, &batch).await;
        assert_eq!(ids(&claim(&*store, wish).await.expect("work")), next);
    }
}

pub(crate) async fn expired_leases_are_taken_in_halves_and_alone<H: Harness>() {
    let outbox = H::make(Making { shards: 2, ..USUAL }).await;
    let events: Vec<NewEvent> = (0..40).map(|n| of_key(&format!("key-{n}"))).collect();
    outbox.insert(&events).await;
    let store = outbox.store();
    let lost = claim(&*store, SHORT).await.expect("work");
    assert_eq!((lost.shards.len(), lost.suspicion), (2, Suspicion::None));
    let of = |shard: i32| lost.events.iter().filter(|event| event.shard == shard).count();
    let again = claim_soon(&*store, BY_KEY).await;
    assert!(suspect(&again), "a batch from a lost lease is suspect");
    assert_eq!(again.shards.len(), 1, "and has no company");
    assert_eq!(again.events.len(), (of(again.shards[0]) / 2).max(1));
}

pub(crate) async fn an_event_alone_in_three_losses_is_convicted<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k"), of_key("k")]).await;
    let store = outbox.store();
    let mut losses = 0;
    let convicted = loop {
        let batch = claim_soon(&*store, SHORT).await;
        if batch.suspicion == Suspicion::Convicted {
            break batch;
        }
        losses += 1;
        assert!(losses <= 12, "a killer is found after at most a dozen losses");
    };
    assert_eq!(ids(&convicted), inserted[..1]);
    // Four taken, then two, then one: three losses alone follow.
    assert_eq!(losses, 5);
}

pub(crate) async fn a_living_holder_clears_the_suspicion<H: Harness>() {
    let outbox = H::make(USUAL).await;
    outbox.insert(&[of_key("k"), of_key("k"), of_key("k"), of_key("k")]).await;
    let store = outbox.store();
    let lost = claim(&*store, SHORT).await.expect("work");
    let taken = claim_soon(&*store, SHORT).await;
    assert!(suspect(&taken));
    assert_eq!(publish(&*store, &lost).await.lost_claims, 1);
    // Both were alive all the time: the second loss too.
    let third = claim_soon(&*store, BY_KEY).await;
    publish(&*store, &taken).await;
    publish(&*store, &third).await;
    outbox.insert(&[of_key("k")]).await;
    assert_eq!(claim_soon(&*store, BY_KEY).await.suspicion, Suspicion::None);
}

pub(crate) async fn passing_the_suspect_ends_the_suspicion<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k"), of_key("k")]).await;
    let store = outbox.store();
    claim(&*store, SHORT).await.expect("work");
    let first = claim_soon(&*store, BY_KEY).await;
    assert_eq!(ids(&first), inserted[..2]);
    publish(&*store, &first).await;
    let second = claim_soon(&*store, BY_KEY).await;
    assert_eq!(ids(&second), inserted[2..], "still in halves, up to the suspect");
    assert!(suspect(&second));
    publish(&*store, &second).await;
    outbox.insert(&[of_key("k"), of_key("k"), of_key("k")]).await;
    let third = claim_soon(&*store, BY_KEY).await;
    assert_eq!((third.events.len(), third.suspicion), (3, Suspicion::None));
}

pub(crate) async fn expired_rows_are_taken_in_ever_smaller_batches<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&vec![of_key("k"); 64]).await;
    let store = outbox.store();
    let wish = Wish { lease: AN_INSTANT, rows: 64, ..BY_ROW };
    let mut sizes = vec![claim(&*store, wish).await.expect("work").events.len()];
    // The others of the crowd are taken and published as they come; the first row is always lost.
    let convicted = loop {
        let batch = claim_soon(&*store, wish).await;
        if batch.suspicion == Suspicion::Convicted {
            break batch;
        }
        if ids(&batch).contains(&inserted[0]) {
            sizes.push(batch.events.len());
        } else {
            publish(&*store, &batch).await;
        }
    };
    assert_eq!(ids(&convicted), inserted[..1], "only the one that was in every loss");
    assert_eq!(sizes, [64, 8, 1, 1, 1, 1]);
}

pub(crate) async fn retention_deletes_old_published_events_only<H: Harness>() {
    let outbox = H::make(Making { settle: Settle::Mark, ..USUAL }).await;
    let published = outbox.insert(&[of_key("a"), of_key("b"), of_key("c"), of_key("d")]).await;
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    publish(&*store, &batch).await;
    let pending = outbox.insert(&[of_key("e")]).await;
    for id in &published[..3] {
        outbox.age_published(*id, 3600.0).await;
    }
    let old = Duration::from_secs(600);
    assert_eq!(store.delete_published(old, 2).await.expect("deletes"), 2, "bounded");
    assert_eq!(store.delete_published(old, 2).await.expect("deletes"), 1);
    assert_eq!(store.delete_published(old, 2).await.expect("deletes"), 0);
    assert_eq!(outbox.row(published[3]).await.map(|row| row.0).as_deref(), Some("PUBLISHED"));
    assert_eq!(outbox.row(pending[0]).await.map(|row| row.0).as_deref(), Some("PENDING"));
}

pub(crate) async fn rows_claimed_without_order_are_found_by_leases<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let inserted = outbox.insert(&[of_key("k")]).await;
    let store = outbox.store();
    claim(&*store, Wish { lease: AN_INSTANT, ..BY_ROW }).await.expect("work");
    // The lane has been given an order since.
    assert_eq!(ids(&claim_soon(&*store, BY_KEY).await), inserted);
}

pub(crate) async fn a_suspect_that_is_held_blocks_nobody<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let store = outbox.store();
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k"), of_key("k")]).await;
    claim(&*store, SHORT).await.expect("work");
    let half = claim_soon(&*store, BY_KEY).await;
    assert_eq!(ids(&half), inserted[..2]);
    let hold = Action::Retry { after: Duration::from_secs(3600), failure: failure() };
    settle(
        &*store,
        &half,
        |event| if event.id.0 == inserted[0] { hold.clone() } else { Action::Release },
    )
    .await;
    let others: Vec<NewEvent> = (0..50).map(|n| of_key(&format!("other-{n}"))).collect();
    let others = outbox.insert(&others).await;
    let mut seen = Vec::new();
    while seen.len() < others.len() {
        let batch = claim_soon(&*store, BY_KEY).await;
        seen.extend(ids(&batch));
        publish(&*store, &batch).await;
    }
    seen.sort_unstable();
    assert_eq!(seen, others);
}
