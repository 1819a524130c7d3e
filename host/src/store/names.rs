//! Table names as people write them in config, the quoted names SQL needs, and an outbox's columns.
//!
//! Used by the adapters. Follows PostgreSQL's rules: an unquoted name is folded to lower case, a quoted
//! one is kept, `""` inside quotes is a quote. SQLite, where case does not matter, gets along with
//! them. Never sends anything.

/// Longest identifier PostgreSQL keeps (NAMEDATALEN - 1).
const MAX_IDENTIFIER_BYTES: usize = 63;

/// Columns the relay reads or writes; a table without one of them is not ours.
pub(super) const COLUMNS: [&str; 25] = [
    "id",
    "lane",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "partition_key",
    "topic",
    "headers",
    "payload",
    "available_at",
    "created_at",
    "status",
    "attempts",
    "published_at",
    "claim_owner",
    "claim_token",
    "claim_expires_at",
    "claim_losses",
    "last_error",
    "failure_kind",
    "failure_plugin",
    "failure_version",
    "failure_hash",
    "redelivery",
    "shard",
];

/// Those of them that tables of earlier versions lack; `migrate` adds them.
pub(super) const LATER_COLUMNS: [&str; 1] = ["redelivery"];

/// A table, perhaps with its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// A table under the name that a database gives it.
    pub(super) fn new(schema: Option<String>, table: String) -> Self {
        Self { schema, table }
    }

    /// Parses `outbox`, `app.outbox`, `"App"."Outbox"`.
    ///
    /// # Errors
    /// A text that says what is wrong with the name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = identifiers(text.trim())?;
        let table = parts.pop().ok_or_else(|| "a table name cannot be empty".to_owned())?;
        let schema = parts.pop();
        if !parts.is_empty() {
            return Err(format!("'{text}' has too many parts: write table or schema.table"));
        }
        Ok(Self { schema, table })
    }

    /// The schema, unquoted, if one was named.
    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The name as SQL.
    pub(super) fn sql(&self) -> String {
        self.sibling(&self.table)
    }

    /// The name as a person would write it: quoted only where it must be.
    pub(super) fn written(&self) -> String {
        let part = |name: &str| match plain_part(name, name) {
            Ok(folded) if folded == name && !name.is_empty() => folded,
            Ok(_) | Err(_) => quoted(name),
        };
        match &self.schema {
            Some(schema) => format!("{}.{}", part(schema), part(&self.table)),
            None => part(&self.table),
        }
    }

    /// Another table of the same schema, as SQL.
    pub(super) fn sibling(&self, table: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(table)),
            None => quoted(table),
        }
    }

    /// The name of an index on this table, unquoted: never schema-qualified, never too long.
    pub(super) fn index(&self, suffix: &str) -> String {
        let room = MAX_IDENTIFIER_BYTES - suffix.len() - 1;
        let mut end = self.table.len().min(room);
        while !self.table.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}_{suffix}", &self.table[..end])
    }
}

/// `name` as a quoted identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a quoted literal.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

fn identifiers(text: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = if let Some(inside) = rest.strip_prefix('"') {
            quoted_part(inside)
                .ok_or_else(|| format!("'{text}' opens a quote that it does not close"))?
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            (plain_part(&rest[..end], text)?, &rest[end..])
        };
        if part.is_empty() || part.contains('\0') || part.len() > MAX_IDENTIFIER_BYTES {
            return Err(format!("'{text}' has a part that is empty or longer than 63 bytes"));
        }
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(parts),
            None => return Err(format!("'{text}' goes on after a closing quote")),
        }
    }
}

fn quoted_part(inside: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = inside;
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, rest)),
        }
    }
}

fn plain_part(part: &str, text: &str) -> Result<String, String> {
    let legal = part.chars().enumerate().all(|(at, c)| {
        c == '_' || c.is_alphabetic() || (at > 0 && (c.is_ascii_digit() || c == '$'))
    });
    if legal {
        Ok(part.to_lowercase())
    } else {
        Err(format!("'{text}' must be quoted as SQL does it: \"{}\"", part.replace('"', "\"\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> Result<String, String> {
        TableName::parse(text).map(|name| name.sql())
    }

    #[test]
    fn names_follow_the_rules_of_sql() {
        assert_eq!(sql("Outbox").unwrap(), r#""outbox""#);
        assert_eq!(sql("app.Outbox").unwrap(), r#""app"."outbox""#);
        assert_eq!(sql(r#""App"."Out.Box""#).unwrap(), r#""App"."Out.Box""#);
        assert_eq!(sql(r#""a""b""#).unwrap(), r#""a""b""#);
        assert_eq!(sql("order").unwrap(), r#""order""#);
    }

    #[test]
    fn a_bad_name_says_what_is_wrong() {
        for wrong in ["", ".", "a.", "a.b.c", "\"a", "\"a\"b", "a-b", "1a", "a b", "a;drop"] {
            assert!(sql(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_quoted_only_where_they_must_be() {
        for text in ["outbox", "app.outbox", r#""App".outbox"#, r#""a""b""#, r#""1.a""#, "order"] {
            assert_eq!(TableName::parse(text).unwrap().written(), text);
        }
    }

    #[test]
    fn index_names_fit() {
        let name = TableName::parse(&"é".repeat(31)).unwrap();
        assert!(name.index("haulier_due").len() <= MAX_IDENTIFIER_BYTES);
    }

    #[test]
    fn literals_cannot_be_left() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\'b"), r"E'a\\''b'");
    }
}
