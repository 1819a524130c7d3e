//! The routes folder: files that hold `[[routes]]` and nothing else.
//!
//! Read at the start and whenever the folder changes. A file that cannot be read keeps the rules that it
//! had before; where there were none, everything that would have come to it waits, since it might have
//! gone anywhere. The files before it are not touched by that.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::load::read;
use super::routes::{self, ROUTE_FILE};
use crate::routing::Route;
use crate::settings::{Document, Problems, Settings};

/// The routes of a folder, file by file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteFiles {
    files: BTreeMap<String, Vec<Route>>,
    /// What makes events wait, one line each.
    pub troubles: Vec<String>,
    /// What is wrong with files whose earlier rules go on, one line each.
    pub notes: Vec<String>,
    /// What deserves a look, one line each.
    pub warnings: Vec<String>,
}

/// Stands for the files of a folder that cannot be read; no file has that name.
const UNREADABLE: &str = "";

fn blocks(routes: &[Route]) -> bool {
    routes.iter().any(|route| route.blocked.is_some())
}

impl RouteFiles {
    /// Whether something in it lets events wait.
    fn is_blocked(&self) -> bool {
        self.files.values().any(|routes| blocks(routes))
    }

    /// All routes, in the order of the files' names.
    pub fn routes(&self) -> impl Iterator<Item = Route> + '_ {
        self.files.values().flatten().cloned()
    }
}

/// Reads the folder; one that is not there holds no files. `before` is what it held when it was last read;
/// files that are named in `moving` are being written, or replaced, and count as they were.
pub fn read_route_files(
    folder: &Path,
    before: &RouteFiles,
    moving: &BTreeSet<String>,
) -> RouteFiles {
    let mut names = match names(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound && before.files.is_empty() => {
            Vec::new()
        }
        Err(error) if before.files.is_empty() => {
            let why = format!("the routes folder {} cannot be read: {error}", folder.display());
            let trouble =
                format!("{why}; events that no route of the settings takes wait until it can be");
            let block = vec![Route::blocking(folder.display().to_string(), why)];
            return RouteFiles {
                files: BTreeMap::from([(UNREADABLE.to_owned(), block)]),
                troubles: vec![trouble],
                ..RouteFiles::default()
            };
        }
        Err(error) => {
            // A share that is away for a moment must not change a rule.
            let trouble = format!(
                "the routes folder {} cannot be read: {error}; its rules stay as they are",
                folder.display()
            );
            return RouteFiles {
                files: before.files.clone(),
                notes: if before.is_blocked() { Vec::new() } else { vec![trouble] },
                troubles: before.troubles.clone(),
                ..RouteFiles::default()
            };
        }
    };
    let mut found = RouteFiles::default();
    names.extend(moving.iter().filter(|name| before.files.contains_key(*name)).cloned());
    for name in names {
        if moving.contains(&name) {
            if let Some(routes) = before.files.get(&name) {
                found.files.insert(name, routes.clone());
            }
            continue;
        }
        let path = folder.join(&name);
        let routes = match read_file(&path) {
            Ok((routes, warnings)) => {
                found.warnings.extend(warnings);
                routes
            }
            Err(problems) => {
                let why = problems.join("; ");
                match before.files.get(&name).filter(|routes| !blocks(routes)) {
                    Some(routes) => {
                        found.notes.push(format!("{why}; the file's earlier rules go on"));
                        routes.clone()
                    }
                    None => {
                        let waits = format!(
                            "{why}; events that no earlier route takes wait until the file is mended \
                             or removed"
                        );
                        found.troubles.push(waits);
                        vec![Route::blocking(path.display().to_string(), why)]
                    }
                }
            }
        };
        found.files.insert(name, routes);
    }
    found
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What cannot be looked at is a file that cannot be read, which is reported.
        let is_other = || std::fs::metadata(entry.path()).is_ok_and(|found| !found.is_file());
        if name.ends_with(ROUTE_FILE) && !name.starts_with('.') && !is_other() {
            names.push(name);
        }
    }
    Ok(names)
}

fn read_file(path: &Path) -> Result<(Vec<Route>, Vec<String>), Vec<String>> {
    let name = path.display().to_string();
    let text = read(path).map_err(|error| vec![format!("{name}: {}", error.message)])?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let document = Document { name: &name, folder, text: &text };
    let settings = Settings::new(Some(document), BTreeMap::new());
    let root = settings.root();
    let routes = routes::read(root.table_list("routes"));
    root.finish();
    let problems = Problems::new(settings.into_problems());
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if problems.errors() > 0 {
        return Err(lines);
    }
    Ok((routes.iter().cloned().collect(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("haulier-routes-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.join(name), text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn topic(topic: &str) -> String {
        format!("[[routes]]\nevent_type = \"*\"\ntopic = \"{topic}\"\n")
    }

    fn read(folder: &Path, before: &RouteFiles) -> RouteFiles {
        read_route_files(folder, before, &BTreeSet::new())
    }

    fn blocked(files: &RouteFiles) -> Vec<bool> {
        files.routes().map(|route| route.blocked.is_some()).collect()
    }

    #[test]
    fn a_bad_file_keeps_its_rules_or_holds_what_comes_to_it() {
        let folder = Folder::new();
        let nothing = RouteFiles::default();
        assert_eq!(read(&folder.0.join("none"), &nothing), nothing);

        folder.write("b.toml", &topic("b"));
        folder.write("a.toml", &topic("a"));
        folder.write("notes.txt", "x");
        folder.write(".hidden.toml", "x");
        let good = read(&folder.0, &nothing);
        assert_eq!((good.routes().count(), good.troubles.len()), (2, 0));
        assert!(good.routes().next().unwrap().place.ends_with("a.toml:2:14: routes[0]"));

        folder.write("b.toml", "[[routes]]\nevent_typ = \"x\"\n");
        let kept = read(&folder.0, &good);
        assert_eq!(blocked(&kept), [false, false]);
        let [note] = &kept.notes[..] else { panic!("{:?}", kept.notes) };
        assert!(note.contains("b.toml:2:1: routes[0].event_typ: unknown key"), "{note}");
        let fresh = read(&folder.0, &nothing);
        assert_eq!(blocked(&fresh), [false, true]);
        // It stays a trouble until the file is mended.
        let again = read(&folder.0, &fresh);
        assert_eq!(
            (blocked(&again), again.troubles.len(), again.notes.len()),
            (vec![false, true], 1, 0)
        );

        // Files that are being written, or are away for a moment, count as they were.
        folder.write("b.toml", "");
        std::fs::remove_file(folder.0.join("a.toml")).unwrap();
        let moving =
            BTreeSet::from(["a.toml".to_owned(), "b.toml".to_owned(), "new.toml".to_owned()]);
        assert_eq!(read_route_files(&folder.0, &good, &moving), good);
        folder.write("a.toml", &topic("a"));

        let away = read(&folder.0.join("none"), &good);
        assert_eq!((away.routes().count(), away.notes.len()), (2, 1));
        // A folder that cannot be read, and never could: nobody knows what it would have said.
        let no_folder = read(&folder.0.join("a.toml"), &nothing);
        assert_eq!((blocked(&no_folder), no_folder.troubles.len()), (vec![true], 1));
        let still = read(&folder.0.join("a.toml"), &no_folder);
        assert_eq!((blocked(&still), still.troubles.len(), still.notes.len()), (vec![true], 1, 0));
    }

    #[test]
    fn only_routes_may_be_in_a_route_file() {
        let folder =
            Folder(std::env::temp_dir().join(format!("haulier-route-only-{}", std::process::id())));
        std::fs::create_dir_all(&folder.0).unwrap();
        folder.write("a.toml", "[sources.x]\nurl = \"postgres://u:MARKER@h/d\"\n");
        let found = read(&folder.0, &RouteFiles::default());
        assert!(found.troubles[0].contains("unknown key"), "{:?}", found.troubles);
        assert!(!found.troubles[0].contains("MARKER"));
    }
}
