//! What can go wrong with an event, and whose fault it is.
//!
//! There are three kinds of failure, and [`Cause::kind`] is the one place that decides between
//! them. Adapters name a cause; the relay acts on the kind. Nothing here does I/O.

mod reasons;

use std::fmt;

pub use self::reasons::table;

/// Longest failure text that is kept, in bytes. A text is for reading; the row must stay small.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// Whose fault a failure is, and so what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// This event's own: back-off with its key held, attempts counted, then the lane's policy.
    Event,
    /// Its destination's: the event waits and holds its key, attempts unchanged, others flow.
    Destination,
    /// Nobody's: the lane stops claiming and waits; nothing is counted, nothing is parked.
    Infrastructure,
}

/// Why an event could not be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The plugin said the event will never work.
    PluginRejected,
    /// The plugin said the event may work later.
    PluginRetry,
    /// The guest trapped on this event.
    PluginTrap,
    /// The guest did not finish this event in time.
    PluginTimeout,
    /// The guest asked for more memory than it may have.
    PluginMemory,
    /// The guest answered with something that cannot be used: a wrong count, too much, malformed.
    PluginOutput,
    /// The row cannot be read as an event.
    RowUnreadable,
    /// Neither plugin, route nor row names a topic.
    TopicMissing,
    /// The topic's name is not one a broker can have.
    TopicIllegal,
    /// The partition asked for does not exist.
    PartitionIllegal,
    /// The record is larger than the sink takes.
    RecordTooLarge,
    /// A header cannot be encoded.
    HeaderInvalid,
    /// The route takes its key from the payload, and the payload has none there.
    KeyUnreadable,
    /// The broker refused this very record.
    RecordRefused,
    /// The event was alone in a process that died, several times.
    ProcessCrash,
    /// The broker does not know the topic.
    TopicUnknown,
    /// The broker does not let us write to the topic.
    TopicUnauthorised,
    /// The topic does not take records of this sort (a keyless record on a compacted topic).
    TopicRefusesRecord,
    /// The plugin of the event's route is not loaded.
    PluginUnavailable,
    /// No route, plugin or topic fits the event.
    RouteMissing,
    /// The broker cannot be reached, or is failing over.
    BrokerUnavailable,
    /// The broker did not answer within the publish timeout.
    PublishTimeout,
    /// The database cannot be reached, or refuses for now.
    DatabaseUnavailable,
    /// What was left of the lease did not allow another hand-over.
    LeaseEnding,
    /// The relay is shutting down.
    ShuttingDown,
}

impl Cause {
    /// Every cause, in the order of their kinds.
    pub const ALL: [Self; 25] = [
        Self::PluginRejected,
        Self::PluginRetry,
        Self::PluginTrap,
        Self::PluginTimeout,
        Self::PluginMemory,
        Self::PluginOutput,
        Self::RowUnreadable,
        Self::TopicMissing,
        Self::TopicIllegal,
        Self::PartitionIllegal,
        Self::RecordTooLarge,
        Self::HeaderInvalid,
        Self::KeyUnreadable,
        Self::RecordRefused,
        Self::ProcessCrash,
        Self::TopicUnknown,
        Self::TopicUnauthorised,
        Self::TopicRefusesRecord,
        Self::PluginUnavailable,
        Self::RouteMissing,
        Self::BrokerUnavailable,
        Self::PublishTimeout,
        Self::DatabaseUnavailable,
        Self::LeaseEnding,
        Self::ShuttingDown,
    ];

    /// The one classification. There is no wildcard: a new cause must be placed on purpose, and
    /// [`Self::reason`] says why it stands where it stands.
    pub fn kind(self) -> FailureKind {
        match self {
            // The event itself, whatever the state of the world around it.
            Self::PluginRejected
            | Self::PluginRetry
            | Self::PluginTrap
            | Self::PluginTimeout
            | Self::PluginMemory
            | Self::PluginOutput
            | Self::RowUnreadable
            | Self::TopicMissing
            | Self::TopicIllegal
            | Self::PartitionIllegal
            | Self::RecordTooLarge
            | Self::HeaderInvalid
            | Self::KeyUnreadable
            | Self::RecordRefused
            | Self::ProcessCrash => FailureKind::Event,
            // Someone has to fix a topic, a permission, a plugin or a route; the event is fine.
            Self::TopicUnknown
            | Self::TopicUnauthorised
            | Self::TopicRefusesRecord
            | Self::PluginUnavailable
            | Self::RouteMissing => FailureKind::Destination,
            // It passes by itself, or the operator is already looking at it.
            Self::BrokerUnavailable
            | Self::PublishTimeout
            | Self::DatabaseUnavailable
            | Self::LeaseEnding
            | Self::ShuttingDown => FailureKind::Infrastructure,
        }
    }

    /// The short, stable name that is stored with the event and used as a metric label.
    pub fn code(self) -> &'static str {
        match self {
            Self::PluginRejected => "plugin_rejected",
            Self::PluginRetry => "plugin_retry",
            Self::PluginTrap => "plugin_trap",
            Self::PluginTimeout => "plugin_timeout",
            Self::PluginMemory => "plugin_memory",
            Self::PluginOutput => "plugin_output",
            Self::RowUnreadable => "row_unreadable",
            Self::TopicMissing => "topic_missing",
            Self::TopicIllegal => "topic_illegal",
            Self::PartitionIllegal => "partition_illegal",
            Self::RecordTooLarge => "record_too_large",
            Self::HeaderInvalid => "header_invalid",
            Self::KeyUnreadable => "key_unreadable",
            Self::RecordRefused => "record_refused",
            Self::ProcessCrash => "process_crash",
            Self::TopicUnknown => "topic_unknown",
            Self::TopicUnauthorised => "topic_unauthorised",
            Self::TopicRefusesRecord => "topic_refuses_record",
            Self::PluginUnavailable => "plugin_unavailable",
            Self::RouteMissing => "route_missing",
            Self::BrokerUnavailable => "broker_unavailable",
            Self::PublishTimeout => "publish_timeout",
            Self::DatabaseUnavailable => "database_unavailable",
            Self::LeaseEnding => "lease_ending",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// Which plugin version an outcome or a failure comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PluginStamp {
    /// The name from the plugin's manifest.
    pub name: String,
    /// The version from the plugin's manifest.
    pub version: String,
    /// SHA-256 of the component file, lower-case hex.
    pub hash: String,
}

impl PluginStamp {
    /// Hex digits of the hash that are shown: enough to tell versions apart.
    const SHOWN: usize = 12;
}

impl fmt::Display for PluginStamp {
    /// Name, version and the beginning of the hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.hash.get(..Self::SHOWN).unwrap_or(&self.hash);
        write!(f, "{} {} {hash}", self.name, self.version)
    }
}

/// One failure of one event: cause, a text for people, and the plugin it happened in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// What a person needs to mend it. Holds no control character but ends of lines, and never exceeds
    /// [`MAX_MESSAGE_BYTES`].
    pub message: String,
    /// The plugin at fault, if one was.
    pub plugin: Option<Box<PluginStamp>>,
}

impl Failure {
    /// A failure with a text that is made safe to store and to print.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self { cause, message: storable(message.as_ref()), plugin: None }
    }

    /// The same failure, with the plugin it happened in.
    pub fn in_plugin(mut self, plugin: &PluginStamp) -> Self {
        self.plugin = Some(Box::new(plugin.clone()));
        self
    }

    /// Whose fault it is.
    pub fn kind(&self) -> FailureKind {
        self.cause.kind()
    }
}

impl fmt::Display for Failure {
    /// On one line, or a text of a plugin's could forge lines of the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause.code(), self.message.replace('\n', " "))
    }
}

/// `text` without control characters but for the ends of lines (NUL no database stores, and others
/// speak to the terminal of whoever reads it), and cut at a character boundary, so that it has at most
/// [`MAX_MESSAGE_BYTES`].
pub fn storable(text: &str) -> String {
    let mut kept = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    if kept.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES - '…'.len_utf8();
        while !kept.is_char_boundary(end) {
            end -= 1;
        }
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts with all that databases and terminals choke on, around the length at which they are
    /// cut.
    fn odd_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<String>(),
            any::<char>().prop_map(String::from),
            "[\\x00-\\x1f\\x7f]{1,8}",
            Just("\u{1f600}".to_owned()),
            Just("\u{feff}\u{202e}\u{fffe}".to_owned()),
        ];
        let pieces = proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
        let filling = prop_oneof![
            Just(0),
            MAX_MESSAGE_BYTES - 40..MAX_MESSAGE_BYTES + 40,
            Just(1_000_000_usize)
        ];
        (pieces.clone(), filling, pieces)
            .prop_map(|(before, filling, after)| before + &"x".repeat(filling) + &after)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_becomes_one_that_can_be_stored(text in odd_text()) {
            let kept = Failure::new(Cause::PluginRejected, &text).message;
            prop_assert!(kept.len() <= MAX_MESSAGE_BYTES);
            prop_assert!(!kept.contains('\0'));
            // Nothing but control characters is changed, and nothing but the end is lost.
            let clean = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
            if clean.len() <= MAX_MESSAGE_BYTES {
                prop_assert_eq!(&kept, &clean);
            } else {
                let start = kept.strip_suffix('…');
                prop_assert!(start.is_some_and(|start| clean.starts_with(start)));
                prop_assert!(kept.len() > MAX_MESSAGE_BYTES - '…'.len_utf8() - 4);
            }
            let again = Failure::new(Cause::PluginRejected, &kept).message;
            prop_assert_eq!(again, kept, "a text that was stored is stored as it is");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_wherever_the_end_falls() {
        for letter in ["a", "é", "€", "\u{1f600}", "\0"] {
            for ahead in 0..8 {
                let text = "x".repeat(ahead) + &letter.repeat(MAX_MESSAGE_BYTES + 1);
                let kept = Failure::new(Cause::PluginTrap, text).message;
                assert!(
                    kept.len() <= MAX_MESSAGE_BYTES && kept.ends_with('…'),
                    "{letter:?} {ahead}"
                );
            }
        }
    }

    #[test]
    fn a_failure_text_speaks_to_no_terminal_and_forges_no_line() {
        let failure = Failure::new(Cause::PluginRejected, "a\u{1b}[31m\u{85}\nINFO forged");
        assert_eq!(failure.message, "a\u{fffd}[31m\u{fffd}\nINFO forged");
        assert_eq!(failure.to_string(), "plugin_rejected: a\u{fffd}[31m\u{fffd} INFO forged");
    }

    #[test]
    fn a_short_text_is_kept_as_it_is() {
        assert_eq!(Failure::new(Cause::TopicUnknown, "no topic 'x'").message, "no topic 'x'");
    }
}
