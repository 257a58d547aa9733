//! The scheduler, as a client of a real server with the role that every cluster gives it.

use apiserver::serve::InMemory;
use auth::User;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use scheduler::config::{Extender, ExtenderTlsConfig};
use scheduler::driver::{self, Options};
use scheduler::extender::HttpExtender;
use serde_json::{Value, json};
use std::sync::Arc;
use tests::{Cluster, HttpsServer, ReceivedRequest, Reply};
use tokio::task::JoinHandle;

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

struct Scheduling {
    cluster: Cluster,
    scheduler: JoinHandle<()>,
}

impl Drop for Scheduling {
    fn drop(&mut self) {
        self.scheduler.abort();
    }
}

impl Scheduling {
    async fn start() -> Self {
        Self::start_with(Options::new("machine")).await
    }

    async fn start_with(options: Options) -> Self {
        let cluster = Cluster::start().await;
        let user = User::named("system:kube-scheduler").authenticated();
        let transport = InMemory::new(cluster.server.service.clone(), user, "kube-scheduler");
        let client = client::Client::new(transport);
        let scheduler = tokio::spawn(driver::run(client, cluster.world.clone(), options));
        Scheduling { cluster, scheduler }
    }

    async fn add_node(&self, name: &str, cpu: &str) {
        let capacity = json!({"cpu": cpu, "memory": "4Gi", "pods": "10"});
        let node = json!({"metadata": {"name": name}, "status": {"capacity": capacity}});
        self.cluster.create("/api/v1/nodes", node).await;
        // admission adds the taint of a node that is not ready
        let path = format!("/api/v1/nodes/{name}");
        self.cluster.patch(&path, json!({"spec": {"taints": null}})).await.code(200);
    }

    async fn add_pod(&self, name: &str, cpu: &str, class: &str) {
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
        let mut spec = json!({"containers": containers, "terminationGracePeriodSeconds": 0});
        if !class.is_empty() {
            spec["priorityClassName"] = class.into();
        }
        self.cluster.create(PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Waits until a pod is as it should be.
    async fn until(&self, pod: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.watch_until(&format!("{PODS}?watch=1&fieldSelector=metadata.name%3D{pod}"), holds).await
    }

    /// Waits for an event about a pod with this reason, action and note.
    async fn until_event(&self, pod: &str, expected: [&str; 3]) {
        let path = format!("{EVENTS}?watch=1&fieldSelector=regarding.name%3D{pod}");
        let holds = |event: &Value| ["reason", "action", "note"].map(|field| &event[field]) == expected;
        self.watch_until(&path, holds).await;
    }

    /// The first object of a watch that fits.
    async fn watch_until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.cluster.get(path).watch().await;
        loop {
            let event = watch.some().await;
            if holds(&event["object"]) {
                return event["object"].clone();
            }
        }
    }
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

fn condition<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == name)
}

#[tokio::test]
async fn a_pod_waits_until_a_node_has_room_for_it() {
    let it = Scheduling::start().await;
    it.add_pod("first", "1", "").await;
    let says = |message: &'static str| {
        move |pod: &Value| condition(pod, "PodScheduled").is_some_and(|it| it["message"] == message)
    };
    let pod = it.until("first", says("no nodes available to schedule pods")).await;
    let condition = condition(&pod, "PodScheduled").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Unschedulable")));
    it.add_node("small", "1").await;
    it.until("first", |pod| is_on(pod, "small")).await;
    it.add_pod("web", "2", "").await;
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
        1 No preemption victims found for incoming pod..";
    it.until("web", says(message)).await;
    it.add_node("large", "4").await;
    it.until("web", |pod| is_on(pod, "large")).await;
    it.until_event("web", ["Scheduled", "Binding", "Successfully assigned default/web to large"]).await;
}

#[tokio::test]
async fn a_pod_of_higher_priority_preempts_another() {
    let it = Scheduling::start().await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    it.cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    it.add_node("only", "1").await;
    it.add_pod("low", "1", "").await;
    it.until("low", |pod| is_on(pod, "only")).await;
    it.add_pod("high", "1", "high").await;
    let pod = it.until("high", |pod| is_on(pod, "only")).await;
    assert_eq!(pod["status"]["nominatedNodeName"], "only");
    it.cluster.get(&format!("{PODS}/low")).await.refused(404, "NotFound");
    it.until_event("low", ["Preempted", "Preempting", "Preempted by a pod on node only"]).await;
}

#[tokio::test]
async fn pods_of_other_schedulers_are_left_alone() {
    let it = Scheduling::start().await;
    it.add_node("a", "4").await;
    let spec = json!({"schedulerName": "another", "containers": [{"name": "c", "image": "i"}]});
    it.cluster.create(PODS, json!({"metadata": {"name": "theirs"}, "spec": spec})).await;
    it.add_pod("ours", "1", "").await;
    it.until("ours", |pod| is_on(pod, "a")).await;
    let theirs = it.cluster.read(&format!("{PODS}/theirs")).await;
    assert!(theirs["spec"]["nodeName"].is_null() && condition(&theirs, "PodScheduled").is_none());
}

/// Rejects the node `refused`, and accepts all victims.
fn extend(request: &ReceivedRequest) -> Reply {
    match &*request.path {
        "/filter" => {
            let names = request.body["NodeNames"].as_array().cloned().unwrap_or_default();
            let nodes = request.body["Nodes"]["items"].as_array().cloned().unwrap_or_default();
            let nodes: Vec<Value> =
                nodes.into_iter().filter(|node| node["metadata"]["name"] != "refused").collect();
            assert!(names.is_empty(), "whole nodes are sent");
            Reply::Json(json!({"Nodes": {"items": nodes}, "FailedNodes": {"refused": "not mine"}}))
        }
        _ => {
            let victims = request.body["NodeNameToVictims"].as_object().cloned().unwrap_or_default();
            let meta = victims.into_iter().map(|(node, victims)| {
                let pods = victims["Pods"].as_array().cloned().unwrap_or_default();
                // a victim is the whole object
                let of = |pod: &Value| {
                    assert_eq!(pod["spec"]["containers"][0]["image"], "i");
                    json!({"UID": pod["metadata"]["uid"]})
                };
                (node, json!({"Pods": pods.iter().map(of).collect::<Vec<_>>()}))
            });
            Reply::Json(json!({"NodeNameToMetaVictims": meta.collect::<serde_json::Map<_, _>>()}))
        }
    }
}

#[tokio::test]
async fn an_extender_over_tls_filters_nodes_and_sees_whole_victims() {
    let server = HttpsServer::start(extend).await;
    let tls_config =
        ExtenderTlsConfig { ca_data: STANDARD.encode(&server.certificate), ..ExtenderTlsConfig::default() };
    let extender = Extender {
        url_prefix: server.url.clone(),
        filter_verb: "filter".to_owned(),
        preempt_verb: "preempt".to_owned(),
        enable_https: true,
        tls_config: Some(tls_config),
        ..Extender::default()
    };
    let extenders = vec![Arc::new(HttpExtender::new(extender).unwrap())];
    let it = Scheduling::start_with(Options { extenders, ..Options::new("machine") }).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    it.cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    it.add_node("refused", "4").await;
    it.add_node("accepted", "1").await;
    it.add_pod("low", "1", "").await;
    it.until("low", |pod| is_on(pod, "accepted")).await;
    it.add_pod("high", "1", "high").await;
    it.until("high", |pod| is_on(pod, "accepted")).await;
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert!(paths.iter().any(|path| path == "/preempt"), "{paths:?}");
}

#[tokio::test]
async fn an_extender_with_a_certificate_of_another_authority_is_not_called() {
    let (server, other) = (HttpsServer::start(extend).await, HttpsServer::start(extend).await);
    let ca_data = STANDARD.encode(&other.certificate);
    let extender = Extender {
        url_prefix: server.url.clone(),
        filter_verb: "filter".to_owned(),
        enable_https: true,
        tls_config: Some(ExtenderTlsConfig { ca_data, ..ExtenderTlsConfig::default() }),
        ..Extender::default()
    };
    let extenders = vec![Arc::new(HttpExtender::new(extender).unwrap())];
    let it = Scheduling::start_with(Options { extenders, ..Options::new("machine") }).await;
    it.add_node("accepted", "1").await;
    it.add_pod("web", "1", "").await;
    let has_error =
        |pod: &Value| condition(pod, "PodScheduled").is_some_and(|it| it["reason"] == "SchedulerError");
    let pod = it.until("web", has_error).await;
    let message = condition(&pod, "PodScheduled").unwrap()["message"].to_string();
    assert!(message.contains(&format!("{}/filter", server.url)), "{message}");
    assert_eq!(server.count(), 0);
}
