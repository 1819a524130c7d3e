//! What a guest says: lines through the host's `log` import, and whatever it prints.
//!
//! One [`GuestLog`] belongs to one instance. Lines go to `tracing` under the target
//! `haulier::plugin` with the plugin's name and version; they are cut and counted, so that a
//! plugin cannot flood the host's log. What it printed last is kept for the failure text of a trap,
//! since that is where a panic says what happened. Nothing here blocks the guest.

use std::sync::{Arc, Mutex, PoisonError};

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

/// Where the lines of one instance go.
#[derive(Debug, Clone)]
pub(super) struct GuestLog(Arc<Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    plugin: String,
    version: String,
    line_limit: usize,
    lines_limit: u32,
    written: u32,
    left_out: u64,
    /// Printed, and not yet ended by a line break.
    partial: Vec<u8>,
    /// The end of everything printed since the last [`GuestLog::begin`].
    printed: Vec<u8>,
}

impl GuestLog {
    /// A log for an instance of that plugin. Before a plugin is asked, the file's name stands in
    /// for its name, and its version is empty.
    pub(super) fn new(plugin: &str, version: &str, limits: &Limits) -> Self {
        Self(Arc::new(Mutex::new(Lines {
            plugin: plugin.to_owned(),
            version: version.to_owned(),
            line_limit: limits.log_line,
            lines_limit: limits.log_lines_per_batch,
            written: 0,
            left_out: 0,
            partial: Vec::new(),
            printed: Vec::new(),
        })))
    }

    /// A call begins: the count of lines starts anew.
    pub(super) fn begin(&self) {
        self.with(|lines| {
            lines.written = 0;
            lines.left_out = 0;
            lines.printed.clear();
        });
    }

    /// A call ended: what is unfinished is written, and what was left out is mentioned.
    pub(super) fn end(&self) {
        self.with(Lines::end);
    }

    /// One line through the `log` import.
    pub(super) fn line(&self, level: Level, text: &str) {
        self.with(|lines| lines.line(level, text));
    }

    /// What was printed last, for a failure text; empty if nothing was.
    pub(super) fn printed(&self) -> String {
        self.with(|lines| String::from_utf8_lossy(&lines.printed).trim().to_owned())
    }

    /// Standard output or standard error of the guest.
    pub(super) fn stream(&self, level: Level) -> GuestStream {
        GuestStream {
            log: self.clone(),
            level,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lines) -> T) -> T {
        // Lines stay usable whatever a panicking thread left in them.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lines {
    fn line(&mut self, level: Level, text: &str) {
        if self.written >= self.lines_limit {
            self.left_out += 1;
            return;
        }
        self.written += 1;
        let text = readable(text, self.line_limit);
        let (plugin, version) = (self.plugin.as_str(), self.version.as_str());
        match level {
            Level::Debug => tracing::debug!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Info => tracing::info!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Warn => tracing::warn!(target: "haulier::plugin", plugin, version, "{text}"),
            Level::Error => tracing::error!(target: "haulier::plugin", plugin, version, "{text}"),
        }
    }

    fn print(&mut self, level: Level, bytes: &[u8]) {
        self.printed
            .extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_PRINT)..]);
        let excess = self.printed.len().saturating_sub(KEPT_PRINT);
        self.printed.drain(..excess);

        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line without end must not grow without end; what is cut anyway need not be kept.
            let room = self
                .line_limit
                .saturating_add(1)
                .saturating_sub(self.partial.len());
            self.partial
                .extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end_line(level);
            }
        }
    }

    fn end_line(&mut self, level: Level) {
        let line = std::mem::take(&mut self.partial);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            self.line(level, text);
        }
    }

    fn end(&mut self) {
        self.end_line(Level::Warn);
        if self.left_out > 0 {
            tracing::warn!(
                target: "haulier::plugin",
                plugin = self.plugin,
                version = self.version,
                left_out = self.left_out,
                "plugin logged too much, lines left out"
            );
            self.left_out = 0;
        }
    }
}

/// `text` cut to `limit` bytes and without control characters, which could forge log lines or
/// drive a terminal.
fn readable(text: &str, limit: usize) -> String {
    let cut = text.floor_char_boundary(limit);
    let mut line: String = text[..cut]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
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

    fn log() -> GuestLog {
        GuestLog::new(
            "p",
            "1",
            &Limits {
                log_lines_per_batch: 2,
                ..Limits::default()
            },
        )
    }

    #[test]
    fn lines_over_the_limit_are_counted_and_left_out() {
        let log = log();
        log.begin();
        for _ in 0..5 {
            log.line(Level::Info, "x");
        }
        log.with(|lines| assert_eq!((lines.written, lines.left_out), (2, 3)));
        log.end();
        log.begin();
        log.with(|lines| assert_eq!((lines.written, lines.left_out), (0, 0)));
    }

    #[test]
    fn only_the_end_of_what_was_printed_is_kept() {
        let log = log();
        let mut stderr = log.stream(Level::Warn);
        stderr
            .write(Bytes::from(vec![b'a'; 1 << 20]))
            .expect("never fails");
        stderr
            .write(Bytes::from_static(b"\nthe panic\n"))
            .expect("never fails");
        assert!(log.printed().len() <= KEPT_PRINT);
        assert!(log.printed().ends_with("the panic"));
        log.with(|lines| assert_eq!((lines.written, lines.partial.len()), (2, 0)));
    }

    #[test]
    fn a_line_is_cut_and_cannot_forge_another() {
        assert_eq!(readable("a\nb\u{1b}[2J", 100), "a b [2J");
        assert_eq!(readable("ééé", 3), "é…");
    }
}
