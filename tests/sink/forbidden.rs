//! A topic that the broker's access rules forbid to the relay's login, beside one that they allow.

use std::sync::Arc;
use std::time::Duration;

use haulier::failure::Cause;
use haulier::sink::kafka::KafkaSink;
use haulier::sink::{Receipt, Sink as _};
use haulier_tests::access::{Left, forbid, permit};
use haulier_tests::process::eventually;

use crate::broker::{
    acknowledged, bootstrap, events_in_order, open, outgoing, read, refused, setting, topic,
};
use crate::login::secured;

/// How long a rule may take until the broker goes by it.
const SOON: Duration = Duration::from_secs(60);

fn logged_in() -> Arc<KafkaSink> {
    let user = setting("HAULIER_TEST_KAFKA_USER");
    let password = setting("HAULIER_TEST_KAFKA_PASSWORD");
    let options =
        [("sasl.mechanism", "PLAIN"), ("sasl.username", &*user), ("sasl.password", &*password)];
    Arc::new(KafkaSink::new(secured(&options), "test").unwrap())
}

/// Publishes to the forbidden topic until it is refused, which takes effect a moment after the rule.
/// Returns how many events went through before.
async fn until_refused(sink: &KafkaSink, topic: &str) -> u32 {
    let mut events = 0;
    let mut last = None;
    let closed = eventually(SOON, async || {
        let receipts = sink.publish(vec![outgoing(0, events, topic)], &open()).await;
        events += u32::from(receipts[0] == Receipt::Acknowledged);
        last = receipts.into_iter().next();
        last.as_ref().and_then(refused) == Some(Cause::TopicUnauthorised)
    })
    .await;
    assert!(closed, "never forbidden, last: {last:?}");
    events
}

async fn forbidden_and_permitted_again(left: Left) {
    let (closed, free) = (topic("closed", 2, &[]).await, topic("free", 2, &[]).await);
    let sink = logged_in();
    let warm = vec![outgoing(0, 0, &closed), outgoing(100, 0, &free)];
    assert_eq!(acknowledged(&sink.publish(warm, &open()).await), 2);
    forbid(&closed, left);
    // The topic is known as a good one: the refusal comes in the middle of what is on its way.
    let before = until_refused(&sink, &closed).await;
    for round in 0..3 {
        let mut records = Vec::new();
        for event in 0..20 {
            records.extend((1..5).map(|slot| outgoing(slot, event, &closed)));
            records.extend((101..105).map(|slot| outgoing(slot, 20 * round + event + 1, &free)));
        }
        let receipts = sink.publish(records.clone(), &open()).await;
        for (record, receipt) in records.iter().zip(&receipts) {
            match (record.slot, record.event) {
                (101.., _) => assert_eq!(*receipt, Receipt::Acknowledged),
                (_, 0) => {
                    assert_eq!(refused(receipt), Some(Cause::TopicUnauthorised), "{receipt:?}")
                }
                _ => assert_eq!(*receipt, Receipt::Unsent),
            }
        }
    }
    permit(&closed);
    let mut receipts = Vec::new();
    let opened = eventually(SOON, async || {
        receipts = sink.publish(vec![outgoing(1, 0, &closed)], &open()).await;
        receipts == [Receipt::Acknowledged]
    })
    .await;
    assert!(opened, "still forbidden: {receipts:?}");
    let rest = (1..20).map(|event| outgoing(1, event, &closed)).collect();
    assert_eq!(acknowledged(&sink.publish(rest, &open()).await), 19);
    let there = events_in_order(&read(&bootstrap(), &closed));
    assert_eq!(there.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(there[&1], (0..20).collect::<Vec<_>>(), "nothing of it was there before");
    assert!(there[&0].len() >= before as usize);
    let there = events_in_order(&read(&bootstrap(), &free));
    assert_eq!(there.values().map(Vec::len).sum::<usize>(), 1 + 3 * 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_may_not_be_written_to_waits_and_no_other() {
    forbidden_and_permitted_again(Left::Sight).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_may_not_be_seen_waits_and_no_other() {
    forbidden_and_permitted_again(Left::Nothing).await;
}
