//! The repository's files: the modules of each crate, and which of them are tests.
//!
//! Modules are found the way the compiler finds them, from the roots of a crate along `mod` declarations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::lexer::{self, Views};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The names of the crates in `crates/`, sorted.
pub fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let folders = folders.filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut names: Vec<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files below a folder of the workspace, sorted, as paths from the root; build output left out.
pub fn files(folder: &str) -> Vec<String> {
    let (root, mut found, mut open) = (root(), Vec::new(), vec![root().join(folder)]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).filter(|it| of_ours(it)),
            );
        } else if path.exists() {
            found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"));
        }
    }
    found.sort();
    found
}

fn of_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !matches!(name, "target" | ".git" | "__pycache__")
}

/// The text of a file, by its path from the root; files that are not text are empty.
pub fn text(path: &str) -> String {
    String::from_utf8(fs::read(root().join(path)).unwrap()).unwrap_or_default()
}

/// A Rust file that belongs to a crate.
pub struct Module {
    /// From the root of the workspace.
    pub path: String,
    pub krate: String,
    /// Whether it is compiled for tests only.
    pub test: bool,
    pub source: String,
    /// The non-test parts: both views with test items blank.
    pub code: String,
    pub strings: String,
}

impl Module {
    /// `file:line` of a position.
    pub fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path, lexer::line(&self.source, at))
    }

    /// Positions of a piece of code that does not go on as a longer name on its left.
    pub fn uses<'a>(&'a self, piece: &'a str) -> impl Iterator<Item = usize> + 'a {
        let before = |at: usize| self.code[..at].chars().next_back();
        let positions = self.code.match_indices(piece).map(|(at, _)| at);
        positions.filter(move |at| !before(*at).is_some_and(|c| c.is_alphanumeric() || c == '_'))
    }
}

/// Every module of the crates, the benchmarks and the end-to-end tests, by path; read once for all rules.
pub fn modules() -> &'static BTreeMap<String, Module> {
    static MODULES: LazyLock<BTreeMap<String, Module>> = LazyLock::new(find_modules);
    &MODULES
}

fn find_modules() -> BTreeMap<String, Module> {
    let mut found = BTreeMap::new();
    for name in crates() {
        for start in ["src/lib.rs", "src/main.rs", "build.rs"] {
            follow(&name, format!("crates/{name}/{start}"), start == "build.rs", &mut found);
        }
        // tests that need the crate's own program
        let folder = format!("crates/{name}/tests");
        for path in files(&folder).into_iter().filter(|path| path.ends_with(".rs")) {
            follow(&name, path, true, &mut found);
        }
    }
    follow("bench", "bench/src/lib.rs".to_owned(), false, &mut found);
    for path in files("bench/src/bin").into_iter().filter(|path| path.ends_with(".rs")) {
        follow("bench", path, false, &mut found);
    }
    for path in files("tests").into_iter().filter(|path| is_root(path)) {
        follow("tests", path, true, &mut found);
    }
    found
}

/// Whether cargo takes a file of the end-to-end tests for a crate root.
fn is_root(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    match parts.as_slice() {
        ["tests", "src", "lib.rs" | "main.rs"] => true,
        ["tests", "tests" | "benches" | "examples", file] => file.ends_with(".rs"),
        _ => false,
    }
}

fn follow(krate: &str, start: String, test: bool, found: &mut BTreeMap<String, Module>) {
    let mut open = vec![(start, test, true)];
    while let Some((path, test, owns_folder)) = open.pop() {
        if found.contains_key(&path) || !root().join(&path).is_file() {
            continue;
        }
        let source = text(&path);
        let Views { code, strings } = lexer::split(&source);
        let tests = lexer::test_ranges(&code);
        let folder = folder_of(&path, owns_folder);
        for (name, at) in declared(&code) {
            let only_tests = test || tests.iter().any(|range| range.contains(&at));
            open.push((format!("{folder}/{name}.rs"), only_tests, false));
            open.push((format!("{folder}/{name}/mod.rs"), only_tests, true));
        }
        let (code, strings) = (lexer::blanked(&code, &tests), lexer::blanked(&strings, &tests));
        found.insert(path.clone(), Module { path, krate: krate.to_owned(), test, source, code, strings });
    }
}

/// The folder of the modules that a file declares.
fn folder_of(path: &str, owns_folder: bool) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap();
    match owns_folder {
        true => folder.to_owned(),
        false => format!("{folder}/{}", file.trim_end_matches(".rs")),
    }
}

/// The file modules that a file declares, as paths below its folder, with the positions of the declarations.
fn declared(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // the inline modules around the position, each with the depth of braces that it stands in
    let mut around: Vec<(&str, usize)> = Vec::new();
    let (mut depth, mut seen) = (0, 0);
    let mut names = lexer::words(code);
    while let Some((at, word)) = names.next() {
        for byte in code[seen..at].bytes() {
            depth += usize::from(byte == b'{');
            depth -= usize::from(byte == b'}').min(depth);
        }
        seen = at;
        around.retain(|(_, within)| *within < depth);
        if word != "mod" {
            continue;
        }
        let Some((start, name)) = names.next() else { break };
        match code[start + name.len()..].trim_start().as_bytes().first() {
            Some(b';') => {
                let folders = around.iter().map(|(folder, _)| *folder).chain([name]);
                found.push((folders.collect::<Vec<_>>().join("/"), at));
            }
            Some(b'{') => around.push((name, depth)),
            _ => {}
        }
    }
    found
}

mod tests {
    use super::*;

    #[test]
    fn declarations_are_followed_through_inline_modules() {
        let code = "mod a;\npub(crate) mod b { mod c; fn x() { } }\nmod d;";
        let names: Vec<_> = declared(code).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b/c", "d"]);
    }

    #[test]
    fn the_repository_is_found() {
        let modules = modules();
        let this = &modules["crates/tidy/src/tree.rs"];
        assert!(this.test && this.krate == "tidy");
        let lib = &modules["crates/names/src/lib.rs"];
        assert!(!lib.test && lib.source.contains("mod tests") && !lib.code.contains("mod tests"));
    }
}
