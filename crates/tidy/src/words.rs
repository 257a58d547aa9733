//! Words that hide who does what: a sentence or a name has a subject from the API, and a type is a noun.
//!
//! The words are counted per folder, in names and comments of Rust files and in documents. A folder that is not on the
//! list has none; a count on the list may only fall.

use crate::tree;

/// Words that stand for an unnamed subject.
const WORDS: &[&str] = &["anybody", "nobody", "somebody", "told", "whoever"];

/// Participles that are no names of types.
const TYPES: &[&str] = &[
    "Asked", "Demanded", "Found", "Given", "Kept", "Known", "Made", "Meant", "Said", "Seen", "Shown",
    "Taken", "Told", "Wanted",
];

/// Folders that still have such words, and how many.
const NOT_YET: &[(&str, usize)] = &[
    ("crates/apiserver", 513),
    ("crates/auth", 3),
    ("crates/cache", 7),
    ("crates/cel", 1),
    ("crates/client", 1),
    ("crates/flowcontrol", 2),
    ("crates/kinds", 3),
    ("crates/merge", 1),
    ("crates/pintle", 10),
    ("crates/rest", 2),
    ("crates/schema", 1),
    ("crates/store", 33),
    ("crates/store-etcd", 15),
    ("crates/tidy", 6),
    ("bench", 35),
    ("docs", 71),
    ("tests", 557),
];

fn folders() -> Vec<String> {
    let crates = tree::crates().into_iter().map(|name| format!("crates/{name}"));
    crates.chain(["bench", "docs", "tests"].map(str::to_owned)).collect()
}

/// The breaches in one line of text.
fn breaches(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric();
    let words = line.split(move |c| !is_word(c));
    let unnamed = words.filter(|word| WORDS.iter().any(|banned| word.eq_ignore_ascii_case(banned)));
    let declared = ["struct ", "enum ", "type ", "trait "].into_iter().filter_map(move |keyword| {
        let (_, after) = line.split_once(keyword)?;
        let name = after.split(|c: char| !is_word(c)).next()?;
        TYPES.contains(&name).then_some(name)
    });
    unnamed.chain(declared)
}

#[test]
fn names_and_sentences_have_subjects() {
    let mut problems = Vec::new();
    for folder in folders() {
        let files = tree::files(&folder);
        let texts = files.iter().filter(|path| path.ends_with(".rs") || path.ends_with(".md"));
        let mut found = Vec::new();
        for path in texts.filter(|path| !path.ends_with("tidy/src/words.rs")) {
            for (number, line) in tree::text(path).lines().enumerate() {
                found.extend(breaches(line).map(|word| format!("  {path}:{}: {word}", number + 1)));
            }
        }
        let allowed = NOT_YET.iter().find(|(name, _)| *name == folder).map_or(0, |(_, count)| *count);
        match found.len() {
            count if count > allowed => {
                let shown = found.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
                problems.push(format!("{folder}: {count} words, {allowed} are allowed:\n{shown}"));
            }
            count if count < allowed => {
                problems.push(format!("{folder}: {count} words are left; lower its count"))
            }
            _ => (),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn words_are_found_in_names_and_comments() {
    let of = |line| breaches(line).collect::<Vec<_>>();
    assert_eq!(of("fn what_is_told() {} // Nobody knows"), ["told", "Nobody"]);
    assert_eq!(of("pub(crate) struct Wanted<'a> {"), ["Wanted"]);
    assert_eq!(of("struct WantedLevel; // a toldo is no word of these"), [""; 0]);
}
