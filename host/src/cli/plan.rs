//! `haulier plan`: what the rules and plugins of the moment would publish for rows that wait.
//!
//! Reads pending rows without claiming them, and runs them through the very code that the relay uses.
//! Changes nothing anywhere.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Exit, PlanArgs, complain};
use crate::app;
use crate::config::Config;
use crate::event::{Event, LaneName, Record};
use crate::relay::{Preview, preview};
use crate::words::{chain, plain};

/// Longest payload that is shown to people, in characters.
const MOST_SHOWN: usize = 200;

/// Shows what would be published.
///
/// # Errors
/// When a name is unknown, standard output is closed or the plugin host does not start.
pub async fn plan(config: &Config, args: &PlanArgs) -> anyhow::Result<Exit> {
    let lanes: Vec<LaneName> = config
        .lane_names()
        .map(|(name, _)| name)
        .filter(|name| args.source.as_deref().is_none_or(|source| *name.source == *source))
        .filter(|name| args.lane.as_deref().is_none_or(|lane| *name.lane == *lane))
        .collect();
    if lanes.is_empty() {
        let known: Vec<String> = config.lane_names().map(|(name, _)| name.to_string()).collect();
        anyhow::bail!("no lane of these settings is meant; there are {}", known.join(", "));
    }
    let rules = app::rules(config).await?;
    let sources = app::sources(config)?;
    let mut exit = Exit::Success;
    for lane in &lanes {
        let Some(source) = sources.iter().find(|one| one.settings.name == lane.source) else {
            continue;
        };
        match source.store.peek(lane, usize::from(args.limit)).await {
            Ok(events) => {
                let previews = preview(lane, &events, &rules).await;
                let mut out = io::stdout().lock();
                let shown = Shown { lane, json: args.json, limit: usize::from(args.limit) };
                shown.write(&mut out, &events, &previews)?;
            }
            Err(error) => {
                complain(format_args!("source {}: {}", lane.source, chain(&error)));
                exit = Exit::Unavailable;
            }
        }
    }
    for source in sources {
        source.store.close().await;
    }
    if !args.json {
        for trouble in rules.problems() {
            writeln!(io::stdout(), "note: {}", plain(trouble))?;
        }
    }
    Ok(exit)
}

type Previewed = (Option<String>, Option<String>, Preview);

struct Shown<'a> {
    lane: &'a LaneName,
    json: bool,
    limit: usize,
}

impl Shown<'_> {
    fn write(
        &self,
        out: &mut impl Write,
        events: &[Event],
        previews: &[Previewed],
    ) -> io::Result<()> {
        let (mut publish, mut records, mut drop, mut fail) = (0, 0, 0, 0);
        for (event, (route, plugin, preview)) in events.iter().zip(previews) {
            match preview {
                Preview::Publish(list) => (publish, records) = (publish + 1, records + list.len()),
                Preview::Drop(_) => drop += 1,
                Preview::Fail(_) => fail += 1,
            }
            if self.json {
                writeln!(
                    out,
                    "{}",
                    self.as_json(event, route.as_deref(), plugin.as_deref(), preview)
                )?;
            } else {
                write_event(out, event, plugin.as_deref(), preview)?;
            }
        }
        if self.json {
            return Ok(());
        }
        let more = if events.len() == self.limit { ", the first that wait" } else { "" };
        writeln!(
            out,
            "lane {}: {} events{more}: {publish} would be published as {records} records, {drop} dropped, \
             {fail} would fail",
            self.lane,
            events.len()
        )
    }

    fn as_json(
        &self,
        event: &Event,
        route: Option<&str>,
        plugin: Option<&str>,
        preview: &Preview,
    ) -> Value {
        let mut line = json!({
            "source": &*self.lane.source,
            "lane": &*self.lane.lane,
            "id": event.id.0,
            "event_type": event.event_type,
            "route": route,
            "plugin": plugin,
        });
        let (key, value) = match preview {
            Preview::Publish(records) => {
                ("publish", records.iter().map(record_json).collect::<Vec<_>>().into())
            }
            Preview::Drop(reason) => ("drop", json!(reason)),
            Preview::Fail(failure) => {
                ("fail", json!({ "cause": failure.cause.code(), "text": failure.message }))
            }
        };
        line[key] = value;
        line
    }
}

fn write_event(
    out: &mut impl Write,
    event: &Event,
    plugin: Option<&str>,
    preview: &Preview,
) -> io::Result<()> {
    let by = plugin.map(|plugin| format!(" by {}", plain(plugin))).unwrap_or_default();
    write!(out, "event {} {}{by}:", event.id, plain(&event.event_type))?;
    match preview {
        Preview::Drop(reason) => writeln!(out, " dropped: {}", plain(reason)),
        Preview::Fail(failure) => {
            let text = plain(&failure.message);
            writeln!(out, " would fail, {}: {text}", failure.cause.code())
        }
        Preview::Publish(records) if records.is_empty() => writeln!(out, " nothing to publish"),
        Preview::Publish(records) => {
            writeln!(out)?;
            for record in records {
                let key = record.key.as_deref().map_or("NULL".to_owned(), shown);
                let payload = record.payload.as_deref().map_or("NULL".to_owned(), shown);
                writeln!(out, "  to {} key {key} payload {payload}", plain(&record.topic))?;
            }
            Ok(())
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => plain(text),
        Err(_) => format!("base64:{}", STANDARD.encode(bytes)),
    };
    if text.chars().count() <= MOST_SHOWN {
        return text;
    }
    let kept: String = text.chars().take(MOST_SHOWN).collect();
    format!("{kept}\u{2026}")
}

fn record_json(record: &Record) -> Value {
    let bytes = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    };
    let headers = record.headers.iter();
    let headers = headers.map(|header| json!([header.name, header.value.as_deref().map(bytes)]));
    json!({
        "topic": record.topic,
        "key": record.key.as_deref().map(bytes),
        "payload": record.payload.as_deref().map(bytes),
        "headers": headers.collect::<Vec<_>>(),
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
    })
}
