//! The list of all cases, `docs/attacks.md`: each section has exactly the cases of its test.

use std::collections::BTreeSet;

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/attacks.md")).unwrap()
}

/// The cases of the section with this title.
fn listed<'a>(document: &'a str, title: &str) -> Vec<&'a str> {
    let section = document.split("\n## ").find(|it| it.lines().next() == Some(title)).unwrap_or("");
    section.lines().filter_map(|line| line.strip_prefix("- ")).filter(|it| !it.starts_with('`')).collect()
}

/// Fails unless the section with this title has these cases in this order.
pub fn check(title: &str, cases: &[&str]) {
    let document = document();
    let listed = listed(&document, title);
    let lines: String = cases.iter().map(|it| format!("- {it}\n")).collect();
    assert_eq!(listed, cases, "docs/attacks.md should have:\n## {title}\n\n{lines}");
}

#[test]
fn every_case_has_a_name_of_its_own() {
    let document = document();
    let titles = document.split("\n## ").skip(1).filter_map(|it| it.lines().next());
    let all: Vec<&str> = titles.flat_map(|title| listed(&document, title)).collect();
    let different: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(all.len(), different.len());
    assert!(all.len() >= 100, "{}", all.len());
}
