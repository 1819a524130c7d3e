//! The operators' desk: what is looked at, and what is changed without harm to what goes on.

use std::sync::Arc;
use std::time::Duration;

use haulier::event::EventId;
use haulier::failure::{Cause, Failure};
use haulier::store::{
    Action, AuditEntry, AuditId, Batch, Behind, Change, Changed, DISCARDED, DueIn, EventState,
    HeldKey, HeldQuery, Look, Outbox, Refusal, Selection, Settle,
};

use crate::harness::{
    BY_KEY, BY_ROW, Harness, Making, USUAL, Wish, claim, claim_soon, failure, ids, is, of_key,
    publish, settle,
};

const LATER: Duration = Duration::from_secs(3600);
const QUICK: Wish = Wish { look: Look::Quick, ..BY_KEY };

fn event_ids(of: &[i64]) -> Vec<EventId> {
    of.iter().copied().map(EventId).collect()
}

pub(crate) async fn audit(desk: &dyn Outbox, action: &str) -> AuditId {
    let entry = AuditEntry {
        actor: "ada",
        via: "test",
        action,
        selection: r#"{"key":"k"}"#,
        note: Some("because"),
    };
    desk.audit(&entry).await.expect("an audit record")
}

async fn change(desk: &dyn Outbox, change: Change, of: &[i64]) -> Changed {
    let audit = audit(desk, "change").await;
    desk.change(&change, &event_ids(of), &[], audit).await.expect("changes")
}

async fn selected(desk: &dyn Outbox, selection: Selection) -> Vec<i64> {
    let seen = desk.events(&selection, EventId(i64::MIN), 100).await.expect("a list");
    seen.iter().map(|event| event.id.0).collect()
}

async fn held_keys(
    desk: &dyn Outbox,
    key: Option<&str>,
    after: Option<(&str, &str)>,
) -> Vec<HeldKey> {
    let query =
        HeldQuery { lane: None, key, reason: None, after, limit: 10, behind: Behind::Counted };
    desk.held_keys(&query).await.expect("held keys")
}

async fn state(desk: &dyn Outbox, id: i64) -> Option<EventState> {
    desk.event(EventId(id)).await.expect("a look").map(|whole| whole.seen.state)
}

/// Settles what is due as `decide` says, by the place of the event among `inserted`.
async fn decided<H: Harness>(outbox: &H, wish: Wish, decide: impl Fn(&Batch) -> Vec<Action>) {
    let store = outbox.store();
    let batch = claim(&*store, wish).await.expect("work");
    let actions = decide(&batch);
    settle(&*store, &batch, |event| {
        let place = batch.events.iter().position(|other| other.id == event.id).expect("there");
        actions[place].clone()
    })
    .await;
}

pub(crate) async fn events_are_found_by_what_is_known_of_them<H: Harness>() {
    let outbox = H::make(Making { settle: Settle::Mark, ..USUAL }).await;
    let desk: Arc<dyn Outbox> = outbox.outbox();
    let inserted = outbox.insert(&["a", "b", "c", "d", "e"].map(of_key)).await;
    let [failed, halted, waiting, published, pending] = inserted[..] else { panic!("five") };
    let large = Failure::new(Cause::RecordTooLarge, "too large");
    let store = outbox.store();
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(&*store, &batch, |event| match event.id.0 {
        id if id == failed => Action::Park(large.clone()),
        id if id == halted => Action::Halt(failure()),
        id if id == waiting => Action::Retry { after: LATER, failure: failure() },
        id if id == published => Action::Published,
        _ => Action::Release,
    })
    .await;
    let all = |selection| selected(&*desk, selection);
    let any = Selection::default;
    let in_state = |state| Selection { states: vec![state], ..Selection::default() };
    assert_eq!(all(any()).await, inserted);
    assert_eq!(all(in_state(EventState::Failed)).await, [failed]);
    assert_eq!(all(in_state(EventState::Halted)).await, [halted]);
    assert_eq!(all(in_state(EventState::Waiting)).await, [waiting]);
    assert_eq!(all(in_state(EventState::Published)).await, [published]);
    assert_eq!(all(in_state(EventState::Pending)).await, [halted, waiting, pending]);
    let two = vec![EventState::Failed, EventState::Published];
    assert_eq!(all(Selection { states: two, ..any() }).await, [failed, published]);
    assert_eq!(all(Selection { key: Some("b".into()), ..any() }).await, [halted]);
    assert_eq!(all(Selection { key: Some("B".into()), ..any() }).await, [0_i64; 0]);
    let reason = Some("record_too_large".into());
    assert_eq!(all(Selection { reason, ..any() }).await, [failed]);
    assert_eq!(all(Selection { lane: Some("other".into()), ..any() }).await, [0_i64; 0]);
    let ids = event_ids(&[pending, failed]);
    assert_eq!(all(Selection { ids, ..any() }).await, [failed, pending]);
    let event_type =
        |text: &str| Selection { event_type: Some(text.into()), ..Selection::default() };
    let seen = desk.events(&any(), EventId(failed), 2).await.expect("a list");
    assert_eq!(seen.iter().map(|event| event.id.0).collect::<Vec<_>>(), [halted, waiting]);
    let known = &seen[0].event_type;
    assert_eq!(all(event_type(known)).await, inserted);
    assert_eq!(all(event_type(&format!("{}*", &known[..1]))).await, inserted);
    assert_eq!(all(event_type(&known.to_uppercase())).await, [0_i64; 0]);
    assert_eq!(all(event_type("_*%")).await, [0_i64; 0]);
    assert_eq!((seen[0].due, seen[0].attempts), (DueIn::Never, 1));
    assert!(matches!(seen[1].due, DueIn::After(left) if left > LATER / 2));
    let whole = desk.event(EventId(failed)).await.expect("a look").expect("an event");
    assert_eq!(whole.seen.reason.as_deref(), Some("record_too_large"));
    assert_eq!(whole.seen.error.as_deref(), Some("too large"));
    assert_eq!(whole.payload.as_deref(), Some(&b"{}"[..]));
    assert!(desk.event(EventId(halted)).await.expect("a look").expect("an event").holds_key);
    assert!(desk.event(EventId(99_999)).await.expect("a look").is_none());
}

pub(crate) async fn a_retried_event_is_due_again_and_marked<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let desk = outbox.outbox();
    let inserted = outbox.insert(&[of_key("k")]).await;
    decided(&outbox, BY_KEY, |_| vec![Action::Park(failure())]).await;
    assert_eq!(state(&*desk, inserted[0]).await, Some(EventState::Failed));
    let audit = audit(&*desk, "retry").await;
    let changed =
        desk.change(&Change::Retry, &event_ids(&inserted), &[], audit).await.expect("changes");
    assert_eq!(changed.done, event_ids(&inserted));
    let batch = claim_soon(&*outbox.store(), QUICK).await;
    assert_eq!(ids(&batch), inserted);
    assert_eq!(batch.events[0].attempts, 0, "with all attempts before it");
    assert_eq!(batch.events[0].redelivery, Some(format!("retry/{}", audit.0)));
    publish(&*outbox.store(), &batch).await;
    let again = change(&*desk, Change::Retry, &inserted).await;
    assert_eq!(again.refused, [(EventId(inserted[0]), Refusal::Gone)]);
}

pub(crate) async fn a_halted_event_that_is_retried_comes_before_its_successors<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k")]).await;
    decided(&outbox, BY_KEY, |_| vec![Action::Halt(failure()), Action::Release, Action::Release])
        .await;
    assert!(claim(&*store, BY_KEY).await.is_none());
    let held = held_keys(&*desk, None, None).await;
    assert_eq!((held[0].key.as_str(), held[0].event.0), ("k", inserted[0]));
    assert_eq!((held[0].waiting, held[0].until), (3, DueIn::Never));
    assert!(held[0].event_pending);
    change(&*desk, Change::Retry, &inserted[..1]).await;
    let batch = claim_soon(&*store, QUICK).await;
    assert_eq!(ids(&batch), inserted);
    assert!(batch.events[0].redelivery.is_none(), "nothing has overtaken it");
    publish(&*store, &batch).await;
    assert!(held_keys(&*desk, None, None).await.is_empty());
}

pub(crate) async fn a_discarded_event_lets_its_key_go<H: Harness>() {
    for (mode, left) in [(Settle::Delete, None), (Settle::Mark, Some(EventState::Published))] {
        let outbox = H::make(Making { settle: mode, ..USUAL }).await;
        let (desk, store) = (outbox.outbox(), outbox.store());
        let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
        decided(&outbox, BY_KEY, |_| vec![Action::Halt(failure()), Action::Release]).await;
        let why = Change::Discard("discarded: test".into());
        let changed = change(&*desk, why, &inserted[..1]).await;
        assert_eq!(changed.done, event_ids(&inserted[..1]));
        assert_eq!(state(&*desk, inserted[0]).await, left);
        assert_eq!(ids(&claim_soon(&*store, QUICK).await), inserted[1..]);
    }
}

pub(crate) async fn a_released_key_goes_on_without_the_event_that_held_it<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("l")]).await;
    let wait = Action::Wait { after: LATER, failure: failure() };
    let batch = claim(&*store, BY_KEY).await.expect("work");
    settle(
        &*store,
        &batch,
        |event| {
            if is(event, inserted[1]) { Action::Release } else { wait.clone() }
        },
    )
    .await;
    let held = held_keys(&*desk, Some("k"), None).await;
    assert_eq!(held.len(), 1);
    let behind = held_keys(&*desk, None, Some(("default", "k"))).await;
    assert_eq!(behind.iter().map(|held| held.key.as_str()).collect::<Vec<_>>(), ["l"]);
    change(&*desk, Change::SetAside, &inserted[..1]).await;
    assert_eq!(state(&*desk, inserted[0]).await, Some(EventState::Failed));
    assert_eq!(ids(&claim_soon(&*store, QUICK).await), inserted[1..2]);
    assert!(!desk.drop_hold("default", "l").await.expect("drops"), "its event is waiting");
    assert!(!desk.drop_hold("default", "k").await.expect("drops"), "it is gone");
}

pub(crate) async fn what_is_being_worked_on_is_left_alone<H: Harness>() {
    for wish in [BY_KEY, BY_ROW] {
        let outbox = H::make(USUAL).await;
        let (desk, store) = (outbox.outbox(), outbox.store());
        let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
        let batch = claim(&*store, Wish { rows: 1, ..wish }).await.expect("work");
        let discard = || Change::Discard("discarded: test".into());
        let changed = change(&*desk, discard(), &inserted).await;
        assert_eq!(changed.refused, [(EventId(inserted[0]), Refusal::InFlight)]);
        assert_eq!(changed.done, event_ids(&inserted[1..]), "nobody has that one");
        let whole = desk.event(EventId(inserted[0])).await.expect("a look").expect("an event");
        assert_eq!(whole.owner.as_deref(), Some("test"));
        assert!(publish(&*store, &batch).await.lost.is_empty());
        assert!(claim(&*store, wish).await.is_none());
    }
}

pub(crate) async fn published_events_are_replayed_in_order<H: Harness>() {
    let outbox = H::make(Making { settle: Settle::Mark, ..USUAL }).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k"), of_key("k")]).await;
    publish(&*store, &claim(&*store, BY_KEY).await.expect("work")).await;
    let audit = audit(&*desk, "replay").await;
    let changed =
        desk.change(&Change::Replay, &event_ids(&inserted), &[], audit).await.expect("changes");
    assert_eq!(changed.done.len(), 3);
    let batch = claim_soon(&*store, QUICK).await;
    assert_eq!(ids(&batch), inserted);
    let mark = Some(format!("replay/{}", audit.0));
    assert!(batch.events.iter().all(|event| event.redelivery == mark));
    publish(&*store, &batch).await;
    let unfit = change(&*desk, Change::Retry, &inserted[..1]).await;
    let why = Refusal::Unfit(EventState::Published);
    assert_eq!(unfit.refused, [(EventId(inserted[0]), why)]);
}

pub(crate) async fn who_changed_what_is_recorded<H: Harness>() {
    let outbox = H::make(USUAL).await;
    let desk = outbox.outbox();
    let inserted = outbox.insert(&[of_key("a"), of_key("b"), of_key("c")]).await;
    decided(&outbox, BY_KEY, |batch| vec![Action::Park(failure()); batch.events.len()]).await;
    let audit = audit(&*desk, "retry").await;
    for id in [inserted[2], inserted[0]] {
        desk.change(&Change::Retry, &[EventId(id)], &[], audit).await.expect("changes");
    }
    let record = desk.audits(5).await.expect("records").remove(0);
    assert_eq!((record.id, record.events, record.ended_at_ms), (audit, 2, None));
    assert_eq!(record.range, Some((EventId(inserted[0]), EventId(inserted[2]))));
    assert_eq!((record.actor.as_str(), record.via.as_str()), ("ada", "test"));
    assert_eq!(record.note.as_deref(), Some("because"));
    desk.audit_ended(audit).await.expect("ends");
    assert!(desk.audits(1).await.expect("records")[0].ended_at_ms.is_some());
    assert_eq!(desk.horizon().await.expect("a horizon").highest.0, inserted[2]);
}

pub(crate) async fn what_was_chosen_in_one_state_is_not_changed_in_another<H: Harness>() {
    let outbox = H::make(Making { settle: Settle::Mark, ..USUAL }).await;
    let (desk, store) = (outbox.outbox(), outbox.store());
    let inserted = outbox.insert(&[of_key("k"), of_key("k")]).await;
    decided(&outbox, BY_KEY, |_| vec![Action::Park(failure()), Action::Park(failure())]).await;
    change(&*desk, Change::Retry, &inserted[..1]).await;
    let audit = audit(&*desk, "discard").await;
    let why = Change::Discard("discarded: test".into());
    let chosen = [EventState::Failed];
    let changed = desk.change(&why, &event_ids(&inserted), &chosen, audit).await.expect("changes");
    assert_eq!(changed.done, event_ids(&inserted[1..]));
    let pending = Refusal::Unfit(EventState::Pending);
    assert_eq!(changed.refused, [(EventId(inserted[0]), pending)]);
    // What was discarded is told apart from what was published.
    let kept = Selection { reason: Some(DISCARDED.into()), ..Selection::default() };
    assert_eq!(selected(&*desk, kept).await, inserted[1..]);
    let others = Selection { except_reason: Some(DISCARDED), ..Selection::default() };
    assert_eq!(selected(&*desk, others).await, inserted[..1]);
    publish(&*store, &claim_soon(&*store, QUICK).await).await;
}
