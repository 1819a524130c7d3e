//! The plugins of a folder.
//!
//! The composition root makes one [`PluginHost`] and hands it to the relay as `dyn Plugins`. It loads
//! every `*.wasm` file of the folder, in the order of their names; a file that cannot be used is
//! remembered with its reason and stops neither the others nor the host. Nothing here knows events.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use super::config::Config;
use super::engine::{Ticker, engine};
use super::imports::linker;
use super::load::{Loader, Refusal, Refused};
use super::manifest::Manifest;
use super::transform::Plugin;
use super::workers::{self, Workers};
use crate::failure::PluginStamp;
use crate::transform::{Plugins, Transform};

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

/// All plugins of a folder, loaded.
pub struct PluginHost {
    folder: PathBuf,
    /// What is wrong with the folder itself, if anything.
    folder_trouble: Option<String>,
    plugins: BTreeMap<String, Arc<Plugin>>,
    /// File names with the reason why they are not used, in the order of the names.
    refused: Vec<(String, String)>,
    /// What refused files had said of themselves: their event types wait.
    waited_for: Vec<Manifest>,
    /// Configured, and not in the folder.
    absent: Vec<String>,
}

impl PluginHost {
    /// Loads the folder. Compiling happens on a thread of its own, at low priority.
    ///
    /// # Errors
    /// Only if the host itself cannot start; a bad file is reported by [`Plugins::troubles`].
    pub async fn load(config: Config) -> Result<Self, StartError> {
        let (send, receive) = oneshot::channel();
        thread::Builder::new()
            .name("plugin-loader".to_owned())
            .spawn(move || {
                workers::lower_priority_for_compiling();
                // The receiver is gone if the caller gave up; then nobody wants the plugins.
                let _ = send.send(Self::load_now(&config));
            })
            .map_err(StartError::Threads)?;
        receive.await.map_err(|_| StartError::Panicked)?
    }

    fn load_now(config: &Config) -> Result<Self, StartError> {
        let engine = engine(config.widest_limits().memory).map_err(engine_error)?;
        let ticker = Arc::new(Ticker::start(&engine).map_err(StartError::Threads)?);
        let workers = Workers::start(config.workers.max(1)).map_err(StartError::Threads)?;
        let linker = linker(&engine).map_err(engine_error)?;
        let loader = Loader { config, linker, engine, ticker };

        let (files, folder_trouble) = files(&config.folder);
        let mut host = Self {
            folder: config.folder.clone(),
            folder_trouble,
            plugins: BTreeMap::new(),
            refused: Vec::new(),
            waited_for: Vec::new(),
            absent: Vec::new(),
        };
        // Who took a name first.
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for file in files {
            let path = config.folder.join(&file);
            match host.load_file(&loader, &workers, &path, &file, &owners) {
                Ok(name) => drop(owners.insert(name, file)),
                Err(Refusal { why, manifest }) => {
                    host.waited_for.extend(manifest.map(|manifest| *manifest));
                    let reason = one_line(&why.to_string());
                    tracing::error!(file, reason, "plugin file refused");
                    host.refused.push((file, reason));
                }
            }
        }
        host.absent =
            config.plugins.keys().filter(|name| !owners.contains_key(*name)).cloned().collect();
        Ok(host)
    }

    /// Loads one file and takes it up. Returns the plugin's name.
    fn load_file(
        &mut self,
        loader: &Loader<'_>,
        workers: &Arc<Workers>,
        path: &Path,
        file: &str,
        owners: &BTreeMap<String, String>,
    ) -> Result<String, Refusal> {
        // Compilers have bugs; one that is met must not keep the other plugins from running.
        let version = catch_unwind(AssertUnwindSafe(|| workers.block_on(loader.load(path))))
            .map_err(|_| Refused::HostPanic)??;
        let PluginStamp { name, version: number, hash } = version.stamp.clone();
        if let Some(first) = owners.get(&name) {
            return Err(Refused::NameTaken { name, first: first.clone() }.into());
        }
        tracing::info!(
            file,
            plugin = name,
            version = number,
            hash,
            lifecycle = ?version.lifecycle,
            "plugin loaded"
        );
        self.plugins.insert(name.clone(), Arc::new(Plugin::new(version, workers.clone())));
        Ok(name)
    }

    fn refusals(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|(file, reason)| format!("plugin file {file}: {reason}"))
    }
}

impl Plugins for PluginHost {
    fn find(&self, name: &str) -> Result<Arc<dyn Transform>, String> {
        if let Some(plugin) = self.plugins.get(name) {
            return Ok(plugin.clone());
        }
        let folder = self.folder.display();
        let mut text = match &self.folder_trouble {
            Some(trouble) => format!("there is no plugin {name:?}: {trouble}"),
            None => format!("there is no plugin {name:?} in the folder {folder}"),
        };
        for refusal in self.refusals() {
            text.push_str("; ");
            text.push_str(&refusal);
        }
        Err(text)
    }

    fn wanting(&self, event_type: &str) -> Vec<String> {
        let loaded = self.plugins.iter().filter(|(_, plugin)| plugin.wants(event_type));
        let refused = self.waited_for.iter().filter(|manifest| manifest.wants(event_type));
        let mut names: Vec<String> = loaded
            .map(|(name, _)| name.clone())
            .chain(refused.map(|manifest| manifest.name.clone()))
            .collect();
        // A second file of a name that is taken wants nothing of its own.
        names.sort_unstable();
        names.dedup();
        names
    }

    fn stamps(&self) -> Vec<PluginStamp> {
        self.plugins.values().map(|plugin| plugin.stamp().clone()).collect()
    }

    fn troubles(&self) -> Vec<String> {
        let folder = self.folder.display();
        let absent = self.absent.iter().map(|name| {
            format!(
                "plugin {name} is configured, and no usable file of the folder {folder} has that \
                 name: put it there, or remove [plugins.{name}]"
            )
        });
        // A folder that nobody needs may be missing.
        let needed = !self.absent.is_empty();
        self.folder_trouble
            .iter()
            .filter(|_| needed)
            .cloned()
            .chain(self.refusals())
            .chain(absent)
            .collect()
    }
}

fn engine_error(error: wasmtime::Error) -> StartError {
    StartError::Engine(format!("{error:#}"))
}

/// Troubles are lists of lines; a backtrace is several.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" | ")
}

/// The files of the folder that ask to be plugins, in the order of their names, and what is wrong
/// with the folder if it cannot be listed.
fn files(folder: &Path) -> (Vec<String>, Option<String>) {
    let list = || -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Following links: mounted folders are often made of them.
            let is_file = fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
            if is_file && name.ends_with(".wasm") && !name.starts_with('.') {
                files.push(name);
            }
        }
        files.sort_unstable();
        Ok(files)
    };
    match list() {
        Ok(files) => (files, None),
        Err(error) => {
            let text = format!("the plugins folder {} cannot be read: {error}", folder.display());
            (Vec::new(), Some(text))
        }
    }
}
