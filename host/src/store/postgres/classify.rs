//! What an error of PostgreSQL means for the caller: the one place that reads SQLSTATE codes.
//!
//! Asked by every call of this store that failed. Pure. Passing errors make the caller wait and ask
//! again, for a settle without end; so an error of the statement itself must never be taken for one.

use super::super::calls::Nature;

/// Sorts errors of the driver, and of the server by their code.
pub(super) fn nature(error: &sqlx::Error) -> Nature {
    use sqlx::Error as E;
    match error {
        E::Database(database) => by_code(&database.code().unwrap_or_default()),
        // A connection that could not be had, broke, was garbled, or began no transaction.
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
        // New to us, and so the driver's: what the server says comes as the first of these.
        _ => Nature::Passing,
    }
}

/// Sorts by SQLSTATE: single codes first, then classes (PostgreSQL's manual, appendix A). What is in
/// neither list is the statement's own fault.
fn by_code(code: &str) -> Nature {
    match code {
        // A schema, table, column, function, operator or type is not there or not of the type that
        // we made, or a unique index is missing: not migrated, or to another version.
        "3F000" | "42P01" | "42703" | "42883" | "42704" | "42804" | "42P10" => Nature::Schema,
        // A right is missing. Someone has to grant it, as with class 28, and the same statement
        // works then. To give up a settle would publish again what was acknowledged.
        "42501" => Nature::Passing,
        // Read-only: a standby, being promoted, or a database that someone has set so for a while.
        "25006" => Nature::Passing,
        // The connection came with an aborted transaction, or the server ended ours because it was
        // idle or took too long. The next try begins anew.
        "25P02" | "25P03" | "25P04" => Nature::Passing,
        // Not ready for connections, in use by someone who copies it, or locked.
        "55000" | "55006" | "55P03" => Nature::Passing,
        _ => by_class(code.get(..2).unwrap_or_default()),
    }
}

fn by_class(class: &str) -> Nature {
    match class {
        // 08: the connection, broken or garbled. 28: a password that is being changed. 3D: a database
        // that is not there, because it is being restored.
        "08" | "28" | "3D" => Nature::Passing,
        // Rolled back for the sake of another transaction: serialisation failure, deadlock, or a
        // completion that is unknown. Every call may be repeated.
        "40" => Nature::Passing,
        // Disk full, out of memory, too many connections.
        "53" => Nature::Passing,
        // An operator or a time-out has cancelled the statement; the server stops, starts or has
        // crashed; the database was dropped.
        "57" => Nature::Passing,
        // The server's own trouble: I/O, files of its configuration, an internal error, damaged data.
        // None of it is about what was sent.
        "58" | "F0" | "XX" => Nature::Passing,
        _ => Nature::Lasting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn all(codes: &[&str], wanted: Nature) {
        for code in codes {
            assert_eq!(by_code(code), wanted, "{code}");
        }
    }

    #[test]
    fn connections_that_break_or_are_refused_pass() {
        all(&["08000", "08001", "08003", "08004", "08006", "08007", "08P01"], Nature::Passing);
        all(&["28000", "28P01", "3D000", "42501"], Nature::Passing);
    }

    #[test]
    fn deadlocks_and_serialisation_failures_pass() {
        all(&["40000", "40001", "40002", "40003", "40P01", "55P03"], Nature::Passing);
    }

    #[test]
    fn a_server_that_is_full_stopped_or_ill_passes() {
        all(&["53000", "53100", "53200", "53300", "53400"], Nature::Passing);
        all(&["57000", "57014", "57P01", "57P02", "57P03", "57P04", "57P05"], Nature::Passing);
        all(&["58000", "58030", "58P01", "58P02", "58P03", "F0000", "F0001"], Nature::Passing);
        all(&["XX000", "XX001", "XX002", "55000", "55006"], Nature::Passing);
    }

    #[test]
    fn read_only_databases_and_ended_transactions_pass() {
        all(&["25006", "25P02", "25P03", "25P04"], Nature::Passing);
    }

    #[test]
    fn tables_that_are_missing_or_others_are_a_matter_of_the_schema() {
        all(&["3F000", "42P01", "42703", "42883", "42704", "42804", "42P10"], Nature::Schema);
    }

    #[test]
    fn what_is_wrong_with_the_statement_lasts() {
        // Not supported, data, constraints, transaction states of our own making, statement names
        // behind a pooler, syntax, limits, exceptions of triggers; and codes that nobody knows.
        all(
            &[
                "0A000", "21000", "22001", "22003", "22021", "22P02", "22P05", "23502", "23503",
                "23505", "23514", "25000", "25001", "25P01", "26000", "2D000", "34000", "42601",
                "42P05", "44000", "54000", "54001", "55P02", "P0001", "HV000", "ZZ999", "", "4",
            ],
            Nature::Lasting,
        );
    }

    #[test]
    fn errors_without_a_code_are_sorted_by_whose_they_are() {
        for error in [
            sqlx::Error::PoolTimedOut,
            sqlx::Error::PoolClosed,
            sqlx::Error::WorkerCrashed,
            sqlx::Error::BeginFailed,
            sqlx::Error::Protocol("x".into()),
            sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()),
        ] {
            assert_eq!(nature(&error), Nature::Passing, "{error}");
        }
        for error in [
            sqlx::Error::RowNotFound,
            sqlx::Error::ColumnNotFound("x".into()),
            sqlx::Error::Decode("x".into()),
            sqlx::Error::Encode("x".into()),
        ] {
            assert_eq!(nature(&error), Nature::Lasting, "{error}");
        }
    }
}
