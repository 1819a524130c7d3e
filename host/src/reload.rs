//! Rules and plugins that change while the relay runs.
//!
//! The assembly makes a [`Reloader`], which loads them at the start and then runs as one task: it looks at
//! the settings file, the routes folder and the plugins folder every half second, and at once when it is
//! asked to (SIGHUP, the admin port) or when a version turned out to be bad. What is new is read and
//! checked beside the running batches and published as one [`Rules`]; what cannot be used leaves the old
//! in place. Only rules and plugins change; other settings need another start, which is said.
//!
//! Files are found to have changed by looking, not by the system's notices: notices are not sent on network
//! file systems, and miss what a folder of links points to. A look is a few system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Config, ROUTE_FILE, RouteFiles, read_route_files};
use crate::plugin::{self, Changes, Keeping, PluginHost, Print, StartError, prints};
use crate::relay::Rules;
use crate::routing::Routes;
use crate::telemetry::{PluginChange, PluginMetrics};
use crate::transform::{InUse, Plugins, Standing};
use crate::words::chain;

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A file counts once it has stood still for so long: half-written ones are not read.
const SETTLE_TIME: Duration = Duration::from_millis(250);

/// Requests that may wait for the task; more callers wait to be heard.
const REQUESTS: usize = 8;

/// What a component file's name ends with.
const COMPONENT: &str = ".wasm";

/// What a history's name ends with.
const HISTORY: &str = ".json";

/// What became of a reload that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What has changed, one line each.
    pub changes: Vec<String>,
    /// What was refused by this look, one line each: something old goes on, or events wait.
    pub refused: Vec<String>,
    /// Everything that is wrong now, one line each.
    pub troubles: Vec<String>,
}

/// Asks a running [`Reloader`].
#[derive(Clone)]
pub struct Reloads(mpsc::Sender<oneshot::Sender<Reloaded>>);

impl Reloads {
    /// Has everything looked at now. `None` when the process is shutting down.
    pub async fn reload(&self) -> Option<Reloaded> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        answered.await.ok()
    }
}

/// How settings are read again.
pub type ReadSettings = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Loads rules and plugins, and keeps them up to date.
pub struct Reloader {
    config: Config,
    read_settings: ReadSettings,
    host: PluginHost,
    route_files: RouteFiles,
    /// Why the settings as they are now are not used.
    settings_note: Option<String>,
    rules: watch::Sender<Arc<Rules>>,
    metrics: PluginMetrics,
    requests: (mpsc::Sender<oneshot::Sender<Reloaded>>, mpsc::Receiver<oneshot::Sender<Reloaded>>),
    /// The files as they were when they were last read.
    applied: Files,
}

impl Reloader {
    /// Loads everything for the first time.
    ///
    /// # Errors
    /// When the plugin host does not start; a bad file is among the troubles.
    pub async fn start(
        config: &Config,
        read_settings: ReadSettings,
        metrics: PluginMetrics,
    ) -> Result<Self, StartError> {
        // Before they are read: what changes meanwhile is read again.
        let applied = Files::look(config).await;
        let host = PluginHost::load(plugin_config(config, Keeping::Record)).await?;
        let route_files =
            read_route_files(&config.routes_folder, &RouteFiles::default(), &BTreeSet::new());
        for warning in &route_files.warnings {
            tracing::warn!(warning, "route file");
        }
        let rules = rules(config, &route_files, host.plugins(), None);
        for trouble in &rules.troubles {
            tracing::error!(trouble, "events wait");
        }
        for note in &rules.notes {
            tracing::error!(note, "refused; something earlier goes on");
        }
        tell(&metrics, &rules);
        metrics.changed(PluginChange::Activated, rules.plugins.in_use().len());
        let (rules, _) = watch::channel(Arc::new(rules));
        Ok(Self {
            config: config.clone(),
            read_settings,
            host,
            route_files,
            settings_note: None,
            rules,
            metrics,
            requests: mpsc::channel(REQUESTS),
            applied,
        })
    }

    /// The rules, and those that come after them.
    pub fn rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }

    /// For those who want everything looked at now.
    pub fn reloads(&self) -> Reloads {
        Reloads(self.requests.0.clone())
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut last = self.applied.clone();
        let mut pause = LOOK_INTERVAL;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {
                    let now = Files::look(&self.config).await;
                    let settled = now.settled_since(&last);
                    if settled.differs_from(&self.applied) {
                        self.reload(&settled).await;
                        settled.apply_to(&mut self.applied);
                    }
                    pause = if now == self.applied { LOOK_INTERVAL } else { SETTLE_TIME };
                    last = now;
                }
                Some(answer) = self.requests.1.recv() => {
                    // Whoever asks has perhaps just begun to copy.
                    let before = Files::look(&self.config).await;
                    tokio::time::sleep(SETTLE_TIME).await;
                    last = Files::look(&self.config).await;
                    let settled = last.settled_since(&before);
                    let reloaded = self.reload(&settled).await;
                    settled.apply_to(&mut self.applied);
                    // Whoever asked may be gone.
                    let _ = answer.send(reloaded);
                }
                () = self.host.complained() => {
                    let now = Files::look(&self.config).await;
                    self.reload(&now.settled_since(&last)).await;
                }
            }
        }
    }

    /// Reads everything again and publishes what has changed.
    /// Files that do not stand still count as they were.
    async fn reload(&mut self, files: &Settled) -> Reloaded {
        let mut refused = Vec::new();
        if files.moving(Kind::Settings).is_empty() {
            self.reread_settings(&mut refused);
        }
        let config = plugin_config(&self.config, Keeping::Record);
        let changes = match self.host.refresh(config, files.moving(Kind::Plugin)).await {
            Ok(changes) => changes,
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "plugins could not be looked at; those in use stay in use");
                refused.push(error);
                Changes::default()
            }
        };
        let before = std::mem::take(&mut self.route_files);
        let moving = files.moving(Kind::Route);
        self.route_files = read_route_files(&self.config.routes_folder, &before, &moving);
        let lines = |files: &RouteFiles| [&files.troubles[..], &files.notes[..]].concat();
        let (known, found) = (lines(&before), lines(&self.route_files));
        refused.extend(found.into_iter().filter(|line| !known.contains(line)));
        for line in &refused {
            tracing::error!(line, "refused");
        }
        let files = changes.refused.iter();
        refused.extend(files.map(|(file, reason)| format!("plugin file {file}: {reason}")));

        self.count(&changes, &refused);
        let note = self.settings_note.clone();
        let rules = rules(&self.config, &self.route_files, self.host.plugins(), note);
        let lines = self.publish(rules, &changes);
        let now = self.rules.borrow();
        Reloaded { changes: lines, refused, troubles: now.problems().cloned().collect() }
    }

    fn reread_settings(&mut self, refused: &mut Vec<String>) {
        let note = match (self.read_settings)() {
            Ok(new) => {
                let others = others_changed(&self.config, &new);
                if !others.is_empty() {
                    tracing::warn!(
                        sections = others.join(", "),
                        "settings have changed that take effect at the next start only"
                    );
                }
                self.config.plugins = new.plugins;
                self.config.routes = new.routes;
                self.config.routes_folder = new.routes_folder;
                None
            }
            Err(problems) => {
                Some(format!("the settings are refused, the old rules go on: {problems}"))
            }
        };
        if note.is_some() && note != self.settings_note {
            refused.extend(note.clone());
        }
        self.settings_note = note;
    }

    fn count(&self, changes: &Changes, refused: &[String]) {
        for (change, times) in [
            (PluginChange::Activated, changes.activated.len()),
            (PluginChange::Refused, changes.refused.len()),
            (PluginChange::RolledBack, changes.rolled_back.len()),
            (PluginChange::Removed, changes.removed.len()),
        ] {
            self.metrics.changed(change, times);
        }
        match refused {
            [] => self.metrics.reloaded(),
            _ => self.metrics.reload_failed(),
        }
    }

    /// Publishes rules that are others than those in use. Returns what has changed, one line each.
    fn publish(&self, rules: Rules, changes: &Changes) -> Vec<String> {
        let activated = changes.activated.iter();
        let mut lines: Vec<String> = activated
            .map(|(stamp, standing)| format!("plugin {stamp} is in use as {}", standing.name()))
            .collect();
        lines.extend(changes.removed.iter().map(|name| format!("plugin {name} is gone")));
        let differs = {
            let old = self.rules.borrow();
            if old.routes != rules.routes {
                lines.push("the routes have changed".to_owned());
            }
            lines.extend(old.plugins.in_use().iter().filter_map(|one| fate(one, &*rules.plugins)));
            !lines.is_empty() || old.troubles != rules.troubles || old.notes != rules.notes
        };
        if differs {
            for trouble in &rules.troubles {
                tracing::error!(trouble, "events wait");
            }
            for line in &lines {
                tracing::info!(change = line, "rules and plugins reloaded");
            }
            tell(&self.metrics, &rules);
            self.rules.send_replace(Arc::new(rules));
        }
        lines
    }
}

/// What has become of a version that is not in use as it was.
fn fate(one: &InUse, plugins: &dyn Plugins) -> Option<String> {
    let now = plugins.in_use();
    let same = now.iter().filter(|now| now.stamp == one.stamp);
    let standings: Vec<Standing> = same.map(|now| now.standing).collect();
    match (one.standing, &standings[..]) {
        (_, []) => Some(format!("plugin {} is no longer in use", one.stamp)),
        (before, now) if now.contains(&before) => None,
        (_, [Standing::Kept, ..]) => {
            Some(format!("plugin {} goes on in place of the file's version", one.stamp))
        }
        (_, [now, ..]) => Some(format!("plugin {} is in use as {}", one.stamp, now.name())),
    }
}

fn tell(metrics: &PluginMetrics, rules: &Rules) {
    metrics.in_use(&rules.plugins.in_use(), rules.troubles.len(), rules.notes.len());
}

/// The rules from their parts, with everything that is wrong with them.
pub fn rules(
    config: &Config,
    files: &RouteFiles,
    plugins: Arc<dyn Plugins>,
    settings_note: Option<String>,
) -> Rules {
    let routes = config.routes.clone().followed_by(files.routes());
    let mut troubles = plugins.troubles();
    for name in routes.iter().filter_map(|route| route.plugin.as_deref()) {
        if let Err(reason) = plugins.find(name)
            // A refused file is among the troubles already.
            && !troubles.iter().any(|known| {
                reason == *known || reason == format!("plugin {name:?} cannot be used: {known}")
            })
        {
            troubles.push(reason);
        }
    }
    troubles.extend(files.troubles.iter().cloned());
    troubles.extend(contested(&routes, &*plugins));
    let mut notes = plugins.notes();
    notes.extend(files.notes.iter().cloned());
    notes.extend(settings_note);
    Rules { routes, plugins, troubles, notes }
}

/// Event types that several plugins want and no route settles.
fn contested(routes: &Routes, plugins: &dyn Plugins) -> Vec<String> {
    let types: BTreeSet<String> =
        plugins.in_use().into_iter().flat_map(|one| one.event_types).collect();
    let mut lines = Vec::new();
    for event_type in types {
        let wanting = plugins.wanting(&event_type);
        // A pattern that matches another one's text matches all that the other one does.
        if wanting.len() > 1 && routes.find(&event_type).is_none() {
            lines.push(format!(
                "plugins {} all want event type '{event_type}', whose events wait: add a [[routes]] entry \
                 that names one",
                wanting.join(", ")
            ));
        }
    }
    lines
}

/// What the plugin host is told.
pub fn plugin_config(config: &Config, keeping: Keeping) -> plugin::Config {
    let named = config.plugins.iter().map(|plugin| {
        let settings = serde_json::from_str(plugin.settings.expose()).unwrap_or_default();
        (plugin.name.to_string(), plugin::PluginConfig { settings, limits: plugin.limits.clone() })
    });
    plugin::Config {
        folder: config.plugin_host.folder.clone(),
        state: config.plugin_host.state.clone(),
        keeping,
        workers: config.plugin_host.workers,
        plugins: named.collect::<BTreeMap<_, _>>(),
        ..plugin::Config::default()
    }
}

/// Sections that differ and are not read again while the relay runs.
fn others_changed(old: &Config, new: &Config) -> Vec<&'static str> {
    let changed = [
        ("[sources]", old.sources != new.sources),
        ("[lanes]", old.lanes != new.lanes),
        ("[sinks]", old.sinks != new.sinks),
        ("[plugin_host]", old.plugin_host != new.plugin_host),
        ("[admin]", old.admin != new.admin),
        ("[log]", old.log != new.log),
        ("[relay]", old.relay != new.relay),
    ];
    changed.into_iter().filter(|(_, changed)| *changed).map(|(section, _)| section).collect()
}

/// Which folder a file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Settings,
    Route,
    Plugin,
    History,
}

/// The files that matter, as they look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Files(BTreeMap<(Kind, String), Print>);

impl Files {
    /// Looks. A folder that cannot be read counts as one without files; what that means is decided when
    /// it is read.
    async fn look(config: &Config) -> Self {
        let host = &config.plugin_host;
        let histories = host.state.as_deref().map(|state| plugin::histories(state, &host.folder));
        let folders = [
            (Kind::Route, Some(config.routes_folder.clone()), ROUTE_FILE),
            (Kind::Plugin, Some(host.folder.clone()), COMPONENT),
            (Kind::History, histories, HISTORY),
        ];
        let settings = config.file.clone();
        // A network file system may take its time, or hang.
        let looked = tokio::task::spawn_blocking(move || {
            let mut files = BTreeMap::new();
            for (kind, folder, ending) in folders {
                let found = folder.and_then(|folder| prints(&folder, ending).ok());
                files
                    .extend(found.into_iter().flatten().map(|(name, print)| ((kind, name), print)));
            }
            if let Some(print) = settings.and_then(|file| Print::of(&file).ok()) {
                files.insert((Kind::Settings, String::new()), print);
            }
            Self(files)
        });
        looked.await.unwrap_or_default()
    }

    /// What has not changed from `before` to now; a file that is gone in both has not.
    fn settled_since(&self, before: &Self) -> Settled {
        let stood = |key: &(Kind, String)| self.0.get(key) == before.0.get(key);
        let all: BTreeSet<(Kind, String)> = self.0.keys().chain(before.0.keys()).cloned().collect();
        let (settled, moving) = all.into_iter().partition(stood);
        Settled { now: self.clone(), settled, moving }
    }
}

/// The files of a look, told apart by whether they stand still.
struct Settled {
    now: Files,
    settled: BTreeSet<(Kind, String)>,
    moving: BTreeSet<(Kind, String)>,
}

impl Settled {
    /// Whether a file that stands still is another than when it was last read.
    fn differs_from(&self, applied: &Files) -> bool {
        let gone =
            applied.0.keys().any(|key| !self.now.0.contains_key(key) && !self.moving.contains(key));
        gone || self.settled.iter().any(|key| self.now.0.get(key) != applied.0.get(key))
    }

    /// The files of that kind that are being written or replaced.
    fn moving(&self, wanted: Kind) -> BTreeSet<String> {
        let moving = self.moving.iter().filter(|(kind, _)| *kind == wanted);
        moving.map(|(_, name)| name.clone()).collect()
    }

    /// The files as they have now been read; those that are being written, as they were before.
    fn apply_to(&self, applied: &mut Files) {
        applied.0.retain(|key, _| self.moving.contains(key));
        for key in &self.settled {
            if let Some(print) = self.now.0.get(key) {
                applied.0.insert(key.clone(), *print);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::PluginStamp;
    use crate::routing::{Pattern, Route};
    use crate::transform::FixedPlugins;

    /// Two plugins that want the same.
    fn two() -> FixedPlugins {
        let one = |name: &str, event_types: &[&str]| InUse {
            stamp: PluginStamp { name: name.into(), version: "1".into(), hash: "h".into() },
            standing: Standing::Current,
            event_types: event_types.iter().map(|one| (*one).to_owned()).collect(),
        };
        let in_use = vec![one("a", &["order.*"]), one("b", &["order.paid", "cart.*"])];
        FixedPlugins { in_use, ..FixedPlugins::default() }
    }

    #[test]
    fn plugins_that_want_the_same_are_reported_until_a_rule_settles_it() {
        let [line] = &contested(&Routes::default(), &two())[..] else {
            panic!("one type is contested")
        };
        assert!(line.contains("a, b") && line.contains("'order.paid'"), "{line}");
        let settled = |pattern: &str| {
            let route = Route {
                patterns: vec![Pattern::new(pattern)],
                ..Route::blocking("here".into(), String::new())
            };
            contested(&Routes::new(vec![route]), &two()).is_empty()
        };
        assert!(settled("order.paid") && settled("order.*") && !settled("cart.*"));
    }

    fn files(folder: &std::path::Path) -> Files {
        let found = prints(folder, "").expect("a folder");
        Files(found.into_iter().map(|(name, print)| ((Kind::Plugin, name), print)).collect())
    }

    #[test]
    fn files_count_once_they_stand_still() {
        let folder = std::env::temp_dir().join(format!("haulier-reload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let write =
            |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
        write("a", "1");
        let mut applied = files(&folder);
        assert!(!applied.settled_since(&applied).differs_from(&applied));

        write("b", "half");
        let first = files(&folder);
        assert!(!first.settled_since(&applied).differs_from(&applied), "b has just come");
        write("b", "whole");
        write("c", "1");
        let second = files(&folder);
        let look = second.settled_since(&first);
        assert!(!look.differs_from(&applied), "b is still being written, c has just come");
        let third = files(&folder);
        write("b", "whole again");
        let fourth = files(&folder);
        let look = fourth.settled_since(&third);
        assert!(look.differs_from(&applied), "c stands still");
        assert_eq!(look.moving(Kind::Plugin), BTreeSet::from(["b".to_owned()]));
        look.apply_to(&mut applied);
        let look = files(&folder).settled_since(&fourth);
        assert!(look.differs_from(&applied) && look.moving(Kind::Plugin).is_empty());
        look.apply_to(&mut applied);

        std::fs::remove_file(folder.join("a")).expect("removed");
        let gone = files(&folder);
        assert!(!gone.settled_since(&fourth).differs_from(&applied), "it may come back");
        assert!(files(&folder).settled_since(&gone).differs_from(&applied));
        std::fs::remove_dir_all(&folder).expect("it goes");
    }
}
