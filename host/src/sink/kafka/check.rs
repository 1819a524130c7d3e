//! What can be known to be wrong with a record before it is sent.
//!
//! A refusal by the broker is expensive: it hits a whole produce batch and costs a producer. So
//! size, topic name and timestamp are checked here first. Pure; called once per record.

use bytes::Bytes;

use crate::event::Record;
use crate::failure::{Cause, Failure};

/// The longest topic name a broker takes.
const MAX_TOPIC_NAME: usize = 249;
/// Batch header (61 bytes) and the record's own lengths and deltas, rounded up.
const RECORD_OVERHEAD: usize = 128;
/// The lengths of one header's name and value, as variable-length integers.
const HEADER_OVERHEAD: usize = 10;

/// Whether `record` may be sent at all.
///
/// # Errors
/// An event failure that says what is wrong with the record.
pub(super) fn check(record: &Record, max_record_bytes: usize) -> Result<(), Failure> {
    topic(&record.topic)?;
    let size = size(record);
    if size > max_record_bytes {
        return Err(Failure::new(
            Cause::RecordTooLarge,
            format!(
                "the record takes {size} bytes with key, headers and overhead; \
                 max_record_bytes allows {max_record_bytes}"
            ),
        ));
    }
    if let Some(partition) = record.partition
        && partition < 0
    {
        return Err(Failure::new(
            Cause::PartitionIllegal,
            format!("partition {partition} cannot exist"),
        ));
    }
    if let Some(timestamp) = record.timestamp_ms
        && timestamp < 0
    {
        return Err(Failure::new(
            Cause::RecordRefused,
            format!("the timestamp {timestamp} ms is before 1970; Kafka has no such timestamps"),
        ));
    }
    Ok(())
}

/// An upper bound of what the record takes on the wire, uncompressed and alone in its batch.
pub(super) fn size(record: &Record) -> usize {
    let headers: usize = record
        .headers
        .iter()
        .map(|header| HEADER_OVERHEAD + header.name.len() + length(header.value.as_ref()))
        .sum();
    RECORD_OVERHEAD + length(record.key.as_ref()) + length(record.payload.as_ref()) + headers
}

fn length(bytes: Option<&Bytes>) -> usize {
    bytes.map_or(0, Bytes::len)
}

fn topic(name: &str) -> Result<(), Failure> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_TOPIC_NAME {
        "is longer than 249 characters"
    } else if name == "." || name == ".." {
        "is not allowed"
    } else if !name.chars().all(legal) {
        "has characters other than letters, digits, '.', '_' and '-'"
    } else {
        return Ok(());
    };
    Err(Failure::new(Cause::TopicIllegal, format!("the topic name {name:?} {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Header;

    fn record(topic: &str, payload: usize) -> Record {
        Record {
            topic: topic.into(),
            key: Some(Bytes::from_static(b"k")),
            payload: Some(Bytes::from(vec![0; payload])),
            headers: vec![Header::text("X-Event-Type", "a")],
            partition: None,
            timestamp_ms: None,
        }
    }

    fn cause(record: &Record) -> Option<Cause> {
        check(record, 1000).err().map(|failure| failure.cause)
    }

    #[test]
    fn topic_names_are_checked_as_a_broker_does() {
        for good in ["orders", "a.b_c-9", &"x".repeat(249)] {
            assert_eq!(cause(&record(good, 1)), None, "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", "a\0", &"x".repeat(250)] {
            assert_eq!(cause(&record(bad, 1)), Some(Cause::TopicIllegal), "{bad}");
        }
    }

    #[test]
    fn key_headers_and_overhead_count_towards_the_size() {
        let taken = size(&record("t", 0));
        assert_eq!(cause(&record("t", 1000 - taken)), None);
        assert_eq!(cause(&record("t", 1001 - taken)), Some(Cause::RecordTooLarge));
    }

    #[test]
    fn impossible_partitions_and_timestamps_are_the_events_fault() {
        let mut bad = record("t", 1);
        bad.partition = Some(-1);
        assert_eq!(cause(&bad), Some(Cause::PartitionIllegal));
        bad.partition = None;
        bad.timestamp_ms = Some(-1);
        assert_eq!(cause(&bad), Some(Cause::RecordRefused));
    }
}
