//! The demo's relays: processes of this very binary, with a settings file like anyone's.
//!
//! Used by the demo only. It writes the settings into the demo's folder, migrates, starts the
//! instances and stops them. Their logs stay in the folder; the database's URL never gets there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// The variable by which the relays get the database's URL.
const URL_VARIABLE: &str = "HAULIER_DEMO_DATABASE_URL";
/// How long an instance may take to end after it was told to.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What the settings file is made of.
pub(super) struct Plan<'a> {
    pub(super) folder: &'a Path,
    pub(super) url: &'a str,
    /// Whether the URL is a file's, which may be shown.
    pub(super) url_is_public: bool,
    pub(super) table: &'a str,
    pub(super) servers: &'a str,
    pub(super) topic_prefix: &'a str,
    pub(super) plugin: &'a Path,
}

impl Plan<'_> {
    /// Writes settings and plugin into the folder.
    pub(super) fn lay_out(&self) -> anyhow::Result<()> {
        let plugins = self.folder.join("plugins");
        std::fs::create_dir_all(&plugins)
            .with_context(|| format!("the folder {} cannot be made", plugins.display()))?;
        std::fs::copy(self.plugin, plugins.join("order_events.wasm"))
            .with_context(|| format!("the plugin {} cannot be copied", self.plugin.display()))?;
        let file = self.folder.join("haulier.toml");
        std::fs::write(&file, self.settings())
            .with_context(|| format!("{} cannot be written", file.display()))
    }

    fn settings(&self) -> String {
        // A JSON string is a TOML string too.
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let url = if self.url_is_public {
            text(self.url)
        } else {
            format!("{{ env = \"{URL_VARIABLE}\" }}")
        };
        let mut settings = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            settings,
            "# Written by `haulier demo`.\n\n\
             [sources.demo]\nurl = {url}\ntable = {table}\npayload_type = \"text\"\n\n\
             [sinks.main]\ntype = \"kafka\"\nbootstrap_servers = {servers}\n\n\
             [[routes]]\nevent_type = \"order.*\"\nplugin = \"order-events\"\n\n\
             [plugins.order-events]\nsettings = {{ topic_prefix = {prefix} }}\n\n\
             [admin]\nlisten = \"off\"\n",
            table = text(self.table),
            servers = text(self.servers),
            prefix = text(self.topic_prefix),
        );
        settings
    }

    fn command(&self) -> anyhow::Result<Command> {
        let binary = std::env::current_exe().context("the path of this program is unknown")?;
        let mut command = Command::new(binary);
        command
            .current_dir(self.folder)
            .env(URL_VARIABLE, self.url)
            .env_remove("HAULIER_CONFIG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        // Settings of the caller's own relay must not reach the demo's.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_ascii_uppercase().starts_with("HAULIER__") {
                command.env_remove(name);
            }
        }
        Ok(command)
    }

    /// Makes the tables.
    pub(super) async fn migrate(&self) -> anyhow::Result<()> {
        let done = self
            .command()?
            .arg("migrate")
            .output()
            .await
            .context("`haulier migrate` cannot be started")?;
        if !done.status.success() {
            bail!("`haulier migrate` failed: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Ok(())
    }

    /// Starts one instance; its log is `relay-NUMBER.log`.
    pub(super) fn start(&self, number: u32) -> anyhow::Result<Instance> {
        let log = self.folder.join(format!("relay-{number}.log"));
        let file = std::fs::File::create(&log)
            .with_context(|| format!("{} cannot be written", log.display()))?;
        let child = self
            .command()?
            .arg("run")
            .env("HAULIER__RELAY__INSTANCE", format!("relay-{number}"))
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .context("`haulier run` cannot be started")?;
        Ok(Instance { child, log })
    }
}

/// A relay at work.
pub(super) struct Instance {
    child: Child,
    log: PathBuf,
}

impl Instance {
    /// Fails when the process has ended, which none does by itself.
    pub(super) fn still_runs(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("a relay cannot be watched")? {
            None => Ok(()),
            Some(status) => bail!("a relay ended ({status}): see {}", self.log.display()),
        }
    }

    /// SIGTERM: it finishes what it has begun.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).context("a relay cannot be told to stop")?;
        }
        let ended = tokio::time::timeout(END_LIMIT, self.child.wait()).await;
        let status = ended
            .with_context(|| format!("a relay does not end: see {}", self.log.display()))?
            .context("a relay cannot be watched")?;
        if !status.success() {
            bail!("a relay ended badly ({status}): see {}", self.log.display());
        }
        Ok(())
    }
}
