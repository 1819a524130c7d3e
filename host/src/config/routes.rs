//! `[[routes]]`: which plugin, topic, key and headers an event type gets.
//!
//! Read by config; the rules themselves are in [`crate::routing`].

use std::path::PathBuf;

use crate::event::Header;
use crate::routing::{
    Candidate, Field, KeyRule, Pattern, Route, Routes, TopicTemplate, WHOLE_SHARE,
};
use crate::settings::{Meaning, Section};
use crate::words::closest;

/// Longest topic name a broker takes.
const MAX_TOPIC_BYTES: usize = 249;

/// The key rule for a NULL key.
const NULL_KEY: &str = "null";

const INTRO: &str = "The first that matches an event's type decides. Each needs a plugin, a topic, a key or headers.";

/// What the keys mean, for the reference.
const MEANINGS: [Meaning; 7] = [
    Meaning::new("event_type", "a pattern or several; `*` stands for any characters"),
    Meaning::new("plugin", "the plugin that decides on these events"),
    Meaning::new(
        "topic",
        "may hold `{event_type}`, `{aggregate_type}`, `{aggregate_id}`, `{partition_key}`, `{topic}`, \
         `{source}` and `{lane}`",
    )
    .usually("the row's own"),
    Meaning::new(
        "key",
        "the record key: the name of such a field, a JSON pointer into the payload, or `\"null\"`",
    )
    .usually("the ordering key"),
    Meaning::new("headers", "constant headers, added to the others"),
    Meaning::new(
        "canary",
        "share of the keys whose events the plugin's candidate version decides, such as `\"5%\"`; its file is \
         named `*.candidate.wasm`",
    )
    .usually("none"),
    Meaning::new(
        "shadow",
        "the candidate decides too; what it says is compared and counted, and not published",
    ),
];

const FOLDER_INTRO: &str = "Routes may also be in files of their own, which follow those of this file in the order of their names.";

/// What the keys mean, for the reference.
const FOLDER_MEANINGS: [Meaning; 1] = [Meaning::new(
    "folder",
    "every `*.toml` file in it holds `[[routes]]` and nothing else; relative to this file",
)];

/// Next to the settings file.
const DEFAULT_FOLDER: &str = "routes";

/// What the name of a route file ends with.
pub const ROUTE_FILE: &str = ".toml";

/// Reads `[routing]`.
pub(super) fn read_folder(section: &Section<'_>) -> PathBuf {
    section.document(FOLDER_INTRO, &FOLDER_MEANINGS);
    let folder = section.string_or("folder", DEFAULT_FOLDER);
    section.resolve(&folder)
}

/// Reads all routes and ends their sections.
pub(super) fn read(sections: Vec<Section<'_>>) -> Routes {
    let mut routes: Vec<Route> = Vec::with_capacity(sections.len());
    for section in sections {
        let route = read_route(&section);
        warn_if_unreachable(&section, &route, &routes);
        section.finish();
        routes.push(route);
    }
    Routes::new(routes)
}

fn read_route(section: &Section<'_>) -> Route {
    section.document(INTRO, &MEANINGS);
    if !section.has("event_type") {
        section.missing("event_type", "write event_type = \"order.*\"");
    }
    let patterns = section.strings("event_type");
    let empty =
        |patterns: &Vec<String>| patterns.is_empty() || patterns.iter().any(String::is_empty);
    if patterns.as_ref().is_some_and(empty) {
        section.error("event_type", "is empty; \"*\" stands for every event type");
    }
    let plugin = section.string("plugin");
    if plugin.as_deref().is_some_and(|name| name.trim().is_empty()) {
        section.error("plugin", "is empty; leave it out for a route without plugin");
    }
    let (place, number) = (section.place("event_type"), section.path_of("event_type"));
    let number = number.strip_suffix(".event_type").unwrap_or(&number);
    let route = Route {
        place: format!("{place}: {number}"),
        blocked: None,
        candidate: read_candidate(section),
        patterns: patterns.unwrap_or_default().into_iter().map(Pattern::new).collect(),
        plugin,
        topic: read_topic(section),
        key: read_key(section),
        headers: read_headers(section),
    };
    if route.candidate.is_some() && route.plugin.is_none() {
        section.whole_error(
            "has a candidate and no plugin that it is a candidate of: name the plugin",
        );
    }
    if !["plugin", "topic", "key", "headers"].iter().any(|key| section.has(key)) {
        section.whole_error("does nothing: give it a plugin, a topic, a key or headers");
    }
    route
}

fn read_topic(section: &Section<'_>) -> Option<TopicTemplate> {
    let topic = section.string("topic")?;
    let template =
        TopicTemplate::parse(&topic).map_err(|message| section.error("topic", message)).ok()?;
    if let Some(problem) = template.as_constant().and_then(illegal_topic) {
        section.error("topic", problem);
    }
    Some(template)
}

/// Why no broker can have a topic of that name.
fn illegal_topic(name: &str) -> Option<String> {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if let Some(letter) = name.chars().find(|letter| !legal(*letter)) {
        return Some(format!(
            "{letter:?} cannot be in a topic's name, only letters, digits, '.', '_' and '-'"
        ));
    }
    if name == "." || name == ".." {
        return Some(format!("'{name}' cannot be a topic's name"));
    }
    (name.len() > MAX_TOPIC_BYTES)
        .then(|| format!("a topic's name has at most {MAX_TOPIC_BYTES} characters"))
}

fn read_key(section: &Section<'_>) -> Option<KeyRule> {
    let key = section.string("key")?;
    if key == NULL_KEY {
        return Some(KeyRule::Null);
    }
    if let Some(field) = Field::parse(&key) {
        return Some(KeyRule::Field(field));
    }
    if key.starts_with('/') {
        return Some(KeyRule::Pointer(key));
    }
    let fields = Field::ALL.map(|(name, _)| name);
    let known = fields.join(", ");
    let words = fields.into_iter().chain([NULL_KEY]);
    section.error_suggesting(
        "key",
        format!(
            "must be a field ({known}), a JSON pointer into the payload such as \
             \"/customer/id\", or \"{NULL_KEY}\""
        ),
        closest(&key, words),
    );
    None
}

fn read_candidate(section: &Section<'_>) -> Option<Candidate> {
    let shadow = section.boolean("shadow", false);
    let share = section.string("canary").and_then(|text| {
        let share = parse_share(&text);
        if share.is_none() {
            let message =
                "must be a share of the keys such as \"5%\" or \"0.5%\", at most \"100%\"";
            section.error("canary", message);
        }
        share
    });
    if shadow && section.has("canary") {
        section.error("shadow", "cannot be together with canary: what a candidate decides in the shadow is not published");
    }
    share.map(Candidate::Share).or(shadow.then_some(Candidate::Shadow))
}

/// A percentage with at most two decimals, in hundredths of a per cent.
fn parse_share(text: &str) -> Option<u16> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let whole: u16 = whole.parse().ok()?;
    let hundredths: u16 = format!("{decimals:0<2}").parse().ok()?;
    let share = whole.checked_mul(100)?.checked_add(hundredths)?;
    (share <= WHOLE_SHARE).then_some(share)
}

fn read_headers(section: &Section<'_>) -> Vec<Header> {
    let headers = section.string_map("headers");
    if headers.iter().any(|(name, _)| name.is_empty()) {
        section.error("headers", "a header's name cannot be empty");
    }
    headers.into_iter().map(|(name, value)| Header::text(name, value)).collect()
}

fn warn_if_unreachable(section: &Section<'_>, route: &Route, earlier: &[Route]) {
    // A pattern that matches another one's text matches all that the other one does: what its
    // stars take in place of the other's stars, they take in place of anything.
    let taken_by = |pattern: &Pattern| {
        earlier.iter().position(|earlier| {
            earlier.patterns.iter().any(|other| other.matches(pattern.as_str()))
        })
    };
    let takers: Option<Vec<usize>> = route.patterns.iter().map(taken_by).collect();
    if let Some(taker) = takers.as_deref().and_then(<[usize]>::first) {
        section.warning(
            "event_type",
            format!("is never reached: routes[{taker}] takes these events before it"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        for (text, share) in [
            ("5%", Some(500)),
            ("0.5%", Some(50)),
            (" 0.05 %", Some(5)),
            ("100%", Some(10_000)),
            ("0%", Some(0)),
            ("100.01%", None),
            ("5", None),
            ("-5%", None),
            ("1.005%", None),
            (".5%", None),
            ("%", None),
            ("700000%", None),
        ] {
            assert_eq!(parse_share(text), share, "{text}");
        }
    }
}
