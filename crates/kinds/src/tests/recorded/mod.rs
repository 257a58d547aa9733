//! Tests of the kinds against recorded answers, if those are available.
//!
//! A small stand-in for the server replays scenarios: objects by path, and the hooks in the order of the server. The
//! comparison leaves out everything that hooks do not decide (metadata, versions, paths). Each test reports the
//! number of answers that agree, and fails if it decreases.

mod json;
mod server;

use json::{at, difference, expand, matches, put};
use schema::Value;
use server::{Answer, Server};
use std::fs;
use std::path::PathBuf;

/// How many answers agreed.
#[derive(Default)]
struct Score {
    agreed: usize,
    differed: Vec<String>,
}

impl Score {
    fn note(&mut self, scenario: &str, step: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.agreed += 1,
            Err(why) => self.differed.push(format!("{scenario}: {step}: {why}")),
        }
    }

    fn at_least(&self, what: &str, floor: usize) {
        eprintln!("{what}: {} of {} answers agree", self.agreed, self.agreed + self.differed.len());
        let formatted = self.differed.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
        eprintln!("{formatted}");
        assert!(self.agreed >= floor, "{what}: {} answers agree, and once {floor} did", self.agreed);
    }
}

/// The scenarios of a family whose names contain one of some words.
fn scenarios(family: &str, words: &[&str]) -> Option<Vec<(String, Value)>> {
    let folder = testdata::find(&format!("recorded/{family}"))?;
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("readable").filter_map(|it| Some(it.ok()?.path())).collect();
    files.sort();
    let name = |path: &PathBuf| path.file_stem().and_then(|it| it.to_str()).unwrap_or("").to_owned();
    files.retain(|path| words.iter().any(|word| name(path).contains(word)));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a recorded scenario");
        (name(&path), crate::tests::json(&text))
    };
    Some(files.into_iter().map(read).collect())
}

const KINDS: &[&str] = &[
    "core-v1-namespaces",
    "core-v1-serviceaccounts",
    "core-v1-secrets",
    "core-v1-configmaps",
    "core-v1-nodes",
    "core-v1-pods",
    "core-v1-events",
    "events-v1",
    "coordination-v1-leases",
    "node-v1-runtimeclasses",
    "certificates-v1",
];

#[test]
fn validation_agrees() {
    let Some(scenarios) = scenarios("validation", KINDS) else { return };
    let mut score = Score::default();
    for (name, scenario) in scenarios.iter().filter(|(name, _)| !name.contains("-meta-")) {
        replay(name, scenario, &mut score);
    }
    score.at_least("validation", 1719);
}

#[test]
fn defaults_agree() {
    let words: Vec<&str> = KINDS.iter().copied().chain(["pod-", "secret-"]).collect();
    let Some(scenarios) = scenarios("defaults", &words) else { return };
    let mut score = Score::default();
    for (name, scenario) in &scenarios {
        replay(name, scenario, &mut score);
    }
    score.at_least("defaults", 71);
}

#[test]
fn verbs_and_states_agree() {
    let mut score = Score::default();
    for (family, words) in [
        (
            "verbs",
            &[
                "admission-runtimeclass",
                "events-both-groups",
                "subresource-pod-status",
                "subresource-ephemeral",
            ][..],
        ),
        ("auth", &["csr-states"]),
        ("tables", &["pod-", "node-", "namespace-", "event-", "csr-"]),
    ] {
        let Some(scenarios) = scenarios(family, words) else { return };
        for (name, scenario) in &scenarios {
            replay(name, scenario, &mut score);
        }
    }
    score.at_least("verbs and states", 145);
}

fn replay(name: &str, scenario: &Value, score: &mut Score) {
    let mut server = Server::default();
    for step in scenario.items(&["steps"]) {
        let (request, answer) = (step.at(&["do"]), step.at(&["answer"]));
        let (Some(request), Some(answer)) = (request, answer) else { continue };
        let (method, path) = (request.text(&["method"]), request.text(&["path"]));
        let body = request.at(&["body"]).or_else(|| request.at(&["base"]));
        let given = match server.request(method, path, body, request.at(&["headers"])) {
            Some(given) => given,
            None if method == "GET" => continue,
            // what follows may rest on this
            None => return,
        };
        score.note(name, &format!("{method} {path}"), compare(answer, &given));
        for case in step.items(&["cases"]) {
            let touched = case_text(case);
            let Some(body) = body else { continue };
            if touched.contains("\"/metadata") {
                continue;
            }
            let Some(given) = server.request(method, path, Some(&changed(body, case)), None) else {
                continue;
            };
            score.note(name, &touched, compare_case(case, answer, &given));
        }
    }
}

fn case_text(case: &Value) -> String {
    let mut formatted = case.clone();
    if let Some(fields) = formatted.as_map_mut() {
        fields.retain(|field, _| matches!(field, "set" | "drop"));
    }
    String::from_utf8_lossy(&schema::encode::untyped(&formatted)).chars().take(200).collect()
}

/// The base with the changes of a case.
fn changed(base: &Value, case: &Value) -> Value {
    let mut body = base.clone();
    for (pointer, value) in case.at(&["set"]).and_then(Value::as_map).into_iter().flat_map(|it| it.iter()) {
        put(&mut body, pointer, Some(expand(value)));
    }
    for pointer in case.items(&["drop"]) {
        put(&mut body, pointer.as_str().unwrap_or(""), None);
    }
    body
}

fn compare(answer: &Value, given: &Answer) -> Result<(), String> {
    let status = answer.at(&["status"]).and_then(Value::as_int).unwrap_or(0);
    if let Some(parts) = answer.at(&["parts"]).and_then(Value::as_map) {
        same_status(status, given)?;
        for (pointer, expected) in parts.iter().filter(|_| status < 400) {
            let relevant = !pointer.starts_with("/metadata") && pointer != "/message";
            let actual = at(&given.body, pointer);
            let absent = expected.as_str() == Some("${absent}");
            let fits = if absent { actual.is_none() } else { actual.is_some_and(|it| matches(expected, it)) };
            if relevant && !fits {
                return Err(difference(expected, actual.unwrap_or(&Value::Null), pointer));
            }
        }
        return Ok(());
    }
    let Some(body) = answer.at(&["body"]) else { return same_status(status, given) };
    if status >= 400 {
        same_status(status, given)?;
        let causes: Vec<_> = body.items(&["details", "causes"]).iter().map(cause_of).collect();
        if causes.is_empty() {
            let message = Value::from(given.message.as_str());
            let fits = matches(body.at(&["message"]).unwrap_or(&Value::Null), &message);
            return if fits { Ok(()) } else { Err(format!("message {message:?}")) };
        }
        return same_causes(&causes, given, false);
    }
    same_status(status, given)?;
    same_content(body, given)
}

fn compare_case(case: &Value, base: &Value, given: &Answer) -> Result<(), String> {
    let status = case.at(&["status"]).and_then(Value::as_int).unwrap_or(0);
    match status {
        422 => {
            same_status(status, given)?;
            let cause = |it: &Value| {
                let text = |at: usize| {
                    it.as_list().and_then(|it| it.get(at)).and_then(Value::as_str).unwrap_or("").to_owned()
                };
                (text(0), text(1), text(2))
            };
            let causes: Vec<_> = case.items(&["causes"]).iter().map(cause).collect();
            same_causes(&causes, given, case.at(&["anyorder"]).is_some())
        }
        200..300 => {
            same_status(status, given)?;
            let Some(mut body) = base.at(&["body"]).cloned() else { return Ok(()) };
            for (pointer, value) in
                case.at(&["diff"]).and_then(Value::as_map).into_iter().flat_map(|it| it.iter())
            {
                let value = Some(expand(value)).filter(|it| it.as_str() != Some("${absent}"));
                put(&mut body, pointer, value);
            }
            same_content(&body, given)?;
            let warnings = |it: &Value| it.as_str().unwrap_or("").to_owned();
            let expected: Vec<_> = case.items(&["warnings"]).iter().map(warnings).collect();
            let found: Vec<_> = given.warnings.iter().map(|it| format!("299 - {it:?}")).collect();
            if expected == found {
                Ok(())
            } else {
                Err(format!("warnings: expected {expected:?}, got {found:?}"))
            }
        }
        _ => compare(case, given),
    }
}

type Cause = (String, String, String);

fn cause_of(cause: &Value) -> Cause {
    let text = |field: &str| cause.text(&[field]).to_owned();
    (text("reason"), text("field"), text("message"))
}

fn same_status(expected: i64, given: &Answer) -> Result<(), String> {
    if expected == given.status {
        return Ok(());
    }
    Err(format!("expected {expected}, got {}: {} {:?}", given.status, given.message, given.causes))
}

fn same_causes(expected: &[Cause], given: &Answer, any_order: bool) -> Result<(), String> {
    let (mut expected, mut found) = (expected.to_vec(), given.causes.clone());
    if any_order {
        let key = |it: &Cause| (it.1.clone(), it.2.rsplit(": ").next().unwrap_or("").to_owned());
        expected.sort_by_key(key);
        found.sort_by_key(key);
    }
    let fits = |(a, b): (&Cause, &Cause)| {
        a.0 == b.0 && a.1 == b.1 && matches(&Value::from(a.2.as_str()), &Value::from(b.2.as_str()))
    };
    if expected.len() == found.len() && expected.iter().zip(&found).all(fits) {
        return Ok(());
    }
    Err(format!("expected {expected:?}\n  got {found:?}"))
}

/// Compares everything but the metadata, and of that what the kinds decide.
fn same_content(body: &Value, given: &Answer) -> Result<(), String> {
    let without_metadata = |object: &Value| {
        let mut object = object.clone();
        object.unset(&["metadata"]);
        object
    };
    if !matches(&without_metadata(body), &without_metadata(&given.body)) {
        return Err(difference(&without_metadata(body), &without_metadata(&given.body), ""));
    }
    for field in ["labels", "annotations"] {
        let (expected, actual) = (body.at(&["metadata", field]), given.body.at(&["metadata", field]));
        if expected != actual {
            return Err(format!("{field}: expected {expected:?}, got {actual:?}"));
        }
    }
    Ok(())
}
