//! What is wrong with a configuration, where, and what was probably meant.
//!
//! Everything that reads settings reports through [`Problem`]; the command line prints them. A
//! problem never holds a secret's value.

use std::fmt;
use std::sync::Arc;

/// Whether the relay may start all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It may not.
    Error,
    /// It may, but somebody should look.
    Warning,
}

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file, counted from 1; columns are characters.
    Position {
        /// The file as it was named.
        file: Arc<str>,
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// In a file as a whole, or in the environment as a whole.
    Document(Arc<str>),
    /// In an environment variable of that name.
    Variable(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Document(name) | Self::Variable(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether it stops the start.
    pub severity: Severity,
    /// Where it was written.
    pub place: Place,
    /// Which setting, such as `sinks.main.bootstrap_servers`; empty where none can be named.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl Problem {
    /// Something that stops the start.
    pub fn error(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            place,
            path: path.into(),
            message: message.into(),
            suggestion: None,
        }
    }

    /// Something that somebody should look at.
    pub fn warning(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, path, message) }
    }

    /// The same problem with what was probably meant, if that is known.
    pub fn suggesting(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(str::to_owned);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong, in the order of the file, then by variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts `problems` by where they are.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|left, right| left.place.cmp(&right.place));
        Self(problems)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many stop the start.
    pub fn errors(&self) -> usize {
        self.0.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// How many only ask for a look.
    pub fn warnings(&self) -> usize {
        self.0.len() - self.errors()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_place_path_message_and_suggestion() {
        let place = Place::Position { file: "haulier.toml".into(), line: 12, column: 3 };
        let problem = Problem::error(place, "sinks.main.bootstrap_server", "unknown key")
            .suggesting(Some("bootstrap_servers"));
        assert_eq!(
            problem.to_string(),
            "haulier.toml:12:3: sinks.main.bootstrap_server: unknown key; \
             did you mean 'bootstrap_servers'?"
        );
        let place = Place::Variable("HAULIER__X".into());
        let warning = Problem::warning(place, "", "odd");
        assert_eq!(warning.to_string(), "HAULIER__X: warning: odd");
    }
}
