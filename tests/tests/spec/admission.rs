//! Limit ranges and resource quotas of a namespace.

use super::*;
use tests::{ApiResponse, Cluster, Options};

const LIMITS: &str = "/api/v1/namespaces/default/limitranges";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A cluster whose default namespace may hold so many of some things.
async fn with_quota(hard: Value) -> Cluster {
    let cluster = Cluster::start().await;
    add_quota(&cluster, hard).await;
    cluster
}

async fn add_quota(cluster: &Cluster, hard: Value) {
    cluster.create(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    // the used amounts in the status count
    let none = hard.as_object().unwrap().keys().map(|what| (what.clone(), json!("0")));
    let status = json!({"status": {"hard": hard, "used": Value::Object(none.collect())}});
    cluster.patch(&format!("{QUOTAS}/q/status"), status).await.code(200);
}

async fn used(cluster: &Cluster, what: &str) -> Value {
    cluster.read(&format!("{QUOTAS}/q")).await["status"]["used"][what].clone()
}

#[tokio::test]
async fn a_quota_holds_against_a_race() {
    let cluster = with_quota(json!({"count/configmaps": "20"})).await;
    let make = |name: String, query: &'static str| {
        let path = format!("{CONFIGMAPS}{query}");
        let cluster = &cluster;
        async move { cluster.post(&path, json!({"metadata": {"name": name}})).await }
    };
    for round in 0..8 {
        make(format!("dry{round}"), "?dryRun=All").await.code(201);
    }
    let answers = futures_util::future::join_all((0..64).map(|n| make(format!("c{n}"), ""))).await;
    let (won, lost): (Vec<ApiResponse>, Vec<ApiResponse>) =
        answers.into_iter().partition(|it| it.status == 201);
    assert_eq!((won.len(), lost.len()), (20, 44));
    for one in lost {
        let refused = one.refused(403, "Forbidden");
        assert!(refused["message"].as_str().unwrap().contains("exceeded quota: q"), "{refused}");
    }
    assert_eq!(used(&cluster, "count/configmaps").await, "20");
    assert_eq!(names(&cluster.read(CONFIGMAPS).await).len(), 20);
    make("dry".to_owned(), "?dryRun=All").await.refused(403, "Forbidden");
    // another namespace has its own
    cluster.named(NAMESPACES, "other").await;
    cluster.named("/api/v1/namespaces/other/configmaps", "c").await;
}

#[tokio::test]
async fn a_quota_counts_requests_of_pods() {
    let cluster = with_quota(json!({"requests.cpu": "1", "pods": "3"})).await;
    let asking = |name: &str, cpu: &str| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    cluster.create(PODS, asking("a", "600m")).await;
    cluster.post(PODS, asking("b", "600m")).await.refused(403, "Forbidden");
    cluster.create(PODS, asking("c", "400m")).await;
    assert_eq!(used(&cluster, "requests.cpu").await, "1");
    let refused = cluster.post(PODS, pod("d")).await.refused(403, "Forbidden");
    assert!(refused["message"].as_str().unwrap().contains("must specify requests.cpu"), "{refused}");
}

#[tokio::test]
async fn a_quota_is_charged_for_stored_objects() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let cluster = with_quota(json!({"services.nodeports": "2", "count/configmaps": "2"})).await;
    cluster.named(CONFIGMAPS, "c").await;
    // a name that is taken and an object that has a version already are not stored
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await.refused(409, "AlreadyExists");
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "d", "resourceVersion": "1"}})).await.code(500);
    assert_eq!(used(&cluster, "count/configmaps").await, "1");
    // growth is charged; the controller credits reductions
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
    cluster.create(SERVICES, json!({"metadata": {"name": "s"}, "spec": {"ports": ports}})).await;
    assert_eq!(used(&cluster, "services.nodeports").await, "0");
    for (kind, charged) in [("NodePort", "2"), ("ClusterIP", "2")] {
        cluster.patch(&format!("{SERVICES}/s"), json!({"spec": {"type": kind}})).await.code(200);
        assert_eq!(used(&cluster, "services.nodeports").await, charged);
    }
    let refused = cluster.patch(&format!("{SERVICES}/s"), json!({"spec": {"type": "NodePort"}})).await;
    let refused = refused.refused(403, "Forbidden");
    assert_eq!(
        refused["message"],
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, \
         used: services.nodeports=2, limited: services.nodeports=2"
    );
}

#[tokio::test]
async fn limited_resources_need_a_quota() {
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [
            {"resource": "configmaps", "matchContains": ["count/configmaps"]},
            {"resource": "pods", "matchScopes":
                [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}]});
    let cluster = Cluster::with(Options::plugins(&[], &[], &[("ResourceQuota", configuration)])).await;
    let refused =
        cluster.post(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await.refused(403, "Forbidden");
    let expected = "configmaps \"c\" is forbidden: insufficient quota to consume: count/configmaps";
    assert_eq!(refused["message"], expected);
    cluster.create(PODS, pod("p")).await;
    let mut important = pod("i");
    important["spec"]["priorityClassName"] = "system-node-critical".into();
    let refused = cluster.post(PODS, important.clone()).await.code(500).json();
    let expected = "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]";
    assert_eq!(refused["message"], expected);
    add_quota(&cluster, json!({"count/configmaps": "1"})).await;
    cluster.named(CONFIGMAPS, "c").await;
    let scoped =
        json!({"metadata": {"name": "s"}, "spec": {"hard": {"pods": "1"}, "scopes": ["PriorityClass"]}});
    cluster.create(QUOTAS, scoped).await;
    cluster.create(PODS, important).await;
}

#[tokio::test]
async fn limit_ranges_set_defaults_and_are_enforced() {
    let cluster = Cluster::start().await;
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container",
        "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    cluster.create(LIMITS, limits).await;
    let created = cluster.create(PODS, pod("p")).await;
    let expected = json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}});
    assert_eq!(created["spec"]["containers"][0]["resources"], expected);
    let mut large = pod("large");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    let refused = cluster.post(PODS, large).await.refused(403, "Forbidden");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("maximum cpu usage per Container is 1, but limit is 2"), "{message}");
}
