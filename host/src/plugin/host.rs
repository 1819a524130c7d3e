//! The plugin host: what plugins run on, and the set of them that is in use.
//!
//! The composition root makes one [`PluginHost`]. It loads the folder at the start and again whenever
//! [`PluginHost::refresh`] is called, on a thread of its own at low priority; [`PluginHost::plugins`] is
//! the result of the last look. A file that cannot be used stops neither the others nor the host.
//! Nothing here knows events.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use tokio::sync::oneshot;
use wasmtime::Engine;
use wasmtime::component::Linker;

use super::assembly::{Assembly, Changes};
use super::cache::Cache;
use super::config::{Config, Keeping};
use super::engine::{Ticker, engine};
use super::imports::{GuestState, linker};
use super::load::Loader;
use super::registry::{Complaints, Registry};
use super::state::StateFolder;
use super::versions::Versions;
use super::workers::{self, Workers};
use crate::failure::PluginStamp;
use crate::transform::{InUse, Plugins, Transform};

/// Why there is no plugin host at all. Files are never the reason.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine does not give the runtime what it needs (address space, above all).
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// No threads.
    #[error("the plugin threads do not start")]
    Threads(#[source] io::Error),
    /// The thread that loads the folder died.
    #[error("loading the plugins folder panicked")]
    Panicked,
}

/// What all plugins run on.
pub(super) struct Machinery {
    linker: Linker<GuestState>,
    cache: Option<Cache>,
    pub(super) workers: Arc<Workers>,
    engine: Engine,
    /// Last, so that it finds the engine gone when it is dropped.
    ticker: Arc<Ticker>,
}

/// The state folder, or why there is none.
pub(super) struct Opened {
    state: Option<StateFolder>,
    /// What people should know who look at versions.
    note: Option<String>,
}

impl Machinery {
    /// Starts it. A state folder that cannot be used is reported, and done without.
    pub(super) fn start(config: &Config) -> Result<(Self, Opened), StartError> {
        let engine = engine().map_err(engine_error)?;
        let ticker = Arc::new(Ticker::start(&engine).map_err(StartError::Threads)?);
        let workers = Workers::start(config.workers.max(1)).map_err(StartError::Threads)?;
        let linker = linker(&engine).map_err(engine_error)?;
        let opened = config.state.as_ref().map(|path| StateFolder::open(path, config.keeping));
        let (state, note) = match opened {
            None => (None, None),
            Some(Ok(state)) => (Some(state), None),
            Some(Err(reason)) if config.keeping == Keeping::Record => {
                tracing::warn!(
                    reason,
                    "compiled plugins are not cached, and their versions are forgotten at the end"
                );
                (None, None)
            }
            // A relay that has not run yet has left none.
            Some(Err(_)) if !config.state.as_ref().is_some_and(|path| path.exists()) => {
                (None, None)
            }
            Some(Err(reason)) => {
                (None, Some(format!("{reason}; versions that were rolled back are not known")))
            }
        };
        let ours = state.clone().filter(StateFolder::is_ours);
        let cache = ours.map(|state| Cache::new(state, &engine));
        Ok((Self { linker, cache, workers, engine, ticker }, Opened { state, note }))
    }

    /// Loads components under that configuration.
    pub(super) fn loader<'a>(&'a self, config: &'a Config) -> Loader<'a> {
        Loader {
            config,
            linker: &self.linker,
            engine: &self.engine,
            ticker: &self.ticker,
            cache: self.cache.as_ref(),
        }
    }
}

/// All plugins of a folder, and what they run on.
pub struct PluginHost {
    inner: Arc<Inner>,
    complaints: Arc<Complaints>,
    registry: RwLock<Arc<Registry>>,
}

struct Inner {
    /// One look at a time.
    assembly: Mutex<Assembly>,
    machinery: Machinery,
}

impl PluginHost {
    /// Starts the host and loads the folder.
    ///
    /// # Errors
    /// Only if the host itself cannot start; a bad file is reported by [`Plugins::troubles`].
    pub async fn load(config: Config) -> Result<Self, StartError> {
        let complaints = Arc::<Complaints>::default();
        let theirs = Arc::clone(&complaints);
        let (inner, registry) = on_loader(move || {
            let (machinery, opened) = Machinery::start(&config)?;
            let versions = Versions::new(opened.state, &config.folder);
            let mut assembly = Assembly::new(versions, opened.note, theirs);
            let (registry, _) = assembly.look(&machinery, &config, &BTreeSet::new());
            let inner = Inner { assembly: Mutex::new(assembly), machinery };
            Ok::<_, StartError>((Arc::new(inner), Arc::new(registry)))
        })
        .await??;
        Ok(Self { inner, complaints, registry: RwLock::new(registry) })
    }

    /// Looks at the folder again, with a configuration that may be another; files that are named in
    /// `unsettled` are being written and count as they were. Returns when every changed file is compiled
    /// and checked; batches go on with what they have.
    ///
    /// # Errors
    /// When the look died, which is a bug; what was in use stays in use.
    pub async fn refresh(
        &self,
        config: Config,
        unsettled: BTreeSet<String>,
    ) -> Result<Changes, StartError> {
        let inner = Arc::clone(&self.inner);
        let (registry, changes) = on_loader(move || {
            // A look that died may have forgotten what was in use; the next one loads it again.
            let mut assembly = inner.assembly.lock().unwrap_or_else(PoisonError::into_inner);
            assembly.look(&inner.machinery, &config, &unsettled)
        })
        .await?;
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
        Ok(changes)
    }

    /// The plugins in use since the last look.
    pub fn plugins(&self) -> Arc<dyn Plugins> {
        self.now()
    }

    /// Resolves when a version was found to be bad: another look will replace it.
    pub async fn complained(&self) {
        self.complaints.wait().await;
    }

    fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is in use now.
impl Plugins for PluginHost {
    fn find(&self, name: &str) -> Result<Arc<dyn Transform>, String> {
        self.now().find(name)
    }

    fn candidate(&self, name: &str) -> Option<Arc<dyn Transform>> {
        self.now().candidate(name)
    }

    fn wanting(&self, event_type: &str) -> Vec<String> {
        self.now().wanting(event_type)
    }

    fn in_use(&self) -> Vec<InUse> {
        self.now().in_use()
    }

    fn troubles(&self) -> Vec<String> {
        self.now().troubles()
    }

    fn notes(&self) -> Vec<String> {
        self.now().notes()
    }

    fn condemn(&self, stamp: &PluginStamp, why: &str) {
        self.now().condemn(stamp, why);
    }
}

/// Runs `work` on a thread of its own, since compiling is nobody's hurry.
async fn on_loader<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartError> {
    let (send, receive) = oneshot::channel();
    thread::Builder::new()
        .name("plugin-loader".to_owned())
        .spawn(move || {
            workers::lower_priority_for_compiling();
            // The receiver is gone if the caller gave up; then nobody wants the result.
            let _ = send.send(work());
        })
        .map_err(StartError::Threads)?;
    receive.await.map_err(|_| StartError::Panicked)
}

fn engine_error(error: wasmtime::Error) -> StartError {
    StartError::Engine(format!("{error:#}"))
}

/// The state folder of a process that looks, for commands about versions.
///
/// # Errors
/// A text that says why it cannot be used.
pub(super) fn open_versions(
    state: &Path,
    plugins: &Path,
    keeping: Keeping,
) -> Result<Versions, String> {
    Ok(Versions::new(Some(StateFolder::open(state, keeping)?), plugins))
}
