//! `haulier demo`: shows the main job, and says whether it was done.
//!
//! The last line on standard output is the verdict.

use std::io::Write as _;

use super::{DemoArgs, Exit};
use crate::demo::{self, DemoConfig};

/// Runs the demo.
///
/// # Errors
/// What could not be set up, or broke.
pub async fn demo(args: &DemoArgs) -> anyhow::Result<Exit> {
    let verdict = demo::run(&DemoConfig {
        events: args.events,
        keep: args.keep,
        postgres: args.postgres.as_ref().map(|url| url.expose().to_owned()),
        kafka: args.kafka.clone(),
        plugin: args.plugin.clone(),
    })
    .await?;
    writeln!(std::io::stdout(), "{verdict}")?;
    Ok(if verdict.is_clean() { Exit::Success } else { Exit::Failure })
}
