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
    kept: Option<(Received, String)>,
}

impl Fault {
    /// As the environment says.
    pub(super) fn from_environment() -> Self {
        let kind = std::env::vars_os().find(|(name, _)| name == "HAULIER_DEMO_FAULT");
        let kind = kind.map(|(_, kind)| kind.to_string_lossy().into_owned());
        Self { kind, count: 0, kept: None }
    }

    /// What the ledger gets in place of `received`, a record with this key.
    pub(super) fn apply(&mut self, received: Received, key: &str) -> Vec<Received> {
        // Records of one key of this topic are of one ordering key.
        self.count += usize::from(received.topic == 0);
        let hit = received.topic == 0 && self.count == VICTIM;
        match self.kind.as_deref() {
            Some("lose") if hit => Vec::new(),
            Some("double") if hit => vec![received, received],
            Some("reorder") if hit => {
                self.kept = Some((received, key.to_owned()));
                Vec::new()
            }
            // The next of its key passes it.
            Some("reorder")
                if self
                    .kept
                    .as_ref()
                    .is_some_and(|(kept, of)| kept.topic == received.topic && of == key) =>
            {
                let kept = self.kept.take().map(|(kept, _)| kept);
                [Some(received), kept].into_iter().flatten().collect()
            }
            _ => vec![received],
        }
    }
}
