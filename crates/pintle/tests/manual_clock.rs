//! A cluster whose clock its users hold: `up --clock manual` and `pintle clock`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod components;

use components::{Process, caller, post};
use outbound::HttpClient;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn start(directory: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--ephemeral", "--clock", "manual", "--seed", "7", "--secure-port", "0"]);
    command.arg("--write-kubeconfig").arg(directory.join("admin.kubeconfig"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

fn run_clock(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.arg("clock").args(arguments).arg("--kubeconfig").arg(directory.join("admin.kubeconfig"));
    command.output().unwrap()
}

fn clock(directory: &Path, arguments: &[&str]) -> String {
    let output = run_clock(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn list(caller: &HttpClient, path: &str) -> Vec<Value> {
    let answer = caller.get(path).await.unwrap();
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}},
           "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn cron_jobs_follow_a_clock_that_users_move() {
    let directory = TempDir::new().unwrap();
    let _process = start(directory.path());
    let caller = caller(directory.path());
    let shown = clock(directory.path(), &["show"]);
    clock(directory.path(), &["settle"]);
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
        "spec": {"schedule": "*/10 * * * *", "concurrencyPolicy": "Allow",
                 "jobTemplate": {"spec": {"template": template()}}}});
    post(&caller, "/apis/batch/v1/namespaces/default/cronjobs", job).await;
    assert!(list(&caller, JOBS).await.is_empty(), "time stands still");
    let changes = clock(directory.path(), &["advance", "30m"]);
    let made = changes.lines().filter(|line| line.contains("ADDED     jobs.batch  default/often-")).count();
    assert_eq!(made, 3, "{changes}");
    assert!(changes.ends_with("30m0s later\n"), "{changes}");
    assert_eq!(list(&caller, JOBS).await.len(), 3);
    assert_ne!(clock(directory.path(), &["show"]), shown);
    assert_eq!(clock(directory.path(), &["show"]), clock(directory.path(), &["show"]));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_names() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let directory = TempDir::new().unwrap();
        let _process = start(directory.path());
        let caller = caller(directory.path());
        clock(directory.path(), &["settle"]);
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}},
                     "template": {"metadata": {"labels": {"app": "a"}},
                                  "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        post(&caller, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
        clock(directory.path(), &["settle"]);
        let pods = list(&caller, PODS).await;
        runs.push(names(&pods).iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(runs[0].len(), 3);
    assert_eq!(runs[0], runs[1]);
}

/// The line of a greeting with the kubeconfig.
fn kubeconfig_of(output: impl std::io::Read) -> PathBuf {
    let lines = BufReader::new(output).lines().map(Result::unwrap);
    let mut paths =
        lines.filter_map(|line| line.split_once("export KUBECONFIG=").map(|(_, path)| path.into()));
    paths.next().unwrap()
}

#[test]
fn clusters_go_with_their_standard_input() {
    // at once, and with the same seed: they share nothing
    let mut clusters: Vec<_> = (0..2)
        .map(|_| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
            command.args(["up", "--ephemeral", "--clock", "manual", "--seed", "7", "--secure-port", "0"]);
            command.arg("--exit-on-stdin-close").stdin(Stdio::piped()).stdout(Stdio::piped());
            Process(command.spawn().unwrap())
        })
        .collect();
    let paths: Vec<_> = clusters.iter_mut().map(|it| kubeconfig_of(it.0.stdout.as_mut().unwrap())).collect();
    assert_ne!(paths[0], paths[1]);
    for (cluster, path) in clusters.iter_mut().zip(&paths) {
        assert!(path.exists());
        // what is written there is dropped
        let mut input = cluster.0.stdin.take().unwrap();
        input.write_all(b"hello\n").unwrap();
        drop(input);
        assert_eq!(cluster.ends(), Some(0));
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn mistakes_are_explained() {
    let directory = TempDir::new().unwrap();
    let process = start(directory.path());
    let failed = run_clock(directory.path(), &["advance", "soon"]);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("advance: "), "{failed:?}");
    drop(process);
    for (arguments, expected) in [
        (&["--seed", "7"][..], "--seed needs --clock manual"),
        (&["--clock", "manual", "--components", "apiserver,nodeagent"], "go by real time"),
        (&["--clock", "manual", "--etcd-servers", "http://127.0.0.1:1"], "use the embedded store"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
        let output = command.arg("up").args(arguments).output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
