//! Reading settings: a TOML document, the environment laid over it, and secrets kept elsewhere.
//!
//! Components read their configuration from a [`Section`], by config's hand or their own. Every
//! getter that finds something wrong notes a [`Problem`] with its place and goes on with a
//! default, so that one look shows all mistakes; [`Settings::into_problems`] has them in the end.
//! Nothing here knows a single setting, and nothing here prints a secret's value.

mod describe;
mod overrides;
mod problem;
mod secret;
mod section;
mod tree;
mod units;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::describe::{DescribedKey, Description, Meaning, Unset};
pub use self::problem::{Place, Problem, Problems, Severity};
pub use self::secret::Secret;
pub use self::section::Section;

pub(crate) use self::units::show_duration;

use self::tree::{Node, Table, Value};

/// A settings file that has been read.
#[derive(Clone, Copy)]
pub struct Document<'a> {
    /// Its name for messages.
    pub name: &'a str,
    /// Its folder; relative paths in it start there.
    pub folder: &'a Path,
    /// Its text.
    pub text: &'a str,
}

/// Settings from a file, if there is one, and from the environment.
pub struct Settings {
    root: Node,
    context: Context,
}

/// What every section of the same settings shares.
struct Context {
    folder: PathBuf,
    environment: BTreeMap<String, String>,
    problems: RefCell<Vec<Problem>>,
    /// The lines that cannot be trusted, if the file is not valid TOML.
    damage: Option<RangeInclusive<usize>>,
    /// Where keys are described, if that is all that is wanted.
    notes: Option<describe::Notes>,
}

impl Settings {
    /// Whether `environment` holds a variable that is meant for settings.
    pub fn any_override(environment: &BTreeMap<String, String>) -> bool {
        environment.keys().any(|name| name.starts_with(overrides::PREFIX))
    }

    /// Parses `document` and lays the environment's overrides over it.
    pub fn new(document: Option<Document<'_>>, environment: BTreeMap<String, String>) -> Self {
        let name: Arc<str> = document.map_or("environment", |document| document.name).into();
        let (table, mut problems, damage) = match document {
            Some(document) => {
                let parsed = tree::parse(&name, document.text);
                (parsed.root, parsed.problems, parsed.damage)
            }
            None => (Table::default(), Vec::new(), None),
        };
        let mut root = Node { place: Place::Document(name), value: Value::Table(table) };
        overrides::apply(&mut root, &environment, &mut problems);
        let folder = document.map_or(Path::new(""), |document| document.folder);
        let context = Context {
            folder: folder.to_owned(),
            environment,
            problems: RefCell::new(problems),
            damage,
            notes: None,
        };
        Self { root, context }
    }

    /// The outermost section.
    pub fn root(&self) -> Section<'_> {
        Section::root(&self.context, &self.root)
    }

    /// Everything noted so far.
    pub fn into_problems(self) -> Vec<Problem> {
        self.context.problems.into_inner()
    }
}

impl Context {
    fn note(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Whether what stands at `place` may be the content of a broken string.
    fn doubtful(&self, place: &Place) -> bool {
        match (place, &self.damage) {
            (Place::Position { line, .. }, Some(damage)) => damage.contains(line),
            _ => false,
        }
    }

    /// Whether something may be missing only because the file is not valid TOML.
    fn damaged(&self) -> bool {
        self.damage.is_some()
    }
}
