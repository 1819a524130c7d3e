//! What a delivery error of librdkafka means for the record that got it.
//!
//! The one place that reads error codes: each that the client knows stands in one place here, with the
//! reason why. Pure; the publish call acts on the verdict, and the contract's `Cause` decides the
//! kind of the failure.

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

/// What a code means that is newer than this file: what nobody has thought about must never park an
/// innocent event.
const NEW: Verdict = Verdict::Lost(Cause::BrokerUnavailable);

/// Reads `code`. `explicit` says whether the record itself named its partition.
pub(super) fn verdict(code: Code, explicit: bool) -> Verdict {
    placed(code, explicit).unwrap_or(NEW)
}

/// The verdict on every code that the client has at the time of writing.
fn placed(code: Code, explicit: bool) -> Option<Verdict> {
    if let Some(cause) = refusal(code, explicit) {
        Some(Verdict::Refused(cause))
    } else if COLLATERAL.contains(&code) {
        Some(Verdict::Collateral)
    } else if LATE.contains(&code) {
        Some(Verdict::Lost(Cause::PublishTimeout))
    } else if TROUBLES.iter().any(|codes| codes.contains(&code)) {
        Some(Verdict::Lost(Cause::BrokerUnavailable))
    } else {
        None
    }
}

/// The codes by which a broker, or the client in its place, refuses a record for good.
fn refusal(code: Code, explicit: bool) -> Option<Cause> {
    let cause = match code {
        // The size of what was sent exceeds the topic's `max.message.bytes`, or its segment size.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => Cause::RecordTooLarge,
        // The timestamp is out of the range the topic allows: no other record can mend that.
        // A policy on the broker looked at the record and said no.
        Code::InvalidTimestamp | Code::PolicyViolation => Cause::RecordRefused,
        // A keyless record on a compacted topic, headers on an ancient message format, a codec
        // the topic does not take: someone has to change the topic or the route.
        Code::InvalidRecord
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Cause::TopicRefusesRecord,
        // A name no topic can have, or an internal topic: the event asks for the impossible.
        Code::InvalidTopic => Cause::TopicIllegal,
        // An access rule is missing.
        Code::TopicAuthorizationFailed => Cause::TopicUnauthorised,
        // The topic was deleted, or does not exist yet.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            Cause::TopicUnknown
        }
        // A partition the record asked for does not exist: the event's fault. One that we
        // computed does not exist: the topic was replaced by a smaller one, so as if unknown.
        Code::UnknownPartition if explicit => Cause::PartitionIllegal,
        Code::UnknownPartition => Cause::TopicUnknown,
        _ => return None,
    };
    Some(cause)
}

/// Purged with its producer; or the producer can no longer vouch for the order; or another record
/// of the batch was at fault. Says nothing about this record.
const COLLATERAL: [Code; 14] = [
    Code::PurgeQueue,
    Code::PurgeInflight,
    Code::Retry,
    Code::Fatal,
    Code::GaplessGuarantee,
    Code::Inconsistent,
    Code::Fenced,
    Code::ProducerFenced,
    Code::OutOfOrderSequenceNumber,
    Code::DuplicateSequenceNumber,
    Code::InvalidProducerEpoch,
    Code::InvalidProducerIdMapping,
    Code::UnknownProducerId,
    Code::InvalidDifferentRecord,
];

/// Somebody answered too late.
const LATE: [Code; 4] =
    [Code::MessageTimedOut, Code::OperationTimedOut, Code::RequestTimedOut, Code::TimedOutQueue];

/// The cluster's trouble, whatever record was sent, by the reason why it is none of the record's.
const TROUBLES: [&[Code]; 6] =
    [&UNREACHABLE, &FAILING_OVER, &BARRED, &MISUNDERSTOOD, &CLIENT_TROUBLE, &NOT_OF_PRODUCING];

/// No broker can be reached at present: the network, its names, or brokers that are down.
const UNREACHABLE: [Code; 11] = [
    Code::BrokerTransportFailure,
    Code::BrokerDestroy,
    Code::DestroyBroker,
    Code::Resolve,
    Code::AllBrokersDown,
    Code::NodeUpdate,
    Code::UnknownBroker,
    Code::NetworkException,
    Code::BrokerNotAvailable,
    Code::ListenerNotFound,
    Code::RebootstrapRequired,
];

/// The cluster is between two states: leaders, replicas and controllers move; a disk has failed; a
/// quota is used up. Another broker takes over, or it passes.
const FAILING_OVER: [Code; 21] = [
    Code::LeaderNotAvailable,
    Code::NotLeaderForPartition,
    Code::ReplicaNotAvailable,
    Code::PreferredLeaderNotAvailable,
    Code::EligibleLeadersNotAvailable,
    Code::ElectionNotNeeded,
    Code::NotController,
    Code::StaleControllerEpoch,
    Code::StaleBrokerEpoch,
    Code::FencedLeaderEpoch,
    Code::UnknownLeaderEpoch,
    Code::ISRInsufficient,
    Code::NotEnoughReplicas,
    Code::NotEnoughReplicasAfterAppend,
    Code::OffsetNotAvailable,
    Code::ReassignmentInProgress,
    Code::NoReassignmentInProgress,
    Code::KafkaStorageError,
    Code::LogDirNotFound,
    Code::ThrottlingQuotaExceeded,
    Code::WaitCache,
];

/// The client as a whole is not let in. An operator has to mend that, and until then no record is
/// at fault.
const BARRED: [Code; 16] = [
    Code::SSL,
    Code::Authentication,
    Code::SaslAuthenticationFailed,
    Code::UnsupportedSASLMechanism,
    Code::IllegalSASLState,
    Code::SecurityDisabled,
    Code::ClusterAuthorizationFailed,
    Code::DelegationTokenAuthDisabled,
    Code::DelegationTokenNotFound,
    Code::DelegationTokenOwnerMismatch,
    Code::DelegationTokenRequestNotAllowed,
    Code::DelegationTokenAuthorizationFailed,
    Code::DelegationTokenExpired,
    Code::InvalidPrincipalType,
    Code::PrincipalDeserializationFailure,
    Code::UnacceptableCredential,
];

/// Broker and client do not understand each other: a version, bytes that were damaged on the way, a
/// request that was put together wrongly. It would hit any record just so.
const MISUNDERSTOOD: [Code; 18] = [
    Code::Unknown,
    Code::BadMessage,
    Code::BadCompression,
    Code::InvalidMessage,
    Code::InvalidMessageSize,
    Code::InvalidRequiredAcks,
    Code::InvalidRequest,
    Code::UnsupportedVersion,
    Code::UnsupportedFeature,
    Code::UnknownProtocol,
    Code::NotImplemented,
    Code::Partial,
    Code::Underflow,
    Code::OperationNotAttempted,
    Code::InvalidConfig,
    Code::InvalidUpdateVersion,
    Code::FeatureUpdateFailed,
    Code::InconsistentVoterSet,
];

/// The client itself: its memory, its files, its state. A full queue never comes here: it waits.
const CLIENT_TROUBLE: [Code; 21] = [
    Code::Fail,
    Code::CriticalSystemResource,
    Code::FileSystem,
    Code::InvalidArgument,
    Code::QueueFull,
    Code::InProgress,
    Code::PreviousInProgress,
    Code::Conflict,
    Code::State,
    Code::Outdated,
    Code::Interrupted,
    Code::ReadOnly,
    Code::NoEnt,
    Code::InvalidType,
    Code::NotConfigured,
    Code::Application,
    Code::Noop,
    Code::KeySerialization,
    Code::ValueSerialization,
    Code::KeyDeserialization,
    Code::ValueDeserialization,
];

/// Consuming, groups, transactions, administration, telemetry: no answer to a record that was sent.
/// Were one to come all the same, the record would not be at fault.
const NOT_OF_PRODUCING: [Code; 51] = [
    Code::PartitionEOF,
    Code::OffsetOutOfRange,
    Code::OffsetMetadataTooLarge,
    Code::InvalidCommitOffsetSize,
    Code::NoOffset,
    Code::AutoOffsetReset,
    Code::LogTruncation,
    Code::UnstableOffsetCommit,
    Code::FetchSessionIdNotFound,
    Code::InvalidFetchSessionEpoch,
    Code::WaitingForCoordinator,
    Code::UnknownGroup,
    Code::ExistingSubscription,
    Code::AssignPartitions,
    Code::RevokePartitions,
    Code::AssignmentLost,
    Code::PollExceeded,
    Code::CoordinatorLoadInProgress,
    Code::CoordinatorNotAvailable,
    Code::NotCoordinator,
    Code::IllegalGeneration,
    Code::InconsistentGroupProtocol,
    Code::InvalidGroupId,
    Code::UnknownMemberId,
    Code::InvalidSessionTimeout,
    Code::RebalanceInProgress,
    Code::GroupAuthorizationFailed,
    Code::NonEmptyGroup,
    Code::GroupIdNotFound,
    Code::MemberIdRequired,
    Code::GroupMaxSizeReached,
    Code::FencedInstanceId,
    Code::GroupSubscribedToTopic,
    Code::FencedMemberEpoch,
    Code::UnreleasedInstanceId,
    Code::UnsupportedAssignor,
    Code::StaleMemberEpoch,
    Code::InvalidTransactionalState,
    Code::InvalidTransactionTimeout,
    Code::ConcurrentTransactions,
    Code::TransactionCoordinatorFenced,
    Code::TransactionalIdAuthorizationFailed,
    Code::TopicAlreadyExists,
    Code::InvalidPartitions,
    Code::InvalidReplicationFactor,
    Code::InvalidReplicaAssignment,
    Code::TopicDeletionDisabled,
    Code::ResourceNotFound,
    Code::DuplicateResource,
    Code::UnknownSubscriptionId,
    Code::TelemetryTooLarge,
];

/// Whether the failure is one of the whole topic, so that trying its other records is pointless.
pub(super) fn concerns_topic(cause: Cause) -> bool {
    matches!(cause, Cause::TopicUnknown | Cause::TopicUnauthorised)
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaRespErr;

    use super::*;
    use crate::failure::FailureKind;

    /// Every code that the client knows, without the marks at the ends of its ranges and success.
    fn known() -> Vec<Code> {
        let codes = (-1000..1000).filter_map(|number| RDKafkaRespErr::try_from(number).ok());
        let codes: Vec<Code> = codes
            .filter(|raw| {
                !matches!(
                    raw,
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR__BEGIN
                        | RDKafkaRespErr::RD_KAFKA_RESP_ERR__END
                        | RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
                        | RDKafkaRespErr::RD_KAFKA_RESP_ERR_END_ALL
                )
            })
            .map(Code::from)
            .collect();
        assert!(codes.len() > 150, "{}", codes.len());
        codes
    }

    #[test]
    fn every_code_of_the_client_has_its_place_and_only_one() {
        let tables = [&COLLATERAL[..], &LATE].into_iter().chain(TROUBLES);
        let listed: Vec<Code> = tables.flatten().copied().collect();
        for code in known() {
            let places = listed.iter().filter(|other| **other == code).count();
            for explicit in [false, true] {
                let refused = usize::from(refusal(code, explicit).is_some());
                assert_eq!(places + refused, 1, "{code:?} ({}) has to be placed", code as i32);
                assert!(placed(code, explicit).is_some(), "{code:?}");
            }
        }
    }

    #[test]
    fn a_code_that_nobody_has_placed_parks_nothing() {
        let Verdict::Lost(cause) = NEW else { panic!("{NEW:?}") };
        assert_eq!(cause.kind(), FailureKind::Infrastructure);
    }

    #[test]
    fn refusals_are_never_infrastructure_and_losses_always_are() {
        for code in known() {
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
