//! Replays recorded scenarios of the upstream scheduler on [`scheduler::scheduler::Scheduler`]: without an API server,
//! on a simulated clock.
//!
//! Every choice between equal nodes is followed, so that the sets of ties are compared completely. Compared are the
//! state of pods and volumes after each step; events and the order of writes belong to the end-to-end replay.

mod cluster;
mod defaults;
mod scenario;
mod server;

use std::collections::BTreeMap;

use serde_json::Value;

fn load() -> Option<Vec<(String, Value)>> {
    let mut found = Vec::new();
    let folder = testdata::find("recorded-scheduler")?;
    for family in std::fs::read_dir(folder).unwrap().flatten() {
        let Ok(files) = std::fs::read_dir(family.path()) else { continue };
        for file in files.flatten().filter(|file| file.path().extension().is_some_and(|it| it == "json")) {
            let scenario: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
            if scenario.get("steps").is_some() {
                let name = format!("{}/{}", text(&scenario["family"]), text(&scenario["name"]));
                found.push((name, scenario));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Some(found)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn scenarios_end_as_recorded() {
    let Some(scenarios) = load() else { return };
    assert!(!scenarios.is_empty(), "the folder has no scenarios");
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut families: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, scenario) in scenarios.iter().filter(|(name, _)| name.contains(&*only)) {
        let counts = families.entry(text(&scenario["family"]).to_owned()).or_default();
        counts[1] += 1;
        match scenario::check(scenario) {
            Ok(()) => counts[0] += 1,
            Err(problem) => failures.push(format!("{name}: {problem}")),
        }
    }
    let sum = |at: usize| families.values().map(|counts| counts[at]).sum::<usize>();
    eprintln!("{:<20} passed / all", "family");
    for (family, [passed, all]) in &families {
        eprintln!("{family:<20} {passed:>4} / {all:>4}");
    }
    eprintln!("{:<20} {:>4} / {:>4}", "all", sum(0), sum(1));
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
