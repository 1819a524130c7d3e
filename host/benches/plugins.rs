//! What plugins cost: events a second on one core, by batch size, beside the same logic as native Rust;
//! loading with and without the cache; and what swaps do to batches that run meanwhile.
//!
//! `make bench` builds the guests and runs it. Figures of different runs or machines cannot be compared;
//! the ratios of one run can. The targets are those of the issue that asked for it, and a figure over its
//! target is marked. Needs no database and no broker.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use haulier::event::{Delivery, Event, EventId, KeyChoice, LaneName, Outcome};
use haulier::plugin::{Config, PluginHost, Sample};
use haulier::transform::{Plugins as _, Transform};
use serde::Deserialize;

const BATCHES: [usize; 5] = [1, 16, 64, 256, 1000];

/// How long each figure is measured, in rounds whose median counts.
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(200);

/// Targets in microseconds an event at batches of 64 and more, and as a multiple of native.
const ROUTE_TARGET: f64 = 1.5;
const PARSE_TARGET: f64 = 3.0;
const PARSE_RATIO_TARGET: f64 = 3.0;
const LOAD_TARGET: Duration = Duration::from_millis(5);

fn main() -> anyhow::Result<()> {
    // One thread for the guests and one that waits for them: what is measured is one core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = Scratch::new()?;
        folder.put("route.wasm", &guest("bench_route")?)?;
        folder.put("parse.wasm", &guest("bench_parse")?)?;
        let host = PluginHost::load(folder.config()).await?;
        throughput(&host).await?;
        drop(host);
        loading().await?;
        swaps().await
    })
}

async fn throughput(host: &PluginHost) -> anyhow::Result<()> {
    let route = host.find("bench-route").map_err(anyhow::Error::msg)?;
    let parse = host.find("bench-parse").map_err(anyhow::Error::msg)?;
    println!(
        "payload of {} bytes; microseconds an event (events a second on one core)\n",
        PAYLOAD.len()
    );
    println!(
        "{:>6} {:>22} {:>22} {:>22} {:>8}",
        "batch", "routing only", "parse and extract", "native Rust", "ratio"
    );
    for size in BATCHES {
        let events: Vec<Event> = (0..).take(size).map(event).collect();
        let routed = measure(&*route, &events).await?;
        let parsed = measure(&*parse, &events).await?;
        let native = measure_native(&events);
        let ratio = parsed / native;
        println!(
            "{size:>6} {:>22} {:>22} {:>22} {ratio:>8.1}{}",
            figure(routed),
            figure(parsed),
            figure(native),
            over(
                size >= 64
                    && (routed > ROUTE_TARGET
                        || parsed > PARSE_TARGET
                        || ratio > PARSE_RATIO_TARGET)
            )
        );
    }
    println!("targets: {ROUTE_TARGET}, {PARSE_TARGET} and {PARSE_RATIO_TARGET} times native\n");
    Ok(())
}

fn figure(micros: f64) -> String {
    format!("{micros:.2} ({:.0}/s)", 1e6 / micros)
}

fn over(missed: bool) -> &'static str {
    if missed { "  over its target" } else { "" }
}

/// Median microseconds an event.
async fn measure(plugin: &dyn Transform, events: &[Event]) -> anyhow::Result<f64> {
    let lane = lane();
    let refs: Vec<&Event> = events.iter().collect();
    let done = plugin.transform(&lane, &refs).await;
    ensure!(done.verdicts.iter().all(Result::is_ok), "{:?}", done.verdicts[0]);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < ROUND {
            black_box(plugin.transform(&lane, &refs).await);
            count += events.len();
        }
        rounds.push(micros(began.elapsed(), count));
    }
    Ok(median(rounds))
}

#[derive(Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    customer: Customer<'a>,
    total_cents: u64,
}

#[derive(Deserialize)]
struct Customer<'a> {
    id: &'a str,
}

/// What the guest that parses does, without a guest.
fn decide(event: &Event) -> Option<Outcome> {
    let order: Order<'_> = serde_json::from_slice(event.payload.as_deref()?).ok()?;
    let topic = if order.total_cents > 100_000 { "orders.large" } else { "orders" };
    let key = KeyChoice::Bytes(Bytes::copy_from_slice(order.customer.id.as_bytes()));
    Some(Outcome::Deliver(vec![Delivery {
        topic: Some(topic.to_owned()),
        key,
        ..Delivery::default()
    }]))
}

fn measure_native(events: &[Event]) -> f64 {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < ROUND {
            black_box(events.iter().map(|event| decide(black_box(event))).collect::<Vec<_>>());
            count += events.len();
        }
        rounds.push(micros(began.elapsed(), count));
    }
    median(rounds)
}

async fn loading() -> anyhow::Result<()> {
    let folder = Scratch::new()?;
    let host = PluginHost::load(folder.config()).await?;
    let mut took = Vec::new();
    for (file, number) in [("a.wasm", 1), ("a.wasm", 2), ("a.wasm", 1), ("a.wasm", 2)] {
        folder.put(file, &version(number)?)?;
        let began = Instant::now();
        let changes = host.refresh(folder.config(), BTreeSet::new()).await?;
        took.push(began.elapsed());
        ensure!(changes.activated.len() == 1, "{changes:?}");
    }
    let cached = took[2].min(took[3]);
    println!(
        "loading a Rust guest, checks included: compiled {:.1} ms, from the cache {:.1} ms{} (target {} ms)\n",
        millis(took[0]),
        millis(cached),
        over(cached > LOAD_TARGET),
        LOAD_TARGET.as_millis()
    );
    Ok(())
}

/// Latency of batches while a plugin is replaced again and again, and while it is not.
async fn swaps() -> anyhow::Result<()> {
    const SWAPS: u32 = 40;
    let folder = Scratch::new()?;
    folder.put("a.wasm", &version(0)?)?;
    let host = PluginHost::load(folder.config()).await?;
    let events: Vec<Event> = (0..256).map(event).collect();
    let quiet = latencies(&host, &events, async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    })
    .await?;
    let swapping = async {
        for number in 1..=SWAPS {
            folder.put("a.wasm", &version(number)?)?;
            let changes = host.refresh(folder.config(), BTreeSet::new()).await?;
            ensure!(changes.activated.len() == 1, "{changes:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let swapped = latencies(&host, &events, swapping).await?;
    println!(
        "batches of 256 while a plugin is replaced {SWAPS} times, each compiled anew: p50 {:.2} ms, p99 {:.2} ms, \
         longest {:.2} ms; undisturbed p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms; p99 ratio {:.1}",
        swapped.0,
        swapped.1,
        swapped.2,
        quiet.0,
        quiet.1,
        quiet.2,
        swapped.1 / quiet.1
    );
    Ok(())
}

/// p50, p99 and the longest, in milliseconds, of batches that run until `meanwhile` has ended.
async fn latencies(
    host: &PluginHost,
    events: &[Event],
    meanwhile: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<(f64, f64, f64)> {
    let lane = lane();
    let refs: Vec<&Event> = events.iter().collect();
    let mut took = Vec::new();
    tokio::pin!(meanwhile);
    loop {
        let batch = async {
            let began = Instant::now();
            let plugin = host.find("bench-parse").map_err(anyhow::Error::msg)?;
            let done = plugin.transform(&lane, &refs).await;
            ensure!(done.verdicts.iter().all(Result::is_ok), "a batch failed");
            Ok(began.elapsed())
        };
        tokio::pin!(batch);
        tokio::select! {
            biased;
            done = &mut batch => took.push(millis(done?)),
            ended = &mut meanwhile => {
                ended?;
                break;
            }
        }
        tokio::task::yield_now().await;
        if let std::task::Poll::Ready(ended) = futures::poll!(&mut meanwhile) {
            ended?;
            break;
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Ok((at(0.5), at(0.99), at(1.0)))
}

const PAYLOAD: &str = r#"{"order_id":"o-7f3a91c0","status":"paid","customer":{"id":"c-4711","name":"Ada Lovelace","email":"ada@example.com","address":{"street":"12 St James's Square","city":"London","country":"GB"}},"items":[{"sku":"A-100","name":"Difference engine part","quantity":2,"price_cents":12500},{"sku":"B-200","name":"Punched cards, box","quantity":10,"price_cents":900}],"currency":"GBP","total_cents":34000,"note":"please leave at the door","created_at":"2026-11-30T12:00:00Z","flags":[true,false,null]}"#;

fn event(id: i64) -> Event {
    Event {
        id: EventId(id),
        shard: 0,
        aggregate_type: "order".to_owned(),
        aggregate_id: Some(format!("o-{id}")),
        event_type: "bench.order.paid".to_owned(),
        partition_key: None,
        topic: None,
        headers: Vec::new(),
        payload: Some(Bytes::from_static(PAYLOAD.as_bytes())),
        attempts: 0,
        created_at_ms: 1_700_000_000_000,
        waited: Duration::ZERO,
        redelivery: None,
        holds_key: false,
        defect: None,
    }
}

fn lane() -> LaneName {
    LaneName { source: "bench".into(), lane: "default".into() }
}

fn guest(name: &str) -> anyhow::Result<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a workspace")?;
    let file = root.join("plugins/target/wasm32-wasip2/release").join(format!("{name}.wasm"));
    std::fs::read(&file).with_context(|| format!("{}: run `make plugins`", file.display()))
}

/// The guest that parses, as another version.
fn version(number: u32) -> anyhow::Result<Vec<u8>> {
    let sample = format!(
        "{{\"event_type\":\"bench.x\",\"id\":{number},\"expect\":{{\"reject\":\"EOF while parsing a value at line 1 column 0\"}}}}\n"
    );
    Ok(Sample::ship(guest("bench_parse")?, &sample))
}

fn micros(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_secs_f64() * 1e6 / count as f64
}

fn millis(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A plugins folder that goes in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("haulier-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn put(&self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let part = self.0.join("part");
        std::fs::write(&part, bytes)?;
        Ok(std::fs::rename(part, self.0.join(file))?)
    }

    fn config(&self) -> Config {
        let state = Some(self.0.join(".state"));
        Config { folder: self.0.clone(), state, workers: 1, ..Config::default() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it does no harm in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
