//! The composition root: from a checked config to a running relay, and its shutdown in phases.
//!
//! Called by the command line. The only place where adapters are chosen; it decides nothing about
//! events. Signals reach it as futures.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::{self, AdminState, Health};
use crate::config::{
    Config, LaneSettings, Pooler, RouteFiles, SinkKind, SinkSettings, SourceSettings,
    read_route_files,
};
use crate::event::{LaneName, Ordering};
use crate::operations::Operations;
use crate::plugin::{self, Keeping, PluginHost};
use crate::relay::{self, Lane, LaneHealth, Phase, Retention, RetentionConfig, Rules, Shared};
use crate::reload::{self, ReadSettings, Reloaded, Reloader, Reloads};
use crate::sink::kafka::KafkaSink;
use crate::sink::stdout::StdoutSink;
use crate::sink::{PublishMode, Sink};
use crate::store::{Database, Outbox, PostgresStore, SqliteStore, Store, StoreConfig};
use crate::telemetry::Metrics;

/// How long batches may take to let go once the grace time is over.
const ABANDON_LIMIT: Duration = Duration::from_secs(2);
/// How long the relay's loops get after that before the process ends without them.
const LAST_LIMIT: Duration = Duration::from_secs(5);

/// Why the relay does not start, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A source cannot be set up.
    #[error("source '{name}': {problem}")]
    Source {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A sink cannot be set up.
    #[error("sink '{name}' cannot be set up")]
    Sink {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        cause: crate::sink::kafka::SinkError,
    },
    /// The plugin host does not start.
    #[error("the plugin host does not start")]
    Plugins(#[from] plugin::StartError),
    /// The admin port cannot be opened.
    #[error(
        "the admin port {address} cannot be opened: set [admin] listen to a free address, or to \"off\""
    )]
    Admin {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// The system's word.
        #[source]
        cause: std::io::Error,
    },
    /// A loop died.
    #[error("a loop died, which is a bug: {0}")]
    Died(String),
    /// Shutdown ran out of time.
    #[error("shutdown took longer than the grace time; what was in flight may be repeated")]
    Overran,
}

/// One source with its store.
pub struct Source {
    /// Its settings.
    pub settings: SourceSettings,
    /// Its database.
    pub store: Arc<dyn Outbox>,
}

/// Sets up the sources without connecting.
///
/// # Errors
/// When a table name or URL cannot be used.
pub fn sources(config: &Config) -> Result<Vec<Source>, AppError> {
    config.sources.iter().map(|settings| source(config, settings)).collect()
}

/// The operators' side of these sources.
pub fn operations(sources: &[Source]) -> Operations {
    let named = |source: &Source| (Arc::clone(&source.settings.name), Arc::clone(&source.store));
    Operations::new(sources.iter().map(named).collect())
}

fn source(config: &Config, settings: &SourceSettings) -> Result<Source, AppError> {
    let whole_lane_index = config
        .lane_names()
        .any(|(name, lane)| name.source == settings.name && lane.config.ordering != Ordering::Key);
    let store = store(StoreConfig {
        source: settings.name.to_string(),
        url: settings.url.expose().to_owned(),
        folder: settings.folder.clone(),
        table: settings.table.clone(),
        shards: settings.shards,
        payload_type: settings.payload_type,
        settle: settings.settle,
        transaction_pooler: settings.pooler == Pooler::Transaction,
        max_connections: settings.max_connections,
        whole_lane_index,
    })
    .map_err(|problem| AppError::Source { name: settings.name.to_string(), problem })?;
    Ok(Source { settings: settings.clone(), store })
}

/// The adapter for the database that the URL names.
fn store(config: StoreConfig) -> Result<Arc<dyn Outbox>, String> {
    Ok(match Database::of(&config.url)? {
        Database::Postgres => Arc::new(PostgresStore::new(config)?),
        Database::Sqlite => Arc::new(SqliteStore::new(config)?),
    })
}

/// A sink of a lane's own.
///
/// # Errors
/// When the client does not take the config.
pub fn sink(
    settings: &SinkSettings,
    mode: PublishMode,
    label: &str,
) -> Result<Arc<dyn Sink>, AppError> {
    match &settings.kind {
        SinkKind::Stdout => Ok(Arc::new(StdoutSink::new())),
        SinkKind::Kafka(kafka) => KafkaSink::new(kafka.adapted(mode), label)
            .map(|sink| Arc::new(sink) as Arc<dyn Sink>)
            .map_err(|cause| AppError::Sink { name: settings.name.to_string(), cause }),
    }
}

/// The rules and plugins as a relay that starts now would use them, for commands that look.
///
/// # Errors
/// When the plugin host does not start; a bad file is among the troubles.
pub async fn rules(config: &Config) -> Result<Rules, AppError> {
    let host = PluginHost::load(reload::plugin_config(config, Keeping::Look)).await?;
    let files = read_route_files(&config.routes_folder, &RouteFiles::default(), &BTreeSet::new());
    Ok(reload::rules(config, &files, host.plugins(), None))
}

/// What the admin port says of the process.
struct AppHealth {
    lanes: Vec<(LaneName, Arc<LaneHealth>)>,
    rules: watch::Receiver<Arc<Rules>>,
    stall: Duration,
}

impl Health for AppHealth {
    fn alive(&self) -> Vec<String> {
        let dead = self.lanes.iter().filter(|(_, health)| !health.alive());
        dead.map(|(name, _)| format!("lane {name}: its loop has died")).collect()
    }

    fn ready(&self) -> Vec<String> {
        let lanes = self.lanes.iter().filter_map(|(name, health)| {
            health.trouble(self.stall).map(|trouble| format!("lane {name}: {trouble}"))
        });
        lanes.chain(self.rules.borrow().troubles.iter().cloned()).collect()
    }
}

/// What the admin port may ask for.
struct AppReload(Reloads);

#[async_trait]
impl admin::Reload for AppReload {
    async fn reload(&self) -> Option<admin::Answer> {
        let Reloaded { changes, refused, troubles } = self.0.reload().await?;
        Some(admin::Answer { changes, refused, troubles })
    }
}

/// A relay, set up and not yet running.
pub struct App {
    lanes: Vec<Lane>,
    retentions: Vec<Retention>,
    shared: Shared,
    reloader: Reloader,
    stores: Vec<Arc<dyn Outbox>>,
    admin: Option<TcpListener>,
    state: AdminState,
    grace: Duration,
}

impl App {
    /// Sets everything up: opens the admin port and loads plugins, but waits for neither database
    /// nor broker, which may come later. `read_settings` reads the settings again when they change.
    ///
    /// # Errors
    /// What cannot be set up at all.
    pub async fn build(config: &Config, read_settings: ReadSettings) -> Result<Self, AppError> {
        let admin = match config.admin.listen {
            None => None,
            Some(address) => Some(
                TcpListener::bind(address)
                    .await
                    .map_err(|cause| AppError::Admin { address, cause })?,
            ),
        };
        let metrics = Metrics::new();
        let sources = sources(config)?;
        let reloader = Reloader::start(config, read_settings, metrics.plugins()).await?;
        let mut lanes = Vec::new();
        for (name, settings) in config.lane_names() {
            lanes.push(lane(config, name, settings, &sources, &metrics)?);
        }
        let operations = config.admin.operations.then(|| operations(&sources));
        let health = AppHealth {
            lanes: lanes.iter().map(|lane| (lane.name.clone(), Arc::clone(&lane.health))).collect(),
            rules: reloader.rules(),
            stall: config.admin.ready_stall,
        };
        Ok(Self {
            lanes,
            retentions: sources.iter().filter_map(|source| retention(source, &metrics)).collect(),
            shared: Shared {
                rules: reloader.rules(),
                plugin_metrics: metrics.plugins(),
                instance: config.relay.instance.as_str().into(),
                abandon_limit: ABANDON_LIMIT,
                // Half the cores.
                transforms: std::thread::available_parallelism().map_or(1, usize::from) / 2,
            },
            stores: sources.into_iter().map(|source| source.store).collect(),
            admin,
            state: AdminState {
                health: Arc::new(health),
                metrics,
                reload: Arc::new(AppReload(reloader.reloads())),
                token: config.admin.token.clone(),
                operations,
            },
            reloader,
            grace: config.relay.grace,
        })
    }

    /// Has rules and plugins looked at when asked.
    pub fn reloads(&self) -> Reloads {
        self.reloader.reloads()
    }

    /// Runs until `shutdown` resolves, then drains within the grace time.
    ///
    /// # Errors
    /// When a loop died, or the grace time did not suffice.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
        let (phase, phases) = watch::channel(Phase::Running);
        let mut admin_phase = phases.clone();
        let admin = self.admin.map(|listener| {
            let stopped = async move {
                // The port answers while the relay drains; it goes when nobody leads any more.
                let _ = admin_phase.wait_for(|phase| *phase == Phase::Abandon).await;
            };
            tokio::spawn(admin::serve(listener, self.state, stopped))
        });
        let reloader = tokio::spawn(self.reloader.run());
        let running = relay::run(self.lanes, self.retentions, self.shared, phases);
        tokio::pin!(running);
        let died = tokio::select! {
            died = &mut running => Some(died),
            () = shutdown => None,
        };
        let (died, overran) = match died {
            Some(died) => (died, false),
            None => drain(running, &phase, self.grace).await,
        };
        drop(phase);
        reloader.abort();
        for store in self.stores {
            if tokio::time::timeout(LAST_LIMIT, store.close()).await.is_err() {
                tracing::warn!("phase 'close the database connections' overran");
            }
        }
        if let Some(admin) = admin {
            admin.abort();
        }
        match (died.as_slice(), overran) {
            ([], false) => Ok(()),
            ([], true) => Err(AppError::Overran),
            (died, _) => Err(AppError::Died(died.join("; "))),
        }
    }
}

/// Drains: first politely, then by letting go. Returns what died and whether time ran out.
async fn drain(
    mut running: std::pin::Pin<&mut impl Future<Output = Vec<String>>>,
    phase: &watch::Sender<Phase>,
    grace: Duration,
) -> (Vec<String>, bool) {
    tracing::info!(?grace, "shutting down: nothing more is claimed, what is in flight is finished");
    phase.send_replace(Phase::Draining);
    if let Ok(died) = tokio::time::timeout(grace, &mut running).await {
        tracing::info!("everything in flight is settled");
        return (died, false);
    }
    tracing::warn!("phase 'drain' overran the grace time; what is in flight is let go");
    phase.send_replace(Phase::Abandon);
    match tokio::time::timeout(LAST_LIMIT, running).await {
        Ok(died) => (died, true),
        Err(_) => {
            tracing::error!("phase 'let go' overran; claims stay until they expire");
            (Vec::new(), true)
        }
    }
}

fn lane(
    config: &Config,
    name: LaneName,
    settings: &LaneSettings,
    sources: &[Source],
    metrics: &Metrics,
) -> Result<Lane, AppError> {
    // Both names were checked when the config was read.
    let unknown = |what: &str| AppError::Source {
        name: name.source.to_string(),
        problem: format!("lane '{}' names a {what} that the settings do not have", name.lane),
    };
    let source = sources
        .iter()
        .find(|source| source.settings.name == name.source)
        .ok_or_else(|| unknown("source"))?;
    let sink_settings = config.sink(&settings.sink).ok_or_else(|| unknown("sink"))?;
    let sink = sink(sink_settings, settings.publish, &name.to_string())?;
    Ok(Lane {
        config: settings.config.clone(),
        store: Arc::<dyn Outbox>::clone(&source.store) as Arc<dyn Store>,
        sink,
        metrics: metrics.lane(&name),
        health: Arc::default(),
        name,
    })
}

fn retention(source: &Source, metrics: &Metrics) -> Option<Retention> {
    let settings = source.settings.retention?;
    let (metrics, name) = (metrics.clone(), Arc::clone(&source.settings.name));
    Some(Retention {
        source: Arc::clone(&source.settings.name),
        config: RetentionConfig {
            keep: settings.age,
            interval: settings.interval,
            batch: settings.batch,
        },
        store: Arc::<dyn Outbox>::clone(&source.store) as Arc<dyn Store>,
        deleted: Box::new(move |rows| metrics.retention_deleted(&name, rows)),
    })
}
