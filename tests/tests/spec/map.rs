//! The check that `docs/spec.md` and these tests agree.

use std::collections::BTreeSet;
use std::path::Path;

/// Name prefixes of tests, and the folders of their modules.
const FOLDERS: [(&str, &str); 3] = [("", "spec"), ("attacks::", "attacks"), ("controllers::", "controllers")];

/// `module::test` of every test, with the prefix of its folder.
fn written() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (prefix, folder) in FOLDERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let module = path.file_stem().unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(tests_in(&text).map(|test| format!("{prefix}{module}::{test}")));
        }
    }
    found
}

/// Names of the test functions in a source file.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let is_test = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
    let pairs = text.lines().zip(text.lines().skip(1));
    let functions = pairs.filter(move |(line, _)| is_test(line)).map(|(_, function)| function);
    functions.map(|it| it.trim_start_matches("async ").trim_start_matches("fn ").split('(').next().unwrap())
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
        let folder = ["attacks::", "controllers::"].into_iter().find_map(|it| part.strip_prefix(it));
        let part = folder.unwrap_or(part);
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
    assert!(written.len() > 700, "{}", written.len());
}
