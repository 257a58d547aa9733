//! The resource metrics API: usage of nodes and pods, with agents of the test over TLS.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tests::{Cluster, HttpsServer, Options, ReceivedRequest, Reply, TestUser, authority};

const API: &str = "/apis/metrics.k8s.io/v1beta1";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// An agent whose pods `p` and `q` use more with each request, as its counters of CPU say.
async fn agent() -> HttpsServer {
    agent_with(|cores| json!({"usageNanoCores": cores, "usageCoreNanoSeconds": cores})).await
}

async fn agent_with(cpu: impl Fn(u64) -> Value + Send + Sync + 'static) -> HttpsServer {
    let requests = AtomicU64::new(0);
    HttpsServer::start(move |request: &ReceivedRequest| {
        if request.path != "/stats/summary?only_cpu_and_memory=true" {
            return Reply::Text(404, "no such page".to_owned());
        }
        let turn = requests.fetch_add(1, Ordering::SeqCst) + 1;
        let usage = |cores: u64, bytes: u64| {
            let time = "2026-11-17T10:00:00Z";
            let mut cpu = cpu(cores);
            cpu["time"] = json!(time);
            json!({"cpu": cpu, "memory": {"time": time, "workingSetBytes": bytes}})
        };
        let container = |name: &str, cores: u64| {
            let mut container = usage(cores, 1 << 20);
            container["name"] = json!(name);
            container
        };
        let pod = |name: &str| {
            let containers = [container("c", turn * 100_000_000), container("d", 1_500)];
            json!({"podRef": {"name": name, "namespace": "default"}, "containers": containers})
        };
        let mut node = usage(turn * 1_000_000_000, 1 << 30);
        node["nodeName"] = json!("n");
        Reply::Text(200, json!({"node": node, "pods": [pod("p"), pod("q")]}).to_string())
    })
    .await
}

async fn add_node(cluster: &Cluster, name: &str, port: u16) {
    cluster.labelled(NODES, name, json!({"kind": name})).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    cluster.patch(&format!("{NODES}/{name}/status"), status).await.code(200);
}

async fn add_pod(cluster: &Cluster, name: &str, phase: &str) {
    let mut pod = assigned_pod(name);
    pod["metadata"]["labels"] = json!({"app": name});
    cluster.create(PODS, pod).await;
    let status = json!({"status": {"phase": phase}});
    cluster.patch(&format!("{PODS}/{name}/status"), status).await.code(200);
}

fn options() -> Options {
    let serving = kinds::Serving::default().with_gates([apiserver::resource_metrics::GATE.to_owned()]);
    Options { serving, ..Options::default() }
}

/// A cluster with a node `n` and running pods `p` and `q` on it, and a pod that waits.
async fn cluster_with(agent: &HttpsServer, options: Options) -> Cluster {
    let cluster = Cluster::with(options).await;
    add_node(&cluster, "n", agent.port()).await;
    add_pod(&cluster, "p", "Running").await;
    add_pod(&cluster, "q", "Running").await;
    add_pod(&cluster, "waiting", "Pending").await;
    cluster
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn usage_comes_from_the_agents() {
    let agent = agent().await;
    let cluster = cluster_with(&agent, options()).await;
    let nodes = cluster.read(&format!("{API}/nodes")).await;
    assert_eq!(
        (nodes["kind"].as_str(), nodes["apiVersion"].as_str()),
        (Some("NodeMetricsList"), Some("metrics.k8s.io/v1beta1"))
    );
    let node = &nodes["items"][0];
    assert_eq!(
        (&node["metadata"]["name"], &node["usage"]),
        (&json!("n"), &json!({"cpu": "2", "memory": "1Gi"}))
    );
    assert_eq!((&node["timestamp"], &node["window"]), (&json!("2026-11-17T10:00:00Z"), &json!("1s")));
    assert_eq!(node["metadata"]["labels"], json!({"kind": "n"}));
    assert_eq!(node["metadata"]["creationTimestamp"], cluster.time());
    // an agent without requests for long gets two, so that CPU is that of the last second
    assert_eq!(agent.count(), 2);
    let pods = cluster.read(&format!("{API}/namespaces/default/pods")).await;
    assert_eq!(names(&pods), ["p", "q"]);
    let containers = json!([
        {"name": "c", "usage": {"cpu": "200m", "memory": "1Mi"}},
        {"name": "d", "usage": {"cpu": "1500n", "memory": "1Mi"}},
    ]);
    assert_eq!(pods["items"][0]["containers"], containers);
    assert_eq!(agent.count(), 2, "a summary is kept for a while");
    cluster.advance(Duration::from_secs(15));
    let node = cluster.read(&format!("{API}/nodes/n")).await;
    assert_eq!((agent.count(), &node["usage"]["cpu"]), (3, &json!("3")));
    cluster.stop().await;
}

#[tokio::test]
async fn reads_are_selected_and_have_rows() {
    let agent = agent().await;
    let cluster = cluster_with(&agent, options()).await;
    cluster.named(NAMESPACES, "other").await;
    for (path, expected) in [
        ("pods", &["p", "q"][..]),
        ("namespaces/default/pods?labelSelector=app%3Dq", &["q"]),
        ("namespaces/default/pods?fieldSelector=metadata.name%3Dp", &["p"]),
        ("namespaces/other/pods", &[]),
        ("nodes?labelSelector=kind%3Dn", &["n"]),
        ("nodes?labelSelector=kind%3Dm", &[]),
    ] {
        assert_eq!(names(&cluster.read(&format!("{API}/{path}")).await), expected, "{path}");
    }
    let path = format!("{API}/namespaces/default/pods");
    let table = cluster.get(&path).accept("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let table = table.code(200).json();
    assert_eq!(table["rows"][0]["cells"], json!(["p", "200001500n", "2Mi", "1s"]));
    // kubectl reads protobuf, where a duration is a message: one second in field 3
    let message = cluster.get(&path).accept("application/vnd.kubernetes.protobuf").await.code(200).body;
    let window = [0x1a, 0x06, 0x08, 0x80, 0x94, 0xeb, 0xdc, 0x03];
    assert_eq!(message.windows(window.len()).filter(|it| *it == window).count(), 2);
    let pod = cluster.read(&format!("{path}/p")).await;
    assert_eq!(
        (&pod["metadata"]["namespace"], &pod["containers"][0]["name"]),
        (&json!("default"), &json!("c"))
    );
    let missing = cluster.get(&format!("{path}/waiting")).await.refused(404, "NotFound");
    assert_eq!(missing["message"], "pods.metrics.k8s.io \"waiting\" not found");
    cluster.delete(&format!("{path}/p")).await.code(405);
    cluster.stop().await;
}

#[tokio::test]
async fn nodes_that_do_not_answer_are_left_out() {
    let agent = agent().await;
    let cluster = cluster_with(&agent, options()).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    add_node(&cluster, "gone", closed.port()).await;
    cluster.named(NODES, "without-address").await;
    assert_eq!(names(&cluster.read(&format!("{API}/nodes")).await), ["n"]);
    let missing = cluster.get(&format!("{API}/nodes/gone")).await.refused(404, "NotFound");
    assert_eq!(missing["message"], "nodes.metrics.k8s.io \"gone\" not found");
    cluster.stop().await;
}

#[tokio::test]
async fn metrics_are_served_where_a_component_wants_them() {
    let plain = Cluster::start().await;
    plain.get(API).await.code(404);
    plain.get(API_SERVICE).await.code(404);
    plain.get(ROLE).await.code(404);
    plain.stop().await;
    let cluster = Cluster::with(options()).await;
    let version = cluster.read(API).await;
    let resources = version["resources"].as_array().unwrap();
    let verbs = json!(["get", "list"]);
    assert!(resources.iter().all(|it| it["verbs"] == verbs) && resources.len() == 2);
    assert_eq!(cluster.read(API_SERVICE).await["spec"]["service"], Value::Null);
    let groups = cluster.read("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|it| it["name"] == "metrics.k8s.io"));
    let schema = cluster.get(&format!("/openapi/v3{API}")).await.code(200).text();
    assert!(schema.contains("io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"), "{schema}");
    cluster.stop().await;
}

#[tokio::test]
async fn an_agent_that_reports_rates_alone_gets_one_request() {
    let agent = agent_with(|cores| json!({ "usageNanoCores": cores })).await;
    let cluster = cluster_with(&agent, options()).await;
    let node = cluster.read(&format!("{API}/nodes/n")).await;
    assert_eq!((agent.count(), &node["usage"]["cpu"], &node["window"]), (1, &json!("1"), &json!("1s")));
    cluster.stop().await;
}

#[tokio::test]
async fn viewers_of_a_namespace_may_read_its_usage() {
    let agent = agent().await;
    let rbac = apiserver::authorization::Options { modes: vec![auth::Mode::Rbac], ..Default::default() };
    let cluster = cluster_with(&agent, Options { authorization: rbac, ..options() }).await;
    let rules = cluster.read(ROLE).await["rules"].clone();
    assert_eq!(rules[0]["apiGroups"], json!(["metrics.k8s.io"]));
    let viewer = TestUser::Certificate(authority().client("viewer", "people"));
    let path = format!("{API}/namespaces/default/pods");
    cluster.get(&path).user(&viewer).await.code(403);
    let binding = json!({
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
    });
    cluster.create(BINDINGS, binding).await;
    // the aggregation of roles is a control loop, which does not run here
    let view = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
    cluster.patch(view, json!({"rules": rules})).await.code(200);
    tests::soon("the permission", async { while cluster.get(&path).user(&viewer).await.status != 200 {} })
        .await;
    cluster.get(&format!("{API}/nodes")).user(&viewer).await.code(403);
    cluster.stop().await;
}
