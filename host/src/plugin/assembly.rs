//! From the files of the folder to the plugins in use.
//!
//! `host.rs` runs [`Assembly::look`] on the loader's thread, at the start and whenever something may have
//! changed. Files that are as they were are not read again. What is decided here:
//!
//! - a file that cannot be used never ends a version that can: the one that came from it before goes
//!   on, and after a restart the one that was kept;
//! - a version that is marked as bad gives way to the one before it;
//! - the events of a plugin whose file is gone wait;
//! - of two files with one plugin name, the first by file name is used.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::config::{Config, PluginConfig};
use super::folder::{self, Print};
use super::host::Machinery;
use super::load::{Binary, Loader, Refusal, Refused};
use super::manifest::Manifest;
use super::registry::{Complaints, InPlace, Missing, MissingKind, Registry};
use super::transform::Plugin;
use super::versions::Versions;
use crate::failure::PluginStamp;
use crate::transform::Standing;

/// What became of one look at the folder, for logs and counters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Versions that were taken up, with what for.
    pub activated: Vec<(PluginStamp, Standing)>,
    /// Files that were newly refused, with the reason.
    pub refused: Vec<(String, String)>,
    /// Plugins whose version was put back to an earlier one, or taken away, because it is bad.
    pub rolled_back: Vec<String>,
    /// Plugins whose file is gone.
    pub removed: Vec<String>,
}

/// A file as it was when it was last read.
struct Seen {
    print: Print,
    /// What it was told: a change of it means that the file is tried again.
    told: Told,
    hash: Option<String>,
    /// What was read, until it is known whether it is kept.
    bytes: Option<Vec<u8>>,
    result: Result<Arc<Plugin>, Bad>,
}

/// What the configuration says to a file.
#[derive(PartialEq)]
enum Told {
    /// What concerns the plugin that it holds.
    One(PluginConfig),
    /// All, where it is not known which plugin it holds.
    All(BTreeMap<String, PluginConfig>),
}

/// Why a file is not used.
#[derive(Clone)]
struct Bad {
    why: String,
    manifest: Option<Manifest>,
}

/// What is remembered from look to look.
pub(super) struct Assembly {
    versions: Versions,
    /// What people should know about them.
    note: Option<String>,
    seen: BTreeMap<String, Seen>,
    /// The plugins in use, each with the file it came from.
    current: BTreeMap<String, (String, Arc<Plugin>, Standing)>,
    candidates: BTreeMap<String, (String, Arc<Plugin>)>,
    removed: BTreeSet<String>,
    /// What was said of refused files at the last look.
    said: BTreeSet<String>,
    complaints: Arc<Complaints>,
}

impl Assembly {
    /// Nothing loaded yet.
    pub(super) fn new(
        versions: Versions,
        note: Option<String>,
        complaints: Arc<Complaints>,
    ) -> Self {
        Self {
            versions,
            note,
            seen: BTreeMap::new(),
            current: BTreeMap::new(),
            candidates: BTreeMap::new(),
            removed: BTreeSet::new(),
            said: BTreeSet::new(),
            complaints,
        }
    }

    /// Looks at the folder and says which plugins are to be used from now on. Files in `unsettled` count
    /// as they were.
    pub(super) fn look(
        &mut self,
        machinery: &Machinery,
        config: &Config,
        unsettled: &BTreeSet<String>,
    ) -> (Registry, Changes) {
        for (stamp, why) in self.complaints.take() {
            tracing::error!(
                plugin = stamp.name,
                version = stamp.version,
                hash = stamp.hash,
                why,
                "plugin version is bad and is used no more"
            );
            self.versions.condemn(&stamp, &why);
        }
        let mut round = Round {
            loader: machinery.loader(config),
            machinery,
            said: std::mem::take(&mut self.said),
            changes: Changes::default(),
            registry: Registry {
                folder: config.folder.clone(),
                note: self.note.clone(),
                complaints: Arc::clone(&self.complaints),
                ..Registry::default()
            },
        };
        match folder::components(&config.folder) {
            Ok(files) => self.read(&mut round, files, unsettled),
            // A share that is away for a moment must not unload anything.
            Err(trouble) => round.registry.folder_trouble = Some(trouble),
        }
        self.choose(&mut round);
        self.choose_candidates(&mut round);
        if round.registry.folder_trouble.is_none() {
            self.note_missing(&mut round);
        }
        round.registry.absent = config
            .plugins
            .keys()
            .filter(|name| {
                !round.registry.current.contains_key(*name)
                    && !round.registry.missing.contains_key(*name)
            })
            .cloned()
            .collect();
        self.said = round.registry.refused.iter().map(|(line, _)| line.clone()).collect();
        for seen in self.seen.values_mut() {
            seen.bytes = None;
        }
        (round.registry, round.changes)
    }

    /// Reads the files that have changed, or are told something else.
    fn read(
        &mut self,
        round: &mut Round<'_>,
        files: BTreeMap<String, Print>,
        unsettled: &BTreeSet<String>,
    ) {
        self.seen.retain(|file, _| files.contains_key(file) || unsettled.contains(file));
        for (file, print) in files {
            if unsettled.contains(&file) {
                continue;
            }
            let before = self.seen.remove(&file);
            let seen = match before {
                Some(mut seen)
                    if seen.told == round.told(&seen.result)
                        && !seen.is_other(print, round, &file) =>
                {
                    seen.print = print;
                    seen
                }
                _ => round.read(&file, print),
            };
            self.seen.insert(file, seen);
        }
    }

    /// Decides which version of each plugin is used.
    fn choose(&mut self, round: &mut Round<'_>) {
        let before = std::mem::take(&mut self.current);
        let mut chosen: BTreeMap<String, (String, Arc<Plugin>, Standing)> = BTreeMap::new();
        let mut gaps: Vec<(String, Option<String>, Bad)> = Vec::new();
        for (file, seen) in self.seen.iter().filter(|(file, _)| !folder::is_candidate(file)) {
            let plugin = match &seen.result {
                Ok(plugin) => plugin,
                Err(bad) => {
                    let name = self.owner(file, bad, &before);
                    gaps.push((file.clone(), name, bad.clone()));
                    continue;
                }
            };
            let name = &plugin.stamp().name;
            let Some(why) = self.objection(plugin, chosen.get(name).map(|(first, ..)| first))
            else {
                chosen.insert(name.clone(), (file.clone(), plugin.clone(), Standing::Current));
                continue;
            };
            let manifest = Some(plugin.manifest().clone());
            let bad = Bad { why: why.to_string(), manifest };
            gaps.push((file.clone(), Some(name.clone()), bad));
        }
        for (file, name, bad) in gaps {
            let kept = name.as_ref().filter(|name| !chosen.contains_key(*name)).and_then(|name| {
                let plugin = self.fallback(round, name, &before)?;
                chosen.insert(name.clone(), (file.clone(), plugin.clone(), Standing::Kept));
                Some(plugin)
            });
            let manifest = bad.manifest.clone().or_else(|| {
                let name = name?;
                Some(Manifest { name: name.clone(), ..self.versions.of(&name).manifest })
            });
            round.refuse(&file, &bad.why, manifest, kept.as_deref());
        }
        if round.registry.folder_trouble.is_some() {
            for (name, in_use) in &before {
                chosen.entry(name.clone()).or_insert_with(|| in_use.clone());
            }
        }
        for (name, (file, plugin, standing)) in &chosen {
            let known = before.get(name);
            if known.is_none_or(|(_, known, _)| !Arc::ptr_eq(known, plugin)) {
                self.took_up(round, file, plugin, *standing);
                if known.is_some() && *standing == Standing::Kept {
                    round.changes.rolled_back.push(name.clone());
                }
            }
            round.registry.current.insert(name.clone(), (plugin.clone(), *standing));
        }
        self.current = chosen;
    }

    /// Why a version that could be used is not: another file came `first`, or it is marked.
    fn objection(&self, plugin: &Plugin, first: Option<&String>) -> Option<Refused> {
        let PluginStamp { name, hash, .. } = plugin.stamp();
        if let Some(first) = first {
            return Some(Refused::NameTaken { name: name.clone(), first: first.clone() });
        }
        let history = self.versions.of(name);
        let mark = history.mark(hash)?;
        Some(Refused::Marked {
            plugin: name.clone(),
            version: mark.version.clone(),
            why: mark.why.clone(),
        })
    }

    /// Which plugin a file that cannot be used would hold: what it says, else what came from it last.
    fn owner(
        &self,
        file: &str,
        bad: &Bad,
        before: &BTreeMap<String, (String, Arc<Plugin>, Standing)>,
    ) -> Option<String> {
        if let Some(manifest) = &bad.manifest {
            return Some(manifest.name.clone());
        }
        let in_use = before.iter().find(|(_, (from, ..))| from == file);
        in_use.map(|(name, _)| name.clone()).or_else(|| {
            let mut known = self.versions.plugins().into_iter();
            known.find(|name| self.versions.of(name).file == file)
        })
    }

    /// The version to use in place of one that cannot be: the one in use, else the latest good one.
    fn fallback(
        &self,
        round: &Round<'_>,
        name: &str,
        before: &BTreeMap<String, (String, Arc<Plugin>, Standing)>,
    ) -> Option<Arc<Plugin>> {
        let history = self.versions.of(name);
        let in_use = before.get(name).map(|(_, plugin, _)| plugin);
        let in_use = in_use.filter(|plugin| history.mark(&plugin.stamp().hash).is_none());
        if let Some(plugin) = in_use {
            let told = round.loader.config.plugins.get(name).cloned().unwrap_or_default();
            if plugin.is_told(&told) {
                return Some(plugin.clone());
            }
        }
        let again = history.good_besides("").find_map(|kept| {
            if in_use.is_some_and(|plugin| plugin.stamp().hash != kept.hash) {
                return None;
            }
            let bytes = self.versions.bytes(name, &kept.hash)?;
            let binary = Binary::new(bytes);
            if binary.hash != kept.hash {
                tracing::warn!(plugin = name, hash = kept.hash, "a kept version is damaged");
                return None;
            }
            match round.load(&history.file, &binary) {
                Ok(plugin) => Some(Arc::new(plugin)),
                Err(refusal) => {
                    let reason = one_line(&refusal.why.to_string());
                    tracing::warn!(
                        plugin = name,
                        hash = kept.hash,
                        reason,
                        "a kept version is refused"
                    );
                    None
                }
            }
        });
        // One that refuses new settings goes on with those it has.
        again.or_else(|| in_use.cloned())
    }

    fn took_up(&mut self, round: &mut Round<'_>, file: &str, plugin: &Plugin, standing: Standing) {
        let stamp = plugin.stamp();
        tracing::info!(
            file,
            plugin = stamp.name,
            version = stamp.version,
            hash = stamp.hash,
            standing = standing.name(),
            "plugin version in use"
        );
        plugin.activate();
        if standing == Standing::Current
            && let Some(bytes) = self.bytes(round, file, &stamp.hash)
        {
            self.versions.took_up(file, stamp, plugin.manifest(), &bytes);
        }
        round.changes.activated.push((stamp.clone(), standing));
    }

    /// The bytes of a version that came from that file.
    fn bytes(&mut self, round: &Round<'_>, file: &str, hash: &str) -> Option<Vec<u8>> {
        let read = self.seen.get_mut(file).and_then(|seen| seen.bytes.take());
        read.or_else(|| {
            let config = round.loader.config;
            let limit = config.widest_limits().file_size;
            let binary = Binary::read(&config.folder.join(file), limit).ok()?;
            (binary.hash == hash).then_some(binary.bytes)
        })
    }

    fn choose_candidates(&mut self, round: &mut Round<'_>) {
        let before = std::mem::take(&mut self.candidates);
        let mut chosen: BTreeMap<String, (String, Arc<Plugin>)> = BTreeMap::new();
        for (file, seen) in self.seen.iter().filter(|(file, _)| folder::is_candidate(file)) {
            let bad = match &seen.result {
                Err(bad) => bad.clone(),
                Ok(plugin) => {
                    let name = &plugin.stamp().name;
                    let first = chosen.get(name).map(|(first, _)| first);
                    let Some(why) = self.objection(plugin, first) else {
                        chosen.insert(name.clone(), (file.clone(), plugin.clone()));
                        continue;
                    };
                    Bad { why: why.to_string(), manifest: None }
                }
            };
            // Until there is a better one, the candidate that was on trial stays on trial.
            let earlier = before.iter().find(|(_, (from, _))| from == file);
            let kept = earlier.filter(|(name, (_, plugin))| {
                self.versions.of(name).mark(&plugin.stamp().hash).is_none()
                    && !chosen.contains_key(*name)
            });
            round.refuse(file, &bad.why, None, kept.map(|(_, (_, plugin))| &**plugin));
            if let Some((name, in_use)) = kept {
                chosen.insert(name.clone(), in_use.clone());
            }
        }
        if round.registry.folder_trouble.is_some() {
            chosen.clone_from(&before);
        }
        for (name, (file, plugin)) in &chosen {
            if before.get(name).is_none_or(|(_, known)| !Arc::ptr_eq(known, plugin)) {
                self.took_up(round, file, plugin, Standing::Candidate);
            }
            round.registry.candidates.insert(name.clone(), plugin.clone());
        }
        self.candidates = chosen;
    }

    /// Whoever is known and has no version in use: the file is gone, or bad with nothing to go back to.
    fn note_missing(&mut self, round: &mut Round<'_>) {
        for name in self.versions.plugins() {
            if round.registry.current.contains_key(&name)
                || round.registry.missing.contains_key(&name)
            {
                continue;
            }
            let history = self.versions.of(&name);
            let (file, folder) = (&history.file, round.registry.folder.display());
            let reason = format!(
                "plugin {name} is gone: its file {file} was removed from the folder {folder}, and its \
                 events wait; put it back, write a route for them, or say that it will not come back \
                 with `haulier plugin forget {name}`"
            );
            if self.removed.insert(name.clone()) {
                tracing::warn!(plugin = name, reason, "plugin removed");
                round.changes.removed.push(name.clone());
            }
            let manifest = Manifest { name: name.clone(), ..history.manifest };
            let missing = Missing { manifest, reason, kind: MissingKind::Gone };
            round.registry.missing.insert(name, missing);
        }
        let missing = &round.registry.missing;
        self.removed.retain(|name| missing.contains_key(name));
    }
}

impl Seen {
    /// Whether the file holds something else than before. One that was only touched does not.
    fn is_other(&self, print: Print, round: &Round<'_>, file: &str) -> bool {
        if self.print == print {
            return false;
        }
        let limit = round.loader.config.widest_limits().file_size;
        let now = Binary::read(&round.loader.config.folder.join(file), limit).ok();
        now.map(|binary| binary.hash) != self.hash
    }
}

/// One look at the folder.
struct Round<'a> {
    loader: Loader<'a>,
    machinery: &'a Machinery,
    said: BTreeSet<String>,
    registry: Registry,
    changes: Changes,
}

impl Round<'_> {
    /// What the configuration says to a file that came to that.
    fn told(&self, result: &Result<Arc<Plugin>, Bad>) -> Told {
        let config = self.loader.config;
        let name = match result {
            Ok(plugin) => Some(&plugin.stamp().name),
            Err(bad) => bad.manifest.as_ref().map(|manifest| &manifest.name),
        };
        match name {
            Some(name) => Told::One(config.plugins.get(name).cloned().unwrap_or_default()),
            None => Told::All(config.plugins.clone()),
        }
    }

    fn read(&self, file: &str, print: Print) -> Seen {
        let limit = self.loader.config.widest_limits().file_size;
        let (hash, bytes, loaded) = match Binary::read(&self.loader.config.folder.join(file), limit)
        {
            Ok(binary) => {
                let loaded = self.load(file, &binary);
                (Some(binary.hash), Some(binary.bytes), loaded)
            }
            Err(why) => (None, None, Err(why.into())),
        };
        let result = loaded.map(Arc::new).map_err(|Refusal { why, manifest }| Bad {
            why: why.to_string(),
            manifest: manifest.map(|manifest| *manifest),
        });
        Seen { print, told: self.told(&result), hash, bytes, result }
    }

    fn load(&self, file: &str, binary: &Binary) -> Result<Plugin, Refusal> {
        // Compilers have bugs; one that is met must not keep the other plugins from running.
        let workers = &self.machinery.workers;
        let loading = AssertUnwindSafe(|| workers.block_on(self.loader.load(file, binary)));
        let version = catch_unwind(loading).map_err(|_| Refused::HostPanic)??;
        Ok(Plugin::new(version, Arc::clone(workers)))
    }

    /// Notes that a file is not used; `kept` is what goes on in its place, and `manifest` what its plugin
    /// had said of itself.
    fn refuse(&mut self, file: &str, why: &str, manifest: Option<Manifest>, kept: Option<&Plugin>) {
        let reason = one_line(why);
        let mut line = format!("plugin file {file}: {reason}");
        let in_place = if kept.is_some() { InPlace::Earlier } else { InPlace::Nothing };
        if let Some(plugin) = kept {
            let PluginStamp { name, version, hash } = plugin.stamp();
            let short = hash.get(..12).unwrap_or(hash);
            line.push_str(&format!("; version {version} ({short}) of {name} goes on"));
        } else if let Some(manifest) = manifest {
            let reason = format!("plugin {:?} cannot be used: {line}", manifest.name);
            let name = manifest.name.clone();
            let missing = Missing { manifest, reason, kind: MissingKind::Refused };
            self.registry.missing.entry(name).or_insert(missing);
        }
        if !self.said.contains(&line) {
            tracing::error!(file, reason, "plugin file refused");
            self.changes.refused.push((file.to_owned(), reason));
        }
        self.registry.refused.push((line, in_place));
    }
}

/// Troubles are lists of lines; a backtrace is several.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" | ")
}
