//! `haulier demo`: the main job, done and checked before your eyes.
//!
//! Called by the command line. An application commits orders with their events, two relays carry the
//! events through the example plugin to Kafka, a consumer reads the topics, and what arrived is compared
//! with what the database had committed. Nothing here is used by the relay itself.

mod broker;
mod display;
#[cfg(feature = "demo-faults")]
mod fault;
mod instances;
mod ledger;
mod shop;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::task::{JoinHandle, JoinSet};

use self::broker::{Broker, Consumer, Polled};
use self::display::{Display, Figures};
use self::instances::{Instance, Plan};
use self::ledger::Received;
use self::shop::Shop;

pub use self::ledger::Verdict;

/// Writers of the application, each with a connection.
const WRITERS: u32 = 4;
/// Relays.
const INSTANCES: u32 = 2;
/// Pause between two looks at what has come.
const TICK: Duration = Duration::from_millis(100);
/// When nothing moves for so long, something is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// How long the last records may take to be read.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What the demo is told.
#[derive(Clone)]
pub struct DemoConfig {
    /// Events to commit.
    pub events: usize,
    /// Whether the folder, and what was made in database and broker, stays.
    pub keep: bool,
    /// A PostgreSQL in place of an SQLite file; secret.
    pub postgres: Option<String>,
    /// A broker in place of the one in this process.
    pub kafka: Option<String>,
    /// The example plugin's file; looked for where the builds put it when it is not given.
    pub plugin: Option<PathBuf>,
}

/// Runs the demo, and shows it on standard output, all but the last line.
///
/// # Errors
/// What could not be set up, or broke.
pub async fn run(config: &DemoConfig) -> anyhow::Result<Verdict> {
    let plugin = find_plugin(config.plugin.as_deref())?;
    let name = format!("haulier_demo_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let folder = std::env::temp_dir().join(name.replace('_', "-"));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    let broker = match &config.kafka {
        None => Broker::in_process(),
        Some(servers) => Broker::at(servers, format!("{}.", name.replace('_', "-"))).await,
    };
    let broker =
        broker.map_err(|error| anyhow::anyhow!("the broker: {error}; {}", broker::ADVICE))?;
    let mut display = Display::new();
    let outcome =
        Stage { config, folder: &folder, schema: &name, plugin: &plugin, broker: &broker }
            .play(&mut display)
            .await;
    let clean = outcome.as_ref().is_ok_and(Verdict::is_clean);
    if config.keep || !clean {
        display.say(&format!("kept: {} (settings, logs{})", folder.display(), kept_too(config)));
    } else if let Err(error) = std::fs::remove_dir_all(&folder) {
        display.say(&format!("the folder {} cannot be removed: {error}", folder.display()));
    }
    if config.kafka.is_some()
        && !config.keep
        && let Err(error) = broker.delete_topics().await
    {
        display.say(&format!("the demo's topics cannot be deleted: {error}"));
    }
    if outcome.is_ok() {
        display.say("next:  haulier init --database postgres://user:password@host/database --kafka host:9092");
        display.say("       writes a haulier.toml for your own database and broker; `haulier run` then carries its events");
    }
    outcome
}

fn kept_too(config: &DemoConfig) -> &'static str {
    match (&config.postgres, config.keep) {
        (None, _) => ", the database file",
        (Some(_), true) => "; the schema and the topics of that name",
        (Some(_), false) => "",
    }
}

/// The plugin's file: the one that was named, or where the builds put it.
fn find_plugin(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    const FILE: &str = "order_events.wasm";
    if let Some(named) = named {
        if !named.is_file() {
            bail!("there is no file {}", named.display());
        }
        return Ok(named.to_owned());
    }
    let built = Path::new("plugins/target/wasm32-wasip2/release").join(FILE);
    let mut places = vec![built.clone(), Path::new("plugins").join(FILE)];
    if let Ok(binary) = std::env::current_exe() {
        places.extend(binary.ancestors().skip(1).map(|folder| folder.join(&built)));
    }
    places.push(Path::new("/usr/share/haulier/plugins").join(FILE));
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!("the example plugin {FILE} is not found: build it with `make plugins`, or name it with --plugin")
    })
}

/// Where one show takes place.
struct Stage<'a> {
    config: &'a DemoConfig,
    folder: &'a Path,
    schema: &'a str,
    plugin: &'a Path,
    broker: &'a Broker,
}

impl Stage<'_> {
    async fn play(&self, display: &mut Display) -> anyhow::Result<Verdict> {
        let file = self.folder.join("shop.db");
        let file_url = format!("sqlite:{}", file.display());
        let url = self.config.postgres.as_deref().unwrap_or(&file_url);
        let schema = self.config.postgres.is_some().then_some(self.schema);
        let table = schema.map_or("outbox".to_owned(), |schema| format!("{schema}.outbox"));
        let plan = Plan {
            folder: self.folder,
            url,
            url_is_public: schema.is_none(),
            table: &table,
            servers: &self.broker.servers,
            topic_prefix: &self.broker.prefix,
            plugin: self.plugin,
        };
        plan.lay_out()?;
        plan.migrate().await?;
        let shop = Shop::open(url, schema, WRITERS, self.config.events)
            .await
            .context("the demo's application cannot use the database")?;
        let shop = Arc::new(shop);
        display.say(&self.introduction());
        let played = self.carry(&plan, &shop, display).await;
        if !self.config.keep
            && let Err(error) = shop.drop_schema().await
        {
            display.say(&format!("the schema {} cannot be dropped: {error}", self.schema));
        }
        shop.close().await;
        played
    }

    fn introduction(&self) -> String {
        let database = if self.config.postgres.is_some() { "PostgreSQL" } else { "an SQLite file" };
        let broker = if self.broker.is_in_process() {
            "a Kafka cluster in this process".to_owned()
        } else {
            format!("Kafka at {}", self.broker.servers)
        };
        format!(
            "haulier demo: {WRITERS} writers commit orders and their events to {database};\n\
             {INSTANCES} relays carry them through the plugin order-events to {broker}"
        )
    }

    /// The show itself: from the first write to the verdict.
    async fn carry(
        &self,
        plan: &Plan<'_>,
        shop: &Arc<Shop>,
        display: &mut Display,
    ) -> anyhow::Result<Verdict> {
        let consumer = self.broker.consumer().context("the demo's consumer cannot be set up")?;
        let mut reading = Reading::start(consumer);
        let mut instances = (1..=INSTANCES)
            .map(|number| plan.start(number))
            .collect::<anyhow::Result<Vec<Instance>>>()?;
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(Arc::clone(shop).write(writer));
        }
        let mut tally = Tally::new(self.config.events, self.broker.topics());
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                biased;
                _ = &mut interrupted => bail!("interrupted"),
                () = tokio::time::sleep(TICK) => {}
            }
            for instance in &mut instances {
                instance.still_runs()?;
            }
            while let Some(ended) = writers.try_join_next() {
                ended.context("a writer died")?.context("a writer cannot write")?;
            }
            tally.take(&reading, display);
            tally.count(shop);
            display.progress(&tally.figures);
            if writers.is_empty() && tally.is_over(shop).await? {
                break;
            }
        }
        for instance in instances {
            instance.stop().await?;
        }
        // What a relay sent at the very end counts as well.
        reading.finish().await?;
        tally.take(&reading, display);
        tally.count(shop);
        tally.figures.lags.append(&mut tally.lags);
        display.finish(&tally.figures);
        display.show_samples();
        let committed = shop.committed().await.context("the application's log cannot be read")?;
        let verdict = Verdict::of(&committed, &tally.received);
        if verdict.phantom > 0 {
            display
                .say(&format!("{} records belong to no event that was committed", verdict.phantom));
        }
        Ok(verdict)
    }
}

/// The consumer at work, in a thread of its own.
struct Reading {
    records: mpsc::Receiver<Polled>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Reading {
    fn start(mut consumer: Consumer) -> Self {
        let (sender, records) = mpsc::channel();
        let ending = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ending);
        let thread = tokio::task::spawn_blocking(move || {
            let mut since_told: Option<Instant> = None;
            loop {
                if let Some(polled) = consumer.poll(TICK) {
                    if sender.send(polled).is_err() {
                        return Ok(());
                    }
                } else if told.load(Ordering::Acquire) {
                    let since = *since_told.get_or_insert_with(Instant::now);
                    let end = consumer.is_at_end().context("the ends of the topics are unknown")?;
                    if end {
                        return Ok(());
                    }
                    if since.elapsed() > END_LIMIT {
                        bail!("the topics could not be read to their ends");
                    }
                }
            }
        });
        Self { records, ending, thread: Some(thread) }
    }

    /// Reads to the end of the topics, and stops.
    async fn finish(&mut self) -> anyhow::Result<()> {
        self.ending.store(true, Ordering::Release);
        match self.thread.take() {
            Some(thread) => thread.await.context("the consumer died")?,
            None => Ok(()),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
    }
}

/// What has been received so far.
struct Tally {
    received: Vec<Received>,
    figures: Figures,
    /// Lags of all but the last moment.
    lags: Vec<u64>,
    moved: Instant,
    seen: (usize, usize),
    #[cfg(feature = "demo-faults")]
    fault: fault::Fault,
}

impl Tally {
    fn new(wanted: usize, topics: impl Iterator<Item = String>) -> Self {
        let topics = topics.map(|topic| (topic, 0)).collect();
        Self {
            received: Vec::new(),
            figures: Figures { wanted, topics, ..Figures::default() },
            lags: Vec::new(),
            moved: Instant::now(),
            seen: (0, 0),
            #[cfg(feature = "demo-faults")]
            fault: fault::Fault::from_environment(),
        }
    }

    fn take(&mut self, reading: &Reading, display: &mut Display) {
        self.lags.append(&mut self.figures.lags);
        while let Ok(polled) = reading.records.try_recv() {
            self.figures.topics[polled.received.topic].1 += 1;
            self.figures.lags.extend(polled.lag_ms);
            display.sample(&polled.sample);
            #[cfg(feature = "demo-faults")]
            self.received.extend(self.fault.apply(polled.received, &polled.sample.key));
            #[cfg(not(feature = "demo-faults"))]
            self.received.push(polled.received);
        }
    }

    fn count(&mut self, shop: &Shop) {
        self.figures.committed = shop.counts.committed.load(Ordering::Relaxed);
        self.figures.rolled_back = shop.counts.rolled_back.load(Ordering::Relaxed);
    }

    /// Whether nothing more will come.
    async fn is_over(&mut self, shop: &Shop) -> anyhow::Result<bool> {
        let now = (self.figures.committed, self.received.len());
        if now != self.seen {
            (self.seen, self.moved) = (now, Instant::now());
        }
        if self.moved.elapsed() > STUCK {
            return Ok(true);
        }
        // An event leaves the outbox when its records are acknowledged: they are in the topics then.
        shop.outbox_is_empty().await.context("the outbox cannot be looked at")
    }
}
