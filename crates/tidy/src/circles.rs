//! The check for import cycles between the files of a crate.
//!
//! A file uses another where its code (not its tests) names an item of it, by an import or by a path. An item that a
//! third file re-exports belongs to the file that defines it: re-exports, like `mod` declarations, are not uses.

use crate::lexer;
use crate::tree::{self, Module};
use std::collections::{BTreeMap, BTreeSet};

/// A path from the root of a crate, such as `["serve", "connection"]`.
type Segments = Vec<String>;

/// One name that a `use` declaration imports.
#[derive(Debug, PartialEq)]
struct Import {
    path: Segments,
    name: String,
    exported: bool,
}

/// One file with its declarations and imports.
struct File<'m> {
    module: &'m Module,
    path: Segments,
    imports: Vec<Import>,
    defined: BTreeSet<&'m str>,
}

/// The files of one crate by module path.
type Crate<'m> = BTreeMap<Segments, File<'m>>;

fn module_path(file: &str) -> Option<Segments> {
    let inside = file.split_once("/src/")?.1.strip_suffix(".rs")?;
    let mut path: Segments = inside.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    Some(path)
}

/// The absolute path of a path in code; `None` if it leads out of the crate.
fn absolute(written: &[&str], at: &Segments, here: &File<'_>, all: &Crate<'_>) -> Option<Segments> {
    let mut path = at.clone();
    let mut rest = written;
    match *written.first()? {
        "crate" => path.clear(),
        "self" => {}
        "super" => {
            path.pop();
            while rest.get(1) == Some(&"super") {
                path.pop();
                rest = &rest[1..];
            }
        }
        first => {
            let import = here.imports.iter().find(|import| import.name == first);
            let child: Segments = at.iter().cloned().chain([first.to_owned()]).collect();
            match import {
                Some(import) => path = import.path.clone(),
                None if all.contains_key(&child) => path = child,
                None => return None,
            }
        }
    }
    path.extend(rest[1..].iter().map(|part| (*part).to_owned()));
    Some(path)
}

/// The file that defines the item of a path.
fn defining<'f>(path: &[String], all: &'f Crate<'f>, depth: usize) -> Option<&'f File<'f>> {
    let length = (0..=path.len()).rev().find(|length| all.contains_key(&path[..*length]))?;
    let file = &all[&path[..length]];
    let Some(name) = path.get(length) else { return Some(file) };
    if depth == 0 || file.defined.contains(name.as_str()) {
        return Some(file);
    }
    let exports = file.imports.iter().filter(|import| import.exported);
    let named = exports.clone().find(|import| import.name == *name).map(|import| import.path.clone());
    let globs = exports.filter(|import| import.name == "*").map(|import| {
        let of = &import.path[..import.path.len() - 1];
        of.iter().cloned().chain([name.clone()]).collect::<Segments>()
    });
    for origin in named.into_iter().chain(globs) {
        let whole: Segments = origin.into_iter().chain(path[length + 1..].iter().cloned()).collect();
        match defining(&whole, all, depth - 1) {
            Some(found) if found.defined.contains(whole.last().unwrap_or(name).as_str()) => {
                return Some(found);
            }
            Some(found) if found.path != file.path => return Some(found),
            _ => {}
        }
    }
    Some(file)
}

/// The names of items that a file defines.
fn defined(code: &str) -> BTreeSet<&str> {
    const KEYWORDS: &[&str] = &["struct", "enum", "fn", "trait", "type", "const", "static", "macro_rules"];
    let words: Vec<_> = lexer::words(code).map(|(_, word)| word).collect();
    words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0])).map(|pair| pair[1]).collect()
}

/// The `use` declarations of a file, with the positions that they take.
fn declarations(code: &str) -> Vec<(std::ops::Range<usize>, Vec<(Vec<&str>, &str)>, bool)> {
    let mut found = Vec::new();
    for (at, word) in lexer::words(code).filter(|(_, word)| *word == "use") {
        let line = &code[code[..at].rfind('\n').map_or(0, |it| it + 1)..at];
        let visible = line.trim();
        if !(visible.is_empty() || visible.starts_with("pub")) {
            continue;
        }
        let start = at + word.len();
        let Some(end) = code[start..].find(';').map(|it| it + start) else { continue };
        let mut leaves = Vec::new();
        expand(&code[start..end], &mut Vec::new(), &mut leaves);
        found.push((at..end, leaves, visible.starts_with("pub")));
    }
    found
}

/// Expands the braces of an import.
fn expand<'c>(tree: &'c str, before: &mut Vec<&'c str>, leaves: &mut Vec<(Vec<&'c str>, &'c str)>) {
    let tree = tree.trim().trim_start_matches("::");
    if let Some(open) = tree.find('{') {
        let depth = before.len();
        before.extend(tree[..open].split("::").map(str::trim).filter(|part| !part.is_empty()));
        let inside = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or_default();
        let (mut level, mut start) = (0, 0);
        for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
            match c {
                '{' => level += 1,
                '}' => level -= 1,
                ',' if level == 0 => {
                    expand(&inside[start..at], before, leaves);
                    start = at + 1;
                }
                _ => {}
            }
        }
        before.truncate(depth);
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut parts: Vec<_> = before.iter().copied().chain(path.split("::").map(str::trim)).collect();
    if parts.last() == Some(&"self") {
        parts.pop();
    }
    let name = if alias.is_empty() { parts.last().copied().unwrap_or_default() } else { alias.trim() };
    leaves.push((parts, name));
}

/// The crate's files with their imports, whose paths may begin with what other imports bring in.
fn read(name: &str) -> Crate<'static> {
    let modules = tree::modules().values().filter(|module| module.krate == name && !module.test);
    let mut all: Crate<'static> = BTreeMap::new();
    for module in modules {
        let Some(path) = module_path(&module.path) else { continue };
        let file = File { module, path: path.clone(), imports: Vec::new(), defined: defined(&module.code) };
        all.insert(path, file);
    }
    let paths: Vec<Segments> = all.keys().cloned().collect();
    for path in paths {
        let mut imports = Vec::new();
        for (_, leaves, exported) in declarations(&all[&path].module.code) {
            for (parts, name) in leaves {
                if let Some(whole) = absolute(&parts, &path, &all[&path], &all) {
                    imports.push(Import { path: whole, name: name.to_owned(), exported });
                }
            }
        }
        if let Some(file) = all.get_mut(&path) {
            file.imports = imports;
        }
    }
    all
}

/// The paths that code names outside of imports: words joined by `::`.
fn named_paths(code: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut end = 0;
    for (at, word) in lexer::words(code) {
        if at > 0 && at == end + 2 && &code[end..at] == "::" {
            if let Some(path) = found.last_mut() {
                path.push(word);
            }
        } else {
            found.push(vec![word]);
        }
        end = at + word.len();
    }
    found.retain(|path| path.len() > 1);
    found
}

/// Which files a file uses.
fn uses(file: &File<'_>, all: &Crate<'_>) -> BTreeSet<Segments> {
    const DEPTH: usize = 8;
    let ranges: Vec<_> = declarations(&file.module.code).into_iter().map(|(range, ..)| range).collect();
    let code = lexer::blanked(&file.module.code, &ranges);
    let imported = file.imports.iter().filter(|import| !import.exported && !all.contains_key(&import.path));
    let imported = imported.map(|import| import.path.clone());
    let named = named_paths(&code);
    let named = named.iter().filter_map(|path| absolute(path, &file.path, file, all));
    let used = imported.chain(named).filter_map(|path| defining(&path, all, DEPTH)).map(|it| it.path.clone());
    used.filter(|path| *path != file.path).collect()
}

/// The sets of files that use each other, largest first.
fn circles(edges: &BTreeMap<Segments, BTreeSet<Segments>>) -> Vec<Vec<Segments>> {
    let reached = |from: &Segments| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(edges.get(at).into_iter().flatten().filter(|next| seen.insert((*next).clone())));
        }
        seen
    };
    let reach: BTreeMap<_, _> = edges.keys().map(|file| (file, reached(file))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for (file, reached) in &reach {
        let mutual = |other: &&Segments| reach.get(other).is_some_and(|back| back.contains(*file));
        let circle: Vec<Segments> = reached.iter().filter(mutual).cloned().collect();
        if circle.len() > 1 && done.insert(circle.clone()) {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

#[test]
fn no_circles_inside_crates() {
    let mut breaches = Vec::new();
    for name in tree::crates() {
        let all = read(&name);
        let edges: BTreeMap<_, _> = all.iter().map(|(path, file)| (path.clone(), uses(file, &all))).collect();
        let circles = circles(&edges);
        for circle in circles {
            let format_path =
                |path: &Segments| if path.is_empty() { "the root".to_owned() } else { path.join("::") };
            let inner: Vec<_> = circle
                .iter()
                .map(|file| {
                    let to: Vec<_> =
                        edges[file].iter().filter(|it| circle.contains(it)).map(format_path).collect();
                    format!("    {} uses {}", format_path(file), to.join(", "))
                })
                .collect();
            breaches.push(format!("{name}: {} files in a circle\n{}", circle.len(), inner.join("\n")));
        }
    }
    assert!(breaches.is_empty(), "{} circles:\n{}", breaches.len(), breaches.join("\n"));
}

#[test]
fn imports_are_taken_apart() {
    let code = "pub(crate) use a::{self, b::C, d::{E as F, g::*}};\nlet x = y;\n  use super::Z;";
    let found: Vec<_> =
        declarations(code).into_iter().map(|(_, leaves, exported)| (leaves, exported)).collect();
    let first = vec![
        (vec!["a"], "a"),
        (vec!["a", "b", "C"], "C"),
        (vec!["a", "d", "E"], "F"),
        (vec!["a", "d", "g", "*"], "*"),
    ];
    assert_eq!(found, [(first, true), (vec![(vec!["super", "Z"], "Z")], false)]);
    assert_eq!(named_paths("a::b::C(d, e::f) g"), [vec!["a", "b", "C"], vec!["e", "f"]]);
}

#[test]
fn mutual_users_are_a_circle() {
    let segments = |text: &str| vec![text.to_owned()];
    let edge = |from: &str, to: &[&str]| (segments(from), to.iter().map(|it| segments(it)).collect());
    let edges = [edge("a", &["b"]), edge("b", &["c"]), edge("c", &["a"]), edge("d", &["a"])];
    assert_eq!(circles(&edges.into_iter().collect()), [[segments("a"), segments("b"), segments("c")]]);
}
