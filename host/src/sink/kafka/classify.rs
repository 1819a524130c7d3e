//! What a delivery error of librdkafka means for the record that got it.
//!
//! The one place that reads error codes. Pure; the publish call acts on the verdict, and the
//! contract's `Cause` decides the kind of the failure.

use rdkafka::error::RDKafkaErrorCode as Code;

use crate::failure::Cause;

/// What an error code says about one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The broker refused the batch the record was in, for good. It is this record's fault only
    /// if it was alone in it.
    Refused(Cause),
    /// The record suffers from what happened to another one, or to the producer.
    Collateral,
    /// The broker could not be asked, or did not answer in time.
    Lost(Cause),
}

/// Reads `code`. `explicit` says whether the record itself named its partition.
pub(super) fn verdict(code: Code, explicit: bool) -> Verdict {
    match code {
        // The size of what was sent exceeds the topic's `max.message.bytes`, or its segment size.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
            Verdict::Refused(Cause::RecordTooLarge)
        }
        // The timestamp is out of the range the topic allows: no other record can mend that.
        // A policy on the broker looked at the record and said no.
        Code::InvalidTimestamp | Code::PolicyViolation => Verdict::Refused(Cause::RecordRefused),
        // A keyless record on a compacted topic, headers on an ancient message format, a codec
        // the topic does not take: someone has to change the topic or the route.
        Code::InvalidRecord
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Verdict::Refused(Cause::TopicRefusesRecord),
        // A name no topic can have, or an internal topic: the event asks for the impossible.
        Code::InvalidTopic => Verdict::Refused(Cause::TopicIllegal),
        // An access rule is missing.
        Code::TopicAuthorizationFailed => Verdict::Refused(Cause::TopicUnauthorised),
        // The topic was deleted, or does not exist yet.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            Verdict::Refused(Cause::TopicUnknown)
        }
        // A partition the record asked for does not exist: the event's fault. One that we
        // computed does not exist: the topic was replaced by a smaller one, so as if unknown.
        Code::UnknownPartition if explicit => Verdict::Refused(Cause::PartitionIllegal),
        Code::UnknownPartition => Verdict::Refused(Cause::TopicUnknown),
        // Purged with its producer; or the producer can no longer vouch for the order; or another
        // record of the batch was at fault.
        Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Retry
        | Code::Fatal
        | Code::GaplessGuarantee
        | Code::Inconsistent
        | Code::Fenced
        | Code::ProducerFenced
        | Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping
        | Code::UnknownProducerId
        | Code::InvalidDifferentRecord => Verdict::Collateral,
        // Somebody answered too late.
        Code::MessageTimedOut
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::TimedOutQueue => Verdict::Lost(Cause::PublishTimeout),
        // Everything else is taken as the cluster's state and not the record's: a code that is
        // new to us must never park an innocent event. That includes missing rights of the whole
        // client (ClusterAuthorizationFailed), which an operator has to mend.
        _ => Verdict::Lost(Cause::BrokerUnavailable),
    }
}

/// Whether the failure is one of the whole topic, so that trying its other records is pointless.
pub(super) fn concerns_topic(cause: Cause) -> bool {
    matches!(cause, Cause::TopicUnknown | Cause::TopicUnauthorised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn refusals_are_never_infrastructure_and_losses_always_are() {
        for number in -199..120 {
            let Ok(raw) = rdkafka::types::RDKafkaRespErr::try_from(number) else {
                continue;
            };
            let code = Code::from(raw);
            for explicit in [false, true] {
                match verdict(code, explicit) {
                    Verdict::Refused(cause) => {
                        assert_ne!(cause.kind(), FailureKind::Infrastructure, "{code:?}");
                    }
                    Verdict::Lost(cause) => {
                        assert_eq!(cause.kind(), FailureKind::Infrastructure, "{code:?}");
                    }
                    Verdict::Collateral => {}
                }
            }
        }
    }

    #[test]
    fn an_outage_refuses_nothing() {
        for code in [
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::NotLeaderForPartition,
            Code::LeaderNotAvailable,
            Code::KafkaStorageError,
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::ThrottlingQuotaExceeded,
            Code::Authentication,
            Code::ClusterAuthorizationFailed,
        ] {
            assert_eq!(verdict(code, false), Verdict::Lost(Cause::BrokerUnavailable), "{code:?}");
        }
    }

    #[test]
    fn a_missing_partition_is_the_events_fault_only_if_it_asked_for_it() {
        assert_eq!(
            verdict(Code::UnknownPartition, true),
            Verdict::Refused(Cause::PartitionIllegal)
        );
        assert_eq!(verdict(Code::UnknownPartition, false), Verdict::Refused(Cause::TopicUnknown));
    }
}
