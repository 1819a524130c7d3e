//! What a guest says: lines through the host's `log` import, and whatever it prints.
//!
//! One [`GuestLog`] belongs to one instance. Lines go to `tracing` under the target
//! `haulier::plugin` with the plugin's name and version; they are cut, and counted against the
//! [`LogBudget`] of the batch, however many calls and instances the batch takes: a plugin cannot
//! flood the host's log. What it printed last is kept for the failure text of a trap, since that is
//! where a panic says what happened. Nothing here blocks the guest.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::config::Limits;

/// How much of what was printed last is kept for a failure text, in bytes.
const KEPT_PRINT: usize = 2 << 10;

/// How much a guest may print in one write, in bytes.
const WRITE_PERMIT: usize = 64 << 10;

/// How much a line matters; the four levels of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Batches may be small and many: in a second a version says at most what it may say in so many.
const BATCHES_PER_SECOND: u32 = 10;

/// What a version has said in the present second, over all of its batches.
#[derive(Debug)]
pub(super) struct LogRate(Mutex<(Instant, u32)>);

impl Default for LogRate {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }
}

impl LogRate {
    /// Whether another line may be said, when `most` are allowed in a second.
    fn allows(&self, most: u32) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0.elapsed() >= Duration::from_secs(1) {
            *window = (Instant::now(), 0);
        }
        window.1 = window.1.saturating_add(1);
        window.1 <= most
    }
}

/// How much a plugin may still say in one batch, or while it is loaded.
#[derive(Debug)]
pub(super) struct LogBudget {
    plugin: String,
    version: String,
    line_limit: usize,
    lines_left: AtomicU32,
    lines_per_second: u32,
    rate: Arc<LogRate>,
    left_out: AtomicU64,
}

impl LogBudget {
    /// A full budget for that plugin. Before a plugin is asked, the file's name stands in for its
    /// name, and its version is empty.
    pub(super) fn new(plugin: &str, version: &str, limits: &Limits) -> Arc<Self> {
        Self::within(plugin, version, limits, &Arc::default())
    }

    /// A full budget for that plugin, within what it may say in a second.
    pub(super) fn within(
        plugin: &str,
        version: &str,
        limits: &Limits,
        rate: &Arc<LogRate>,
    ) -> Arc<Self> {
        Arc::new(Self {
            plugin: plugin.to_owned(),
            version: version.to_owned(),
            line_limit: limits.log_line,
            lines_left: AtomicU32::new(limits.log_lines_per_batch),
            lines_per_second: limits.log_lines_per_batch.saturating_mul(BATCHES_PER_SECOND),
            rate: Arc::clone(rate),
            left_out: AtomicU64::new(0),
        })
    }

    /// Mentions what was left out, if anything was.
    pub(super) fn close(&self) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::warn!(
                target: "haulier::plugin",
                plugin = self.plugin,
                version = self.version,
                left_out,
                "plugin logged too much, lines left out"
            );
        }
    }

    fn line(&self, level: Level, text: &str) {
        let take = |left: u32| left.checked_sub(1);
        let taken = self.lines_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() || !self.rate.allows(self.lines_per_second) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let text = readable(text, self.line_limit);
        let (plugin, version) = (self.plugin.as_str(), self.version.as_str());
        match level {
            Level::Debug => tracing::debug!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Info => tracing::info!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Warn => tracing::warn!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Error => tracing::error!(target: "haulier::plugin", plugin, version, "{text}"),
        }
    }
}

/// Where the lines of one instance go.
#[derive(Debug, Clone)]
pub(super) struct GuestLog(Arc<Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    budget: Arc<LogBudget>,
    /// Printed, and not yet ended by a line break.
    partial: Vec<u8>,
    /// The end of everything printed, and logged as an error, since the last [`GuestLog::begin`].
    printed: Vec<u8>,
}

impl GuestLog {
    /// A log that spends this budget.
    pub(super) fn new(budget: Arc<LogBudget>) -> Self {
        let lines = Lines { budget, partial: Vec::new(), printed: Vec::new() };
        Self(Arc::new(Mutex::new(lines)))
    }

    /// Another budget is spent from now on.
    pub(super) fn spend(&self, budget: &Arc<LogBudget>) {
        self.with(|lines| lines.budget = budget.clone());
    }

    /// A call begins.
    pub(super) fn begin(&self) {
        self.with(|lines| lines.printed.clear());
    }

    /// A call ended: a line that is unfinished is written.
    pub(super) fn end(&self) {
        self.with(|lines| lines.end_line(Level::Warn));
    }

    /// One line through the `log` import.
    pub(super) fn line(&self, level: Level, text: &str) {
        self.with(|lines| {
            if level == Level::Error {
                // What some runtimes say of an exception, which others print.
                lines.keep(text.as_bytes());
                lines.keep(b"\n");
            }
            lines.budget.line(level, text);
        });
    }

    /// What was printed or logged as an error last, for a failure text; empty if nothing was.
    pub(super) fn printed(&self) -> String {
        self.with(|lines| String::from_utf8_lossy(&lines.printed).trim().to_owned())
    }

    /// Standard output or standard error of the guest.
    pub(super) fn stream(&self, level: Level) -> GuestStream {
        GuestStream { log: self.clone(), level }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lines) -> T) -> T {
        // Lines stay usable whatever a panicking thread left in them.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lines {
    /// Keeps the end of it for a failure text.
    fn keep(&mut self, bytes: &[u8]) {
        self.printed.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_PRINT)..]);
        let excess = self.printed.len().saturating_sub(KEPT_PRINT);
        self.printed.drain(..excess);
    }

    fn print(&mut self, level: Level, bytes: &[u8]) {
        self.keep(bytes);

        // A line without end must not grow without end. One byte over the limit shows that it is cut.
        let limit = self.budget.line_limit.saturating_add(1);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = limit.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&text[..text.len().min(room)]);
            if text.len() < part.len() {
                self.end_line(level);
            }
        }
    }

    fn end_line(&mut self, level: Level) {
        let line = std::mem::take(&mut self.partial);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            self.budget.line(level, text);
        }
    }
}

/// `text` cut to `limit` bytes and without control characters, which could forge log lines or
/// drive a terminal.
fn readable(text: &str, limit: usize) -> String {
    let cut = text.floor_char_boundary(limit);
    let mut line: String =
        text[..cut].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut < text.len() {
        line.push('…');
    }
    line
}

/// One of the guest's output streams.
#[derive(Debug, Clone)]
pub(super) struct GuestStream {
    log: GuestLog,
    level: Level,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for it, and that is not offered.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.with(|lines| lines.print(self.level, &bytes));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

#[async_trait::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<LogBudget> {
        LogBudget::new("p", "1", &Limits { log_lines_per_batch: 2, ..Limits::default() })
    }

    fn spent(budget: &LogBudget) -> (u32, u64) {
        (budget.lines_left.load(Ordering::Relaxed), budget.left_out.load(Ordering::Relaxed))
    }

    #[test]
    fn lines_over_the_budget_are_counted_and_left_out() {
        let budget = budget();
        let (one, other) = (GuestLog::new(budget.clone()), GuestLog::new(budget.clone()));
        for _ in 0..3 {
            one.line(Level::Info, "x");
            other.line(Level::Info, "x");
        }
        assert_eq!(spent(&budget), (0, 4));
        budget.close();
        assert_eq!(spent(&budget), (0, 0));
    }

    #[test]
    fn many_small_batches_do_not_add_up_to_a_flood() {
        let limits = Limits { log_lines_per_batch: 2, ..Limits::default() };
        let rate = Arc::default();
        // However long this takes, it is less than a hundred seconds.
        let said: u32 = (0..1000)
            .map(|_| {
                let budget = LogBudget::within("p", "1", &limits, &rate);
                budget.line(Level::Info, "a");
                let left_out = budget.left_out.load(Ordering::Relaxed);
                1 - u32::try_from(left_out).expect("one line")
            })
            .sum();
        assert!((20..1000).contains(&said), "{said}");
    }

    #[test]
    fn only_the_end_of_what_was_printed_is_kept() {
        let budget = budget();
        let log = GuestLog::new(budget.clone());
        let mut stderr = log.stream(Level::Warn);
        stderr.write(Bytes::from(vec![b'a'; 1 << 20])).expect("never fails");
        log.with(|lines| assert_eq!(lines.partial.len(), 1025));
        stderr.write(Bytes::from_static(b"\nthe panic\n")).expect("never fails");
        assert!(log.printed().len() <= KEPT_PRINT);
        assert!(log.printed().ends_with("the panic"));
        assert_eq!(spent(&budget), (0, 0));
    }

    #[test]
    fn an_unfinished_line_is_written_when_the_call_ends() {
        let budget = budget();
        let log = GuestLog::new(budget.clone());
        log.stream(Level::Warn).write(Bytes::from_static(b"no end")).expect("never fails");
        log.end();
        assert_eq!(spent(&budget), (1, 0));
    }

    #[test]
    fn a_line_is_cut_and_cannot_forge_another() {
        assert_eq!(readable("a\nb\u{1b}[2J", 100), "a b [2J");
        assert_eq!(readable("ééé", 3), "é…");
    }
}
