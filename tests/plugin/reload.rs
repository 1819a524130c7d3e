//! Another version of a plugin while the host runs: taken up, refused, rolled back, removed.

use std::collections::BTreeSet;
use std::fs;

use haulier::failure::PluginStamp;
use haulier::plugin::{Changes, Config, Keeping, PluginHost, Rollbacks, Sample};
use haulier::transform::{InUse, Plugins, Standing};

use crate::guests::{Folder, batch, component, misbehave, run};

/// A file that is another version of the same plugin: its hash differs, and nothing else.
fn version(number: usize) -> Vec<u8> {
    haulier_tests::guest::version(component("misbehave"), number)
}

async fn look(host: &PluginHost, config: &Config) -> Changes {
    host.refresh(config.clone(), BTreeSet::new()).await.expect("the folder is looked at")
}

/// The version that is used for events of the plugin.
fn current(host: &PluginHost) -> InUse {
    let mut in_use = host.in_use();
    in_use.retain(|one| one.standing != Standing::Candidate);
    assert_eq!(in_use.len(), 1, "{in_use:?}");
    in_use.remove(0)
}

fn hash(host: &PluginHost) -> String {
    current(host).stamp.hash
}

/// A folder with a state folder beside it.
fn kept(folder: &Folder) -> Config {
    let config = folder.config();
    Config { state: Some(folder.path().join(".state")), ..config }
}

#[tokio::test]
async fn a_new_file_is_taken_up_and_an_old_batch_keeps_its_version() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = folder.config();
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let first = hash(&host);
    let old = host.plugins();
    let folder = folder.with("m.wasm", version(2)).with("o.wasm", component("order_events"));
    let changes = look(&host, &config).await;
    assert_eq!(changes.activated.len(), 2, "{changes:?}");
    assert!(host.find("order-events").is_ok() && old.find("order-events").is_err());
    let used = |plugins: &dyn Plugins| plugins.in_use()[0].stamp.hash.clone();
    assert_ne!(used(&*host.plugins()), first);
    assert_eq!(used(&*old), first);
    assert_eq!(run(&host, "misbehave", &batch(3, &[])).await.verdicts.len(), 3);

    // Touched, and the same.
    let folder = folder.with("m.wasm", version(2));
    let before = run(&host, "misbehave", &batch(1, &[])).await.activation;
    assert_eq!(look(&host, &config).await, Changes::default());
    assert_eq!(run(&host, "misbehave", &batch(1, &[])).await.activation, before);
    drop(folder);
}

#[tokio::test]
async fn a_bad_file_never_ends_a_good_version() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let good = hash(&host);
    let whole = version(2);
    let fails = Sample::ship(
        component("misbehave"),
        "{\"event_type\":\"test.pass\",\"expect\":{\"drop\":\"never\"}}\n",
    );
    let mut folder = folder;
    for (bad, why) in [
        (whole[..whole.len() / 2].to_vec(), "damaged or cut off"),
        (component("other_world"), "another world"),
        (misbehave("trap"), "describe panics"),
        (misbehave("loop"), "of computing"),
        (fails, "does not pass its own samples: sample 1"),
        (Sample::ship(component("misbehave"), "x"), "samples that cannot be read"),
    ] {
        folder = folder.with("m.wasm", bad);
        let changes = look(&host, &config).await;
        let [(file, reason)] = &changes.refused[..] else { panic!("{why}: {changes:?}") };
        assert!(file == "m.wasm" && reason.contains(why), "{reason}");
        assert_eq!((hash(&host), current(&host).standing), (good.clone(), Standing::Kept));
        let [note] = &host.notes()[..] else { panic!("{:?}", host.notes()) };
        assert!(note.contains("goes on") && host.troubles().is_empty(), "{note}");
        assert_eq!(run(&host, "misbehave", &batch(2, &[])).await.stamp.hash, good);
        // Looked at again, it is no news.
        assert_eq!(look(&host, &config).await, Changes::default());
    }
    // After a restart too.
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    assert_eq!((hash(&host), current(&host).standing), (good, Standing::Kept));
    let _folder = folder.with("m.wasm", whole);
    look(&host, &config).await;
    assert_eq!(current(&host).standing, Standing::Current);
    assert_eq!(host.notes(), Vec::<String>::new());
}

#[tokio::test]
async fn settings_that_are_refused_leave_the_old_ones() {
    let folder = Folder::new().with("m.wasm", version(1));
    let mut config = folder.config();
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let before = run(&host, "misbehave", &batch(1, &[])).await.activation;
    let settings = serde_json::json!({ "spin": 1 });
    let told = haulier::plugin::PluginConfig { settings, ..Default::default() };
    config.plugins.insert("misbehave".to_owned(), told);
    assert_eq!(look(&host, &config).await.refused.len(), 1);
    assert_eq!(run(&host, "misbehave", &batch(1, &[])).await.activation, before);
    let settings = serde_json::json!({ "spin_ms": 0 });
    let told = haulier::plugin::PluginConfig { settings, ..Default::default() };
    config.plugins.insert("misbehave".to_owned(), told);
    look(&host, &config).await;
    assert_ne!(run(&host, "misbehave", &batch(1, &[])).await.activation, before);
    assert_eq!(host.notes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_removed_plugin_keeps_its_events_waiting_until_it_is_forgotten() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let state = config.state.clone().expect("a state folder");
    let all = Rollbacks::open(&state, folder.path(), Keeping::Record).expect("the state folder");
    let error = all.forget("misbehave").expect_err("its file is there");
    assert!(error.to_string().contains("m.wasm is in the plugins folder"), "{error}");
    fs::remove_file(folder.path().join("m.wasm")).expect("it goes");
    assert_eq!(look(&host, &config).await.removed, ["misbehave"]);
    for host in [host, PluginHost::load(config.clone()).await.expect("the host starts")] {
        let reason = host.find("misbehave").err().expect("it is gone");
        assert!(reason.contains("haulier plugin forget misbehave"), "{reason}");
        assert_eq!(host.wanting("test.x"), ["misbehave"], "its events wait");
        assert_eq!(host.troubles().len(), 1);
        assert_eq!(look(&host, &config).await, Changes::default());
    }
    assert!(all.forget("nobody").is_err());
    all.forget("misbehave").expect("it is known");
    let host = PluginHost::load(config).await.expect("the host starts");
    assert_eq!((host.wanting("test.x").len(), host.troubles().len()), (0, 0));
}

#[tokio::test]
async fn going_back_and_forth_by_hand() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let first = hash(&host);
    let folder = folder.with("m.wasm", version(2));
    look(&host, &config).await;
    let second = hash(&host);
    let folder = folder.with("m.wasm", version(3));
    look(&host, &config).await;
    let third = hash(&host);

    let state = config.state.clone().expect("a state folder");
    let all = Rollbacks::open(&state, folder.path(), Keeping::Record).expect("it opens");
    let (from, to) = all.roll_back("misbehave").expect("there is one to go back to");
    assert_eq!((&from.hash, &to.hash), (&third, &second));
    let changes = look(&host, &config).await;
    assert_eq!(changes.rolled_back, ["misbehave"]);
    assert_eq!((hash(&host), current(&host).standing), (second.clone(), Standing::Kept));
    assert!(host.notes()[0].contains("rolled back by hand"), "{:?}", host.notes());
    all.roll_back("misbehave").expect("there is another one");
    look(&host, &config).await;
    assert_eq!(hash(&host), first);
    let error = all.roll_back("misbehave").expect_err("there is no more");
    assert!(error.to_string().contains("no earlier good version"), "{error}");
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    assert_eq!(hash(&host), first, "a restart changes nothing");
    let marked = all.versions("misbehave").expect("versions");
    assert_eq!(marked.iter().filter(|version| version.mark.is_some()).count(), 2);

    assert_eq!(all.undo("misbehave").expect("it is known"), 2);
    look(&host, &config).await;
    assert_eq!((hash(&host), current(&host).standing), (third, Standing::Current));
    drop(folder);
}

#[tokio::test]
async fn a_condemned_version_gives_way_to_the_one_before() {
    let folder = Folder::new().with("m.wasm", version(1));
    // Without a state folder too.
    let config = folder.config();
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let first = hash(&host);
    let folder = folder.with("m.wasm", version(2));
    look(&host, &config).await;
    host.condemn(&current(&host).stamp, "it traps");
    host.complained().await;
    let changes = look(&host, &config).await;
    assert_eq!(changes.rolled_back, ["misbehave"], "{changes:?}");
    assert_eq!(hash(&host), first);
    assert!(host.notes()[0].contains("it traps"), "{:?}", host.notes());
    let stamp: PluginStamp = current(&host).stamp;
    host.condemn(&stamp, "it traps too");
    look(&host, &config).await;
    assert!(host.in_use().is_empty());
    assert_eq!(host.wanting("test.x"), ["misbehave"], "its events wait");
    assert!(host.troubles()[0].contains("rolled back: it traps"), "{:?}", host.troubles());
    let folder = folder.with("m.wasm", version(3));
    look(&host, &config).await;
    assert_eq!(current(&host).standing, Standing::Current);
    drop(folder);
}

#[tokio::test]
async fn a_candidate_is_used_where_a_rule_says_so_only() {
    let folder = Folder::new().with("m.wasm", version(1)).with("m.candidate.wasm", version(2));
    let config = folder.config();
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    assert_eq!(host.in_use().len(), 2);
    let candidate = host.candidate("misbehave").expect("there is one");
    assert_eq!(host.wanting("test.x"), ["misbehave"]);
    drop(candidate);
    // A bad one leaves the one before on trial.
    let folder = folder.with("m.candidate.wasm", b"x");
    look(&host, &config).await;
    assert!(host.candidate("misbehave").is_some() && host.notes().len() == 1);
    // Promoted by renaming.
    let folder = folder.with("m.candidate.wasm", version(2));
    look(&host, &config).await;
    let path = |file: &str| folder.path().join(file);
    fs::rename(path("m.candidate.wasm"), path("m.wasm")).expect("renamed");
    look(&host, &config).await;
    assert!(host.candidate("misbehave").is_none());
    assert_eq!(current(&host).standing, Standing::Current);
    assert_eq!(host.notes(), Vec::<String>::new());
}

#[tokio::test]
async fn compiled_code_is_kept_and_damage_to_it_does_not_matter() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = kept(&folder);
    drop(PluginHost::load(config.clone()).await.expect("the host starts"));
    let compiled = folder.path().join(".state/compiled");
    let files = || -> Vec<_> {
        fs::read_dir(&compiled).expect("a folder").map(|one| one.expect("a file").path()).collect()
    };
    let [file] = &files()[..] else { panic!("one file: {:?}", files()) };
    let bytes = fs::read(file).expect("it is there");
    for damage in
        [&bytes[..bytes.len() / 2], &[], b"nonsense that is longer than a checksum would be"]
    {
        fs::write(file, damage).expect("damaged");
        let host = PluginHost::load(config.clone()).await.expect("the host starts");
        assert_eq!(run(&host, "misbehave", &batch(2, &[])).await.verdicts.len(), 2);
        assert_eq!(fs::read(file).expect("it is there").len(), bytes.len(), "compiled anew");
    }
}

#[tokio::test]
async fn files_that_are_being_written_count_as_they_were() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = folder.config();
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let first = hash(&host);
    let folder = folder.with("m.wasm", b"half").with("n.wasm", b"half");
    let unsettled = BTreeSet::from(["m.wasm".to_owned(), "n.wasm".to_owned()]);
    let changes = host.refresh(config.clone(), unsettled).await.expect("it is looked at");
    assert_eq!((changes, hash(&host)), (Changes::default(), first.clone()));
    assert_eq!(host.notes(), Vec::<String>::new());
    // One that is away for a moment too.
    fs::remove_file(folder.path().join("m.wasm")).expect("it goes");
    let unsettled = BTreeSet::from(["m.wasm".to_owned(), "n.wasm".to_owned()]);
    let changes = host.refresh(config.clone(), unsettled).await.expect("it is looked at");
    assert_eq!((changes, hash(&host)), (Changes::default(), first));
    drop(folder);
}

#[tokio::test]
async fn a_version_that_is_used_again_is_judged_anew() {
    let folder = Folder::new().with("m.wasm", version(1));
    let config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let folder = folder.with("m.wasm", version(2));
    look(&host, &config).await;
    let second = current(&host).stamp;
    let before = run(&host, "misbehave", &batch(1, &[])).await.activation;
    host.condemn(&second, "it traps");
    look(&host, &config).await;
    let state = config.state.clone().expect("a state folder");
    let all = Rollbacks::open(&state, folder.path(), Keeping::Record).expect("it opens");
    assert_eq!(all.undo("misbehave").expect("it is known"), 1);
    look(&host, &config).await;
    assert_eq!(current(&host).stamp, second);
    assert_ne!(run(&host, "misbehave", &batch(1, &[])).await.activation, before);
}

#[tokio::test]
async fn the_next_file_of_a_name_is_taken_up_and_kept_when_the_first_goes() {
    let folder = Folder::new().with("a.wasm", version(1)).with("b.wasm", version(2));
    let config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    assert!(host.troubles()[0].contains("NAME.candidate.wasm"), "{:?}", host.troubles());
    fs::remove_file(folder.path().join("a.wasm")).expect("it goes");
    look(&host, &config).await;
    let state = config.state.clone().expect("a state folder");
    let all = Rollbacks::open(&state, folder.path(), Keeping::Look).expect("it opens");
    let known = all.versions("misbehave").expect("it is known");
    assert_eq!((known.len(), &known[0].hash), (2, &hash(&host)));
}

#[tokio::test]
async fn a_kept_version_is_given_new_settings() {
    let folder = Folder::new().with("m.wasm", version(1));
    let mut config = kept(&folder);
    let host = PluginHost::load(config.clone()).await.expect("the host starts");
    let folder = folder.with("m.wasm", b"x");
    look(&host, &config).await;
    let before = run(&host, "misbehave", &batch(1, &[])).await.activation;
    let mut told = |settings| {
        let told = haulier::plugin::PluginConfig { settings, ..Default::default() };
        config.plugins.insert("misbehave".to_owned(), told);
        config.clone()
    };
    look(&host, &told(serde_json::json!({ "spin_ms": 0 }))).await;
    let after = run(&host, "misbehave", &batch(1, &[])).await.activation;
    assert_ne!(after, before);
    // Those that it refuses leave it as it is.
    look(&host, &told(serde_json::json!({ "spin": 0 }))).await;
    assert_eq!(run(&host, "misbehave", &batch(1, &[])).await.activation, after);
    drop(folder);
}
