//! `haulier plugin …`: for those who write plugins, and for those who run them.
//!
//! Authors: `new`, `build`, `test`, `inspect`. Operators: `versions`, `rollback`, `forget`. What these do to a
//! running relay they do through the state folder, which it watches.

mod build;
mod new;
mod operate;
mod tried;

use std::path::PathBuf;

use clap::{Args as Arguments, Subcommand};

use super::{Exit, load_config};
use crate::config::Config;

use self::new::Language;

/// What can be done with plugins.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum PluginCommand {
    /// Write a new plugin's folder, ready to build
    New(NewArgs),
    /// Build the plugin of a folder, and put its samples into the component
    Build(BuildArgs),
    /// Run a component on samples, and compare with what they expect
    Test(TestArgs),
    /// Show what a component is: world, imports, size, limits, hash
    Inspect(InspectArgs),
    /// Show the versions of a plugin that are kept
    Versions(NameArgs),
    /// Go back to the version before, at once and until another file comes
    Rollback(RollbackArgs),
    /// Say that a plugin whose file was removed will not come back: its events wait no longer
    Forget(NameArgs),
}

/// What `new` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct NewArgs {
    /// The language to write it in
    #[arg(long, value_enum)]
    pub lang: Language,
    /// The plugin's name, and the name of the folder that is made for it
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// What `build` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct BuildArgs {
    /// The plugin's folder, with its build.sh
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folder: PathBuf,
}

/// What `test` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct TestArgs {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    pub file: PathBuf,
    /// The samples, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub events: PathBuf,
    /// Settings as JSON, for samples without their own
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
    /// Print one JSON object per sample
    #[arg(long)]
    pub json: bool,
}

/// What `inspect` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct InspectArgs {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    pub file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A plugin.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct NameArgs {
    /// The plugin's name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// What `rollback` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct RollbackArgs {
    /// The plugin's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Take all roll-backs of this plugin back: the file in the plugins folder is used again
    #[arg(long)]
    pub undo: bool,
}

/// Runs one of them.
///
/// # Errors
/// [`Exit::Config`], after printing, where the settings are needed and wrong.
pub async fn plugin(
    path: Option<&std::path::Path>,
    command: &PluginCommand,
) -> Result<anyhow::Result<Exit>, Exit> {
    let config = || load_config(path);
    Ok(match command {
        PluginCommand::New(args) => new::new(args),
        PluginCommand::Build(args) => blocking(args, build::build).await,
        PluginCommand::Test(args) => blocking(args, tried::test).await,
        PluginCommand::Inspect(args) => blocking(args, tried::inspect).await,
        PluginCommand::Versions(args) => operate::versions(&config()?, args),
        PluginCommand::Rollback(args) => operate::rollback(&config()?, args),
        PluginCommand::Forget(args) => operate::forget(&config()?, args),
    })
}

/// Compiling and running components takes its time, on a thread that may wait.
async fn blocking<A: Clone + Send + 'static>(
    args: &A,
    work: fn(&A) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let args = args.clone();
    tokio::task::spawn_blocking(move || work(&args)).await?
}

/// The state folder of these settings.
fn state(config: &Config) -> anyhow::Result<&PathBuf> {
    config.plugin_host.state.as_ref().ok_or_else(|| {
        anyhow::anyhow!("no versions are kept: [plugin_host] state is \"off\" in these settings")
    })
}
