//! `haulier events`, `keys`, `replay` and `audit`: what operators do about events that are stuck.
//!
//! Needs the settings and the database, and no running instance. What it makes due, a relay publishes. The
//! admin port does the same over HTTP.

mod args;
mod text;

use std::io::{self, Write as _};

use serde_json::{Value, json};

pub use self::args::{AuditArgs, EventsCommand, KeysCommand, ReplayArgs};
use self::args::{ChangeArgs, ListArgs, OrderArgs, ShowArgs, SourceArg};
use super::{Exit, complain};
use crate::app;
use crate::config::Config;
use crate::event::EventId;
use crate::operations::{self, Action, Done, Filter, Mode, OperationError, Operator, Order, Scope};
use crate::store::StoreError;
use crate::words::chain;

/// Does what is asked about events.
///
/// # Errors
/// When a source cannot be set up, or standard output is closed.
pub async fn events(config: &Config, command: &EventsCommand) -> anyhow::Result<Exit> {
    match command {
        EventsCommand::List(args) => {
            with(config, &args.source, async |at| list(at, args).await).await
        }
        EventsCommand::Show(args) => {
            with(config, &args.source, async |at| show(at, args).await).await
        }
        EventsCommand::Retry(args) => change(config, args, Action::Retry).await,
        EventsCommand::Discard(args) => change(config, args, Action::Discard).await,
    }
}

/// Does what is asked about held keys.
///
/// # Errors
/// As [`events`].
pub async fn keys(config: &Config, command: &KeysCommand) -> anyhow::Result<Exit> {
    match command {
        KeysCommand::List(args) => {
            with(config, &args.which.source, async |at| {
                let filter = args.which.filter(None);
                let held = at.held_keys(&filter, None, args.limit.into()).await?;
                let whole: Vec<Value> = held.iter().map(operations::held_key).collect();
                print(args.json, &json!({ "source": &*at.source, "keys": whole }), || {
                    text::keys(&held, args.limit.into())
                })
            })
            .await
        }
        KeysCommand::Release(args) => {
            let filter = args.which.filter(args.one.as_ref());
            carry(config, &args.which.source, filter, Action::Release, &args.order).await
        }
    }
}

/// Has events published again.
///
/// # Errors
/// As [`events`].
pub async fn replay(config: &Config, args: &ReplayArgs) -> anyhow::Result<Exit> {
    let (filter, action) = (args.filter.filter(), Action::Replay(args.rate));
    carry(config, &args.source, filter, action, &args.order).await
}

/// Shows who has changed what.
///
/// # Errors
/// As [`events`].
pub async fn audit(config: &Config, args: &AuditArgs) -> anyhow::Result<Exit> {
    with(config, &args.source, async |at| {
        let records = at.audits(args.limit.into()).await?;
        let whole: Vec<Value> = records.iter().map(operations::audited).collect();
        print(args.json, &json!({ "source": &*at.source, "audit": whole }), || {
            text::audit(&records)
        })
    })
    .await
}

async fn list(at: &Operator, args: &ListArgs) -> Result<(), Trouble> {
    let limit = usize::from(args.limit);
    let seen = at.events(&args.filter.filter(), EventId(args.after), limit).await?;
    let next = seen.last().filter(|_| seen.len() >= limit).map(|event| event.id.0);
    let whole: Vec<Value> = seen.iter().map(operations::event).collect();
    let document = json!({ "source": &*at.source, "events": whole, "next": next });
    print(args.json, &document, || text::events(&seen, next))
}

async fn show(at: &Operator, args: &ShowArgs) -> Result<(), Trouble> {
    let Some(event) = at.event(EventId(args.id)).await? else {
        let text = format!("there is no event {} in source '{}'", args.id, at.source);
        return Err(Trouble::Other(anyhow::anyhow!(text)));
    };
    if args.payload {
        let mut out = io::stdout().lock();
        out.write_all(event.payload.as_deref().unwrap_or_default())?;
        return Ok(out.flush()?);
    }
    print(args.json, &operations::whole(&event), || text::event(&event))
}

async fn change(config: &Config, args: &ChangeArgs, action: Action) -> anyhow::Result<Exit> {
    carry(config, &args.source, args.filter.filter(), action, &args.order).await
}

async fn carry(
    config: &Config,
    source: &SourceArg,
    filter: Filter,
    action: Action,
    args: &OrderArgs,
) -> anyhow::Result<Exit> {
    let order = Order {
        action,
        filter,
        scope: if args.all { Scope::All } else { Scope::Filtered },
        mode: if args.dry_run { Mode::DryRun } else { Mode::Carry },
        actor: args.by.clone(),
        via: "cli",
        note: args.note.clone(),
    };
    with(config, source, async |at| {
        let done: Done = at.carry_out(&order).await?;
        print(args.json, &done.json(), || text::done(action, &done))?;
        // Who names events wants all of them changed.
        if !order.filter.id.is_empty() && !done.left.is_empty() {
            return Err(Trouble::Left);
        }
        Ok(())
    })
    .await
}

/// What ends a command.
enum Trouble {
    Operation(OperationError),
    /// Some of what was named was left as it is, which was said.
    Left,
    Other(anyhow::Error),
}

impl From<OperationError> for Trouble {
    fn from(error: OperationError) -> Self {
        Self::Operation(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

/// Runs something with the source that is meant, and says how it went.
async fn with(
    config: &Config,
    source: &SourceArg,
    work: impl AsyncFnOnce(&Operator) -> Result<(), Trouble>,
) -> anyhow::Result<Exit> {
    let sources = app::sources(config)?;
    let operations = app::operations(&sources);
    let done = match operations.source(source.source.as_deref()) {
        Ok(operator) => work(&operator).await,
        Err(misuse) => Err(OperationError::from(misuse).into()),
    };
    for source in sources {
        source.store.close().await;
    }
    match done {
        Ok(()) => Ok(Exit::Success),
        Err(Trouble::Operation(OperationError::Misuse(misuse))) => {
            complain(misuse);
            Ok(Exit::Usage)
        }
        Err(Trouble::Operation(OperationError::Store(error))) => {
            complain(chain(&error));
            let away = matches!(error, StoreError::Unavailable { .. });
            Ok(if away { Exit::Unavailable } else { Exit::Failure })
        }
        Err(Trouble::Left) => Ok(Exit::Failure),
        Err(Trouble::Other(error)) => Err(error),
    }
}

fn print(json: bool, document: &Value, text: impl FnOnce() -> String) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{document}")?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(out.flush()?)
}
