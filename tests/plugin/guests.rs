//! Built guests, plugins folders, and events for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haulier::event::{Event, EventId, Header, LaneName, Outcome};
use haulier::failure::{Cause, Failure};
use haulier::plugin::{Config, PluginConfig, PluginHost};
use haulier::transform::{Plugins, Transformed};
pub(crate) use haulier_tests::guest::misbehave;

/// The bytes of a guest, built on first use.
pub(crate) fn component(name: &str) -> Vec<u8> {
    fs::read(haulier_tests::build::guest(name)).expect("a built guest")
}

/// A plugins folder that goes away with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("haulier-plugin-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn with(self, file: &str, bytes: impl AsRef<[u8]>) -> Self {
        fs::write(self.0.join(file), bytes).expect("a file for the test");
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn config(&self) -> Config {
        Config { folder: self.0.clone(), workers: 2, ..Config::default() }
    }

    pub(crate) async fn load(&self) -> PluginHost {
        PluginHost::load(self.config()).await.expect("the host starts")
    }

    pub(crate) async fn load_with(&self, plugin: &str, config: PluginConfig) -> PluginHost {
        let mut all = self.config();
        all.plugins.insert(plugin.to_owned(), config);
        PluginHost::load(all).await.expect("the host starts")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A host with the misbehaving plugin under these settings.
pub(crate) async fn misbehaving(settings: serde_json::Value) -> (Folder, PluginHost) {
    let folder = Folder::new().with("misbehave.wasm", component("misbehave"));
    let config = PluginConfig { settings, ..PluginConfig::default() };
    let host = folder.load_with("misbehave", config).await;
    assert_eq!(host.troubles(), Vec::<String>::new());
    (folder, host)
}

pub(crate) fn event(id: i64, event_type: &str) -> Event {
    Event {
        id: EventId(id),
        shard: 0,
        aggregate_type: "order".to_owned(),
        aggregate_id: Some(format!("o-{id}")),
        event_type: event_type.to_owned(),
        partition_key: None,
        topic: Some("row-topic".to_owned()),
        headers: vec![Header::text("trace", "1")],
        payload: Some(Bytes::from_static(b"{\"n\":1}")),
        attempts: 0,
        created_at_ms: 1_700_000_000_000,
        waited: Duration::ZERO,
        redelivery: None,
        holds_key: false,
        defect: None,
    }
}

/// `count` harmless events, and in between those given by place and type.
pub(crate) fn batch(count: usize, special: &[(usize, &str)]) -> Vec<Event> {
    let mut events: Vec<Event> = (0..).take(count).map(|id| event(id, "test.pass")).collect();
    for (place, event_type) in special {
        events[*place].event_type = (*event_type).to_owned();
    }
    events
}

pub(crate) fn lane(name: &str) -> LaneName {
    LaneName { source: "shop".into(), lane: name.into() }
}

pub(crate) async fn run(host: &PluginHost, plugin: &str, events: &[Event]) -> Transformed {
    let events: Vec<&Event> = events.iter().collect();
    let plugin = host.find(plugin).expect("the plugin is loaded");
    let done = plugin.transform(&lane("default"), &events).await;
    assert_eq!(done.verdicts.len(), events.len());
    done
}

/// Checks that exactly the events at these places failed, all with this cause. Returns the failures.
pub(crate) fn failed(done: Transformed, places: &[usize], cause: Cause) -> Vec<Failure> {
    let failed: Vec<(usize, Failure)> = done
        .verdicts
        .into_iter()
        .enumerate()
        .filter_map(|(place, verdict)| verdict.err().map(|failure| (place, failure)))
        .collect();
    let found: Vec<(usize, Cause)> = failed.iter().map(|(at, it)| (*at, it.cause)).collect();
    let expected: Vec<(usize, Cause)> = places.iter().map(|at| (*at, cause)).collect();
    assert_eq!(found, expected, "{failed:?}");
    for (_, failure) in &failed {
        let stamp = failure.plugin.as_ref().expect("a failure in a plugin names it");
        assert_eq!((stamp.name.as_str(), stamp.hash.len()), ("misbehave", 64));
    }
    failed.into_iter().map(|(_, failure)| failure).collect()
}

/// The one dropped event's reason.
pub(crate) fn dropped(done: &Transformed) -> &str {
    match &done.verdicts[..] {
        [Ok(Outcome::Drop(reason))] => reason,
        other => panic!("expected one dropped event, got {other:?}"),
    }
}
