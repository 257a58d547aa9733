//! Faults on request: `up --faults`, `/simulation/faults` and `pintle faults`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod components;

use bytes::Bytes;
use components::{Process, caller, post, until};
use http::StatusCode;
use outbound::{HttpClient, HttpResponse};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FAULTS: &str = "/simulation/faults";

fn start(directory: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--ephemeral", "--secure-port", "0"]).args(arguments);
    command.arg("--write-kubeconfig").arg(directory.join("admin.kubeconfig"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

/// A server without loops, so that no requests but those of the test count.
fn server(directory: &Path) -> Process {
    start(directory, &["--components", "apiserver", "--faults", "{}"])
}

fn run_faults(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.arg("faults").args(arguments).arg("--kubeconfig").arg(directory.join("admin.kubeconfig"));
    command.output().unwrap()
}

async fn create(caller: &HttpClient, path: &str, object: &Value) -> HttpResponse {
    caller.post(path, object.to_string().into()).await.unwrap()
}

fn set(directory: &TempDir, rules: Value) {
    set_all(directory, json!({"rules": rules}));
}

fn set_all(directory: &TempDir, document: Value) {
    let output = run_faults(directory.path(), &["set", &document.to_string()]);
    assert!(output.status.success(), "{document}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn status_of(caller: &HttpClient) -> Vec<(u64, u64)> {
    let answer = caller.get(FAULTS).await.unwrap();
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    let rules = document["status"]["rules"].as_array().unwrap();
    rules.iter().map(|it| (it["matched"].as_u64().unwrap(), it["injected"].as_u64().unwrap())).collect()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn text(answer: &HttpResponse) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[tokio::test]
async fn requests_meet_the_errors_of_rules() {
    let directory = TempDir::new().unwrap();
    let _process = server(directory.path());
    let caller = caller(directory.path());
    let kind = |verb, status| json!({"verbs": [verb], "resources": ["configmaps"], "status": status});
    set(&directory, json!([kind("create", 409), kind("list", 500), kind("get", 503)]));
    let created = create(&caller, MAPS, &map("a")).await;
    assert_eq!(created.status, 409);
    assert!(text(&created).contains(r#""reason":"Conflict""#), "{}", text(&created));
    assert_eq!(caller.get(MAPS).await.unwrap().status, 500);
    assert_eq!(caller.get(&format!("{MAPS}/a")).await.unwrap().status, 503);
    assert_eq!(caller.get("/api/v1/namespaces/default/secrets").await.unwrap().status, 200);
    assert_eq!(status_of(&caller).await, [(1, 1), (1, 1), (1, 1)]);
    set(
        &directory,
        json!([{"resources": ["configmaps"], "status": 429, "retryAfterSeconds": 7, "times": 1}]),
    );
    let busy = caller.get(MAPS).await.unwrap();
    assert_eq!(
        (busy.status, busy.headers["retry-after"].to_str().unwrap()),
        (StatusCode::TOO_MANY_REQUESTS, "7")
    );
    assert_eq!(caller.get(MAPS).await.unwrap().status, 200);
    set(&directory, json!([{"paths": ["/apis"], "status": 503}]));
    assert_eq!(caller.get("/apis").await.unwrap().status, 503);
    assert!(run_faults(directory.path(), &["clear"]).status.success());
    assert_eq!(caller.get("/apis").await.unwrap().status, 200);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let directory = TempDir::new().unwrap();
    let _process = server(directory.path());
    let caller = caller(directory.path());
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let rules = json!({"seed": seed, "rules": [{"verbs": ["list"], "rate": 0.5, "status": 500}]});
        set_all(&directory, rules);
        let mut run = Vec::new();
        for _ in 0..40 {
            run.push(caller.get(MAPS).await.unwrap().status.as_u16());
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!(runs[0].contains(&200) && runs[0].contains(&500));
}

#[tokio::test]
async fn a_connection_is_cut_before_or_after_the_request() {
    let directory = TempDir::new().unwrap();
    let _process = server(directory.path());
    let caller = caller(directory.path());
    for (point, exists) in [("Request", 404), ("Response", 200)] {
        set(&directory, json!([{"verbs": ["create"], "cut": point}]));
        let cut = caller.post(MAPS, map("cut").to_string().into()).await;
        assert!(cut.is_err(), "{point}: {:?}", cut.map(|it| it.status));
        assert_eq!(caller.get(&format!("{MAPS}/cut")).await.unwrap().status.as_u16(), exists, "{point}");
    }
}

/// The types of a watch's events up to its end.
fn types(answer: &HttpResponse) -> Vec<String> {
    let events = text(answer);
    let kind = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
    events.lines().map(kind).collect()
}

#[tokio::test]
async fn watches_end_as_rules_say() {
    let directory = TempDir::new().unwrap();
    let _process = server(directory.path());
    let caller = caller(directory.path());
    for name in ["a", "b", "c", "d"] {
        post(&caller, MAPS, map(name)).await;
    }
    let watch = format!("{MAPS}?watch=1");
    set(&directory, json!([{"watch": {"afterEvents": 2, "end": "Expired"}}]));
    let expired = caller.get(&watch).await.unwrap();
    assert_eq!(types(&expired), ["ADDED", "ADDED", "ERROR"]);
    assert!(text(&expired).contains(r#""reason":"Expired""#) && text(&expired).contains(r#""code":410"#));
    set(&directory, json!([{"watch": {"afterEvents": 3}}]));
    assert_eq!(types(&caller.get(&watch).await.unwrap()), ["ADDED", "ADDED", "ADDED"]);
    set(&directory, json!([{"watch": {"after": "50ms"}}]));
    assert!(types(&caller.get(&watch).await.unwrap()).len() >= 4);
    set(&directory, json!([{"verbs": ["watch"], "status": 410}]));
    assert_eq!(types(&caller.get(&watch).await.unwrap()), ["ERROR"]);
    set(&directory, json!([{"watch": {"afterEvents": 1, "end": "Cut"}}]));
    assert!(caller.get(&watch).await.is_err());
    // lists are no watches
    assert_eq!(caller.get(MAPS).await.unwrap().status, 200);
}

#[tokio::test]
async fn webhooks_fail_by_name() {
    let directory = TempDir::new().unwrap();
    let _process = server(directory.path());
    let caller = caller(directory.path());
    let hook = |name: &str, policy: &str| {
        json!({"name": name, "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
               "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1/"},
               "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [hook("strict.example.com", "Fail"), hook("lenient.example.com", "Ignore")]});
    post(&caller, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration)
        .await;
    let error = async |rules: Value| {
        set(&directory, rules);
        let answer = create(&caller, MAPS, &map("a")).await;
        assert_eq!(answer.status, 500, "{}", text(&answer));
        text(&answer)
    };
    let strict = |fault: Value| {
        let mut rule = json!({"webhooks": ["strict.example.com"]});
        rule.as_object_mut().unwrap().extend(fault.as_object().unwrap().clone());
        json!([rule])
    };
    let failed = error(strict(json!({"name": "broken", "status": 500}))).await;
    assert!(failed.contains("strict.example.com") && failed.contains("by the rule"), "{failed}");
    assert!(error(strict(json!({"cut": "Request"}))).await.contains("EOF"));
    assert!(error(strict(json!({"delay": "1h"}))).await.contains("context deadline exceeded"));
    assert_eq!(status_of(&caller).await, [(1, 1)]);
    // without a fault the call itself fails, and a rule for another operation or webhook is not met
    let failed = error(
        json!([{"webhooks": ["other*"], "status": 500}, {"webhooks": ["strict*"], "verbs": ["update"], "status": 500}]),
    );
    assert!(!failed.await.contains("by the rule"));
    assert_eq!(status_of(&caller).await, [(0, 0), (0, 0)]);
}

#[tokio::test]
async fn components_meet_faults_only_if_a_rule_says_so() {
    let directory = TempDir::new().unwrap();
    let rule = "{rules: [{verbs: [create, update, patch], resources: ['*'], status: 500, every: 2}]}";
    let _process = start(directory.path(), &["--nodes", "1", "--faults", rule]);
    let caller = caller(directory.path());
    assert_eq!(status_of(&caller).await, [(0, 0)], "components have written much by now");
    let rules = json!([{"verbs": ["create", "update", "patch"], "every": 3, "status": 409, "components": true},
                       {"verbs": ["watch"], "watch": {"afterEvents": 3, "end": "Cut"}, "components": true},
                       {"verbs": ["create"], "cut": "Response", "every": 5, "components": true}]);
    set(&directory, rules);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}},
                 "template": {"metadata": {"labels": {"app": "a"}},
                              "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    loop {
        // the last rule loses responses of requests that were handled
        let answer = caller.post(path, deployment.to_string().into()).await;
        if answer.is_ok_and(|it| text(&it).contains("AlreadyExists")) {
            break;
        }
    }
    let path = format!("{path}/web");
    until("the deployment is available", &caller, &path, |_, text| text.contains(r#""availableReplicas":3"#))
        .await;
    let hits = status_of(&caller).await;
    assert!(hits[0].1 > 0, "{hits:?}");
}

#[tokio::test]
async fn a_delay_goes_by_the_clock_of_the_cluster() {
    let directory = TempDir::new().unwrap();
    let arguments = ["--clock", "manual", "--seed", "7", "--components", "apiserver"];
    let _process = start(directory.path(), &arguments);
    let caller = caller(directory.path());
    set(&directory, json!([{"verbs": ["list"], "delay": "20s"}]));
    let slow = caller.get(MAPS);
    let moved = async {
        // the request waits by then
        until("the rule fires", &caller, FAULTS, |_, text| text.contains(r#""injected":1"#)).await;
        caller.post("/simulation/clock?advance=30s", Bytes::new()).await.unwrap()
    };
    let (slow, moved) = tokio::join!(slow, moved);
    assert_eq!((slow.unwrap().status, moved.status), (StatusCode::OK, StatusCode::OK));
}

#[tokio::test]
async fn the_command_and_its_mistakes() {
    let directory = TempDir::new().unwrap();
    let process = server(directory.path());
    let printed =
        run_faults(directory.path(), &["set", "{seed: 3, rules: [{name: a, status: 500, verbs: [list]}]}"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("kind: SimulationFaults") && printed.contains("name: a"), "{printed}");
    let wrong = run_faults(directory.path(), &["set", "{rules: [{name: b}, {status: 1}]}"]);
    let wrong = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.contains("rules[0]: needs a fault") && wrong.contains("rules[1].status: "), "{wrong}");
    let kept = String::from_utf8(run_faults(directory.path(), &["show"]).stdout).unwrap();
    assert_eq!(kept, printed);
    let cleared = String::from_utf8(run_faults(directory.path(), &["clear"]).stdout).unwrap();
    assert!(cleared.contains("rules: []"), "{cleared}");
    drop(process);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    let output = command.args(["up", "--ephemeral", "--faults", "{rules: [{}], seed: x}"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("--faults: seed: ") && error.contains("rules[0]: "),
        "{error}"
    );
    // a cluster that is not for tests has no such path
    let _process = start(directory.path(), &["--components", "apiserver"]);
    let missing = run_faults(directory.path(), &["show"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--faults"), "{missing:?}");
}
