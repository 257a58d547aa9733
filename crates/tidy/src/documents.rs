//! The checks of documents: every link has a target, and texts mention only the project.

use std::collections::BTreeSet;

use crate::tree;

fn documents() -> Vec<String> {
    let mut found: Vec<_> = tree::files("").into_iter().filter(|path| path.ends_with(".md")).collect();
    found.retain(|path| !path.starts_with("crates/"));
    found
}

/// Targets of a document's links within the repository, as paths from its root, with their lines.
fn links(path: &str, text: &str) -> Vec<(usize, String)> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number + 1, joined(folder, target)));
            }
        }
    }
    found
}

fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    for path in documents() {
        for (line, target) in links(&path, &tree::text(&path)) {
            if !tree::root().join(&target).exists() {
                dead.push(format!("{path}:{line}: there is no {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

#[test]
fn every_document_is_linked() {
    let all = documents();
    let targets: BTreeSet<String> = all
        .iter()
        .flat_map(|path| links(path, &tree::text(path)).into_iter().filter(move |(_, it)| it != path))
        .map(|(_, target)| target)
        .collect();
    // a link to a folder shows its README, as every viewer does
    let is_linked_folder =
        |path: &str| path.strip_suffix("/README.md").is_some_and(|folder| targets.contains(folder));
    let lost =
        tree::files("docs").into_iter().filter(|path| !targets.contains(path) && !is_linked_folder(path));
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "nothing links to\n{}", lost.join("\n"));
}

#[test]
fn texts_speak_of_the_project_alone() {
    // put together here, so that this file does not find itself
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("this ses", "sion"),
        concat!("language ", "model"),
    ];
    let mut breaches = Vec::new();
    for path in tree::files("").into_iter().filter(|path| path != "Cargo.lock") {
        for (at, line) in tree::text(&path).lines().enumerate() {
            let line = line.to_lowercase();
            let found = banned.iter().filter(|word| names_it(&line, word));
            breaches.extend(found.map(|word| format!("{path}:{}: says {word:?}", at + 1)));
        }
    }
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

/// Whether a line has the word, not as the end of a longer path or name.
fn names_it(line: &str, word: &str) -> bool {
    let fresh = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
    line.match_indices(word).any(|(at, _)| fresh(at))
}

#[test]
fn links_are_found() {
    let text = "see [a](b.md#c) and [d](../E.md), [web](https://x)\n```\n[no](no.md)\n```\n![p](p.svg)";
    let found: Vec<_> = links("docs/x.md", text).into_iter().map(|(_, target)| target).collect();
    assert_eq!(found, ["docs/b.md", "E.md", "docs/p.svg"]);
    assert!(names_it("in /a/ here", "/a/") && !names_it("x/a/", "/a/"));
}
