//! Faults on purpose, for the tests of the demo's verdict; not compiled into what users get.
//!
//! Between the consumer and the ledger it loses, doubles or reorders a record, as the variable
//! `HAULIER_DEMO_FAULT` says. Compiled only with the feature `demo-faults`, which the tests ask for.

use super::ledger::Received;

/// The record that is hit.
const VICTIM: usize = 100;

/// What happens to records on their way.
pub(super) struct Fault {
    kind: Option<String>,
    count: usize,
    kept: Option<Received>,
}

impl Fault {
    /// As the environment says.
    pub(super) fn from_environment() -> Self {
        let kind = std::env::vars_os().find(|(name, _)| name == "HAULIER_DEMO_FAULT");
        let kind = kind.map(|(_, kind)| kind.to_string_lossy().into_owned());
        Self { kind, count: 0, kept: None }
    }

    /// What the ledger gets in place of `received`.
    pub(super) fn apply(&mut self, received: Received) -> Vec<Received> {
        self.count += 1;
        let hit = self.count == VICTIM;
        match (self.kind.as_deref(), hit) {
            (Some("lose"), true) => Vec::new(),
            (Some("double"), true) => vec![received, received],
            (Some("reorder"), true) => {
                self.kept = Some(received);
                Vec::new()
            }
            // Held back long enough for younger ones of its key to pass.
            (Some("reorder"), false) if self.count == VICTIM * 20 => {
                [Some(received), self.kept.take()].into_iter().flatten().collect()
            }
            _ => vec![received],
        }
    }
}
