//! The command line: what can be asked, and how the process ends.
//!
//! `main` parses [`Args`], calls one command and exits with its [`Exit`]. The only place that knows
//! clap, and the only one that writes to standard output and error on purpose.

mod check;
mod demo;
mod health;
mod init;
mod migrate;
mod operate;
mod plan;
mod plugin;
mod reference;
mod routes;
mod run;
mod status;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};

use crate::config::{self, Config};
use crate::settings::{Problems, Secret};
use crate::store::PayloadType;

pub use self::check::{check, check_config};
pub use self::demo::demo;
pub use self::health::health;
pub use self::init::{Broker, Findings, Url, init, settings_text};
pub use self::migrate::migrate;
pub use self::operate::{
    AuditArgs, EventsCommand, KeysCommand, ReplayArgs, audit, events, keys, replay,
};
pub use self::plan::plan;
pub use self::plugin::{PluginCommand, plugin};
pub use self::reference::reference;
pub use self::routes::explain;
pub use self::run::run;
pub use self::status::status;

/// Haulier carries events from an application's outbox table to a broker.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "haulier", version, disable_help_subcommand = true)]
pub struct Args {
    /// The settings file; haulier.toml of the current folder if it is there
    #[arg(long, short, global = true, env = "HAULIER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Write settings for a database and a broker, from what is found there
    Init(InitArgs),
    /// Carry events until told to stop
    Run,
    /// Make or update the tables of the sources
    Migrate(MigrateArgs),
    /// Print what every key of the settings means, as Markdown
    Reference,
    /// Check the settings, and that what they name can be reached
    Check(CheckArgs),
    /// Write, build, try and roll back plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Show what the rules do with an event type
    #[command(subcommand)]
    Routes(RoutesCommand),
    /// Run the rules and plugins on rows that wait, and show what would be published; changes nothing
    Plan(PlanArgs),
    /// Look at events, retry and discard them
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at keys whose events wait, and let them go on
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Have published events, where they are kept, and failed ones published again
    Replay(ReplayArgs),
    /// Show who has changed what
    Audit(AuditArgs),
    /// Show how the sources stand: events, leases, instances, problems
    Status(StatusArgs),
    /// Show the main job on a shop's orders, and whether anything was lost; needs no settings
    Demo(DemoArgs),
    /// Ask the relay that runs with these settings whether it is ready
    Health(HealthArgs),
}

/// What `init` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct InitArgs {
    /// The database, postgres://… or sqlite:path; it is only read. A PostgreSQL URL is not written
    /// into the file, which refers to the variable in its place
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub database: Secret,
    /// The broker; its topics are only listed. Without it, records go to standard output
    #[arg(long, value_name = "HOST:PORT,…")]
    pub kafka: Option<String>,
    /// The file to write; the one that --config names, or haulier.toml, if left out
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// Print the settings in place of writing a file
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub stdout: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser that can fail")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// What `migrate` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct MigrateArgs {
    /// Print the SQL and change nothing
    #[arg(long)]
    pub print: bool,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Type of the payload column, in place of the one in the settings
    #[arg(long, value_name = "TYPE", value_enum)]
    pub payload_type: Option<PayloadType>,
}

/// What `check` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct CheckArgs {
    /// Look at the settings only: neither database nor broker
    #[arg(long)]
    pub offline: bool,
}

/// What `demo` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct DemoArgs {
    /// Events to commit
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = event_count)]
    pub events: usize,
    /// Leave the database, the settings, the logs and the topics as they are in the end
    #[arg(long)]
    pub keep: bool,
    /// Use this PostgreSQL, in a schema of the demo's own, in place of an SQLite file
    #[arg(long, value_name = "URL", value_parser = secret)]
    pub postgres: Option<Secret>,
    /// Use the Kafka at this address, with topics of the demo's own, in place of one in the process
    #[arg(long, value_name = "HOST:PORT")]
    pub kafka: Option<String>,
    /// The example plugin's file
    #[arg(long, value_name = "FILE")]
    pub plugin: Option<PathBuf>,
}

/// A sensible number of events.
fn event_count(text: &str) -> Result<usize, String> {
    const MOST: usize = 10_000_000;
    match text.parse() {
        Ok(events @ 1..=MOST) => Ok(events),
        _ => Err(format!("write a number from 1 to {MOST}")),
    }
}

/// What `health` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct HealthArgs {
    /// Ask only whether its loops are alive, whatever database and broker do
    #[arg(long)]
    pub live: bool,
}

/// What can be asked of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum RoutesCommand {
    /// Show where an event type goes, and why
    Explain(ExplainArgs),
}

/// What `routes explain` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct ExplainArgs {
    /// The event type
    #[arg(value_name = "EVENT_TYPE")]
    pub event_type: String,
    /// The topic that the row itself names, if it does
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
}

/// What `plan` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct PlanArgs {
    /// Take the rows that wait in the sources' databases
    #[arg(long, required = true)]
    pub from_db: bool,
    /// Most rows of each lane
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub limit: u16,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Only this lane
    #[arg(long, value_name = "NAME")]
    pub lane: Option<String>,
    /// Print one JSON object per event
    #[arg(long)]
    pub json: bool,
}

/// What `status` is told.
#[derive(Debug, Clone, PartialEq, Eq, Arguments)]
pub struct StatusArgs {
    /// Print one JSON document on one line
    #[arg(long)]
    pub json: bool,
    /// Look again and again, with this pause, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch: Option<u64>,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
}

impl ValueEnum for PayloadType {
    fn value_variants<'a>() -> &'a [Self] {
        const VARIANTS: [PayloadType; 4] =
            [PayloadType::Json, PayloadType::Jsonb, PayloadType::Text, PayloadType::Bytea];
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let named = Self::ALL.into_iter().find(|(_, known)| known == self);
        named.map(|(name, _)| clap::builder::PossibleValue::new(name))
    }
}

/// How the process ends. The numbers are those of `sysexits.h` where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Success = 0,
    /// Something failed while running.
    Failure = 1,
    /// The command line cannot be read; clap exits with this itself.
    Usage = 2,
    /// A database, a broker, a file or a running relay that is needed is not there or not well.
    Unavailable = 69,
    /// The settings are wrong; starting again does not help.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The process's environment, without variables that are not UTF-8.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Loads the settings for a command; prints warnings on standard error, and all problems if there
/// is one that stops the start.
///
/// # Errors
/// [`Exit::Config`], after printing.
pub fn load_config(path: Option<&Path>) -> Result<Config, Exit> {
    let loaded = config::load(path, environment());
    let problems = match &loaded {
        Ok(config) => &config.warnings,
        Err(problems) => problems,
    };
    // Where standard error is closed there is nobody to tell; the exit code still says it.
    let _ = print_problems(problems, &mut io::stderr().lock());
    loaded.map_err(|_| Exit::Config)
}

/// Says on standard error what went wrong.
pub fn complain(what: impl std::fmt::Display) {
    // Where standard error is closed there is nobody to tell; the exit code still says it.
    let _ = writeln!(io::stderr(), "haulier: {what}");
}

/// Writes every problem on a line of its own, then how many there are.
///
/// # Errors
/// What `to` says.
pub fn print_problems(problems: &Problems, to: &mut impl Write) -> io::Result<()> {
    for problem in problems.iter() {
        writeln!(to, "{problem}")?;
    }
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    };
    let errors = counted(problems.errors(), "error");
    let warnings = counted(problems.warnings(), "warning");
    let both: Vec<_> = errors.into_iter().chain(warnings).collect();
    match both.as_slice() {
        [] => Ok(()),
        both => writeln!(to, "haulier: {} in the settings", both.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::settings::{Place, Problem};

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn commands_are_understood() {
        let args = parse("haulier run --config a/b.toml").unwrap();
        assert_eq!(args.config, Some("a/b.toml".into()));
        assert_eq!(args.command, Command::Run);
        let args = parse("haulier migrate --print --source orders --payload-type jsonb").unwrap();
        let migrate = MigrateArgs {
            print: true,
            source: Some("orders".into()),
            payload_type: Some(PayloadType::Jsonb),
        };
        assert_eq!(args.command, Command::Migrate(migrate));
        let args = parse("haulier check --offline").unwrap();
        assert_eq!(args.command, Command::Check(CheckArgs { offline: true }));
        let args = parse("haulier health --live").unwrap();
        assert_eq!(args.command, Command::Health(HealthArgs { live: true }));
        let Command::Init(init) =
            parse("haulier init --database sqlite:MARKER.db --kafka a:1,b:2").unwrap().command
        else {
            panic!("not init");
        };
        assert_eq!(init.database.expose(), "sqlite:MARKER.db");
        assert_eq!(init.kafka.as_deref(), Some("a:1,b:2"));
        assert!(!format!("{init:?}").contains("MARKER"));
        let watched = |line: &str| match parse(line).unwrap().command {
            Command::Status(status) => (status.watch, status.json),
            other => panic!("{other:?}"),
        };
        assert_eq!(watched("haulier status"), (None, false));
        assert_eq!(watched("haulier status --watch --json"), (Some(2), true));
        assert_eq!(watched("haulier status --watch 10"), (Some(10), false));
        for wrong in [
            "haulier status --watch 0",
            "haulier",
            "haulier fly",
            "haulier migrate --payload-type xml",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.exit_code(), i32::from(Exit::Usage as u8), "{wrong}");
        }
    }

    #[test]
    fn problems_are_all_printed_and_counted() {
        let place = || Place::Variable("HAULIER__X".into());
        let problems = Problems::new(vec![
            Problem::error(place(), "x", "one"),
            Problem::error(place(), "y", "two"),
            Problem::warning(place(), "z", "three"),
        ]);
        let mut printed = Vec::new();
        print_problems(&problems, &mut printed).unwrap();
        assert_eq!(
            String::from_utf8(printed).unwrap(),
            "HAULIER__X: x: one\nHAULIER__X: y: two\nHAULIER__X: warning: z: three\n\
             haulier: 2 errors and 1 warning in the settings\n"
        );
        let mut printed = Vec::new();
        print_problems(&Problems::new(Vec::new()), &mut printed).unwrap();
        assert!(printed.is_empty());
    }
}
