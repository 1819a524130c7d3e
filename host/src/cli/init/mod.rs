//! `haulier init`: writes settings for a database and a broker, from what is found there.
//!
//! Changes nothing but the file it writes, and shows no password. What to write is decided in
//! `suggest` and put into words in `render`; both are pure.

mod render;
mod suggest;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;

use super::{Exit, InitArgs, complain, print_problems};
use crate::config::{self, DEFAULT_FILE};
use crate::sink::kafka;
use crate::store::{self, Database, Survey, SurveyError};
use crate::words::chain;

/// The variable that the settings take the database's URL from.
const VARIABLE: &str = "DATABASE_URL";

/// What is known before anything is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// How the settings name the database.
    pub url: Url,
    /// What is in it.
    pub survey: Survey,
    /// The broker, if one was named.
    pub broker: Option<Broker>,
}

/// How the settings name the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Url {
    /// By the variable [`VARIABLE`].
    Variable,
    /// As it is: a path is no secret.
    Written(String),
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// `host:port`, with commas between several.
    pub servers: String,
    /// Its topics with their partitions; `None` if it did not answer.
    pub topics: Option<Vec<(String, usize)>>,
}

/// The settings that are suggested for these findings.
///
/// # Errors
/// None: writing to a text cannot fail.
pub fn settings_text(findings: &Findings) -> Result<String, std::fmt::Error> {
    render::settings(findings, &suggest::plan(findings))
}

/// The whole command. `config` is the file that the other commands would read.
///
/// # Errors
/// When the file cannot be written or standard output is closed.
pub async fn init(config: Option<&Path>, args: &InitArgs) -> anyhow::Result<Exit> {
    let file = args.output.as_deref().or(config).unwrap_or(Path::new(DEFAULT_FILE));
    if !args.stdout && !args.force && file.symlink_metadata().is_ok() {
        complain(format!(
            "{} is there already: name another file with --output, or replace it with --force",
            file.display()
        ));
        return Ok(Exit::Failure);
    }
    let url = args.database.expose();
    let survey = match store::survey(url, Path::new("")).await {
        Ok(survey) => survey,
        Err(error) => {
            complain(chain(&error));
            return Ok(match error {
                SurveyError::Url(_) => Exit::Usage,
                SurveyError::Unavailable(_) => Exit::Unavailable,
            });
        }
    };
    let folder = if args.stdout { Path::new("") } else { file.parent().unwrap_or(Path::new("")) };
    let findings = Findings {
        url: written_url(url, folder).map_err(anyhow::Error::msg)?,
        survey,
        broker: match &args.kafka {
            Some(servers) => Some(ask(servers).await),
            None => None,
        },
    };
    let plan = suggest::plan(&findings);
    let text = render::settings(&findings, &plan)?;
    if let Err(problems) = checked(&text, file, url) {
        let _ = print_problems(&problems, &mut io::stderr().lock());
        complain("no settings were written, since they would not be valid");
        return Ok(Exit::Failure);
    }
    let exported = std::env::var(VARIABLE).is_ok_and(|value| value == url);
    if args.stdout {
        io::stdout().write_all(text.as_bytes())?;
        io::stderr().write_all(render::summary(&findings, &plan, None, exported)?.as_bytes())?;
        return Ok(Exit::Success);
    }
    write(file, &text, args).with_context(|| format!("{} cannot be written", file.display()))?;
    let summary = render::summary(&findings, &plan, Some(file), exported)?;
    io::stdout().write_all(summary.as_bytes())?;
    Ok(Exit::Success)
}

/// How the settings in `folder` name the database that `url` names here.
fn written_url(url: &str, folder: &Path) -> Result<Url, String> {
    match Database::of(url)? {
        Database::Postgres => Ok(Url::Variable),
        Database::Sqlite if folder.as_os_str().is_empty() => Ok(Url::Written(url.to_owned())),
        // A relative path would start at that folder.
        database @ Database::Sqlite => Ok(Url::Written(database.anchored(url)?)),
    }
}

async fn ask(servers: &str) -> Broker {
    let topics = match kafka::known_topics(servers).await {
        Ok(topics) => Some(topics),
        Err(failure) => {
            complain(format!("{failure}; routes are suggested without knowing its topics"));
            None
        }
    };
    Broker { servers: servers.to_owned(), topics }
}

/// Reads the settings as the other commands will.
fn checked(text: &str, file: &Path, url: &str) -> Result<(), crate::settings::Problems> {
    let environment = BTreeMap::from([(VARIABLE.to_owned(), url.to_owned())]);
    config::check_text(text, file, environment).map(drop)
}

fn write(file: &Path, text: &str, args: &InitArgs) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if args.force {
        options.create(true).truncate(true);
    } else {
        // Somebody may have made it meanwhile.
        options.create_new(true);
    }
    options.open(file)?.write_all(text.as_bytes())
}
