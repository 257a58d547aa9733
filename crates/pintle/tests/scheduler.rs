//! The scheduler as a process of its own: it schedules while it holds the lease, with its configuration and extenders,
//! and serves health, metrics and its configuration to authorized users.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod components;

use components::{Process, caller, free_port, looking, post, server, until};
use outbound::{HttpClient, Target};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.arg("scheduler").args(arguments);
    command
}

/// Writes a configuration for the server of a data directory.
fn write_config(directory: &Path, mut config: Value) -> String {
    let kubeconfig = directory.join("admin.kubeconfig");
    config["apiVersion"] = "kubescheduler.config.k8s.io/v1".into();
    config["kind"] = "KubeSchedulerConfiguration".into();
    config["clientConnection"] = json!({"kubeconfig": kubeconfig, "qps": -1});
    let file = directory.join("scheduler.json");
    std::fs::write(&file, config.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

struct Scheduler {
    process: Process,
    port: u16,
}

fn scheduler(directory: &Path, config: &str, more: &[&str]) -> Scheduler {
    let port = free_port();
    let mut command = command(&["--config", config, "--bind-address", "127.0.0.1"]);
    command.args(["--secure-port", &port.to_string()]).args(more);
    for option in ["--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(option).arg(directory.join("admin.kubeconfig"));
    }
    // a slow disk may hold a renewal for seconds, which must not cost the lease
    command.args(["--leader-elect-renew-deadline", "12s", "--leader-elect-retry-period", "200ms"]);
    Scheduler { process: Process(command.spawn().unwrap()), port }
}

async fn post_node(directory: &Path, admin: &HttpClient, name: &str) {
    let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "4"}});
    post(admin, "/api/v1/nodes", json!({"metadata": {"name": name}, "status": status})).await;
    // a new node has a taint until its agent reports
    let path = format!("/api/v1/nodes/{name}");
    let node = admin.get(&path).await.unwrap();
    let mut node: Value = serde_json::from_slice(&node.body).unwrap();
    node["spec"] = json!({});
    assert_eq!(put(directory, &path, &node).await, 200);
}

/// Replaces an object as the administrator. Returns the status.
async fn put(directory: &Path, path: &str, object: &Value) -> u16 {
    let target = Target::from_kubeconfig(&directory.join("admin.kubeconfig")).unwrap();
    let mut transport = client::transport::transport(&target, "test", &Default::default()).unwrap();
    let body = client::Body::from(object.to_string().into_bytes());
    let request = http::Request::put(path).header("content-type", "application/json").body(body).unwrap();
    let answer = tower_service::Service::call(&mut transport, request).await.unwrap();
    answer.status().as_u16()
}

fn pod(name: &str, requests: Value) -> Value {
    let container =
        json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

/// Creates the account that pods need; no control loop runs here.
async fn post_account(admin: &HttpClient) {
    let account = json!({"metadata": {"name": "default"}});
    post(admin, "/api/v1/namespaces/default/serviceaccounts", account).await;
}

fn is_bound(text: &str) -> bool {
    let pod: Value = serde_json::from_str(text).unwrap_or_default();
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

#[tokio::test]
async fn the_scheduler_binds_pods_reports_health_and_releases_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _api = server(directory, free_port());
    let admin = caller(directory);
    post_account(&admin).await;
    let config = write_config(directory, json!({"parallelism": 7}));
    let mut it = scheduler(directory, &config, &[]);
    post(&admin, PODS, pod("p", json!({"cpu": "1"}))).await;
    let path = format!("{PODS}/p");
    until("the pod says why it waits", &admin, &path, |_, text| {
        text.contains("no nodes available to schedule pods")
    })
    .await;
    post_node(directory, &admin, "n").await;
    until("the pod is bound", &admin, &path, |_, text| is_bound(text)).await;

    let (anonymous, known) = (looking(directory, it.port, false), looking(directory, it.port, true));
    for path in ["/healthz", "/livez", "/readyz"] {
        until(path, &anonymous, path, |code, text| code == 200 && text == "ok").await;
    }
    for path in ["/metrics", "/configz", "/metrics/resources", "/debug/pprof/"] {
        assert_eq!(anonymous.get(path).await.unwrap().status, 403, "{path}");
    }
    let configz = known.get("/configz").await.unwrap();
    assert_eq!(configz.headers["content-type"], "application/json");
    let configz: Value = serde_json::from_slice(&configz.body).unwrap();
    assert_eq!(configz["componentconfig"]["Parallelism"], 7);
    let parts = [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n",
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} ",
        "scheduler_pending_pods{queue=\"active\"} 0\n",
        "scheduler_scheduler_cache_size{type=\"nodes\"} 1\n",
        "extension_point=\"Filter\"",
        "extension_point=\"Bind\"",
        "scheduler_pod_scheduling_attempts_count 1\n",
        "rest_client_requests_total{",
        "leader_election_master_status{name=\"kube-scheduler\"} 1\n",
        "process_start_time_seconds",
    ];
    until("metrics", &known, "/metrics", |_, text| parts.iter().all(|it| text.contains(it))).await;
    let resources = until("resources", &known, "/metrics/resources", |code, _| code == 200).await;
    assert!(resources.contains("kube_pod_resource_request{") && resources.contains("resource=\"cpu\""));
    it.process.terminate();
    assert_eq!(it.process.ends(), Some(0));
    let lease = until("the lease", &admin, LEASE, |code, _| code == 200).await;
    assert!(lease.contains("\"holderIdentity\":\"\""), "{lease}");
}

#[tokio::test]
async fn a_scheduler_that_loses_the_lease_ends() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _api = server(directory, free_port());
    let admin = caller(directory);
    let config = write_config(directory, json!({}));
    let mut it = scheduler(directory, &config, &[]);
    let lease = until("the lease", &admin, LEASE, |code, _| code == 200).await;
    let mut lease: Value = serde_json::from_str(&lease).unwrap();
    lease["spec"]["holderIdentity"] = "another".into();
    lease["spec"]["leaseDurationSeconds"] = 3600.into();
    while put(directory, LEASE, &lease).await != 200 {
        let text = until("the lease", &admin, LEASE, |code, _| code == 200).await;
        let newest: Value = serde_json::from_str(&text).unwrap();
        lease["metadata"] = newest["metadata"].clone();
    }
    assert_eq!(it.process.ends(), Some(1));
}

/// An extender that answers nothing. Returns its URL.
fn hanging_extender() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().filter_map(Result::ok).collect();
        drop(streams);
    });
    url
}

/// An extender that accepts the node `m` only, whichever nodes it gets. Returns its URL.
fn filtering_extender() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(count) = stream.read(&mut buffer) {
                bytes.extend_from_slice(&buffer[..count]);
                if count == 0 || is_whole(&bytes) {
                    break;
                }
            }
            let body = r#"{"NodeNames":["m"],"FailedNodes":{"n":"not for extended pods"}}"#;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

#[tokio::test]
async fn extenders_take_part_and_a_hanging_one_delays_only_its_pods() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _api = server(directory, free_port());
    let admin = caller(directory);
    post_account(&admin).await;
    let gpu = json!([{"name": "example.com/gpu"}]);
    let hanging = json!({"urlPrefix": hanging_extender(), "filterVerb": "filter", "httpTimeout": "2s",
        "nodeCacheCapable": true, "managedResources": [{"name": "example.com/stuck"}]});
    let filtering = json!({"urlPrefix": filtering_extender(), "filterVerb": "filter", "httpTimeout": "30s",
        "nodeCacheCapable": true, "managedResources": gpu});
    let config = write_config(directory, json!({"extenders": [hanging, filtering]}));
    let _it = scheduler(directory, &config, &["--leader-elect=false"]);
    for node in ["m", "n"] {
        post_node(directory, &admin, node).await;
    }
    let stuck = json!({"metadata": {"name": "stuck"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"example.com/stuck": "0"}}}]}});
    post(&admin, PODS, stuck).await;
    for at in 0..3 {
        post(&admin, PODS, pod(&format!("p{at}"), json!({"cpu": "100m"}))).await;
    }
    for at in 0..3 {
        until("a pod without an extender is bound", &admin, &format!("{PODS}/p{at}"), |_, it| is_bound(it))
            .await;
    }
    let stuck = format!("{PODS}/stuck");
    let text = until("the stuck pod says why", &admin, &stuck, |_, it| it.contains("SchedulerError")).await;
    assert!(text.contains("/filter") && !is_bound(&text), "{text}");
    post(&admin, PODS, pod("gpu", json!({"example.com/gpu": "1"}))).await;
    until("the extender's node", &admin, &format!("{PODS}/gpu"), |_, text| {
        text.contains("\"nodeName\":\"m\"")
    })
    .await;
    // the extender knows another node only
    post(&admin, PODS, pod("gpus", json!({"example.com/gpu": "4"}))).await;
    until("the reason", &admin, &format!("{PODS}/gpus"), |_, text| text.contains("claims a filtered node"))
        .await;
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(arguments).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_wrong_configuration_names_all_mistakes() {
    let directory = tempfile::tempdir().unwrap();
    let config = json!({"parallelism": -1, "podInitialBackoffSeconds": -5, "percentageOfNodesToScore": 101,
        "extenders": [{"urlPrefix": "http://a", "prioritizeVerb": "p", "weight": -1}],
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]});
    let file = write_config(directory.path(), config);
    let (code, message) = run(&["--config", &file, "--master", "http://127.0.0.1:1", "--secure-port", "0"]);
    assert_eq!(code, Some(1), "{message}");
    for part in
        ["parallelism", "podInitialBackoffSeconds", "percentageOfNodesToScore", "weight", "schedulerName"]
    {
        assert!(
            message.lines().any(|line| line.starts_with("pintle: --config: ") && line.contains(part)),
            "{part}: {message}"
        );
    }
    let (_, message) =
        run(&["--config", "/nowhere", "--leader-elect-renew-deadline=x", "--tls-cert-file=/none"]);
    for part in ["--config: cannot read /nowhere", "--leader-elect-renew-deadline", "--tls-cert-file"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn the_written_configuration_can_be_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = write_config(directory.path(), json!({"profiles": [{"schedulerName": "mine"}]}));
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let elect = "--leader-elect-lease-duration=20s";
    let (code, message) =
        run(&["--config", &file, "--kube-api-qps=7", elect, "--write-config-to", &at("a.yaml")]);
    assert_eq!(code, Some(0), "{message}");
    let text = std::fs::read_to_string(at("a.yaml")).unwrap();
    // a file counts more than deprecated flags, and less than those of leader election
    for part in ["schedulerName: mine", "leaseDuration: 20s", "qps: -1", "parallelism: 16"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, message) = run(&["--config", &at("a.yaml"), "--write-config-to", &at("b.yaml")]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(std::fs::read_to_string(at("b.yaml")).unwrap(), text);
    let (code, message) =
        run(&["--kube-api-qps=7", "--lock-object-name=l", "--write-config-to", &at("c.yaml")]);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("--lock-object-name is deprecated"), "{message}");
    let text = std::fs::read_to_string(at("c.yaml")).unwrap();
    assert!(text.contains("qps: 7\n") && text.contains("resourceName: l\n"), "{text}");
}
