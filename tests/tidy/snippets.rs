//! README.md shows regions of the programs in `examples/insert` word for word.
//!
//! A region is what stands between the marks `snippet:start` and `snippet:end` of a file; several of
//! one file are shown as one, with their common indent removed. In README.md the comment
//! `<!-- snippet: examples/insert/go/main.go -->` stands on the line before the fenced block. With
//! `HAULIER_UPDATE=1` the test writes the blocks anew where the comments are.

use std::path::PathBuf;

use crate::root;

/// More than this is no longer read.
const MAX_LINES: usize = 20;

/// What a block shows.
struct Snippet {
    /// The file, from the root of the checkout.
    path: String,
    /// The word after the fence.
    language: &'static str,
    text: String,
}

impl Snippet {
    fn mark(&self) -> String {
        format!("<!-- snippet: {} -->\n", self.path)
    }

    fn block(&self) -> String {
        format!("```{}\n{}```\n", self.language, self.text)
    }

    /// The text with this block in place, or `None` when its comment or fence is not there.
    fn put(&self, readme: &str) -> Option<String> {
        let from = readme.find(&self.mark())? + self.mark().len();
        let old = readme[from..].strip_prefix("```")?;
        let to = from + 3 + old.find("\n```\n")? + 5;
        Some(format!("{}{}{}", &readme[..from], self.block(), &readme[to..]))
    }
}

/// The regions of a text, without their common indent.
fn regions(text: &str) -> String {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.trim_end().ends_with("snippet:start") {
            assert!(!inside, "a region begins in a region");
            inside = true;
        } else if line.trim_end().ends_with("snippet:end") {
            assert!(inside, "a region ends that has not begun");
            inside = false;
        } else if inside {
            lines.push(line);
        }
    }
    assert!(!inside, "a region does not end");
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let common =
        lines.iter().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or_default();
    lines.iter().map(|line| format!("{}\n", line.get(common..).unwrap_or_default())).collect()
}

fn snippets() -> Vec<Snippet> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("examples/insert"))
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let language = match file.extension().and_then(|extension| extension.to_str()) {
            Some("go") => "go",
            Some("java") => "java",
            Some("py") => "python",
            Some("rs") => "rust",
            Some("sql") => "sql",
            Some("ts") => "typescript",
            _ => continue,
        };
        let text = regions(&std::fs::read_to_string(&file).expect("text"));
        let path = file.strip_prefix(root()).expect("below the root").display().to_string();
        found.push(Snippet { path, language, text });
    }
    found
}

#[test]
fn the_readme_shows_the_examples_word_for_word() {
    let file = root().join("README.md");
    let before = std::fs::read_to_string(&file).expect("text");
    let snippets = snippets();
    assert_eq!(snippets.len(), 6, "a language has no program, or two");
    let mut readme = before.clone();
    let mut wrong = String::new();
    for snippet in &snippets {
        let lines = snippet.text.lines().count();
        assert!((1..=MAX_LINES).contains(&lines), "{}: {lines} lines are shown", snippet.path);
        match snippet.put(&readme) {
            Some(with) if with == readme => {}
            Some(with) if std::env::var_os("HAULIER_UPDATE").is_some() => readme = with,
            _ => wrong += &format!("\n{}{}", snippet.mark(), snippet.block()),
        }
    }
    if readme != before {
        std::fs::write(&file, &readme).expect("the README can be written");
    }
    assert!(
        wrong.is_empty(),
        "README.md does not show these as they are. Where the comments are there, HAULIER_UPDATE=1 \
         makes this test write the blocks; else paste them:\n{wrong}"
    );
}

#[test]
fn the_readme_names_no_file_that_is_gone() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("text");
    let known: Vec<String> = snippets().iter().map(Snippet::mark).collect();
    for line in readme.lines().filter(|line| line.starts_with("<!-- snippet:")) {
        assert!(known.contains(&format!("{line}\n")), "README.md: there is no such file: {line}");
    }
}

#[test]
fn a_block_is_replaced_and_nothing_else() {
    let text = regions(
        "a\n  // snippet:start\n  b {\n\n    c\n  // snippet:end\nd\n  // snippet:start\n  }\n  // snippet:end\n",
    );
    assert_eq!(text, "b {\n\n  c\n}\n");
    let snippet = Snippet { path: "x.go".to_owned(), language: "go", text };
    let readme = "one\n<!-- snippet: x.go -->\n```go\nold\n```\ntwo\n```\nthree\n```\n";
    let with = snippet.put(readme).expect("it is there");
    assert_eq!(
        with,
        "one\n<!-- snippet: x.go -->\n```go\nb {\n\n  c\n}\n```\ntwo\n```\nthree\n```\n"
    );
    assert_eq!(snippet.put(&with), Some(with), "twice is once");
    assert_eq!(snippet.put("one\n```go\nold\n```\n"), None);
}
