//! `haulier plugin test` and `inspect`: a component on its author's bench.

use std::fs;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::{InspectArgs, TestArgs};
use crate::cli::{Exit, complain};
use crate::plugin::{Config, Limits, Portrait, Sample, Tried, Workbench};
use crate::words::{number, plain};

/// Runs a component on samples.
///
/// # Errors
/// When a file cannot be read or used.
pub(super) fn test(args: &TestArgs) -> anyhow::Result<Exit> {
    let place = args.events.display();
    let text =
        fs::read_to_string(&args.events).with_context(|| format!("{place} cannot be read"))?;
    let samples = Sample::read(&text).map_err(|error| anyhow::anyhow!("{place}: {error}"))?;
    if let Some(settings) = &args.settings {
        let object = serde_json::from_str::<serde_json::Map<_, _>>(settings);
        object.context("--settings is not a JSON object")?;
    }
    let bench = Workbench::open(&args.file, &Config::default())?;
    let mut out = io::stdout().lock();
    let mut failed = 0;
    let mut compared = 0;
    for sample in &samples {
        let tried = bench.run(sample, args.settings.as_deref());
        compared += usize::from(tried.expected);
        failed += usize::from(tried.difference.is_some());
        if args.json {
            writeln!(out, "{}", as_json(sample, &tried))?;
        } else {
            write_sample(&mut out, sample, &tried)?;
        }
    }
    if !args.json {
        let (name, version) = bench.name();
        let events = samples.len();
        writeln!(
            out,
            "{name} {version}: {events} events, {compared} compared, {failed} not as expected"
        )?;
    }
    Ok(if failed == 0 { Exit::Success } else { Exit::Failure })
}

fn write_sample(out: &mut impl Write, sample: &Sample, tried: &Tried) -> io::Result<()> {
    let verdict = match (&tried.difference, tried.expected) {
        (Some(_), _) => "FAIL",
        (None, true) => "ok  ",
        (None, false) => "-   ",
    };
    writeln!(
        out,
        "{verdict} line {}: {}  {}  {} KiB  {}",
        sample.line,
        plain(sample.event_type()),
        micros(tried.used),
        number(tried.memory as u64 / 1024),
        plain(&tried.outcome.to_string())
    )?;
    match &tried.difference {
        Some(difference) => writeln!(out, "     {}", plain(difference)),
        None => Ok(()),
    }
}

fn as_json(sample: &Sample, tried: &Tried) -> serde_json::Value {
    json!({
        "line": sample.line,
        "event_type": sample.event_type(),
        "outcome": tried.outcome,
        "as_expected": tried.expected.then_some(tried.difference.is_none()),
        "difference": tried.difference,
        "micros": u64::try_from(tried.used.as_micros()).unwrap_or(u64::MAX),
        "memory": tried.memory,
    })
}

fn micros(span: Duration) -> String {
    format!("{} \u{b5}s", number(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
}

/// Shows what a component is.
///
/// # Errors
/// When the file cannot be read at all.
pub(super) fn inspect(args: &InspectArgs) -> anyhow::Result<Exit> {
    let portrait = Workbench::inspect(&args.file, &Config::default())?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", portrait_json(&portrait))?;
    } else {
        write_portrait(&mut out, &portrait)?;
    }
    if let Some(why) = &portrait.refusal {
        complain(format_args!("refused: {why}"));
        return Ok(Exit::Failure);
    }
    Ok(Exit::Success)
}

fn write_portrait(out: &mut impl Write, portrait: &Portrait) -> io::Result<()> {
    let mut line = |name: &str, text: &str| writeln!(out, "{name:<12} {}", plain(text));
    if let Some(manifest) = &portrait.manifest {
        line("plugin", &format!("{} {}", manifest.name, manifest.version))?;
        let types = match manifest.event_types.as_slice() {
            [] => "none by itself: routes lead to it".to_owned(),
            types => types.join(", "),
        };
        line("event types", &types)?;
        line(
            "reads",
            &if manifest.needs.is_empty() {
                "nothing but the event's names".to_owned()
            } else {
                manifest.needs.join(", ")
            },
        )?;
        line("lifecycle", manifest.lifecycle)?;
        line("loading", &micros(manifest.loading))?;
    }
    line("world", &world(portrait))?;
    line("size", &format!("{} bytes", number(portrait.size as u64)))?;
    line("sha256", &portrait.hash)?;
    line("samples", &portrait.samples.to_string())?;
    for export in &portrait.exports {
        line("exports", export)?;
    }
    for import in &portrait.imports {
        line("imports", import)?;
    }
    let limits = Limits::default();
    line(
        "limits",
        &format!(
            "{} MiB of memory, {} ms an event, {} ms a batch at least, {} deliveries an event, {} MiB of file",
            limits.memory >> 20,
            limits.event_deadline.as_millis(),
            limits.batch_deadline_min.as_millis(),
            limits.fan_out,
            limits.file_size >> 20
        ),
    )
}

/// The world a component is built for, as its exports tell.
fn world(portrait: &Portrait) -> String {
    let version =
        portrait.exports.iter().find_map(|it| it.strip_prefix("haulier:relay/transformer"));
    match version {
        Some(version) => format!("haulier:relay/plugin{version}"),
        None => "not one of Haulier's".to_owned(),
    }
}

fn portrait_json(portrait: &Portrait) -> serde_json::Value {
    let manifest = portrait.manifest.as_ref().map(|manifest| {
        json!({
            "name": manifest.name,
            "version": manifest.version,
            "event_types": manifest.event_types,
            "needs": manifest.needs,
            "lifecycle": manifest.lifecycle,
            "loading_micros": u64::try_from(manifest.loading.as_micros()).unwrap_or(u64::MAX),
        })
    });
    json!({
        "hash": portrait.hash,
        "world": world(portrait),
        "size": portrait.size,
        "imports": portrait.imports,
        "exports": portrait.exports,
        "samples": portrait.samples,
        "refusal": portrait.refusal,
        "manifest": manifest,
    })
}
