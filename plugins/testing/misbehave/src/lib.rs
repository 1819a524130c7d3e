//! A plugin for the host's tests: it does, on request, everything a plugin should not do.
//!
//! Each event says by its type what is to happen ([`act`]); settings and [`MODE`] say how the plugin
//! as a whole behaves. Never use it for anything else.

use std::cell::RefCell;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::exports::haulier::relay::transformer::{Guest, Manifest, Needs};
use crate::haulier::relay::host::{self, Level};
use crate::haulier::relay::types::{Delivery, Event, Failure, Outcome, RecordKey, RecordPayload};

wit_bindgen::generate!({ world: "plugin", path: "../../../wit" });

/// How `describe` behaves. Tests overwrite these bytes in the built file, since a plugin must answer
/// `describe` before it has settings.
static MODE: [u8; 40] = *b"misbehave-mode:plain                    ";

thread_local! {
    static SETTINGS: RefCell<Settings> = RefCell::default();
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Compute this long for each event.
    spin_ms: u64,
    /// Do not call `enter`.
    no_marker: bool,
    /// What `configure` does: `loop` or `trap`.
    configure: String,
    /// Compute this long in `configure`, to be a plugin that is dear to start.
    start_ms: u64,
}

struct Misbehave;

impl Guest for Misbehave {
    fn describe() -> Manifest {
        let mode = mode();
        let mode = mode.as_str();
        let mut manifest = Manifest {
            name: "misbehave".to_owned(),
            version: "1.0.0".to_owned(),
            event_types: vec!["test.*".to_owned()],
            needs: Needs::PAYLOAD | Needs::HEADERS | Needs::ATTRIBUTES,
        };
        match mode {
            "loop" => endless(),
            "trap" => panic!("describe panics"),
            "no-name" => manifest.name.clear(),
            "long-name" => manifest.name = "x".repeat(65),
            "twice" => manifest.event_types.push("test.*".to_owned()),
            "needs-nothing" => manifest.needs = Needs::empty(),
            _ => {}
        }
        manifest
    }

    fn configure(settings: String) -> Result<(), String> {
        let settings: Settings = serde_json::from_str(&settings).map_err(|it| it.to_string())?;
        match settings.configure.as_str() {
            "loop" => endless(),
            "trap" => panic!("configure panics"),
            _ => {}
        }
        spin(settings.start_ms);
        SETTINGS.set(settings);
        Ok(())
    }

    fn transform(events: Vec<Event>) -> Vec<Result<Outcome, Failure>> {
        assert!(mode() != "fails", "this version fails on everything");
        let (spin_ms, marker) = SETTINGS.with_borrow(|it| (it.spin_ms, !it.no_marker));
        let mut results = Vec::new();
        for (index, event) in (0u32..).zip(&events) {
            if marker {
                host::enter(index);
            }
            spin(spin_ms);
            match event.event_type.as_str() {
                "test.no-result" => {}
                "test.two-results" => results.extend([act(event), act(event)]),
                _ => results.push(act(event)),
            }
        }
        results
    }
}

/// How this version behaves.
fn mode() -> String {
    let mode = String::from_utf8_lossy(black_box(&MODE)).into_owned();
    mode.trim_start_matches("misbehave-mode:").trim_end().to_owned()
}

/// What one event asks for.
fn act(event: &Event) -> Result<Outcome, Failure> {
    match event.event_type.as_str() {
        "test.loop" => endless(),
        "test.panic" => panic!("event {} panics", event.id),
        "test.exit" => std::process::exit(3),
        "test.stack" => {
            black_box(descend(u64::MAX));
        }
        "test.memory" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(black_box(vec![1u8; 1 << 20]));
            }
        }
        "test.sleep" => thread::sleep(Duration::from_secs(3600)),
        "test.huge" => {
            let payload = RecordPayload::Bytes(vec![b'x'; 8 << 20]);
            return Ok(Outcome::Deliver(Delivery { payload, ..plain() }));
        }
        "test.fan-out-100k" => return Ok(Outcome::FanOut(vec![plain(); 100_000])),
        "test.fan-out-101" => return Ok(Outcome::FanOut(vec![plain(); 101])),
        "test.fan-out-0" => return Ok(Outcome::FanOut(Vec::new())),
        "test.fan-out-2" => return Ok(Outcome::FanOut(vec![plain(); 2])),
        "test.reject" => return Err(Failure::Reject("never".to_owned())),
        "test.reject-long" => return Err(Failure::Reject(long_text())),
        "test.reject-utf8" => return Err(Failure::Reject(no_text())),
        "test.each-topic" => return Ok(Outcome::FanOut(each_topic(event))),
        "test.retry" => return Err(Failure::Retry("later".to_owned())),
        "test.drop" => return Ok(Outcome::Drop("not wanted".to_owned())),
        "test.control-topic" => {
            let topic = Some("a\u{1}b\nc".to_owned());
            return Ok(Outcome::Deliver(Delivery { topic, ..plain() }));
        }
        "test.control-header" => {
            let headers = Some(vec![("a\u{0}b\n".to_owned(), Some(b"x".to_vec()))]);
            return Ok(Outcome::Deliver(Delivery { headers, ..plain() }));
        }
        "test.utf8-topic" => {
            return Ok(Outcome::Deliver(Delivery { topic: Some(no_text()), ..plain() }));
        }
        "test.utf8-header" => {
            let headers = Some(vec![(no_text(), None)]);
            return Ok(Outcome::Deliver(Delivery { headers, ..plain() }));
        }
        "test.100-mb" => {
            // All deliveries of it would not fit into the plugin's memory; what it has, it returns.
            let payload = || RecordPayload::Bytes(vec![b'x'; 1 << 20]);
            let list = (0..50).map(|_| Delivery { payload: payload(), ..plain() });
            return Ok(Outcome::FanOut(list.collect()));
        }
        "test.empty-topic" => {
            return Ok(Outcome::Deliver(Delivery { topic: Some(String::new()), ..plain() }));
        }
        "test.partition" => {
            return Ok(Outcome::Deliver(Delivery { partition: Some(-1), ..plain() }));
        }
        "test.log-flood" => {
            for line in 0..1000 {
                host::log(Level::Info, &format!("line {line} {}", "x".repeat(4096)));
            }
        }
        "test.print-flood" => {
            for line in 0..1000 {
                eprintln!("line {line} {}", "x".repeat(4096));
            }
        }
        "test.leak" => {
            // A tenth of the memory, never given back.
            black_box(vec![1u8; 3 << 20].leak());
        }
        "test.full" => return Ok(Outcome::Deliver(full())),
        "test.authority" => return Ok(Outcome::Drop(authority())),
        "test.report" => return Ok(Outcome::Drop(report(event))),
        _ => {}
    }
    Ok(Outcome::Deliver(plain()))
}

fn plain() -> Delivery {
    Delivery {
        topic: None,
        key: RecordKey::Default,
        payload: RecordPayload::Unchanged,
        headers: None,
        partition: None,
        timestamp_ms: None,
    }
}

/// A delivery with nothing left to the host.
fn full() -> Delivery {
    Delivery {
        topic: Some("topic".to_owned()),
        key: RecordKey::Bytes(Vec::new()),
        payload: RecordPayload::Bytes(b"payload".to_vec()),
        headers: Some(vec![("a".to_owned(), Some(b"1".to_vec())), ("b".to_owned(), None)]),
        partition: Some(3),
        timestamp_ms: Some(1_700_000_000_000),
    }
}

/// What the plugin can see of the world, as `name=count`.
fn authority() -> String {
    let input = std::io::read_to_string(std::io::stdin()).map_or(0, |text| text.len());
    format!(
        "arguments={} environment={} input={input}",
        std::env::args().count(),
        std::env::vars().count()
    )
}

/// What the plugin was given of the event.
fn report(event: &Event) -> String {
    let headers: Vec<_> = event.headers.iter().map(|(name, _)| name.as_str()).collect();
    let attributes: Vec<_> =
        event.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let payload = event.payload.as_deref().map(String::from_utf8_lossy);
    format!(
        "id={} aggregate={}/{} headers={headers:?} payload={payload:?} attributes={attributes:?}",
        event.id, event.aggregate_type, event.aggregate_id
    )
}

/// One delivery for each topic that the payload names.
fn each_topic(event: &Event) -> Vec<Delivery> {
    #[derive(Deserialize)]
    struct Topics {
        topics: Vec<String>,
    }
    let payload = event.payload.as_deref().unwrap_or_default();
    let topics: Topics = serde_json::from_slice(payload).expect("the test names topics");
    topics.topics.into_iter().map(|topic| Delivery { topic: Some(topic), ..plain() }).collect()
}

/// A mebibyte of what texts seldom hold: NUL, other control characters, the end of Unicode, marks
/// that turn the direction of writing.
fn long_text() -> String {
    "never \0\u{1}\u{1b}[31m\u{202e}\u{fffe}\u{10ffff}\u{1f600}e\u{301}\n".repeat((1 << 20) / 30)
}

/// A text that is none.
fn no_text() -> String {
    let bytes = black_box(vec![0xff, 0xfe, 0xc3]);
    // SAFETY: there is none, on purpose: nothing here looks at it, and the host has to refuse it.
    unsafe { String::from_utf8_unchecked(bytes) }
}

fn endless() -> ! {
    let mut count = 0u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

fn spin(millis: u64) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(millis) {
        black_box(0);
    }
}

#[expect(unconditional_recursion, reason = "that is what it is for")]
fn descend(depth: u64) -> u64 {
    black_box(descend(black_box(depth - 1))) + 1
}

export!(Misbehave);
