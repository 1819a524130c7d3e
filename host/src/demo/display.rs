//! What the demo shows while it works, and its summary.
//!
//! Used by the demo only. On a terminal the progress is one block that is drawn again; elsewhere a
//! line now and then.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::broker::Sample;
use crate::words::{number, plain};

/// Samples that are shown.
const SAMPLES: usize = 4;
/// Longest payload and key of a sample, in characters.
const SAMPLE_WIDTH: usize = 72;
/// Pause between two lines where there is no terminal.
const LINE_PAUSE: Duration = Duration::from_secs(1);

/// Figures of one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) wanted: usize,
    pub(super) committed: usize,
    pub(super) rolled_back: usize,
    /// Records of each topic, with its name.
    pub(super) topics: Vec<(String, usize)>,
    /// Milliseconds from an event's INSERT to its receipt, of the last moments.
    pub(super) lags: Vec<u64>,
}

/// The progress display.
pub(super) struct Display {
    started: Instant,
    terminal: bool,
    /// Lines of the block that is on the terminal now.
    drawn: usize,
    last_line: Option<Instant>,
    last: (Instant, usize, usize),
    samples: Vec<Sample>,
}

impl Display {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            terminal: io::stdout().is_terminal(),
            drawn: 0,
            last_line: None,
            last: (now, 0, 0),
            samples: Vec::new(),
        }
    }

    /// Writes a line for good.
    pub(super) fn say(&mut self, line: &str) {
        self.clear();
        // Where standard output is closed there is nobody to show anything.
        let _ = writeln!(io::stdout(), "{line}");
    }

    /// Keeps a record to show, if none of its type in its topic is kept yet.
    pub(super) fn sample(&mut self, sample: &Sample) {
        let known =
            |kept: &Sample| kept.topic == sample.topic && kept.event_type == sample.event_type;
        if self.samples.len() < SAMPLES && !self.samples.iter().any(known) {
            self.samples.push(sample.clone());
        }
    }

    /// Shows figures and samples, where there is no terminal only now and then.
    pub(super) fn progress(&mut self, figures: &Figures) {
        let due = self.last_line.is_none_or(|line| line.elapsed() >= LINE_PAUSE);
        if self.terminal {
            let lines = [self.lines(figures), self.sample_lines()].concat();
            self.write(&lines);
            self.drawn = lines.len();
        } else if due {
            self.finish(figures);
        }
    }

    /// Shows figures for good.
    pub(super) fn finish(&mut self, figures: &Figures) {
        let lines = self.lines(figures);
        self.write(&lines);
    }

    fn write(&mut self, lines: &[String]) {
        self.clear();
        let mut out = io::stdout();
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
    }

    /// The figures as text, with rates since they were asked for last.
    fn lines(&mut self, figures: &Figures) -> Vec<String> {
        let now = Instant::now();
        let records: usize = figures.topics.iter().map(|(_, count)| count).sum();
        let (at, committed_then, records_then) = self.last;
        let seconds = now.duration_since(at).as_secs_f64().max(0.001);
        let rate = |count: usize, before: usize| {
            thousands((count.saturating_sub(before) as f64 / seconds) as usize)
        };
        let lines = vec![
            format!(
                "{:>5.1} s  committed {} of {} ({}/s), {} transactions rolled back",
                self.started.elapsed().as_secs_f64(),
                thousands(figures.committed),
                thousands(figures.wanted),
                rate(figures.committed, committed_then),
                thousands(figures.rolled_back),
            ),
            format!(
                "         received {} records ({}/s){}",
                thousands(records),
                rate(records, records_then),
                lag(&figures.lags),
            ),
            format!("         {}", topics(&figures.topics)),
        ];
        self.last_line = Some(now);
        self.last = (now, figures.committed, records);
        lines
    }

    /// The samples, for good.
    pub(super) fn show_samples(&mut self) {
        for line in self.sample_lines() {
            self.say(&line);
        }
    }

    fn sample_lines(&self) -> Vec<String> {
        let line = |sample: &Sample| {
            format!(
                "  {}[{}]  {}  key {}  {}",
                sample.topic,
                sample.partition,
                sample.event_type,
                shortened(&sample.key),
                shortened(&sample.payload),
            )
        };
        self.samples.iter().map(line).collect()
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            // Up to the start of the block, and away with everything from there.
            let _ = write!(io::stdout(), "\x1b[{}F\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }
}

fn topics(topics: &[(String, usize)]) -> String {
    let each: Vec<_> =
        topics.iter().map(|(topic, count)| format!("{topic} {}", thousands(*count))).collect();
    each.join(", ")
}

/// The lag in words; nothing without any.
pub(super) fn lag(lags: &[u64]) -> String {
    let mut sorted = lags.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| sorted.get((sorted.len() * share / 100).min(sorted.len() - 1)).copied();
    if sorted.is_empty() {
        return String::new();
    }
    let (Some(median), Some(worst)) = (at(50), at(99)) else { return String::new() };
    format!(", from INSERT to receipt {median} ms (p50), {worst} ms (p99)")
}

fn thousands(count: usize) -> String {
    number(count as u64)
}

fn shortened(text: &str) -> String {
    let safe = plain(text);
    if safe.chars().count() <= SAMPLE_WIDTH {
        return safe;
    }
    let cut: String = safe.chars().take(SAMPLE_WIDTH - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_made_readable() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(lag(&[]), "");
        assert_eq!(lag(&[3, 1, 2]), ", from INSERT to receipt 2 ms (p50), 3 ms (p99)");
        assert_eq!(shortened("a\x1b[2J"), "a\u{fffd}[2J");
        assert_eq!(shortened(&"x".repeat(100)).chars().count(), SAMPLE_WIDTH);
    }
}
