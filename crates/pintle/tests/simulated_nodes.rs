//! `pintle up --nodes`: pods run on simulated nodes, as their annotations say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod components;

use components::{Process, caller, post, until};
use outbound::{HttpClient, Target};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn cluster(directory: &Path, arguments: &[&str]) -> (Process, HttpClient) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--secure-port", "0", "--data-dir"]).arg(directory).args(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    let (process, admin) = (Process(child), caller(directory));
    // pods are refused before it is there
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    until("the service account", &admin, account, |status, _| status == 200).await;
    (process, admin)
}

/// A pod with one container and settings of the simulation.
fn pod(name: &str, settings: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        settings.iter().map(|(key, value)| (format!("simulation.pintle.io/{key}"), json!(value))).collect();
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "example.com/web:1"}], "terminationGracePeriodSeconds": 1},
    })
}

/// Waits until an object is as it should be.
async fn until_object(admin: &HttpClient, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let last = std::cell::RefCell::new(String::new());
    let text = until(path, admin, path, |status, text| {
        text.clone_into(&mut last.borrow_mut());
        status == 200 && serde_json::from_str(text).is_ok_and(|object| holds(&object))
    });
    serde_json::from_str(&text.await).unwrap()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|it| it.iter().find(|it| it["type"] == kind));
    found.map_or(&Value::Null, |it| &it["status"])
}

/// Sends a request as the administrator. Returns the status.
async fn send(directory: &Path, method: http::Method, path: &str, body: Value) -> u16 {
    let target = Target::from_kubeconfig(&directory.join("admin.kubeconfig")).unwrap();
    let mut transport = client::transport::transport(&target, "test", &Default::default()).unwrap();
    let body = client::Body::from(body.to_string().into_bytes());
    let content =
        if method == http::Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let answer = tower_service::Service::call(&mut transport, request.body(body).unwrap()).await.unwrap();
    answer.status().as_u16()
}

/// Sets the annotation of a node.
async fn annotate(directory: &Path, node: &str, setting: &str, value: &str) {
    let annotations = json!({format!("simulation.pintle.io/{setting}"): value});
    let patch = json!({"metadata": {"annotations": annotations}});
    assert_eq!(send(directory, http::Method::PATCH, node, patch).await, 200);
}

async fn get(admin: &HttpClient, path: &str) -> Value {
    serde_json::from_slice(&admin.get(path).await.unwrap().body).unwrap()
}

#[tokio::test]
async fn a_deployment_becomes_available_on_simulated_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, admin) = cluster(directory.path(), &["--nodes", "3"]).await;
    let labels = json!({"app": "web"});
    let spec = json!({
        "replicas": 3,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "web"}]}},
    });
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    post(&admin, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    until_object(&admin, path, |it| it["status"]["availableReplicas"] == 3).await;
    let pods = get(&admin, PODS).await;
    for pod in pods["items"].as_array().unwrap() {
        assert_eq!(
            (&pod["status"]["phase"], condition(pod, "Ready")),
            (&json!("Running"), &json!("True")),
            "{pod}"
        );
        assert!(pod["status"]["podIP"].as_str().is_some_and(|it| it.starts_with("10.")), "{pod}");
    }
    let nodes = get(&admin, "/api/v1/nodes").await;
    for node in nodes["items"].as_array().unwrap() {
        assert_eq!(node["metadata"]["labels"]["simulation.pintle.io/node"], "true");
        let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap();
        assert!(version.ends_with("-simulated"), "{version}");
    }
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(3));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-2";
    let lease = until_object(&admin, lease, |it| it["spec"]["holderIdentity"] == "node-2").await;
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
}

#[tokio::test]
async fn annotations_say_how_containers_run_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, admin) = cluster(directory.path(), &["--nodes", "1"]).await;
    for (name, settings) in [
        ("crash", &[("exit-code", "3"), ("log", "oh no")][..]),
        ("memory", &[("out-of-memory-after", "10ms")]),
        ("image", &[("pull-error", "no such image")]),
        ("unready", &[("unready-after", "0s")]),
        ("wrong", &[("run-for", "soon")]),
    ] {
        let mut pod = pod(name, settings);
        // pods that wait for one image share its pull, and its error
        pod["spec"]["containers"][0]["image"] = json!(format!("example.com/{name}:1"));
        post(&admin, PODS, pod).await;
    }
    let mut first = pod("init", &[("exit-code.second", "7")]);
    first["spec"]["initContainers"] =
        json!([{"name": "first", "image": "i"}, {"name": "second", "image": "i"}]);
    post(&admin, PODS, first).await;
    let status = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    let of = |name: &str| format!("{PODS}/{name}");
    let crashed = until_object(&admin, &of("crash"), |it| {
        let status = status(it);
        status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            && status["restartCount"].as_i64() >= Some(1)
    })
    .await;
    assert_eq!(status(&crashed)["lastState"]["terminated"]["exitCode"], 3);
    until_object(&admin, &of("memory"), |it| {
        status(it)["lastState"]["terminated"]["reason"] == "OOMKilled"
            && status(it)["lastState"]["terminated"]["exitCode"] == 137
    })
    .await;
    until_object(&admin, &of("image"), |it| status(it)["state"]["waiting"]["reason"] == "ImagePullBackOff")
        .await;
    until_object(&admin, &of("unready"), |it| {
        it["status"]["phase"] == "Running" && condition(it, "Ready") == "False"
    })
    .await;
    until_object(&admin, &of("init"), |it| {
        let init = &it["status"]["initContainerStatuses"];
        init[0]["state"]["terminated"]["reason"] == "Completed"
            && init[1]["lastState"]["terminated"]["exitCode"] == 7
    })
    .await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dwrong,reason%3DInvalidSimulation";
    let events = until_object(&admin, events, |it| it["items"][0].is_object()).await;
    let message = events["items"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("simulation.pintle.io/run-for: \"soon\""), "{message}");
}

#[tokio::test]
async fn nodes_of_a_profile_fall_silent_come_back_and_lose_their_disk() {
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("profile.yaml");
    let text = "apiVersion: simulation.pintle.io/v1alpha1\nkind: SimulationProfile\nnodes:\n\
                - {count: 2, name: big, capacity: {cpu: 64}, zones: [a, b], labels: {disk: ssd}}\n\
                - {name: tainted, taints: [{key: k, value: v, effect: NoSchedule}]}\n\
                pods:\n- {labels: {app: slow}, set: {start-delay: 1h}}\n";
    std::fs::write(&profile, text).unwrap();
    let arguments = ["--simulation-profile", profile.to_str().unwrap()];
    let (_server, admin) = cluster(directory.path(), &arguments).await;
    let node = |name: &str| format!("/api/v1/nodes/{name}");
    let big = until_object(&admin, &node("big-1"), |it| condition(it, "Ready") == "True").await;
    assert_eq!(big["status"]["allocatable"]["cpu"], "64");
    assert_eq!(big["metadata"]["labels"]["topology.kubernetes.io/zone"], "b");
    until_object(&admin, &node("tainted-0"), |it| it["spec"]["taints"].to_string().contains("\"k\"")).await;
    let mut slow = pod("slow", &[]);
    slow["metadata"]["labels"] = json!({"app": "slow"});
    post(&admin, PODS, slow).await;
    let mut lasting = pod("lasting", &[]);
    lasting["spec"]["nodeName"] = json!("big-0");
    post(&admin, PODS, lasting).await;
    let path = format!("{PODS}/lasting");
    until_object(&admin, &path, |it| condition(it, "Ready") == "True").await;

    // a disk that is lost takes the containers with it
    annotate(directory.path(), &node("big-0"), "disk-lost", "1").await;
    until_object(&admin, &path, |it| it["status"]["containerStatuses"][0]["restartCount"] == 1).await;

    // a silent node does not end a pod
    annotate(directory.path(), &node("big-0"), "silent", "true").await;
    annotate(directory.path(), &node("big-1"), "not-ready", "broken").await;
    until_object(&admin, &node("big-1"), |it| condition(it, "Ready") == "False").await;
    assert_eq!(send(directory.path(), http::Method::DELETE, &path, json!({})).await, 200);
    // the annotation of big-0 came before that of big-1, which has taken effect
    assert!(get(&admin, &path).await["metadata"]["deletionTimestamp"].is_string());
    annotate(directory.path(), &node("big-0"), "silent", "false").await;
    until("the end of the pod", &admin, &path, |status, _| status == 404).await;
    let slow = get(&admin, &format!("{PODS}/slow")).await;
    assert_eq!(slow["status"]["phase"], "Pending", "{slow}");
}

#[tokio::test]
async fn logs_commands_and_usage_come_from_the_simulated_agent() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, admin) = cluster(directory.path(), &["--nodes", "1"]).await;
    let settings = [("log", "one\ntwo"), ("usage-cpu", "250m"), ("usage-memory", "64Mi")];
    post(&admin, PODS, pod("web", &settings)).await;
    let path = format!("{PODS}/web");
    until_object(&admin, &path, |it| condition(it, "Ready") == "True").await;
    let text = async |path: &str| String::from_utf8(admin.get(path).await.unwrap().body.to_vec()).unwrap();
    assert_eq!(text(&format!("{path}/log")).await, "one\ntwo\n");
    assert_eq!(text(&format!("{path}/log?tailLines=1")).await, "two\n");
    let node = "/api/v1/nodes/node-0/proxy";
    let run = admin.post(&format!("{node}/run/default/web/c?cmd=echo+hello"), "".into()).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&run.body), "echo hello\n");
    let pods: Value = serde_json::from_str(&text(&format!("{node}/pods")).await).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    // files of the machine are not those of the node
    let logs = admin.get(&format!("{node}/logs/")).await.unwrap();
    assert_eq!(logs.status, 405);
    let usage = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web";
    let usage = until_object(&admin, usage, |it| it["containers"][0].is_object()).await;
    assert_eq!(usage["containers"][0]["usage"], json!({"cpu": "250m", "memory": "64Mi"}), "{usage}");
}

#[tokio::test]
async fn stages_of_kwok_change_pods_and_a_node_of_kwok_is_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("stages.yaml");
    let text = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  next:
    event: {type: Normal, reason: Simulated, message: runs}
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: Ready
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-complete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {ends: "true"}
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["True"]}
    - {key: .status.phase, operator: In, values: [Running]}
  delay: {durationMilliseconds: 10}
  next: {statusTemplate: "phase: Succeeded"}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
"#;
    std::fs::write(&profile, text).unwrap();
    let arguments = ["--simulation-profile", profile.to_str().unwrap()];
    let (_server, admin) = cluster(directory.path(), &arguments).await;
    let node = json!({
        "metadata": {"name": "kwok-node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": {"cpu": "32", "pods": "5"}, "capacity": {"cpu": "32", "pods": "5"},
                   "nodeInfo": {"kubeletVersion": "fake"}},
    });
    post(&admin, "/api/v1/nodes", node).await;
    let node = "/api/v1/nodes/kwok-node";
    let node = until_object(&admin, node, |it| condition(it, "Ready") == "True").await;
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "fake");
    let mut ends = pod("ends", &[]);
    ends["metadata"]["labels"] = json!({"ends": "true"});
    ends["metadata"]["finalizers"] = json!(["example.com/keep"]);
    post(&admin, PODS, ends).await;
    post(&admin, PODS, pod("stays", &[])).await;
    let path = |name: &str| format!("{PODS}/{name}");
    until_object(&admin, &path("ends"), |it| it["status"]["phase"] == "Succeeded").await;
    let stays = until_object(&admin, &path("stays"), |it| it["status"]["phase"] == "Running").await;
    assert_eq!(stays["status"]["containerStatuses"][0]["image"], "example.com/web:1");
    assert!(stays["status"]["podIP"].as_str().is_some_and(|it| it.starts_with("10.")), "{stays}");
    for name in ["ends", "stays"] {
        assert_eq!(send(directory.path(), http::Method::DELETE, &path(name), json!({})).await, 200);
        until("the end of the pod", &admin, &path(name), |status, _| status == 404).await;
    }
}

#[test]
fn mistakes_in_a_profile_are_all_reported_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("profile.yaml");
    let text = "apiVersion: simulation.pintle.io/v1alpha1\nkind: SimulationProfile\nnodes: [{size: 1}]\npods: [{set: {run-for: x}}]\n";
    std::fs::write(&profile, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--ephemeral", "--secure-port", "0", "--simulation-profile"]).arg(&profile);
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains("nodes[0].size: unknown field") && message.contains("pods[0].set.run-for"),
        "{message}"
    );
}
