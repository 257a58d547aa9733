//! Node lifecycle: heartbeats, evictions, and taints by condition.

use controllers::{nodelifecycle, registry};
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition, Pod, Taint};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::agent::{is_ready, set_status};
use tests::{ManagedCluster, Options, until};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// The period of the monitor: several steps of the clock, so that a slow machine delays no check.
const PERIOD: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);

/// Loops on a simulated clock.
async fn managed() -> ManagedCluster {
    let node_lifecycle = nodelifecycle::Options { period: PERIOD, ..nodelifecycle::Options::default() };
    let controllers = vec!["nodelifecycle".to_owned()];
    let options = registry::Options { controllers, node_lifecycle, ..registry::Options::default() };
    ManagedCluster::with(Options { simulated_clock: true, ..Options::default() }, options).await
}

fn nodes(managed: &ManagedCluster) -> Api<Node> {
    Api::all(managed.client())
}

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

fn events(managed: &ManagedCluster) -> Api<Event> {
    Api::namespaced(managed.client(), "default")
}

/// Makes a node whose agent says that it is ready.
async fn ready_node(managed: &ManagedCluster, name: &str) {
    let condition = json!({"type": "Ready", "status": "True", "reason": "AgentReady",
        "lastHeartbeatTime": managed.cluster.time(), "lastTransitionTime": managed.cluster.time()});
    let node = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
    managed.cluster.create(NODES, node).await;
    let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    managed.cluster.create(LEASES, lease).await;
}

/// Renews the lease of a node.
async fn renew(managed: &ManagedCluster, name: &str) {
    let time = managed.cluster.time().replace('Z', ".000000Z");
    managed.cluster.patch(&format!("{LEASES}/{name}"), json!({"spec": {"renewTime": time}})).await.code(200);
}

/// An agent writes its status.
async fn report(managed: &ManagedCluster, name: &str, conditions: &[(&str, &str)]) {
    let now = managed.cluster.time();
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now}))
        .collect();
    let path = format!("{NODES}/{name}/status");
    managed
        .cluster
        .request(http::Method::PATCH, &path)
        .body(json!({"status": {"conditions": conditions}}))
        .header("content-type", "application/strategic-merge-patch+json")
        .await
        .code(200);
}

/// A pod on a node that tolerates this taint for so many seconds, or without limit.
async fn pod_on(managed: &ManagedCluster, name: &str, node: &str, bears: &[(&str, Option<i64>)]) {
    let tolerations: Vec<_> = bears
        .iter()
        .map(|(key, seconds)| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
        })
        .collect();
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "tolerations": tolerations}
    });
    managed.cluster.create(PODS, pod).await;
    set_status(&pods(managed), name, "Running", "True").await;
}

/// Advances the clock by seconds while these nodes send heartbeats. A request precedes each step, so that the clock
/// is no faster than the server.
async fn seconds_pass(managed: &ManagedCluster, alive: &[&str], seconds: i64) {
    let end = managed.cluster.seconds() + seconds;
    while managed.cluster.seconds() < end {
        for name in alive {
            renew(managed, name).await;
        }
        managed.cluster.get("/livez/ping").await.code(200);
        managed.cluster.advance(STEP);
    }
}

/// Time passes until a future is ready.
async fn passing<T>(managed: &ManagedCluster, alive: &[&str], future: impl Future<Output = T>) -> T {
    tokio::select! {
        output = future => output,
        () = seconds_pass(managed, alive, i64::from(u32::MAX)) => unreachable!("time does not end"),
    }
}

fn condition<'a>(node: &'a Node, name: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|it| it.type_ == name)
}

fn status_of<'a>(node: &'a Node, name: &str) -> &'a str {
    condition(node, name).map_or("", |it| &it.status)
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|it| it.taints.as_deref()).unwrap_or_default()
}

/// Taints as `key:effect`, without the domain, in order.
fn tainted(node: &Node) -> Vec<String> {
    let short = |it: &Taint| format!("{}:{}", it.key.replace("node.kubernetes.io/", ""), it.effect);
    let mut all: Vec<_> = taints(node).iter().map(short).collect();
    all.sort();
    all
}

fn has_event(all: &BTreeMap<String, Event>, about: &str, reason: &str, message: &str) -> bool {
    all.values().any(|it| {
        it.involved_object.name.as_deref() == Some(about)
            && it.reason.as_deref() == Some(reason)
            && it.message.as_deref() == Some(message)
    })
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[tokio::test]
async fn a_silent_node_is_unreachable_and_recovers() {
    let mut managed = managed().await;
    let began = managed.cluster.seconds();
    ready_node(&managed, "alive").await;
    ready_node(&managed, "silent").await;
    let unreachable = "node.kubernetes.io/unreachable";
    pod_on(&managed, "short", "silent", &[(unreachable, Some(20))]).await;
    pod_on(&managed, "long", "silent", &[(unreachable, Some(3000))]).await;
    pod_on(&managed, "elsewhere", "alive", &[]).await;
    let said = |all: &BTreeMap<String, Event>| {
        has_event(all, "silent", "RegisteredNode", "Node silent event: Registered Node silent in Controller")
    };
    passing(&managed, &["alive"], until("the node is known", &events(&managed), said)).await;
    let lost = |all: &BTreeMap<String, Node>| status_of(&all["silent"], "Ready") == "Unknown";
    let all = passing(&managed, &["alive"], until("silence", &nodes(&managed), lost)).await;
    let ready = condition(&all["silent"], "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(ready.message.as_deref(), Some("Kubelet stopped posting node status."));
    let since = ready.last_transition_time.as_ref().unwrap().0.as_second();
    assert!(since >= began + 40, "{since}");
    assert_eq!(ready.last_heartbeat_time.as_ref().unwrap().0.as_second(), tests::NOW as i64);
    let memory = condition(&all["silent"], "MemoryPressure").unwrap();
    assert_eq!((&*memory.status, memory.reason.as_deref()), ("Unknown", Some("NodeStatusNeverUpdated")));
    assert_eq!(condition(&all["silent"], "NetworkUnavailable"), None);
    // the node gets no pods, and its pods are evicted
    let emptied = |all: &BTreeMap<String, Node>| {
        tainted(&all["silent"]) == ["unreachable:NoExecute", "unreachable:NoSchedule"]
    };
    let all = passing(&managed, &["alive"], until("taints", &nodes(&managed), emptied)).await;
    assert!(taints(&all["silent"]).iter().all(|it| it.time_added.is_some()));
    assert_eq!((status_of(&all["alive"], "Ready"), tainted(&all["alive"])), ("True", vec![]));
    let unready = |all: &BTreeMap<String, Pod>| !is_ready(&all["short"]) && !is_ready(&all["long"]);
    let all = passing(&managed, &["alive"], until("pods are not ready", &pods(&managed), unready)).await;
    assert!(is_ready(&all["elsewhere"]));
    // a restarted manager continues
    managed.restart_loops().await;
    let gone = |all: &BTreeMap<String, Pod>| is_leaving(&all["short"]);
    let all = passing(&managed, &["alive"], until("the pod to go", &pods(&managed), gone)).await;
    let conditions = all["short"].status.as_ref().unwrap().conditions.as_ref().unwrap();
    let target = conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
    assert_eq!((&*target.status, target.reason.as_deref()), ("True", Some("DeletionByTaintManager")));
    assert!(!is_leaving(&all["long"]) && !is_leaving(&all["elsewhere"]));
    // it is heard of again
    report(&managed, "silent", &[("Ready", "True"), ("MemoryPressure", "False")]).await;
    let well = |all: &BTreeMap<String, Node>| taints(&all["silent"]).is_empty();
    passing(&managed, &["alive", "silent"], until("no taints", &nodes(&managed), well)).await;
    let is_reported = |all: &BTreeMap<String, Event>| {
        has_event(all, "silent", "NodeNotReady", "Node silent status is now: NodeNotReady")
            && has_event(all, "long", "NodeNotReady", "Node is not ready")
            && has_event(all, "short", "TaintManagerEviction", "Marking for deletion Pod default/short")
            && has_event(all, "long", "TaintManagerEviction", "Cancelling deletion of Pod default/long")
    };
    passing(&managed, &["alive", "silent"], until("events", &events(&managed), is_reported)).await;
    managed.cluster.delete(&format!("{NODES}/silent")).await.code(200);
    let is_reported = |all: &BTreeMap<String, Event>| {
        has_event(all, "silent", "RemovingNode", "Node silent event: Removing Node silent from Controller")
    };
    passing(&managed, &["alive"], until("the node is forgotten", &events(&managed), is_reported)).await;
}

/// The number of checks of all nodes.
fn checks(managed: &ManagedCluster) -> u64 {
    const CHECKS: &str = "node_collector_update_all_nodes_health_duration_seconds_count ";
    let metrics = managed.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(CHECKS)).map_or(0, |count| count.parse().unwrap())
}

/// Time passes until all nodes were checked once more.
async fn next_check(managed: &ManagedCluster, alive: &[&str]) {
    let before = checks(managed);
    while checks(managed) == before {
        seconds_pass(managed, alive, 1).await;
    }
}

#[tokio::test]
async fn a_delayed_monitor_marks_no_node_unreachable() {
    let managed = managed().await;
    ready_node(&managed, "late").await;
    ready_node(&managed, "silent").await;
    let names = ["late", "silent"];
    let are_registered = |all: &BTreeMap<String, Event>| {
        names.iter().all(|name| {
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            has_event(all, name, "RegisteredNode", &message)
        })
    };
    passing(&managed, &names, until("the nodes are known", &events(&managed), are_registered)).await;
    next_check(&managed, &names).await;
    // renewals waited for longer than a node may be silent, and so did the loop
    managed.cluster.advance(Duration::from_secs(100));
    next_check(&managed, &[]).await;
    let all = until("all nodes", &nodes(&managed), |all| all.len() == 2).await;
    assert_eq!(names.map(|name| status_of(&all[name], "Ready")), ["True", "True"]);
    // until the next check the renewals have come, but for those of a node that is lost indeed
    let lost = |all: &BTreeMap<String, Node>| status_of(&all["silent"], "Ready") == "Unknown";
    let all = passing(&managed, &["late"], until("silence", &nodes(&managed), lost)).await;
    assert_eq!((status_of(&all["late"], "Ready"), tainted(&all["late"])), ("True", vec![]));
}

#[tokio::test]
async fn no_pod_is_evicted_while_no_node_reports() {
    let mut managed = managed().await;
    // no agent reports these nodes
    managed.cluster.create(NODES, json!({"metadata": {"name": "a"}})).await;
    managed.cluster.create(NODES, json!({"metadata": {"name": "b"}})).await;
    pod_on(&managed, "p", "a", &[]).await;
    seconds_pass(&managed, &[], 50).await;
    let all = until("still waiting", &nodes(&managed), |_| true).await;
    assert_eq!(condition(&all["a"], "Ready"), None);
    let lost = |all: &BTreeMap<String, Node>| all.values().all(|it| status_of(it, "Ready") == "Unknown");
    let all = passing(&managed, &[], until("both are lost", &nodes(&managed), lost)).await;
    let ready = condition(&all["a"], "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("Kubelet never posted node status."));
    let since = ready.last_transition_time.as_ref().unwrap().0.as_second();
    assert!(since >= tests::NOW as i64 + 60, "{since}");
    let tainted_both =
        |all: &BTreeMap<String, Node>| all.values().all(|it| tainted(it) == ["unreachable:NoSchedule"]);
    passing(&managed, &[], until("no new pods", &nodes(&managed), tainted_both)).await;
    managed.restart_loops().await;
    seconds_pass(&managed, &[], 100).await;
    let all = until("nothing else", &nodes(&managed), |_| true).await;
    assert!(tainted_both(&all), "{all:?}");
    assert!(!is_leaving(&pods(&managed).get("p").await.unwrap()));
    // one is heard of: now it is known that the other is lost
    ready_node(&managed, "c").await;
    let emptied =
        |all: &BTreeMap<String, Node>| tainted(&all["a"]).contains(&"unreachable:NoExecute".to_owned());
    passing(&managed, &["c"], until("the lost one is emptied", &nodes(&managed), emptied)).await;
}

#[tokio::test]
async fn nodes_are_evicted_at_a_limited_rate() {
    let mut managed = managed().await;
    managed.pause_loops().await;
    for name in ["a", "b", "c", "d", "e"] {
        ready_node(&managed, name).await;
    }
    for name in ["a", "b", "c"] {
        report(&managed, name, &[("Ready", "False")]).await;
    }
    managed.restart_loops().await;
    let alive = ["a", "b", "c", "d", "e"];
    let is_emptied = |it: &&Node| tainted(it).contains(&"not-ready:NoExecute".to_owned());
    let emptied = |all: &BTreeMap<String, Node>| all.values().filter(is_emptied).count() == 2;
    // three of five nodes of a small zone are not ready: no pod is evicted
    seconds_pass(&managed, &alive, 30).await;
    let all = until("the nodes", &nodes(&managed), |_| true).await;
    assert_eq!(all.values().filter(is_emptied).count(), 0);
    report(&managed, "c", &[("Ready", "True")]).await;
    let all = passing(&managed, &alive, until("two", &nodes(&managed), emptied)).await;
    let mut when: Vec<i64> = all
        .values()
        .flat_map(|it| taints(it).iter().filter(|it| it.effect == "NoExecute"))
        .map(|it| it.time_added.as_ref().unwrap().0.as_second())
        .collect();
    when.sort_unstable();
    assert!(when[1] - when[0] >= 10, "{when:?}");
    // a silent node has another reason
    let swapped = |all: &BTreeMap<String, Node>| {
        tainted(&all["a"]) == ["unreachable:NoExecute", "unreachable:NoSchedule"]
    };
    passing(&managed, &["b", "c", "d", "e"], until("another taint", &nodes(&managed), swapped)).await;
}

#[tokio::test]
async fn conditions_become_taints_and_labels_are_synced() {
    let mut managed = managed().await;
    ready_node(&managed, "n").await;
    let mine = json!({"key": "example.com/mine", "effect": "NoSchedule"});
    let patch = json!({"metadata": {"labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/arch": "other"}}, "spec": {"unschedulable": true, "taints": [mine]}});
    managed.cluster.patch(&format!("{NODES}/n"), patch).await.code(200);
    let old = |node: &Node| {
        let label = |name: &str| node.labels().get(&format!("beta.kubernetes.io/{name}")).cloned();
        (label("os"), label("arch"))
    };
    let both = (Some("linux".to_owned()), Some("arm64".to_owned()));
    passing(&managed, &["n"], until("labels", &nodes(&managed), |all| old(&all["n"]) == both)).await;
    let closed = ["example.com/mine:NoSchedule", "unschedulable:NoSchedule"];
    passing(&managed, &["n"], until("closed", &nodes(&managed), |all| tainted(&all["n"]) == closed)).await;
    managed.restart_loops().await;
    // with concurrent writes of the node
    let meddling = async {
        for turn in 0.. {
            let patch = json!({"metadata": {"annotations": {"turn": turn.to_string()}}});
            managed.cluster.patch(&format!("{NODES}/n"), patch).await.code(200);
        }
    };
    let changing = async {
        let pressed = [("MemoryPressure", "True"), ("DiskPressure", "True"), ("PIDPressure", "True")];
        report(&managed, "n", &pressed).await;
        report(&managed, "n", &[("NetworkUnavailable", "True"), ("Ready", "False")]).await;
        let all = [
            "disk-pressure:NoSchedule",
            "example.com/mine:NoSchedule",
            "memory-pressure:NoSchedule",
            "network-unavailable:NoSchedule",
            "not-ready:NoSchedule",
            "pid-pressure:NoSchedule",
            "unschedulable:NoSchedule",
        ];
        let has_all = |them: &BTreeMap<String, Node>| tainted(&them["n"]) == all;
        passing(&managed, &["n"], until("all of them", &nodes(&managed), has_all)).await;
        let pressed = ["Memory", "Disk", "PID"].map(|it| format!("{it}Pressure"));
        let mut well: Vec<(&str, &str)> = pressed.iter().map(|it| (it.as_str(), "False")).collect();
        well.extend([("NetworkUnavailable", "False"), ("Ready", "True")]);
        report(&managed, "n", &well).await;
        managed
            .cluster
            .patch(&format!("{NODES}/n"), json!({"spec": {"unschedulable": null}}))
            .await
            .code(200);
        let mine = |all: &BTreeMap<String, Node>| tainted(&all["n"]) == ["example.com/mine:NoSchedule"];
        passing(&managed, &["n"], until("mine alone", &nodes(&managed), mine)).await;
    };
    tokio::select! {
        () = changing => {}
        () = meddling => unreachable!("it does not end"),
    }
}

#[tokio::test]
async fn pods_are_evicted_if_they_do_not_tolerate_a_taint() {
    let mut managed = managed().await;
    ready_node(&managed, "n").await;
    let taint = |on: bool| -> Value {
        let taints = json!([{"key": "gone", "effect": "NoExecute"}]);
        json!({"spec": {"taints": if on { taints } else { json!([]) }}})
    };
    let node = format!("{NODES}/n");
    pod_on(&managed, "plain", "n", &[]).await;
    pod_on(&managed, "for-ever", "n", &[("gone", None)]).await;
    pod_on(&managed, "a-while", "n", &[("gone", Some(60))]).await;
    managed.cluster.patch(&node, taint(true)).await.code(200);
    let first = |all: &BTreeMap<String, Pod>| is_leaving(&all["plain"]);
    let all = passing(&managed, &["n"], until("the first to go", &pods(&managed), first)).await;
    assert!(!is_leaving(&all["a-while"]));
    // the taint goes before the time has passed
    seconds_pass(&managed, &["n"], 30).await;
    managed.cluster.patch(&node, taint(false)).await.code(200);
    let is_reported = |all: &BTreeMap<String, Event>| {
        has_event(all, "a-while", "TaintManagerEviction", "Cancelling deletion of Pod default/a-while")
    };
    passing(&managed, &["n"], until("it stays", &events(&managed), is_reported)).await;
    managed.cluster.patch(&node, taint(true)).await.code(200);
    seconds_pass(&managed, &["n"], 50).await;
    let all = until("both stay", &pods(&managed), |_| true).await;
    assert!(!is_leaving(&all["a-while"]) && !is_leaving(&all["for-ever"]));
    managed.restart_loops().await;
    let left = |all: &BTreeMap<String, Pod>| is_leaving(&all["a-while"]);
    passing(&managed, &["n"], until("its time has passed", &pods(&managed), left)).await;
    // one that comes later, and one that changes its mind: tolerations may be added
    pod_on(&managed, "late", "n", &[]).await;
    let late = |all: &BTreeMap<String, Pod>| is_leaving(&all["late"]);
    let all = passing(&managed, &["n"], until("the late one", &pods(&managed), late)).await;
    assert!(!is_leaving(&all["for-ever"]));
}
