//! A topic that records of one publish call go to: what the call knows of it, and which of its
//! partitions a record goes to.
//!
//! Kept by the publish call. It asks the lane's cache of topics and never sends.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::failure::{Cause, Failure};
use crate::sink::Outgoing;

use super::lane::Lane;
use super::partition;
use super::producer::Generation;
use super::topics::Topic;

/// An answer about the destination at a place.
pub(super) type Lookup<'a> = BoxFuture<'a, (usize, Result<Topic, Failure>)>;

/// A topic that records of this call go to.
pub(super) struct Destination {
    pub(super) name: String,
    /// The records that go there.
    pub(super) records: Vec<usize>,
    pub(super) number: Option<u32>,
    /// Whether it was looked up once more because a record names a partition beyond it.
    doubted: bool,
    /// Whether a producer that did not know the topic, or a partition of it, has asked; by kind.
    pub(super) taught: [bool; 2],
    /// The failure that closed it for this call.
    pub(super) closed: Option<Failure>,
}

impl Destination {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            records: Vec::new(),
            number: None,
            doubted: false,
            taught: [false; 2],
            closed: None,
        }
    }

    /// Looks it up in the lane's cache, which asks through `producer` if it has to.
    pub(super) fn lookup<'a>(
        &self,
        place: usize,
        lane: &'a Lane,
        producer: &Arc<Generation>,
    ) -> Lookup<'a> {
        let (name, producer) = (self.name.clone(), Arc::clone(producer));
        Box::pin(async move { (place, lane.topics.find(&name, &producer).await) })
    }

    /// Whether `answer` has to be asked for once more: one of `records` names a partition that the
    /// topic does not have, and it may have grown since. True once.
    pub(super) fn has_doubts(
        &mut self,
        answer: &Result<Topic, Failure>,
        records: &[Outgoing],
    ) -> bool {
        let Ok(topic) = answer else { return false };
        let beyond = |index: &usize| {
            records[*index].record.partition.is_some_and(|named| named >= topic.partitions)
        };
        let doubts = !self.doubted && self.records.iter().any(beyond);
        self.doubted |= doubts;
        doubts
    }
}

/// The partition a record goes to.
pub(super) fn choose(outgoing: &Outgoing, topic: Topic) -> Result<i32, Failure> {
    let record = &outgoing.record;
    match (record.partition, &record.key) {
        (Some(partition), _) if partition < topic.partitions => Ok(partition),
        (Some(partition), _) => Err(Failure::new(
            Cause::PartitionIllegal,
            format!(
                "partition {partition} does not exist: topic '{}' has {}",
                record.topic, topic.partitions
            ),
        )),
        (None, Some(key)) => Ok(partition::for_key(key, topic.partitions)),
        (None, None) => Ok(partition::for_affinity(outgoing.affinity, topic.partitions)),
    }
}
