//! The tables of a source: their names as SQL, the frame of their migration, and what is said when they
//! do not fit. Pure.
//!
//! Used by the adapters, whose DDL is in `host/migrations`.

use super::StoreConfig;
use super::names::{COLUMNS, LATER_COLUMNS, TableName, literal, quoted};
use crate::event::Ordering;

/// The layout these tables have; recorded with the source.
const SCHEMA_VERSION: i32 = 1;

/// What every problem here is mended by.
const REMEDY: &str = "run `haulier migrate`";

/// The shard number of the one lease of a lane with `ordering = "total"`.
pub(super) const WHOLE_LANE: i32 = -1;

/// The names of a source's tables, as SQL.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) name: TableName,
    pub(super) events: String,
    pub(super) leases: String,
    pub(super) held_keys: String,
    pub(super) sources: String,
    pub(super) instances: String,
    pub(super) audit: String,
}

/// The DDL of one database, with places for names and expressions in braces.
pub(super) struct Templates {
    pub(super) side_tables: &'static str,
    pub(super) outbox: &'static str,
    /// For lanes that read a whole lane in id order.
    pub(super) lane_index: &'static str,
}

impl Tables {
    pub(super) fn new(table: &str) -> Result<Self, String> {
        let name = TableName::parse(table)?;
        Ok(Self {
            events: name.sql(),
            leases: name.sibling("haulier_lease"),
            held_keys: name.sibling("haulier_held_key"),
            sources: name.sibling("haulier_source"),
            instances: name.sibling("haulier_instance"),
            audit: name.sibling("haulier_audit"),
            name,
        })
    }

    /// An index of the outbox table, as SQL.
    pub(super) fn index(&self, suffix: &str) -> String {
        quoted(&self.name.index(suffix))
    }

    /// The tables beside the outbox.
    pub(super) fn side_tables(&self) -> [&String; 5] {
        [&self.sources, &self.leases, &self.held_keys, &self.instances, &self.audit]
    }

    /// The DDL of a source with its names in place, and its registration. `places` are the
    /// database's own.
    pub(super) fn migration(
        &self,
        config: &StoreConfig,
        templates: &Templates,
        places: &[(&str, &str)],
    ) -> String {
        let mut parts = vec![templates.side_tables, templates.outbox];
        if config.whole_lane_index {
            parts.push(templates.lane_index);
        }
        let mut sql = parts.join("\n");
        for (place, text) in places {
            sql = sql.replace(place, text);
        }
        for (place, name) in [
            ("{table}", &self.events),
            ("{table_text}", &literal(&self.events)),
            ("{leases}", &self.leases),
            ("{held_keys}", &self.held_keys),
            ("{sources}", &self.sources),
            ("{instances}", &self.instances),
            ("{audit}", &self.audit),
            ("{index_due}", &self.index("haulier_due")),
            ("{index_lane}", &self.index("haulier_lane")),
            ("{index_claims}", &self.index("haulier_claims")),
            ("{index_published}", &self.index("haulier_published")),
            ("{index_failed}", &self.index("haulier_failed")),
            ("{index_held_event}", &quoted("haulier_held_key_event")),
        ] {
            sql = sql.replace(place, name);
        }
        sql.push_str(&format!(
            "\nINSERT INTO {sources} (source, table_name, shards, schema_version)\nVALUES ({source}, {table}, {shards}, {SCHEMA_VERSION}) ON CONFLICT DO NOTHING;\n",
            sources = self.sources,
            source = literal(&config.source),
            table = literal(&self.events),
            shards = config.shards,
        ));
        sql
    }

    /// What is wrong with an outbox table that has these columns, if anything is.
    pub(super) fn misfit(&self, has: impl Fn(&str) -> bool) -> Option<String> {
        let missing: Vec<_> = COLUMNS.into_iter().filter(|name| !has(name)).collect();
        if !missing.is_empty() && missing.iter().all(|name| LATER_COLUMNS.contains(name)) {
            return Some(format!(
                "table {} is of an earlier version, it lacks {}: {REMEDY}",
                self.events,
                missing.join(", "),
            ));
        }
        (!missing.is_empty()).then(|| {
            format!(
                "table {} is not an outbox of Haulier, it lacks {}: name another table, or move this one away and {REMEDY}",
                self.events,
                missing.join(", "),
            )
        })
    }

    /// The source has no row in its registry.
    pub(super) fn unregistered(&self, source: &str) -> String {
        format!(
            "source '{source}' is not registered for table {}: {REMEDY}; if the source was renamed, change its name in {}, {} and {} as well",
            self.events, self.sources, self.leases, self.held_keys,
        )
    }

    /// `who` reads the whole lane, for which there is no index.
    pub(super) fn without_lane_index(&self, who: &str) -> String {
        format!(
            "{who} reads the whole lane, and table {} has no index for that: {REMEDY}",
            self.events
        )
    }
}

/// There is no such table.
pub(super) fn absent(table: &str) -> String {
    format!("there is no table {table}: {REMEDY}")
}

/// The shards of a lane's leases, of a source with so many.
pub(super) fn leased_shards(ordering: Ordering, shards: i32) -> Vec<i32> {
    match ordering {
        Ordering::Key => (0..shards).collect(),
        Ordering::Total => vec![WHOLE_LANE],
        Ordering::None => Vec::new(),
    }
}
