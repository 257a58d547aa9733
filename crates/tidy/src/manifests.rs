//! The checks of manifests: the dependency direction of crates, and the sources of dependencies.

use crate::tree;

/// The layers from the top down: a crate may use the crates below it.
const ORDER: &[&str] = &[
    "pintle-test",
    "pintle",
    "simulation",
    "nodeagent",
    "runtime",
    "network",
    "scheduler",
    "controllers",
    "apiserver",
    "kinds",
    "client",
    "api",
    "rest",
    "auth",
    "encryption",
    "etcd-server",
    "store-etcd",
    "outbound",
    "streams",
    "grpc",
    "flowcontrol",
    "cache",
    "store",
    "merge",
    "cel",
    "cron",
    "apimachinery",
    "schema",
    "schema-lang",
    "tables",
    "names",
    "metrics",
    "durable-file",
    "program-pages",
    "kernel-programs",
    "process-start",
    "env",
    "testdata",
];

/// The crates that have lints of their own, to allow a few calls: docs/decisions/028-pages-of-the-start.md,
/// docs/decisions/032-programs-of-the-kernel.md and docs/decisions/033-copy-of-a-monitor.md.
const WITH_UNSAFE_CODE: [&str; 3] = ["program-pages", "kernel-programs", "process-start"];

/// Crates that may use all others and that no crate may use.
const OUTSIDE: &[&str] = &["bench", "proof", "tests", "tidy"];

/// Dependencies that a crate must not have although the layers allow them, and why.
const WITHOUT: &[(&str, &[&str], &str)] = &[
    ("store", &["schema", "tables", "merge", "names", "serde_json"], "the store never parses a value"),
    (
        "cache",
        &["schema", "tables", "merge", "names", "serde_json"],
        "the cache gets its index function passed in",
    ),
    (
        "auth",
        &["outbound", "cache", "store", "merge", "schema"],
        "who may do what is decided on what it is handed",
    ),
    (
        "api",
        &["rest", "merge", "store", "cache", "auth"],
        "clients use it, and know nothing of the server's insides",
    ),
    ("client", &["rest", "merge", "store", "cache", "auth"], "a client knows the server by its API alone"),
    (
        "controllers",
        &["apiserver", "kinds", "rest", "merge", "store", "cache", "auth"],
        "a control loop knows the server by its API alone",
    ),
    (
        "scheduler",
        &["controllers", "apiserver", "kinds", "rest", "merge", "store", "cache", "auth"],
        "the scheduler knows the server by its API alone",
    ),
    (
        "network",
        &["scheduler", "controllers", "apiserver", "kinds", "rest", "merge", "store", "cache", "auth"],
        "the network knows the server by its API alone",
    ),
    (
        "runtime",
        &[
            "network",
            "scheduler",
            "controllers",
            "apiserver",
            "kinds",
            "client",
            "api",
            "rest",
            "store",
            "cache",
        ],
        "a runtime knows pods by what it is handed, and nothing of the API",
    ),
    ("kinds", &["store", "cache", "auth"], "a kind's behaviour sees values, never where they are kept"),
];

/// Libraries that speak HTTP; only these crates may (`store-etcd` for the fake etcd of tests).
const HTTP: &[&str] = &["hyper", "hyper-util", "tower", "axum"];
const HTTP_USERS: &[&str] = &[
    "pintle",
    "nodeagent",
    "network",
    "controllers",
    "apiserver",
    "outbound",
    "etcd-server",
    "store-etcd",
    "bench",
    "tests",
];

struct Manifest {
    krate: String,
    path: String,
    text: String,
}

fn manifests() -> Vec<Manifest> {
    let paths = tree::crates().into_iter().map(|krate| (format!("crates/{krate}/Cargo.toml"), krate));
    let paths =
        paths.chain(["bench", "tests"].map(|krate| (format!("{krate}/Cargo.toml"), krate.to_owned())));
    let there = paths.filter(|(path, _)| tree::root().join(path).exists());
    there.map(|(path, krate)| Manifest { text: tree::text(&path), krate, path }).collect()
}

/// The names of all dependencies, of whatever sort, with their lines.
fn dependencies(text: &str) -> Vec<(usize, String)> {
    let (mut inside, mut found) = (false, Vec::new());
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let name = section.rsplit_once("dependencies").map(|(_, rest)| rest.trim_start_matches('.'));
            inside = name == Some("");
            found.extend(name.filter(|name| !name.is_empty()).map(|name| (number, name.to_owned())));
        } else if inside && !line.starts_with('#') && !line.is_empty() {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.push((number, name.trim_matches('"').to_owned()));
        }
    }
    found
}

/// Why a crate may not depend on another one; `None` if it may.
fn objection(krate: &str, other: &str) -> Option<String> {
    if HTTP.contains(&other) && !HTTP_USERS.contains(&krate) {
        return Some(format!("{krate} speaks no HTTP, but uses {other}"));
    }
    for (who, without, why) in WITHOUT {
        if *who == krate && without.contains(&other) {
            return Some(format!("{krate} may not use {other}: {why}"));
        }
    }
    if OUTSIDE.contains(&other) {
        return Some(format!("{krate} uses {other}, which no crate may use"));
    }
    let rank = |name: &str| ORDER.iter().position(|it| *it == name);
    match (rank(krate), rank(other)) {
        (Some(own), Some(used)) if used <= own => {
            Some(format!("{krate} uses {other}, which stands above it"))
        }
        _ => None,
    }
}

#[test]
fn dependencies_point_down() {
    let mut breaches = Vec::new();
    for manifest in manifests() {
        for (line, used) in dependencies(&manifest.text) {
            breaches.extend(
                objection(&manifest.krate, &used).map(|why| format!("{}:{line}: {why}", manifest.path)),
            );
        }
    }
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

#[test]
fn test_data_is_for_tests() {
    let depends = |text: &str| dependencies(text).iter().any(|(_, name)| name == "testdata");
    let code = |text: &str| text.split("[dev-dependencies]").next().is_some_and(depends);
    let breaches: Vec<_> = manifests().into_iter().filter(|it| code(&it.text)).map(|it| it.path).collect();
    assert!(breaches.is_empty(), "testdata is more than a dev-dependency: {breaches:?}");
}

#[test]
fn every_crate_has_its_place_and_keeps_the_lints() {
    let mut breaches = Vec::new();
    for Manifest { krate, path, text } in manifests() {
        if !ORDER.contains(&krate.as_str()) && !OUTSIDE.contains(&krate.as_str()) {
            breaches.push(format!("{path}: {krate} is missing in the list of layers"));
        }
        if !text.contains(&format!("\nname = \"{krate}\"")) {
            breaches.push(format!("{path}: the crate is not called {krate}, as its folder is"));
        }
        if !text.contains("[lints]\nworkspace = true") && !WITH_UNSAFE_CODE.contains(&krate.as_str()) {
            breaches.push(format!("{path}: does not take the lints of the workspace"));
        }
    }
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

#[test]
fn dependencies_come_from_one_registry() {
    let lock = tree::text("Cargo.lock");
    let sources = lock.lines().enumerate().filter(|(_, line)| line.starts_with("source = "));
    let foreign = sources.filter(|(_, line)| !line.contains("github.com/rust-lang/crates.io-index"));
    let foreign: Vec<_> = foreign.map(|(at, line)| format!("Cargo.lock:{}: {line}", at + 1)).collect();
    assert!(foreign.is_empty(), "\n{}", foreign.join("\n"));
}

/// Where crates come from and how they are built stands in the workspace. The file that can say otherwise says only what
/// the workspace cannot: with which options the C code of a dependency is compiled.
#[test]
fn cargo_is_configured_by_the_workspace() {
    let config = tree::text(".cargo/config.toml");
    let lines = config.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<_> = lines.map(|line| line.split(" =").next().unwrap_or_default()).collect();
    assert_eq!(keys, ["[env]", "CFLAGS"]);
}

#[test]
fn objections_are_raised() {
    assert!(objection("schema", "rest").is_some() && objection("rest", "kinds").is_some());
    assert!(objection("store", "schema").is_some() && objection("rest", "hyper").is_some());
    assert!(objection("names", "tidy").is_some() && objection("rest", "rest").is_some());
    assert!(objection("kinds", "rest").is_none() && objection("schema", "thiserror").is_none());
    let text =
        "[dependencies]\na.workspace = true\n# b\nc = { path = \"x\" }\n[dev-dependencies.d]\n[lib]\ne = 1";
    let names: Vec<_> = dependencies(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "c", "d"]);
}
