//! `haulier reference`: prints what every key of the settings means.
//!
//! Needs no settings and reads none.

use std::io::{self, Write as _};

use super::Exit;
use crate::config;

/// Prints the reference as Markdown.
///
/// # Errors
/// When standard output is closed.
pub fn reference() -> anyhow::Result<Exit> {
    io::stdout().write_all(config::reference().as_bytes())?;
    Ok(Exit::Success)
}
