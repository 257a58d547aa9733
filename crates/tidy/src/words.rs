//! Banned words: a sentence or a name has a subject from the API, and a type is a noun.
//!
//! The words are counted per folder, in names and comments of Rust files and in documents. A folder that is not on the
//! list has none; a count on the list may only fall.

use crate::tree;

/// Words that stand for an unnamed subject or action.
const WORDS: &[&str] =
    &["anybody", "asked", "everybody", "everyone", "nobody", "somebody", "told", "whoever"];

/// Participles, adjectives and pronouns that are no names of types.
const TYPES: &[&str] = &[
    "About",
    "Absent",
    "Ambiguous",
    "Asked",
    "Complaints",
    "Counted",
    "Declares",
    "Deleted",
    "Demanded",
    "Disrupted",
    "Elsewhere",
    "Expected",
    "Found",
    "Given",
    "Joined",
    "Kept",
    "Known",
    "Late",
    "Made",
    "Meant",
    "Misfit",
    "Missing",
    "Named",
    "Oddities",
    "Oddity",
    "Past",
    "Published",
    "Quoted",
    "Recovered",
    "Related",
    "Retired",
    "Rounds",
    "Said",
    "Seen",
    "Shown",
    "Taken",
    "Terminating",
    "Told",
    "Tolerated",
    "Unfit",
    "Untyped",
    "Verified",
    "Wanted",
    "What",
    "Who",
    "Whom",
    "Whose",
];

/// Pronouns that are no subjects of functions.
const SUBJECTS: &[&str] = &["it_", "its_", "they_", "those_", "what_", "whatever_", "who_", "whose_"];

/// Names that were replaced by the field's words (see the glossary in `CONTRIBUTING.md` for those that stayed).
const NAMES: &[&str] = &[
    "FOR_EVER",
    "LITTLE",
    "Manner",
    "MetadataAgain",
    "PATIENCE",
    "Seldom",
    "StandIn",
    "Together",
    "Underway",
    "Undone",
    "WayOut",
    "go_shown",
    "invalid_shown",
];

/// Texts of upstream that have such words, and clients that compare them.
const UPSTREAM: &[&str] = &[
    "the server has asked for the client to provide credentials",
    "the server has received too many requests and has asked us to try again later",
];

/// Folders that still have such words, and how many.
const NOT_YET: &[(&str, usize)] = &[];

fn folders() -> Vec<String> {
    let crates = tree::crates().into_iter().map(|name| format!("crates/{name}"));
    crates.chain(["bench", "docs", "tests"].map(str::to_owned)).collect()
}

/// The breaches in one line of text.
fn breaches(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric();
    let is_upstream = UPSTREAM.iter().any(|text| line.contains(text));
    let words = line.split(move |c| !is_word(c)).filter(move |_| !is_upstream);
    let unnamed = words.filter(|word| WORDS.iter().any(|banned| word.eq_ignore_ascii_case(banned)));
    let replaced = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| NAMES.contains(name));
    let declared = ["struct ", "enum ", "type ", "trait "].into_iter().filter_map(move |keyword| {
        let (_, after) = line.split_once(keyword)?;
        let name = after.split(|c: char| !is_word(c)).next()?;
        let is_bad = name.strip_prefix("Bad").is_some_and(|rest| rest.starts_with(char::is_uppercase));
        (is_bad || TYPES.contains(&name)).then_some(name)
    });
    let function = line.split_once("fn ").and_then(|(_, after)| {
        let name = after.split(|c: char| !is_word(c) && c != '_').next()?;
        SUBJECTS.iter().any(|subject| name.starts_with(subject)).then_some(name)
    });
    unnamed.chain(replaced).chain(declared).chain(function)
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
                let formatted = found.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
                problems.push(format!("{folder}: {count} words, {allowed} are allowed:\n{formatted}"));
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
    assert_eq!(of("fn what_is_told() {} // Nobody knows"), ["told", "Nobody", "what_is_told"]);
    assert_eq!(of("pub async fn items_are_listed() {}"), [""; 0]);
    assert_eq!(of("pub struct BadTarget;"), ["BadTarget"]);
    assert_eq!(of("struct Badge;"), [""; 0]);
    assert_eq!(of("pub(crate) struct Wanted<'a> {"), ["Wanted"]);
    assert_eq!(of("struct WantedLevel; // a toldo is no word of these"), [""; 0]);
    assert_eq!(of("const PATIENCE: Duration = SHORT; let patience = 1;"), ["PATIENCE"]);
    assert_eq!(of(UPSTREAM[0]), [""; 0]);
}
