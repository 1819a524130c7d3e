//! What an error of SQLite means for the caller: the one place that reads its result codes.
//!
//! Asked by every call of this store that failed. Pure. Passing errors make the caller wait and ask
//! again, for a settle without end; so an error of the statement itself must never be taken for one.

use super::super::calls::Nature;

/// Primary result codes (<https://www.sqlite.org/rescode.html>).
mod code {
    pub(super) const ERROR: i32 = 1;
    pub(super) const INTERNAL: i32 = 2;
    pub(super) const PERM: i32 = 3;
    pub(super) const ABORT: i32 = 4;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const NOMEM: i32 = 7;
    pub(super) const READONLY: i32 = 8;
    pub(super) const INTERRUPT: i32 = 9;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const PROTOCOL: i32 = 15;
    pub(super) const SCHEMA: i32 = 17;
    pub(super) const NOTADB: i32 = 26;
}

/// What SQLite says, under its general code, of tables that are not as we made them.
const MISSING: [&str; 3] = ["no such table", "no such column", "no such index"];

/// The primary result code of an error of SQLite itself.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let sqlx::Error::Database(database) = error else { return None };
    let extended: i32 = database.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// Whether somebody else has the file at this moment.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(code::BUSY | code::LOCKED))
}

/// Sorts errors of the driver, and of SQLite by their code.
pub(super) fn nature(error: &sqlx::Error) -> Nature {
    use sqlx::Error as E;
    match error {
        E::Database(database) => {
            by_code(primary_code(error).unwrap_or_default(), database.message())
        }
        // A connection that could not be had or broke, or began no transaction.
        E::Io(_)
        | E::Tls(_)
        | E::Protocol(_)
        | E::PoolTimedOut
        | E::PoolClosed
        | E::WorkerCrashed
        | E::BeginFailed => Nature::Passing,
        // Settings, values and columns that the next try would find just so.
        E::Configuration(_)
        | E::ConfigFile(_)
        | E::InvalidArgument(_)
        | E::RowNotFound
        | E::TypeNotFound { .. }
        | E::ColumnIndexOutOfBounds { .. }
        | E::ColumnNotFound(_)
        | E::ColumnDecode { .. }
        | E::Encode(_)
        | E::Decode(_)
        | E::AnyDriverError(_)
        | E::Migrate(_)
        | E::InvalidSavePointStatement => Nature::Lasting,
        // New to us, and so the driver's: what SQLite says comes as the first of these.
        _ => Nature::Passing,
    }
}

/// Sorts by primary result code. What is not in the list (too big, a constraint, a mismatch of types,
/// misuse, a parameter out of range) is the statement's own fault.
fn by_code(code: i32, message: &str) -> Nature {
    match code {
        code::ERROR if MISSING.iter().any(|text| message.contains(text)) => Nature::Schema,
        // Somebody else writes, has locked the file or has rolled us back; the schema changed while
        // the statement was being prepared; an operator interrupted it.
        code::BUSY
        | code::LOCKED
        | code::ABORT
        | code::PROTOCOL
        | code::SCHEMA
        | code::INTERRUPT => Nature::Passing,
        // The file cannot be opened, read or written at present: rights, a read-only or full disk, a
        // disk that fails. Someone has to mend that, and the same statement works then.
        code::CANTOPEN | code::PERM | code::READONLY | code::FULL | code::IOERR | code::NOMEM => {
            Nature::Passing
        }
        // The file is damaged or being replaced, or SQLite itself is at fault. None of it is about
        // what was sent.
        code::CORRUPT | code::NOTADB | code::INTERNAL => Nature::Passing,
        _ => Nature::Lasting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_primary_code_has_its_nature() {
        // As in SQLite's list, 1 to 26, without what is never an error.
        for (number, name, wanted) in [
            (1, "ERROR", Nature::Lasting),
            (2, "INTERNAL", Nature::Passing),
            (3, "PERM", Nature::Passing),
            (4, "ABORT", Nature::Passing),
            (5, "BUSY", Nature::Passing),
            (6, "LOCKED", Nature::Passing),
            (7, "NOMEM", Nature::Passing),
            (8, "READONLY", Nature::Passing),
            (9, "INTERRUPT", Nature::Passing),
            (10, "IOERR", Nature::Passing),
            (11, "CORRUPT", Nature::Passing),
            (12, "NOTFOUND", Nature::Lasting),
            (13, "FULL", Nature::Passing),
            (14, "CANTOPEN", Nature::Passing),
            (15, "PROTOCOL", Nature::Passing),
            (16, "EMPTY", Nature::Lasting),
            (17, "SCHEMA", Nature::Passing),
            (18, "TOOBIG", Nature::Lasting),
            (19, "CONSTRAINT", Nature::Lasting),
            (20, "MISMATCH", Nature::Lasting),
            (21, "MISUSE", Nature::Lasting),
            (22, "NOLFS", Nature::Lasting),
            (23, "AUTH", Nature::Lasting),
            (24, "FORMAT", Nature::Lasting),
            (25, "RANGE", Nature::Lasting),
            (26, "NOTADB", Nature::Passing),
        ] {
            assert_eq!(by_code(number, "x"), wanted, "{name}");
        }
    }

    #[test]
    fn a_missing_table_is_a_matter_of_the_schema() {
        for text in ["no such table: outbox", "no such column: lane", "no such index: x"] {
            assert_eq!(by_code(code::ERROR, text), Nature::Schema, "{text}");
        }
        assert_eq!(by_code(19, "no such table"), Nature::Lasting, "a constraint of that name");
    }
}
