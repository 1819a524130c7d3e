//! `haulier routes explain`: where an event type goes, and why.

use std::io::{self, Write};

use super::{Exit, ExplainArgs};
use crate::app;
use crate::config::Config;
use crate::relay::{Judge, Rules, decider};
use crate::routing::{Candidate, KeyRule, Route};
use crate::transform::Standing;
use crate::words::plain;

/// Explains what the rules of the moment do with an event type.
///
/// # Errors
/// When standard output is closed or the plugin host does not start.
pub async fn explain(config: &Config, args: &ExplainArgs) -> anyhow::Result<Exit> {
    let rules = app::rules(config).await?;
    let mut out = io::stdout().lock();
    let exit = write_explanation(&mut out, &rules, args)?;
    for trouble in rules.problems() {
        writeln!(out, "note: {}", plain(trouble))?;
    }
    Ok(exit)
}

fn write_explanation(out: &mut impl Write, rules: &Rules, args: &ExplainArgs) -> io::Result<Exit> {
    let event_type = args.event_type.as_str();
    let found = rules.routes.find(event_type).map(|(_, route)| route);
    match found {
        Some(route) => {
            let patterns: Vec<&str> =
                route.patterns.iter().map(|pattern| pattern.as_str()).collect();
            writeln!(
                out,
                "route:   {}, the first whose event_type fits: {}",
                plain(&route.place),
                plain(&patterns.join(", "))
            )?;
        }
        None => writeln!(out, "route:   none of the {} fits", rules.routes.iter().count())?,
    }
    let judge = decider(event_type, args.topic.as_deref(), found, &*rules.plugins);
    match &judge {
        Judge::Plugin(name) => write_plugin(out, rules, name, found)?,
        Judge::Row => writeln!(out, "decides: no plugin; the payload is published as it is")?,
        Judge::Nobody(failure) => {
            writeln!(out, "waits:   {}", plain(&failure.message))?;
            return Ok(Exit::Failure);
        }
    }
    let topic = found.and_then(|route| route.topic.as_ref()).map(ToString::to_string);
    let from_plugin = if matches!(judge, Judge::Plugin(_)) { "the plugin's, else " } else { "" };
    let topic = topic.or_else(|| args.topic.clone()).unwrap_or_else(|| "the row's own".to_owned());
    writeln!(out, "topic:   {from_plugin}{}", plain(&topic))?;
    writeln!(out, "key:     {from_plugin}{}", plain(&key(found)))?;
    for header in found.iter().flat_map(|route| &route.headers) {
        let value = header.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        writeln!(out, "header:  {}: {}", plain(&header.name), plain(&value))?;
    }
    Ok(Exit::Success)
}

fn write_plugin(
    out: &mut impl Write,
    rules: &Rules,
    name: &str,
    route: Option<&Route>,
) -> io::Result<()> {
    let why =
        if route.is_some() { "the route names it" } else { "its manifest wants the event type" };
    writeln!(out, "decides: plugin {}, since {why}", plain(name))?;
    let in_use = rules.plugins.in_use();
    let of = |standing: &dyn Fn(Standing) -> bool| {
        in_use.iter().find(|one| one.stamp.name == name && standing(one.standing))
    };
    match of(&|standing| standing != Standing::Candidate) {
        Some(one) => {
            writeln!(out, "version: {} ({})", plain(&one.stamp.to_string()), one.standing.name())?
        }
        None => {
            let reason = rules.plugins.find(name).err().unwrap_or_default();
            writeln!(out, "waits:   {}", plain(&reason))?;
        }
    }
    let Some(candidate) = route.and_then(|route| route.candidate) else { return Ok(()) };
    let Some(version) = of(&|standing| standing == Standing::Candidate) else {
        return writeln!(out, "candidate: is not there; the version above decides alone");
    };
    let what = match candidate {
        Candidate::Share(share) => {
            format!("decides {}.{:02} % of the keys", share / 100, share % 100)
        }
        Candidate::Shadow => "is compared and not published".to_owned(),
    };
    writeln!(out, "candidate: {}; {what}", plain(&version.stamp.to_string()))
}

fn key(route: Option<&Route>) -> String {
    match route.and_then(|route| route.key.as_ref()) {
        None => "the ordering key: partition_key, else aggregate_id".to_owned(),
        Some(KeyRule::Null) => "NULL".to_owned(),
        Some(KeyRule::Field(field)) => format!("the row's {}", field.name()),
        Some(KeyRule::Pointer(pointer)) => format!("the payload's {pointer}"),
    }
}
