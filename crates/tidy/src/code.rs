//! The checks of Rust code: names of kinds and domains, clocks, file length.

use std::collections::BTreeSet;

use crate::lexer;
use crate::tree::{self, Module};

/// Every breach of a rule, as `file:line: what`.
type Breaches = Vec<String>;

fn assert_none(breaches: Breaches) {
    assert!(breaches.is_empty(), "{} breaches:\n{}", breaches.len(), breaches.join("\n"));
}

/// Exceptions to a rule: the file, what is allowed in it, why. Each must be needed.
type Exceptions = &'static [(&'static str, &'static str, &'static str)];

/// Removes excepted breaches; an unused exception is a breach too.
fn without(exceptions: Exceptions, found: Vec<(String, String, String)>) -> Breaches {
    let excepted = |path: &str, what: &str| exceptions.iter().any(|it| it.0 == path && it.1 == what);
    let idle =
        exceptions.iter().filter(|it| !found.iter().any(|(path, what, _)| path == it.0 && what == it.1));
    let idle = idle.map(|(path, what, _)| format!("{path}: {what} is excepted, but not there any more"));
    let rest = found.iter().filter(|(path, what, _)| !excepted(path, what));
    rest.map(|(_, what, place)| format!("{place}: {what}")).chain(idle).collect()
}

/// Crates that handle every kind alike.
const GENERIC: &[&str] = &["rest", "schema", "schema-lang", "tables", "merge"];

/// Kinds whose names are everyday words, which are also used as identifiers.
const EVERYDAY: &[&str] = &["Binding", "Event", "Job", "Namespace", "Node", "Role", "Scale", "Service"];

/// Kinds of later tables, so that their names cannot settle before they come.
const TO_COME: &[&str] = &[
    "APIService",
    "ClusterRole",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "Endpoints",
    "HorizontalPodAutoscaler",
    "Ingress",
    "Job",
    "LimitRange",
    "NetworkPolicy",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Service",
    "StatefulSet",
    "StorageClass",
];

const NAMED_KINDS: Exceptions = &[(
    "crates/rest/src/model/metadata.rs",
    "Event",
    "no object of any kind may have an event for its owner",
)];

/// The kinds that the tables declare, without those that belong to every API.
fn kinds() -> BTreeSet<String> {
    let tables = tree::files("crates/api");
    let tables = tables.iter().filter(|path| path.ends_with(".api") && !path.contains("/meta/"));
    let texts: Vec<_> = tables.map(|path| tree::text(path)).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("kind "));
    let declared =
        lines.filter_map(|line| line.split_whitespace().next()).filter(|it| !it.ends_with("Options"));
    declared.chain(TO_COME.iter().copied()).map(str::to_owned).collect()
}

#[test]
fn generic_crates_name_no_kind() {
    let kinds = kinds();
    assert!(kinds.contains("Pod") && kinds.contains("Deployment") && kinds.len() > 30, "{kinds:?}");
    let mut found = Vec::new();
    for (path, module) in tree::modules() {
        if module.test || !GENERIC.contains(&module.krate.as_str()) {
            continue;
        }
        let in_code = lexer::words(&module.code).filter(|(_, word)| !EVERYDAY.contains(word));
        let named = in_code.chain(lexer::words(&module.strings)).filter(|(_, word)| kinds.contains(*word));
        found.extend(named.map(|(at, word)| (path.clone(), word.to_owned(), module.place(at))));
    }
    assert_none(without(NAMED_KINDS, found));
}

/// The files that may spell domains.
const SPELLS_DOMAINS: &str = "names";

const DOMAINS: Exceptions = &[];

#[test]
fn only_one_crate_spells_domains() {
    let mut found = Vec::new();
    for (path, module) in tree::modules() {
        if module.test || [SPELLS_DOMAINS, "proof", "tidy"].contains(&module.krate.as_str()) {
            continue;
        }
        for domain in ["k8s.io", "kubernetes.io"] {
            let spelled = module.strings.match_indices(domain);
            found.extend(spelled.map(|(at, _)| (path.clone(), domain.to_owned(), module.place(at))));
        }
    }
    for path in tree::files("crates").into_iter().filter(|path| path.ends_with(".api")) {
        for (at, line) in tree::text(&path).lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            if line.contains("k8s.io") || line.contains("kubernetes.io") {
                found.push((path.clone(), "a domain".to_owned(), format!("{path}:{}", at + 1)));
            }
        }
    }
    assert_none(without(DOMAINS, found));
}

/// Reads of the clock, timers, randomness or the environment.
const WORLDLY: &[&str] = &[
    "SystemTime::now",
    "Instant",
    "tokio::time",
    "thread::sleep",
    "UtcDateTime::now",
    "OffsetDateTime::now",
    "Utc::now",
    "Local::now",
    "thread_rng",
    "rand::",
    "fastrand::",
    "getrandom",
    "OsRng",
    "SystemRandom",
    "Uuid::new_v4",
    "env::var",
    "env::args",
    "env::temp_dir",
    "env::current_dir",
    "process::id",
    "KeyPair::generate",
];

/// The crates that provide the environment.
const HANDS_IN: &[&str] = &["pintle", "tests", "bench", "proof", "tidy", "testdata"];

/// The crate that wraps the clock and the timers of tokio.
const WRAPS_TOKIO: (&str, &[&str]) = ("env", &["Instant", "tokio::time"]);

#[test]
fn below_the_binary_nothing_reads_the_world() {
    let mut breaches = Breaches::new();
    for module in tree::modules().values().filter(|it| !it.test && !HANDS_IN.contains(&it.krate.as_str())) {
        let is_wrapped = |piece: &str| module.krate == WRAPS_TOKIO.0 && WRAPS_TOKIO.1.contains(&piece);
        for piece in WORLDLY.iter().filter(|piece| !is_wrapped(piece)) {
            breaches.extend(module.uses(piece).map(|at| format!("{}: {piece}", module.place(at))));
        }
        for at in grouped(&module.code, "tokio::{", "time").chain(grouped(&module.code, "std::{", "env")) {
            breaches.push(format!("{}: the clock or the environment, imported", module.place(at)));
        }
    }
    assert_none(breaches);
}

/// Positions of imports that begin with `opening` and have the word in their braces.
fn grouped<'a>(code: &'a str, opening: &'a str, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inside = move |at: usize| code[at + opening.len()..].split('}').next().unwrap_or_default();
    let imports = code.match_indices(opening).map(|(at, _)| at);
    imports.filter(move |at| lexer::words(inside(*at)).any(|(_, word)| word == wanted))
}

/// Crates whose work goes the same way in every run of a cluster with a manual clock and a seed.
const REPRODUCIBLE: &[&str] = &["client", "controllers", "scheduler", "simulation"];

#[test]
fn no_future_is_drawn_at_random() {
    const SELECT: &str = "select! {";
    let mut breaches = Breaches::new();
    let modules = tree::modules().values();
    for module in modules.filter(|it| !it.test && REPRODUCIBLE.contains(&it.krate.as_str())) {
        let is_random = |at: &usize| !module.code[at + SELECT.len()..].trim_start().starts_with("biased;");
        let found = module.uses(SELECT).filter(is_random);
        breaches.extend(found.map(|at| format!("{}: `select!` without `biased;`", module.place(at))));
    }
    assert_none(breaches);
}

const LONGEST: usize = 1000;

#[test]
fn files_are_short_enough_to_read() {
    let long = |module: &&Module| !module.test && module.source.lines().count() > LONGEST;
    let modules = tree::modules();
    let breaches = modules
        .values()
        .filter(long)
        .map(|it| format!("{}: {} lines, more than {LONGEST}; split it", it.path, it.source.lines().count()));
    assert_none(breaches.collect());
}

#[test]
fn nothing_is_left_for_later() {
    let mut breaches = Breaches::new();
    for (path, module) in tree::modules() {
        let code = lexer::split(&module.source).code;
        for piece in ["todo!", "unimplemented!", "dbg!", "#[ignore", "#![ignore"] {
            let found = code.match_indices(piece);
            breaches.extend(found.map(|(at, _)| format!("{}: {piece}", module.place(at))));
        }
        for (at, line) in module.source.lines().enumerate().filter(|_| module.krate != "tidy") {
            let marks = ["FIXME", "TODO"].into_iter().filter(|mark| line.contains(mark));
            breaches.extend(marks.map(|mark| format!("{path}:{}: {mark}", at + 1)));
        }
    }
    assert_none(breaches);
}

#[test]
fn names_of_modules_say_something() {
    let empty = ["util", "utils", "common", "helper", "helpers", "misc", "manager"];
    let says_nothing = |path: &str| path.split(['/', '.']).any(|part| empty.contains(&part));
    assert_none(tree::modules().keys().filter(|path| says_nothing(path)).cloned().collect());
}

/// A module with modules inside is `name/mod.rs`, never `name.rs` beside `name/`.
#[test]
fn a_module_has_one_place() {
    let modules = tree::modules();
    let inside = |folder: &str| modules.keys().any(|path| path.starts_with(folder));
    let split =
        modules.keys().filter(|path| path.strip_suffix("rs").is_some_and(|it| inside(&it.replace('.', "/"))));
    let roots = ["tests/tests/spec.rs"];
    let split = split.filter(|path| !roots.contains(&path.as_str()));
    assert_none(split.map(|path| format!("{path}: move it into its folder as mod.rs")).collect());
}

/// Every module except test modules has a doc comment.
#[test]
fn modules_open_with_documentation() {
    let modules = tree::modules();
    let silent =
        modules.values().filter(|it| (!it.test || it.krate == "tests") && !it.source.starts_with("//!"));
    assert_none(silent.map(|it| format!("{}: does not open with //!", it.path)).collect());
}

/// Folders of Rust files that follow no rule here: generated code, and its generator, a package of its own.
const GENERATED: &[&str] = &["crates/grpc/generate/", "crates/grpc/src/generated/"];

#[test]
fn every_file_is_part_of_a_crate() {
    let modules = tree::modules();
    let files = ["crates", "tests", "bench"].into_iter().flat_map(tree::files);
    let is_generated = |path: &str| GENERATED.iter().any(|folder| path.starts_with(folder));
    let lost =
        files.filter(|path| path.ends_with(".rs") && !modules.contains_key(path) && !is_generated(path));
    assert_none(lost.map(|path| format!("{path}: no module declares it")).collect());
}

#[test]
fn imports_in_braces_are_found() {
    assert_eq!(grouped("use std::time::{Duration, Instant};", "std::time::{", "Instant").count(), 1);
    assert_eq!(grouped("use std::time::{Duration}; Instant", "std::time::{", "Instant").count(), 0);
}

#[test]
fn exceptions_must_be_needed() {
    const LIST: Exceptions = &[("a.rs", "x", "why"), ("b.rs", "x", "why")];
    let found = [("a.rs", "x", "a.rs:1"), ("a.rs", "y", "a.rs:2")];
    let found = found.map(|(path, what, place)| (path.to_owned(), what.to_owned(), place.to_owned()));
    let rest = without(LIST, found.to_vec());
    assert_eq!(rest, ["a.rs:2: y", "b.rs: x is excepted, but not there any more"]);
}
