//! Why each cause is of its kind, and the table of all of them for `GUARANTEES.md`.
//!
//! Read by people and by the test that holds the table to this code. It decides nothing: the kind is
//! [`Cause::kind`]'s.

use std::fmt::Write as _;

use super::{Cause, FailureKind};

impl FailureKind {
    /// The kind as people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Destination => "destination",
            Self::Infrastructure => "infrastructure",
        }
    }

    /// What usually happens to an event whose failure is of this kind.
    fn consequence(self) -> &'static str {
        match self {
            Self::Event => {
                "it is tried again with growing pauses and its key is held; when its attempts are used up it \
                 is parked, or halts its key"
            }
            Self::Destination => {
                "it waits and its key is held, with its attempts unchanged; other keys flow; it goes on by itself"
            }
            Self::Infrastructure => {
                "its lane waits, with attempts unchanged and nothing parked; it goes on by itself"
            }
        }
    }
}

impl Cause {
    /// Why the cause is of its kind, in one sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PluginRejected => {
                "The plugin has looked at this event and said that it will never work."
            }
            Self::PluginRetry => {
                "The plugin has looked at this event and asked for another try; if that goes on for ever, the \
                 event is what differs from those that pass."
            }
            Self::PluginTrap => "The guest trapped on this event, and on no other of its batch.",
            Self::PluginTimeout => {
                "The guest used up its computing time on this event alone; a busy machine does not count."
            }
            Self::PluginMemory => {
                "The guest wanted more memory for this event than it may have; others got by with less."
            }
            Self::PluginOutput => "The answer for this event cannot be used, whoever asks again.",
            Self::RowUnreadable => "The row itself cannot be read as an event.",
            Self::TopicMissing => "The event was to be published, and nobody named a topic for it.",
            Self::TopicIllegal => {
                "No broker can have a topic of that name, so nobody can create it."
            }
            Self::PartitionIllegal => {
                "The event asks for a partition that its topic does not have."
            }
            Self::RecordTooLarge => {
                "It was alone in its produce batch, or measured before it was sent; smaller ones pass."
            }
            Self::HeaderInvalid => "A header of this event cannot be encoded.",
            Self::KeyUnreadable => {
                "The payload of this event has no key where the route looks for one."
            }
            Self::RecordRefused => {
                "The broker looked at this record, alone in its produce batch, and refused it for good."
            }
            Self::ProcessCrash => {
                "The event was alone in the process, three times, when that died; nothing else can be at fault."
            }
            Self::TopicUnknown => {
                "Someone has to create the topic; then the event can go as it is."
            }
            Self::TopicUnauthorised => {
                "Someone has to grant the right to write; then the event can go as it is."
            }
            Self::TopicRefusesRecord => {
                "The topic takes no records of this sort, such as those without a key when it is compacted; \
                 the topic or the route has to change."
            }
            Self::PluginUnavailable => {
                "No version of the plugin can be used; events are not judged without it."
            }
            Self::RouteMissing => "A route or a topic for this type of event has to be added.",
            Self::BrokerUnavailable => {
                "The cluster is down, failing over, overloaded, or does not let the relay in; every record would \
                 fare the same."
            }
            Self::PublishTimeout => {
                "Nobody knows whether the record was appended, and a slow broker is slow for every record."
            }
            Self::DatabaseUnavailable => {
                "Outcomes can be neither read nor written, whatever the event."
            }
            Self::LeaseEnding => "Time ran out before the event's turn came.",
            Self::ShuttingDown => "The process ends before the event's turn came.",
        }
    }
}

impl Cause {
    /// What happens to an event that failed for this cause: what its kind says, but for those that
    /// wait for nothing.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::ProcessCrash => "it is parked without another try",
            Self::LeaseEnding | Self::ShuttingDown => {
                "it goes back as it was and is taken again, here or by another instance"
            }
            other => other.kind().consequence(),
        }
    }
}

/// All causes as a table in Markdown: code, kind, reason and consequence.
pub fn table() -> String {
    let mut text = String::from(
        "| cause | kind | why it is of that kind | what happens to the event |\n|---|---|---|---|\n",
    );
    for cause in Cause::ALL {
        let kind = cause.kind();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            cause.code(),
            kind.name(),
            cause.reason(),
            cause.consequence()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_list_of_causes_is_whole() {
        // The list cannot be made from the enum, so it is compared with the enum's text.
        let source = include_str!("../failure.rs");
        let body = source.split("pub enum Cause {").nth(1).expect("the enum").split("\n}").next();
        let is_variant = |line: &&str| line.starts_with("    ") && line.ends_with(',');
        let variants = body.expect("its body").lines().filter(is_variant);
        let named: Vec<String> =
            variants.map(|line| line.trim_matches([' ', ',']).into()).collect();
        assert_eq!(named, Cause::ALL.map(|cause| format!("{cause:?}")));
    }

    #[test]
    fn each_cause_has_a_code_and_a_reason_of_its_own() {
        let codes: HashSet<_> = Cause::ALL.map(Cause::code).into();
        let reasons: HashSet<_> = Cause::ALL.map(Cause::reason).into();
        assert_eq!((codes.len(), reasons.len()), (Cause::ALL.len(), Cause::ALL.len()));
    }

    #[test]
    fn reasons_are_sentences_that_fit_into_a_table() {
        for cause in Cause::ALL {
            let reason = cause.reason();
            assert!(reason.ends_with('.') && !reason.contains(['|', '\n']), "{cause:?}: {reason}");
        }
        assert_eq!(table().lines().count(), Cause::ALL.len() + 2);
    }

    #[test]
    fn kinds_stand_together_in_the_table() {
        let mut kinds = Cause::ALL.map(Cause::kind).to_vec();
        kinds.dedup();
        assert_eq!(
            kinds,
            [FailureKind::Event, FailureKind::Destination, FailureKind::Infrastructure]
        );
    }
}
