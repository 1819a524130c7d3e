//! `haulier plugin build`: a plugin's folder into a component that carries its samples.
//!
//! What turns sources into a component is the folder's own `build.sh`, whatever the language; this adds
//! the samples and checks the result as a relay would.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};

use super::BuildArgs;
use crate::cli::Exit;
use crate::plugin::{Config, Sample, Workbench};

/// The script that builds, in the plugin's folder.
const SCRIPT: &str = "build.sh";

/// The samples, in the plugin's folder.
const SAMPLES: &str = "samples.jsonl";

/// Builds.
///
/// # Errors
/// When the script fails, or what it builds is no plugin or fails its samples.
pub(super) fn build(args: &BuildArgs) -> anyhow::Result<Exit> {
    let folder = &args.folder;
    let script = folder.join(SCRIPT);
    ensure!(
        script.is_file(),
        "{} is not there: `haulier plugin new` makes a folder that has one",
        script.display()
    );
    let before = components(folder)?;
    let status = Command::new("bash")
        .arg(SCRIPT)
        .current_dir(folder)
        .status()
        .context("bash cannot be run")?;
    ensure!(status.success(), "{} failed: {status}", script.display());
    let component = built(folder, &before)?;

    let samples = folder.join(SAMPLES);
    let mut shipped = 0;
    if samples.is_file() {
        let text = fs::read_to_string(&samples)
            .with_context(|| format!("{} cannot be read", samples.display()))?;
        let read = Sample::read(&text);
        shipped = read.map_err(|error| anyhow::anyhow!("{}: {error}", samples.display()))?.len();
        let bytes = fs::read(&component)?;
        let part = component.with_extension("part");
        fs::write(&part, Sample::ship(bytes, &text))?;
        fs::rename(&part, &component)?;
    }
    // Loading it runs the samples.
    let bench = Workbench::open(&component, &Config::default())?;
    let (name, version) = bench.name();
    writeln!(
        io::stdout(),
        "{}: {name} {version}, which passes the {shipped} samples it ships",
        component.display()
    )?;
    Ok(Exit::Success)
}

/// The component files of a folder, with the times they were written.
fn components(folder: &Path) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            let written = fs::metadata(&path)?.modified()?;
            found.push((path, written));
        }
    }
    Ok(found)
}

/// The file that the script has written.
fn built(folder: &Path, before: &[(PathBuf, SystemTime)]) -> anyhow::Result<PathBuf> {
    let now = components(folder)?;
    let fresh: Vec<&(PathBuf, SystemTime)> =
        now.iter().filter(|one| !before.contains(one)).collect();
    match (&fresh[..], &now[..]) {
        ([(path, _)], _) => Ok(path.clone()),
        ([], []) => bail!("{SCRIPT} has left no .wasm file in {}", folder.display()),
        ([], _) => bail!("{SCRIPT} has not written a .wasm file in {}", folder.display()),
        (several, _) => {
            let names: Vec<String> =
                several.iter().map(|(path, _)| path.display().to_string()).collect();
            bail!("{SCRIPT} has written several .wasm files: {}", names.join(", "))
        }
    }
}
