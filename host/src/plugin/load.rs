//! From a file in the plugins folder to a plugin version, or to the reason why not.
//!
//! `assembly.rs` runs this on a thread of its own at low priority. The cheap checks come first: size,
//! kind of file, world and version, imports; only then is it compiled, linked, asked who it is, and
//! given its settings. Whatever is wrong with a file stays its own affair.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::bindings::PluginPre;
use super::cache::Cache;
use super::config::{Config, Limits};
use super::engine::Ticker;
use super::imports::GuestState;
use super::inspect::{Unfit, inspect};
use super::instance::Template;
use super::log::LogBudget;
use super::manifest::{BadManifest, Manifest};
use super::sample::Sample;
use super::selftest;
use super::transform::{Lifecycle, Version};
use crate::failure::PluginStamp;

/// Up to this cost of a new instance, each batch gets one: 5 to 11 % of the time of a batch of 256.
const CHEAP_START: Duration = Duration::from_micros(100);

/// How often the cost is measured; the least counts, since the first times touch cold memory.
const STARTS_MEASURED: u32 = 5;

/// Longest error text of the compiler or the linker that is passed on, in bytes.
const MAX_DETAIL: usize = 600;

/// Why a file is not used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error(
        "has {size} bytes, at most {limit} are allowed; strip it, or raise file_size in its [plugins.NAME]"
    )]
    TooLarge { size: u64, limit: u64 },
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("does not compile: {0}")]
    Compile(String),
    #[error("does not fit the interface it claims to have: {0}; rebuild it against the wit folder")]
    Link(String),
    #[error("fails when it is asked to describe itself: {0}")]
    Describe(String),
    #[error(transparent)]
    Manifest(#[from] BadManifest),
    #[error("refuses its settings: {text}; mend [plugins.{plugin}.settings] in the configuration")]
    Settings { plugin: String, text: String },
    #[error("fails when it is given its settings: {0}")]
    Configure(String),
    #[error(
        "calls itself {name:?} as {first} does, which is used; put a new version in the place of that file, or \
         name it NAME.candidate.wasm to try it"
    )]
    NameTaken { name: String, first: String },
    #[error("ships samples that cannot be read: {0}")]
    Samples(String),
    #[error("does not pass its own samples: {0}")]
    SelfTest(String),
    #[error(
        "is the version {version} that was rolled back: {why}; put another version in its place, or use it all \
         the same with `haulier plugin rollback --undo {plugin}`"
    )]
    Marked { plugin: String, version: String, why: String },
    #[error("made the host panic, which is a bug in the host; please report it with the file")]
    HostPanic,
}

/// Shorter values are too common to be taken out of a text, and too short to be secret.
const LEAST_SECRET: usize = 4;

impl Refused {
    /// The same without the values of these settings.
    fn without(self, settings: &str) -> Self {
        let clean = |text: String| {
            let settings = serde_json::from_str(settings).unwrap_or_default();
            let mut values = Vec::new();
            collect_values(&settings, &mut values);
            // Longer ones first: one may hold another.
            values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
            values.iter().fold(text, |text, value| text.replace(value.as_str(), "\u{2026}"))
        };
        match self {
            Self::Settings { plugin, text } => Self::Settings { plugin, text: clean(text) },
            Self::Configure(text) => Self::Configure(clean(text)),
            other => other,
        }
    }
}

/// The texts and numbers of settings, as they are and as a message would quote them.
fn collect_values(settings: &serde_json::Value, values: &mut Vec<String>) {
    match settings {
        serde_json::Value::Object(map) => map.values().for_each(|it| collect_values(it, values)),
        serde_json::Value::Array(list) => list.iter().for_each(|it| collect_values(it, values)),
        serde_json::Value::String(text) => {
            let quoted = format!("{text:?}");
            let forms = [text.clone(), quoted.trim_matches('"').to_owned()];
            values.extend(forms.into_iter().filter(|form| form.len() >= LEAST_SECRET));
        }
        serde_json::Value::Number(number) => {
            let text = number.to_string();
            values.extend((text.len() >= LEAST_SECRET).then_some(text));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) => {}
    }
}

/// What loading needs.
pub(super) struct Loader<'a> {
    pub(super) config: &'a Config,
    pub(super) linker: &'a Linker<GuestState>,
    pub(super) engine: &'a Engine,
    pub(super) ticker: &'a Arc<Ticker>,
    pub(super) cache: Option<&'a Cache>,
}

/// A file that is not used, with what it said of itself before that was known.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) why: Refused,
    /// Its event types wait for it.
    pub(super) manifest: Option<Box<Manifest>>,
}

impl<E: Into<Refused>> From<E> for Refusal {
    fn from(why: E) -> Self {
        Self { why: why.into(), manifest: None }
    }
}

/// A component file in memory.
pub(super) struct Binary {
    pub(super) bytes: Vec<u8>,
    /// SHA-256, lower-case hex.
    pub(super) hash: String,
}

impl Binary {
    /// A file of at most `limit` bytes.
    pub(super) fn read(path: &Path, limit: u64) -> Result<Self, Refused> {
        Ok(Self::new(read(path, limit)?))
    }

    /// These bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let hash = hex(&Sha256::digest(&bytes));
        Self { bytes, hash }
    }
}

impl Loader<'_> {
    /// Loads a component. Blocks for as long as compiling takes; guests run on the present thread.
    /// `file` is what people know it by.
    pub(super) async fn load(&self, file: &str, binary: &Binary) -> Result<Version, Refusal> {
        let Binary { bytes, hash } = binary;
        inspect(bytes)?;
        let samples = Sample::shipped(bytes).map_err(Refused::Samples)?;
        let pre = self.link(&self.compiled(bytes, hash)?)?;

        // Until it is known which plugin it is, the most generous limits hold.
        let manifest = self.describe(&pre, file, self.config.widest_limits()).await?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let version = async {
            let version = self.set_up(pre, manifest.clone(), size, hash.clone()).await?;
            selftest::passes(&version, &samples).await.map_err(Refused::SelfTest)?;
            Ok(version)
        };
        version.await.map_err(|why| Refusal { why, manifest: Some(Box::new(manifest)) })
    }

    /// What is left to do once it is known which plugin it is.
    async fn set_up(
        &self,
        pre: PluginPre<GuestState>,
        manifest: Manifest,
        size: u64,
        hash: String,
    ) -> Result<Version, Refused> {
        let limits = self.config.limits_of(&manifest.name).clone();
        if size > limits.file_size {
            return Err(Refused::TooLarge { size, limit: limits.file_size });
        }
        let words = LogBudget::new(&manifest.name, &manifest.version, &limits);
        let template = Template { pre, limits, ticker: self.ticker.clone() };
        let settings = self.settings(&manifest.name)?;
        let lifecycle = try_settings(&template, &manifest.name, &settings, &words).await;
        // What a plugin has against its settings often quotes them, and they may be secret.
        let lifecycle = lifecycle.map_err(|refused| refused.without(&settings));
        words.close();
        let lifecycle = lifecycle?;
        let stamp =
            PluginStamp { name: manifest.name.clone(), version: manifest.version.clone(), hash };
        Ok(Version { stamp, manifest, template, settings, lifecycle })
    }

    /// The machine code of a component.
    fn compiled(&self, bytes: &[u8], hash: &str) -> Result<Component, Refused> {
        if let Some(component) = self.cache.and_then(|cache| cache.load(self.engine, hash)) {
            return Ok(component);
        }
        let component = Component::from_binary(self.engine, bytes)
            .map_err(|error| Refused::Compile(detail(&error)))?;
        if let Some(cache) = self.cache {
            cache.store(hash, &component);
        }
        Ok(component)
    }

    fn link(&self, component: &Component) -> Result<PluginPre<GuestState>, Refused> {
        self.linker
            .instantiate_pre(component)
            .and_then(PluginPre::new)
            .map_err(|error| Refused::Link(detail(&error)))
    }

    async fn describe(
        &self,
        pre: &PluginPre<GuestState>,
        file: &str,
        limits: Limits,
    ) -> Result<Manifest, Refused> {
        let words = LogBudget::new(file, "", &limits);
        let unnamed = Template { pre: pre.clone(), limits, ticker: self.ticker.clone() };
        let said = async { unnamed.instantiate(&words).await?.describe().await }.await;
        words.close();
        let said = said.map_err(|stopped| Refused::Describe(stopped.text()))?;
        Ok(Manifest::check(said)?)
    }

    fn settings(&self, plugin: &str) -> Result<String, Refused> {
        let Some(config) = self.config.plugins.get(plugin) else {
            return Ok("{}".to_owned());
        };
        if !config.settings.is_object() {
            let text = "they are not a table".to_owned();
            return Err(Refused::Settings { plugin: plugin.to_owned(), text });
        }
        Ok(config.settings.to_string())
    }
}

/// Configures instances to see whether the settings are accepted and what an instance costs.
async fn try_settings(
    template: &Template,
    plugin: &str,
    settings: &str,
    words: &Arc<LogBudget>,
) -> Result<Lifecycle, Refused> {
    let mut least = Duration::MAX;
    for _ in 0..STARTS_MEASURED {
        let began = Instant::now();
        let started = async { template.instantiate(words).await?.configure(settings).await }.await;
        least = least.min(began.elapsed());
        match started {
            Ok(Ok(())) => {}
            Ok(Err(text)) => {
                return Err(Refused::Settings { plugin: plugin.to_owned(), text });
            }
            Err(stopped) => return Err(Refused::Configure(stopped.text())),
        }
    }
    Ok(if least <= CHEAP_START { Lifecycle::PerBatch } else { Lifecycle::Reused })
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Refused> {
    let file = File::open(path).map_err(Refused::Unreadable)?;
    let size = file.metadata().map_err(Refused::Unreadable)?.len();
    if size > limit {
        return Err(Refused::TooLarge { size, limit });
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(Refused::Unreadable)?;
    match u64::try_from(bytes.len()) {
        Ok(size) if size <= limit => Ok(bytes),
        _ => Err(Refused::TooLarge { size, limit }),
    }
}

/// An error with its causes, on one line.
fn detail(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > MAX_DETAIL {
        line.truncate(line.floor_char_boundary(MAX_DETAIL));
        line.push('…');
    }
    line
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
