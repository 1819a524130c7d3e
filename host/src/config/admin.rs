//! `[admin]`, `[log]` and `[relay]`: what the process as a whole is told.
//!
//! Read by config, used by the assembly.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::settings::{Meaning, Secret, Section};
use crate::telemetry::{LogFormat, check_level};
use crate::words::closest;

/// Only this machine may look, on a port next to the other exporters'.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// A token that cannot be guessed has at least so many.
const MIN_TOKEN_BYTES: usize = 16;
const LISTEN_OFF: &str = "off";

/// A lane that has not moved for so long while work is due is not ready.
const DEFAULT_READY_STALL: Duration = Duration::from_secs(30);
const READY_STALL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Less than the half minute that orchestrators usually wait before they kill.
const DEFAULT_GRACE: Duration = Duration::from_secs(20);
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

const DEFAULT_LEVEL: &str = "info";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The name goes into a column and into log lines.
const MAX_INSTANCE_CHARS: usize = 128;

const ADMIN_INTRO: &str = "Health and metrics over HTTP.";
const ADMIN_MEANINGS: [Meaning; 4] = [
    Meaning::new("listen", "IP address and port, or `\"off\"`; looking needs no authentication"),
    Meaning::new(
        "token",
        "what `POST /reload` and `/api` must bring as `Authorization: Bearer …`; without one they are refused",
    )
    .usually("none"),
    Meaning::new(
        "operations",
        "whether `/api` is there, where events are looked at, retried, discarded and replayed; needs a token",
    ),
    Meaning::new("ready_stall", "due work without progress for so long is not ready"),
];

const LOG_INTRO: &str = "The log, on standard error.";
const LOG_MEANINGS: [Meaning; 2] = [
    Meaning::new("level", "a level, or directives such as `info,haulier::relay=debug`"),
    Meaning::new("format", "lines for people, or one JSON object per record"),
];

const RELAY_INTRO: &str = "The process.";
const RELAY_MEANINGS: [Meaning; 2] = [
    Meaning::new("instance", "who holds a lease, for people to read")
        .usually("host name and process id"),
    Meaning::new("grace", "how long shutdown waits for what is in flight"),
];

/// The admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where it listens; `None` if it is off.
    pub listen: Option<SocketAddr>,
    /// What a caller that changes something must know; without one nobody may.
    pub token: Option<Secret>,
    /// Whether events may be looked at and changed through it; never without a token.
    pub operations: bool,
    /// How long a lane with due work may stand still and be called ready.
    pub ready_stall: Duration,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// A level, or directives such as `info,haulier::relay=debug`. Valid.
    pub level: String,
}

/// The process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelaySettings {
    /// Who it is, for people who look at leases.
    pub instance: String,
    /// How long shutdown waits for what is in flight.
    pub grace: Duration,
}

impl AdminSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        section.document(ADMIN_INTRO, &ADMIN_MEANINGS);
        let listen = section.string_or("listen", &DEFAULT_LISTEN.to_string());
        let listen = match listen.trim() {
            LISTEN_OFF => None,
            address => address.parse().ok().or_else(|| {
                let message = format!(
                    "must be an IP address and a port such as \"{DEFAULT_LISTEN}\" or \
                     \"[::1]:9464\", or \"{LISTEN_OFF}\""
                );
                section.error("listen", message);
                None
            }),
        };
        let ready_stall = section.duration("ready_stall", READY_STALL, DEFAULT_READY_STALL);
        let token = section.secret("token");
        if token.as_ref().is_some_and(|token| token.expose().trim().len() < MIN_TOKEN_BYTES) {
            let message =
                format!("is too short to be secret: use {MIN_TOKEN_BYTES} characters or more");
            section.error("token", message);
        }
        let operations = section.boolean("operations", false);
        if operations && token.is_none() {
            section.error("operations", "needs a token: set [admin] token");
        }
        Self { listen, token, operations, ready_stall }
    }
}

impl LogSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        section.document(LOG_INTRO, &LOG_MEANINGS);
        let level = section.string_or("level", DEFAULT_LEVEL);
        if let Err(message) = check_level(&level) {
            section.error_suggesting("level", message, closest(&level, LEVELS));
        }
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        Self { format: section.choice("format", &formats, LogFormat::Text), level }
    }
}

impl RelaySettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        section.document(RELAY_INTRO, &RELAY_MEANINGS);
        let instance = section.string("instance").unwrap_or_else(|| {
            let host = section.variable("HOSTNAME").map(str::to_owned).or_else(host_name);
            let host = host.unwrap_or_else(|| "haulier".to_owned());
            let host: String = host.chars().take(MAX_INSTANCE_CHARS / 2).collect();
            format!("{host}-{}", std::process::id())
        });
        let length = instance.chars().count();
        if length == 0 || length > MAX_INSTANCE_CHARS || instance.contains(char::is_control) {
            section.error(
                "instance",
                format!("must have 1 to {MAX_INSTANCE_CHARS} characters, none of them invisible"),
            );
        }
        Self { instance, grace: section.duration("grace", GRACE, DEFAULT_GRACE) }
    }
}

/// The machine's name, where the system says it in a file.
fn host_name() -> Option<String> {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let name = files.iter().find_map(|file| std::fs::read_to_string(file).ok())?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
