//! `docs/spec.md` and these tests say the same.

use std::collections::BTreeSet;
use std::path::Path;

/// `module::test` of every test in this folder.
fn written() -> BTreeSet<String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/spec"));
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line != "#[test]" && !line.starts_with("#[tokio::test") {
                continue;
            }
            let function = lines.next().unwrap().trim_start_matches("async ").trim_start_matches("fn ");
            found.insert(format!("{module}::{}", function.split('(').next().unwrap()));
        }
    }
    found
}

/// `module::test` of every test that the map names.
fn named() -> BTreeSet<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/spec.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let name = |part: &&str| {
        let fits = |half: &str| {
            !half.is_empty()
                && half.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        part.split_once("::").is_some_and(|(module, test)| fits(module) && fits(test))
    };
    quoted.filter(name).map(str::to_owned).collect()
}

#[test]
fn the_map_is_complete_and_true() {
    let (written, named) = (written(), named());
    let difference =
        |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    assert_eq!(difference(&named, &written), Vec::<String>::new(), "named in docs/spec.md but not there");
    assert_eq!(difference(&written, &named), Vec::<String>::new(), "there but not named in docs/spec.md");
    assert!(written.len() > 200);
}
