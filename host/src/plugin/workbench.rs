//! One component file on the bench: what it is, and what it does with samples.
//!
//! The commands `haulier plugin test` and `haulier plugin inspect` use it. A file is checked as the relay
//! would, in a host without a folder; no version is noted.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::config::Config;
use super::expect::to_json;
use super::host::{Machinery, StartError};
use super::inspect::{Names, names};
use super::load::Binary;
use super::sample::Sample;
use super::selftest;
use super::transform::{Lifecycle, Version};

/// What can be said of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portrait {
    /// SHA-256 of the file, lower-case hex.
    pub hash: String,
    /// Its size in bytes.
    pub size: usize,
    /// Interfaces it imports.
    pub imports: Vec<String>,
    /// Interfaces it exports.
    pub exports: Vec<String>,
    /// Samples it ships.
    pub samples: usize,
    /// Why the host would refuse it, if it would.
    pub refusal: Option<String>,
    /// What it says of itself, where it gets that far.
    pub manifest: Option<ManifestPortrait>,
}

/// What a plugin says of itself, and what was measured of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestPortrait {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The event types it wants.
    pub event_types: Vec<String>,
    /// The parts of an event it reads.
    pub needs: Vec<&'static str>,
    /// `an instance per batch`, or `instances are used again`.
    pub lifecycle: &'static str,
    /// What compiling and checking took.
    pub loading: Duration,
}

/// Why a file cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The host does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The file is refused.
    #[error("the file {0}")]
    Refused(String),
}

/// What a sample came to.
#[derive(Debug)]
pub struct Tried {
    /// The outcome as JSON, in the form that a sample's `expect` has.
    pub outcome: serde_json::Value,
    /// The difference from what was expected, if something was.
    pub difference: Option<String>,
    /// Whether something was expected.
    pub expected: bool,
    /// The time that the event took.
    pub used: Duration,
    /// Linear memory of the instance in the end, in bytes.
    pub memory: usize,
}

/// A component that the host would use.
pub struct Workbench {
    machinery: Machinery,
    version: Version,
    loading: Duration,
}

impl fmt::Debug for Workbench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workbench").field("stamp", &self.version.stamp).finish_non_exhaustive()
    }
}

impl Workbench {
    /// Loads a file. Blocks while it compiles; call it where blocking is allowed.
    ///
    /// # Errors
    /// When the file would be refused.
    pub fn open(file: &Path, config: &Config) -> Result<Self, Unusable> {
        let (machinery, _) = Machinery::start(config)?;
        let refused =
            |what: &dyn fmt::Display| Unusable::Refused(format!("{}: {what}", file.display()));
        let binary = Binary::read(file, config.limits.file_size).map_err(|why| refused(&why))?;
        let began = Instant::now();
        let name = file.display().to_string();
        let loader = machinery.loader(config);
        let version = machinery
            .workers
            .block_on(loader.load(&name, &binary))
            .map_err(|refusal| refused(&refusal.why))?;
        let loading = began.elapsed();
        Ok(Self { machinery, version, loading })
    }

    /// The plugin's name and version.
    pub fn name(&self) -> (&str, &str) {
        (&self.version.stamp.name, &self.version.stamp.version)
    }

    /// Runs a sample; `settings` (JSON) hold where it has none of its own.
    pub fn run(&self, sample: &Sample, settings: Option<&str>) -> Tried {
        let ran = self.machinery.workers.block_on(selftest::run(&self.version, sample, settings));
        Tried {
            outcome: to_json(&ran.verdict),
            difference: sample.expect.as_ref().and_then(|it| it.check(&ran.verdict).err()),
            expected: sample.expect.is_some(),
            used: ran.used,
            memory: ran.memory,
        }
    }

    /// All that can be said of a file, whether it would be used or not.
    ///
    /// # Errors
    /// When it cannot be read at all, or the host does not start.
    pub fn inspect(file: &Path, config: &Config) -> Result<Portrait, Unusable> {
        let limit = u64::MAX - 1;
        let binary = Binary::read(file, limit)
            .map_err(|why| Unusable::Refused(format!("{}: {why}", file.display())))?;
        let Names { imports, exports } = names(&binary.bytes).unwrap_or_default();
        let samples = Sample::shipped(&binary.bytes).map_or(0, |samples| samples.len());
        let (refusal, manifest) = match Self::open(file, config) {
            Ok(bench) => (None, Some(bench.manifest())),
            Err(Unusable::Refused(why)) => (Some(why), None),
            Err(other) => return Err(other),
        };
        let size = binary.bytes.len();
        Ok(Portrait { hash: binary.hash, size, imports, exports, samples, refusal, manifest })
    }

    fn manifest(&self) -> ManifestPortrait {
        let manifest = &self.version.manifest;
        let needs = [
            ("payload", manifest.needs.payload),
            ("headers", manifest.needs.headers),
            ("attributes", manifest.needs.attributes),
        ];
        ManifestPortrait {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            event_types: manifest.event_types.clone(),
            needs: needs.into_iter().filter(|(_, needed)| *needed).map(|(name, _)| name).collect(),
            lifecycle: match self.version.lifecycle {
                Lifecycle::PerBatch => "an instance per batch",
                Lifecycle::Reused => "instances are used again",
            },
            loading: self.loading,
        }
    }
}
