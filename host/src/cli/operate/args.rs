//! What the operators' commands are told.
//!
//! Parsed by clap, turned into requests by the commands next door. Knows no database.

use clap::{Args as Arguments, Subcommand};

use crate::operations::{DEFAULT_RATE, Filter, MOST_RATE};

/// What can be done with events.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum EventsCommand {
    /// List events, the oldest first
    List(ListArgs),
    /// Show one event with headers, payload and its last failure
    Show(ShowArgs),
    /// Make failed, halted and waiting events due at once, with all attempts before them
    Retry(ChangeArgs),
    /// Be done with events without publishing them
    Discard(ChangeArgs),
}

/// What can be done with ordering keys.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum KeysCommand {
    /// List the keys whose events wait, and for what
    List(KeyListArgs),
    /// Let keys go on: the events they wait for are set aside as failed
    Release(ReleaseArgs),
}

/// Which source is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Arguments)]
pub struct SourceArg {
    /// The source; needed where the settings have several
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
}

/// Which events are meant: everything given has to fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Arguments)]
pub struct FilterArgs {
    /// Ids of events
    #[arg(value_name = "ID")]
    pub ids: Vec<i64>,
    /// Ids of events
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub id: Vec<i64>,
    /// pending, processing, published, failed, waiting (for its next attempt) or halted (until you decide)
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Events of this lane
    #[arg(long, value_name = "NAME")]
    pub lane: Option<String>,
    /// Events with this ordering key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Events of this type; * stands for any run of characters
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Events whose last failure has this code, such as record_too_large
    #[arg(long, value_name = "CODE")]
    pub reason: Option<String>,
    /// Events created before so long ago, such as 2h
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<String>,
    /// Events created within so long
    #[arg(long, value_name = "DURATION")]
    pub newer_than: Option<String>,
    /// Events created at this time or later: 2026-11-30T10:00:00Z, or so long ago
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Events created before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

impl FilterArgs {
    /// The same as a request.
    pub fn filter(&self) -> Filter {
        Filter {
            id: self.ids.iter().chain(&self.id).copied().collect(),
            state: self.state.clone(),
            lane: self.lane.clone(),
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            reason: self.reason.clone(),
            older_than: self.older_than.clone(),
            newer_than: self.newer_than.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
        }
    }
}

/// What `events list` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ListArgs {
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Which events.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only ids above this one: where the last list ended
    #[arg(long, value_name = "ID", default_value_t = i64::MIN, hide_default_value = true)]
    pub after: i64,
    /// Most events
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Print one JSON document on one line
    #[arg(long)]
    pub json: bool,
}

/// What `events show` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ShowArgs {
    /// The event's id
    #[arg(value_name = "ID")]
    pub id: i64,
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Print one JSON document on one line
    #[arg(long, conflicts_with = "payload")]
    pub json: bool,
    /// Print the payload and nothing else, byte for byte
    #[arg(long)]
    pub payload: bool,
}

/// How something is done, and what is noted about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Arguments)]
pub struct OrderArgs {
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// All that can be; otherwise something has to narrow it down
    #[arg(long)]
    pub all: bool,
    /// Why, for the audit record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Who, for the audit record
    #[arg(long, value_name = "NAME", env = "USER", default_value = "unknown")]
    pub by: String,
    /// Print one JSON document on one line
    #[arg(long)]
    pub json: bool,
}

/// What `events retry` and `events discard` are told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ChangeArgs {
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Which events.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// How.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// What `replay` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ReplayArgs {
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Which events.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Most events a second that are made due
    #[arg(long, value_name = "N", default_value_t = DEFAULT_RATE,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RATE)))]
    pub rate: u32,
    /// How.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// Which keys are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Arguments)]
pub struct KeyFilterArgs {
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Keys of this lane
    #[arg(long, value_name = "NAME")]
    pub lane: Option<String>,
    /// This key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Keys that wait for this reason, such as topic_unknown
    #[arg(long, value_name = "CODE")]
    pub reason: Option<String>,
}

impl KeyFilterArgs {
    /// The same as a request; `key` may also stand alone.
    pub fn filter(&self, key: Option<&String>) -> Filter {
        Filter {
            lane: self.lane.clone(),
            key: key.or(self.key.as_ref()).cloned(),
            reason: self.reason.clone(),
            ..Filter::default()
        }
    }
}

/// What `keys list` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct KeyListArgs {
    /// Which keys.
    #[command(flatten)]
    pub which: KeyFilterArgs,
    /// Most keys
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Print one JSON document on one line
    #[arg(long)]
    pub json: bool,
}

/// What `keys release` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ReleaseArgs {
    /// The key
    #[arg(value_name = "KEY", conflicts_with = "key")]
    pub one: Option<String>,
    /// Which keys.
    #[command(flatten)]
    pub which: KeyFilterArgs,
    /// How.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// What `audit` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct AuditArgs {
    /// Which source.
    #[command(flatten)]
    pub source: SourceArg,
    /// Most records
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Print one JSON document on one line
    #[arg(long)]
    pub json: bool,
}
