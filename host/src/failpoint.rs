//! Faults on purpose at named steps of the cycle of claiming, publishing and settling; for tests.
//!
//! Compiled only with the feature `fail-points`, which the tests crate asks for: what users get has
//! no trace of it. Called by the relay. Without the variable `HAULIER_FAIL_POINTS` it does nothing,
//! and it never changes what becomes of an event other than by the fault it was told to make.
//!
//! The variable holds rules with `;` between them, each `POINT=ACTION[:EVENT_TYPE][@N]`:
//!
//! - a point is one of [`POINTS`];
//! - an action is `kill` (SIGKILL to this process), `stop` (SIGSTOP) or `sleep` with milliseconds,
//!   as `sleep-500`;
//! - with an event type, only batches that hold such an event count as a pass;
//! - with `@N` it happens at the N-th pass only, otherwise at each.
//!
//! A killed or stopped process does not go on behind the call: the signal is sent and taken within
//! it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::clock::Moment;
use crate::event::Event;

/// How long this thread waits to be stopped by a signal that cannot be refused.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// The variable that holds the rules.
pub const VARIABLE: &str = "HAULIER_FAIL_POINTS";

/// The steps, in the order in which a batch passes them.
pub const POINTS: [&str; 7] = [
    // A claim is about to be sent; it has no events yet.
    "claim",
    // A claim has been granted and committed.
    "claimed",
    // Plugins and routes have decided.
    "transformed",
    // The records are complete; the next thing is to hand them over.
    "planned",
    // The sink has answered for every record; nothing is settled.
    "published",
    // The outcomes are about to be sent to the database.
    "settling",
    // The outcomes are committed; nothing is counted or told yet.
    "settled",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Stop,
    Sleep(Duration),
}

#[derive(Debug)]
struct Rule {
    point: String,
    deed: Deed,
    event_type: Option<String>,
    pass: Option<u64>,
    passes: AtomicU64,
}

/// Passes a point with these events, and does what the rules say.
///
/// # Panics
/// When the rules cannot be read: a test must not go on without its fault.
pub async fn pass(point: &str, events: &[Event]) {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| from_environment().unwrap_or_else(|why| panic!("{why}")));
    for rule in rules {
        if !rule.hits(point, events) {
            continue;
        }
        tracing::warn!(point, deed = ?rule.deed, "a fail point is hit");
        match rule.deed {
            Deed::Kill => signal(Signal::KILL),
            Deed::Stop => stop(),
            Deed::Sleep(time) => tokio::time::sleep(time).await,
        }
    }
}

fn signal(signal: Signal) {
    // It cannot be refused by or for the own process.
    let _ = kill_process(getpid(), signal);
}

/// The kernel takes SIGKILL for all threads at once, but SIGSTOP reaches the first thread, which then
/// stops the others: this one goes nowhere until it has.
fn stop() {
    let sent = Moment::now();
    signal(Signal::STOP);
    // It may be stopped in between, and then the first thread is not seen standing still any more.
    while sent.elapsed() < STOP_LIMIT && !first_thread_stands_still() {}
}

fn first_thread_stands_still() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn from_environment() -> Result<Vec<Rule>, String> {
    let found = std::env::vars_os().find(|(name, _)| name == VARIABLE);
    let text = found.map(|(_, text)| text.to_string_lossy().into_owned()).unwrap_or_default();
    text.split(';').filter(|rule| !rule.is_empty()).map(Rule::read).collect()
}

impl Rule {
    fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("{VARIABLE} cannot be read: {text}");
        let (point, rest) = text.split_once('=').ok_or_else(wrong)?;
        if !POINTS.contains(&point) {
            return Err(format!("{VARIABLE} names no point: {point}"));
        }
        let (rest, pass) = match rest.split_once('@') {
            Some((rest, pass)) => (rest, Some(pass.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let (deed, event_type) = match rest.split_once(':') {
            Some((deed, event_type)) => (deed, Some(event_type.to_owned())),
            None => (rest, None),
        };
        let deed = match deed {
            "kill" => Deed::Kill,
            "stop" => Deed::Stop,
            other => {
                let millis = other.strip_prefix("sleep-").ok_or_else(wrong)?;
                Deed::Sleep(Duration::from_millis(millis.parse().map_err(|_| wrong())?))
            }
        };
        Ok(Self { point: point.to_owned(), deed, event_type, pass, passes: AtomicU64::new(0) })
    }

    /// Whether this pass of `point` is the one that is meant.
    fn hits(&self, point: &str, events: &[Event]) -> bool {
        let wanted = self.event_type.as_deref();
        let meant = wanted.is_none_or(|wanted| events.iter().any(|one| one.event_type == wanted));
        if self.point != point || !meant {
            return false;
        }
        let passed = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        self.pass.is_none_or(|pass| pass == passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: &str) -> Event {
        Event { event_type: event_type.into(), ..Event::bare(1) }
    }

    #[test]
    fn a_rule_hits_its_pass_of_its_point_with_its_event() {
        let rule = Rule::read("published=kill:poison@2").unwrap();
        assert_eq!((rule.deed, rule.pass), (Deed::Kill, Some(2)));
        let (poison, other) = ([event("other"), event("poison")], [event("other")]);
        assert!(!rule.hits("settled", &poison), "another point");
        assert!(!rule.hits("published", &other), "no such event");
        assert!(!rule.hits("published", &poison), "the first pass");
        assert!(rule.hits("published", &poison));
        assert!(!rule.hits("published", &poison), "the third");
    }

    #[test]
    fn without_a_number_each_pass_is_hit() {
        let rule = Rule::read("claim=sleep-20").unwrap();
        assert_eq!(rule.deed, Deed::Sleep(Duration::from_millis(20)));
        assert!(rule.hits("claim", &[]) && rule.hits("claim", &[]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["claim", "nowhere=kill", "claim=burn", "claim=sleep-x", "claim=kill@x"] {
            assert!(Rule::read(text).is_err(), "{text}");
        }
    }
}
