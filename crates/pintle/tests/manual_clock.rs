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
    start_with(directory, &[])
}

fn start_with(directory: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--ephemeral", "--clock", "manual", "--seed", "7", "--secure-port", "0"]);
    command.arg("--write-kubeconfig").arg(directory.join("admin.kubeconfig")).args(arguments);
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
async fn a_month_of_a_daily_cron_job_has_each_run_at_its_time() {
    let directory = TempDir::new().unwrap();
    let _process = start_with(directory.path(), &["--nodes", "1"]);
    let caller = caller(directory.path());
    clock(directory.path(), &["settle"]);
    let mut template = template();
    template["metadata"]["annotations"] = json!({"simulation.pintle.io/run-for": "90s"});
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}});
    post(&caller, "/apis/batch/v1/namespaces/default/cronjobs", job).await;
    let changes = clock(directory.path(), &["advance", "720h"]);
    let of = |kind: &str| {
        let lines =
            changes.lines().filter(|line| line.contains(&format!("{kind}  jobs.batch  default/nightly-")));
        // such as 2026-11-19T03:00:00.000000Z
        lines.map(|line| (line[..10].to_owned(), line[11..19].to_owned())).collect::<Vec<_>>()
    };
    let (made, removed) = (of("ADDED   "), of("DELETED "));
    assert_eq!(made.len(), 30, "{changes}");
    assert!(made.iter().all(|(_, time)| time == "03:00:00"), "{made:?}");
    assert!(made.windows(2).all(|pair| pair[0].0 < pair[1].0), "{made:?}");
    // three are kept
    assert_eq!(removed.len(), 27, "{changes}");
    // another connection: the server closes one that is idle for long by a real clock
    let caller = components::caller(directory.path());
    let jobs = list(&caller, JOBS).await;
    assert_eq!(jobs.len(), 3);
    for job in jobs {
        let [begun, ended] =
            ["startTime", "completionTime"].map(|it| job["status"][it].as_str().unwrap()[11..].to_owned());
        assert_eq!(begun, "03:00:00Z");
        assert!(ended.starts_with("03:01:3"), "{ended}");
    }
    let nodes = list(&caller, "/api/v1/nodes").await;
    assert_eq!(condition(&nodes[0], "Ready")["status"], "True");
    assert!(!changes.contains("ADDED     events  default/node-0."), "the node was never lost: {changes}");
}

/// Moves a cluster with a deployment on two nodes, one of which falls silent an hour after the start. Returns the changes
/// from then on, with their times in seconds, and the conditions of the nodes.
async fn changes_of_silence(movements: &[&[&str]]) -> Vec<String> {
    let directory = TempDir::new().unwrap();
    let profile = directory.path().join("profile.yaml");
    let text = "apiVersion: simulation.pintle.io/v1alpha1\nkind: SimulationProfile\nnodes:\n\
                - {name: live}\n- {name: silent, set: {silent-after: 1h}}\n";
    std::fs::write(&profile, text).unwrap();
    let _process = start_with(directory.path(), &["--simulation-profile", profile.to_str().unwrap()]);
    let caller = caller(directory.path());
    let start = clock(directory.path(), &["show"]);
    let start = micros(start.trim().trim_start_matches("it is "));
    let seconds = |time: &str| (micros(time) - start) / 1_000_000;
    clock(directory.path(), &["settle"]);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "a"}},
                 "template": {"metadata": {"labels": {"app": "a"}},
                              "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    post(&caller, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    clock(directory.path(), &["settle", "--quiet", "10s"]);
    let mut found = Vec::new();
    for movement in movements {
        for line in clock(directory.path(), movement).lines() {
            let Some((time, change)) = line.split_once("  ") else { continue };
            let is_notable = change.contains("  pods  ") || change.contains("  nodes  silent");
            // names of pods have a random end
            let change = change.rsplit_once('-').map_or(change, |(change, _)| change);
            if is_notable && seconds(time) >= 3600 {
                found.push(format!("{} {change}", seconds(time)));
            }
        }
    }
    // another connection: the server closes one that is idle for long by a real clock
    for node in list(&components::caller(directory.path()), "/api/v1/nodes").await {
        let ready = condition(&node, "Ready");
        let since = seconds(ready["lastTransitionTime"].as_str().unwrap());
        found.push(format!("{} {} since {since}", node["metadata"]["name"], ready["status"]));
    }
    found
}

#[tokio::test]
async fn a_silent_node_is_lost_at_the_same_time_after_any_movement() {
    // to 72 minutes after the last settlement
    let exact = changes_of_silence(&[&["advance", "72m", "--step", "10s", "--pause", "0s"]]).await;
    let has = |part: &str| exact.iter().filter(|it| it.contains(part)).count();
    assert_eq!((has("\"live-0\" \"True\""), has("\"silent-0\" \"Unknown\"")), (1, 1), "{exact:?}");
    assert!(has("ADDED     pods") > 0, "pods were evicted and replaced: {exact:?}");
    for movements in [
        &[&["advance", "72m"][..]][..],
        &[&["advance", "58m"], &["advance", "61s"], &["advance", "779s", "--step", "4m", "--pause", "0s"]],
    ] {
        assert_eq!(changes_of_silence(movements).await, exact, "{movements:?}");
    }
}

#[tokio::test]
async fn a_node_without_an_agent_is_lost_after_its_grace_period() {
    let directory = TempDir::new().unwrap();
    let _process = start_with(directory.path(), &["--nodes", "1"]);
    let caller = caller(directory.path());
    clock(directory.path(), &["settle"]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}});
    post(&caller, "/api/v1/nodes", node).await;
    clock(directory.path(), &["advance", "24h"]);
    let nodes = list(&components::caller(directory.path()), "/api/v1/nodes").await;
    assert_eq!(names(&nodes), ["bare", "node-0"]);
    let ready = condition(&nodes[0], "Ready");
    assert_eq!(ready["status"], "Unknown");
    let created = micros(nodes[0]["metadata"]["creationTimestamp"].as_str().unwrap());
    let lost = micros(ready["lastTransitionTime"].as_str().unwrap());
    // at the first check after a minute
    assert!((60..=65).contains(&((lost - created) / 1_000_000)), "{nodes:?}");
    assert_eq!(condition(&nodes[1], "Ready")["status"], "True");
}

#[tokio::test]
async fn rules_of_faults_meet_every_renewal() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("faults.yaml");
    let rule = "{verbs: [patch], resources: [leases], components: true, status: 409, every: 1000000}";
    std::fs::write(&file, format!("{{rules: [{rule}]}}")).unwrap();
    let _process = start_with(directory.path(), &["--nodes", "1", "--faults", file.to_str().unwrap()]);
    clock(directory.path(), &["advance", "1h"]);
    let answer = caller(directory.path()).get("/simulation/faults").await.unwrap();
    let faults: Value = serde_json::from_slice(&answer.body).unwrap();
    let matched = faults["status"]["rules"][0]["matched"].as_i64().unwrap();
    // every 10 s
    assert!((355..=362).contains(&matched), "{faults}");
}

#[tokio::test]
async fn an_autoscaler_has_the_usage_of_simulated_pods() {
    let directory = TempDir::new().unwrap();
    let _process = start_with(directory.path(), &["--nodes", "1"]);
    let caller = caller(directory.path());
    clock(directory.path(), &["settle"]);
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Always");
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    template["metadata"]["annotations"] = json!({"simulation.pintle.io/usage-cpu": "90m"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}});
    post(&caller, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3,
                 "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                     "target": {"type": "Utilization", "averageUtilization": 20}}}]}});
    post(&caller, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", autoscaler).await;
    let changes = clock(directory.path(), &["advance", "10m"]);
    let caller = components::caller(directory.path());
    assert_eq!(list(&caller, PODS).await.len(), 3, "{changes}");
    let autoscalers = list(&caller, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers").await;
    assert_eq!(condition(&autoscalers[0], "ScalingActive")["status"], "True");
    let usage = &autoscalers[0]["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(usage["averageValue"], "90m");
}

/// A time of the API in microseconds.
fn micros(time: &str) -> i64 {
    let whole = time.strip_suffix('Z').unwrap();
    let time = if whole.contains('.') { time.to_owned() } else { format!("{whole}.000000Z") };
    schema::time::to_unix_micros(&time).unwrap()
}

fn condition(object: &Value, name: &str) -> Value {
    let all = object["status"]["conditions"].as_array().unwrap();
    all.iter().find(|it| it["type"] == name).cloned().unwrap_or_default()
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
