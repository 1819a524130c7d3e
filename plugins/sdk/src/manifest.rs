//! Building a [`Manifest`]. `Plugin::manifest` does; nothing is checked here, the host does that when
//! it loads the file.

use crate::{Manifest, Needs};

impl Manifest {
    /// A plugin of this name and version that only routes lead to, and that reads neither payload
    /// nor headers nor attributes.
    ///
    /// The name is what routes and the configuration know the plugin by: 1 to 64 characters of
    /// `a-z`, `A-Z`, `0-9`, `-`, `_` and `.`, starting with a letter or a digit; no other plugin in
    /// the folder may have it. The version is free text of 1 to 64 printable characters.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            event_types: Vec::new(),
            needs: Needs::empty(),
        }
    }

    /// The event types handled when no route names a plugin: full names, or the start of one
    /// followed by `*` (`order.*`; `*` alone is every type). At most 1,000 of at most 255 bytes, none
    /// twice.
    #[must_use]
    pub fn event_types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.event_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The parts of an event to hand over, such as `Needs::PAYLOAD | Needs::HEADERS`. Each costs
    /// time (headers about 45 % of a call), and what is not named here arrives empty.
    #[must_use]
    pub fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }
}
