//! Forks: snapshots of clusters in memory, and clusters that begin with them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod components;

use components::{Process, caller, post, until};
use outbound::HttpClient;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn start(directory: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--ephemeral", "--secure-port", "0"]).args(arguments);
    command.arg("--write-kubeconfig").arg(directory.join("admin.kubeconfig"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

fn pintle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pintle")).args(arguments).output().unwrap()
}

/// Runs a command that must succeed, against the cluster of a directory.
fn run(directory: &Path, arguments: &[&str]) -> String {
    let kubeconfig = directory.join("admin.kubeconfig");
    let output = pintle(&[arguments, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn get(caller: &HttpClient, path: &str) -> Value {
    let answer = caller.get(path).await.unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap()
}

async fn create(caller: &HttpClient, path: &str, object: Value) -> Value {
    let answer = caller.post(path, object.to_string().into()).await.unwrap();
    assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
           "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
                    "template": {"metadata": {"labels": {"app": "a"}},
                                 "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn widgets() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "widgets.example.com"},
           "spec": {"group": "example.com", "scope": "Namespaced",
                    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                                  "schema": {"openAPIV3Schema": {"type": "object",
                                             "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

async fn available(caller: &HttpClient) {
    let path = format!("{DEPLOYMENTS}/web");
    until("the deployment is available", caller, &path, |_, text| text.contains(r#""availableReplicas":2"#))
        .await;
}

#[tokio::test]
async fn a_cluster_begins_with_the_state_of_another() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = one.path().join("prepared.snapshot");
    let process = start(one.path(), &["--nodes", "1"]);
    let original = caller(one.path());
    post(&original, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets()).await;
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    until("the kind is served", &original, WIDGETS, |status, _| status == 200).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"x": 1}});
    let widget = create(&original, WIDGETS, widget).await;
    let kept = create(&original, MAPS, map("kept")).await;
    until(
        "the account exists",
        &original,
        "/api/v1/namespaces/default/serviceaccounts/default",
        |status, _| status == 200,
    )
    .await;
    let token = create(
        &original,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
    )
    .await;
    post(&original, DEPLOYMENTS, deployment()).await;
    available(&original).await;
    run(one.path(), &["snapshot", "save", file.to_str().unwrap()]);
    // not part of the snapshot
    post(&original, MAPS, map("later")).await;
    drop(process);

    let _process = start(two.path(), &["--nodes", "1", "--from", file.to_str().unwrap()]);
    let fork = caller(two.path());
    assert_eq!(get(&fork, &format!("{MAPS}/kept")).await, kept);
    assert_eq!(get(&fork, &format!("{WIDGETS}/w")).await, widget);
    assert_eq!(fork.get(&format!("{MAPS}/later")).await.unwrap().status, 404);
    available(&fork).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                        "spec": {"token": token["status"]["token"]}});
    let review = create(&fork, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    // versions go on, and watches from before the fork list again
    let version =
        |object: &Value| -> u64 { object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    let new = create(&fork, MAPS, map("new")).await;
    assert!(version(&new) > version(&kept));
    let old = fork.get(&format!("{MAPS}?watch=1&resourceVersion={}", version(&kept) - 1)).await.unwrap();
    let old = String::from_utf8_lossy(&old.body).into_owned();
    assert!(old.contains(r#""type":"ERROR""#) && old.contains("410"), "{old}");
    // the keys are the same: only the port is another
    let authority = |directory: &Path| {
        let text = std::fs::read_to_string(directory.join("admin.kubeconfig")).unwrap();
        let lines =
            text.lines().filter(|it| it.contains("certificate-authority-data") || it.contains("token:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(authority(one.path()), authority(two.path()));
    assert!(authority(one.path()).len() >= 2);
}

#[tokio::test]
async fn a_manual_clock_begins_with_the_time_of_the_snapshot() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = one.path().join("later.snapshot");
    let process = start(one.path(), &["--clock", "manual"]);
    run(one.path(), &["clock", "advance", "2h"]);
    let time = run(one.path(), &["clock", "show"]);
    run(one.path(), &["snapshot", "save", file.to_str().unwrap()]);
    drop(process);
    let _process = start(two.path(), &["--clock", "manual", "--from", file.to_str().unwrap()]);
    assert_eq!(run(two.path(), &["clock", "show"]), time);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("damaged.snapshot");
    std::fs::write(&file, "something else").unwrap();
    let path = file.to_str().unwrap();
    for (arguments, expected) in [
        (&["up", "--ephemeral", "--from", path][..], "damaged.snapshot cannot be used: it is not a snapshot"),
        (&["up", "--ephemeral", "--from", "/nowhere/at/all"], "--from: cannot read /nowhere/at/all"),
        (&["up", "--from", path], "--ephemeral"),
    ] {
        let output = pintle(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
    }
}
