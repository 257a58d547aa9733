//! Requests and list limits: priority and fairness.

use super::limits::{cluster_admin, held};
use super::*;
use tests::http2::{Frame, HEADERS, Http2, RESET, WINDOW_UPDATE};
use tests::{Cluster, Options};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1beta3/prioritylevelconfigurations";

fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": 10,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
                }],
            }],
        },
    })
}

fn level(name: &str, response: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 1, "limitResponse": response, "borrowingLimitPercent": 0},
        },
    })
}

/// Waits until an object is as it should be.
async fn comes_to(cluster: &Cluster, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let waiting = async {
        loop {
            let answer = cluster.get(path).await;
            if answer.status == 200 && holds(&answer.json()) {
                return answer.json();
            }
            tokio::task::yield_now().await;
        }
    };
    tests::soon(path, waiting).await
}

fn dangling(schema: &Value) -> (&str, &str) {
    let condition = &schema["status"]["conditions"][0];
    (condition["status"].as_str().unwrap_or(""), condition["reason"].as_str().unwrap_or(""))
}

#[tokio::test]
async fn mandatory_and_suggested_objects_exist_and_are_restored() {
    let cluster = Cluster::start().await;
    for (list, count) in [(SCHEMAS, 13), (LEVELS, 8)] {
        assert_eq!(cluster.read(list).await["items"].as_array().unwrap().len(), count);
    }
    let path = format!("{SCHEMAS}/catch-all");
    let first = comes_to(&cluster, &path, |it| dangling(it) == ("False", "Found")).await;
    cluster.delete(&path).await.code(200);
    comes_to(&cluster, &path, |it| it["metadata"]["uid"] != first["metadata"]["uid"]).await;
    // suggested objects belong to the operator after the annotation is set
    let path = format!("{LEVELS}/workload-low");
    let mut object = cluster.read(&path).await;
    object["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"] = "false".into();
    object["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
    cluster.put(&path, object).await.code(200);
    let mandatory = format!("{LEVELS}/exempt");
    let mut object = cluster.read(&mandatory).await;
    object["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"] = "false".into();
    cluster.put(&mandatory, object).await.code(200);
    comes_to(&cluster, &mandatory, |it| {
        it["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"] == "true"
    })
    .await;
    assert_eq!(cluster.read(&path).await["spec"]["limited"]["nominalConcurrencyShares"], 7);
}

#[tokio::test]
async fn responses_name_their_flow_schema_and_level() {
    let cluster = Cluster::start().await;
    let uid = async |path: &str| cluster.read(path).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let answer = cluster.get(CONFIGMAPS).await;
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), uid(&format!("{SCHEMAS}/exempt")).await);
    assert_eq!(answer.header("x-kubernetes-pf-prioritylevel-uid"), uid(&format!("{LEVELS}/exempt")).await);
    let alice = cluster_admin(&cluster).await;
    let answer = cluster.get(CONFIGMAPS).user(&alice).await;
    let global = uid(&format!("{LEVELS}/global-default")).await;
    assert_eq!(answer.header("x-kubernetes-pf-prioritylevel-uid"), global);
    // rejected requests have passed flow control, too
    let anonymous = cluster.get(CONFIGMAPS).user(&tests::TestUser::Anonymous).await.code(403);
    assert_eq!(anonymous.header("x-kubernetes-pf-prioritylevel-uid"), global);
}

#[tokio::test]
async fn a_full_level_affects_no_other() {
    let mut options = Options::default();
    (options.requests.reading, options.requests.writing) = (10, 5);
    let cluster = Cluster::with(options).await;
    let alice = cluster_admin(&cluster).await;
    // a schema may come before its level
    cluster.create(SCHEMAS, schema("tiny", "tiny", "alice")).await;
    let path = format!("{SCHEMAS}/tiny");
    comes_to(&cluster, &path, |it| dangling(it) == ("True", "NotFound")).await;
    let tiny = cluster.create(LEVELS, level("tiny", json!({"type": "Reject"}))).await;
    comes_to(&cluster, &path, |it| dangling(it) == ("False", "Found")).await;
    let uid = tiny["metadata"]["uid"].as_str().unwrap();
    while cluster.get(CONFIGMAPS).user(&alice).await.header("x-kubernetes-pf-prioritylevel-uid") != uid {
        tokio::task::yield_now().await;
    }
    let holding = held(&cluster, &alice, "POST").await;
    let refused = cluster.get(CONFIGMAPS).user(&alice).await.code(429);
    assert_eq!(
        (&*refused.text(), refused.header("retry-after")),
        ("Too many requests, please try again later.\n", "1")
    );
    assert_eq!(refused.header("x-kubernetes-pf-prioritylevel-uid"), uid);
    cluster.get("/version").user(&tests::TestUser::Anonymous).await.code(200);
    cluster.read(CONFIGMAPS).await;
    drop(holding);
    while cluster.get(CONFIGMAPS).user(&alice).await.status == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn queued_requests_are_listed_and_served() {
    let mut options = Options::default();
    (options.requests.reading, options.requests.writing) = (10, 5);
    let cluster = Cluster::with(options).await;
    let alice = cluster_admin(&cluster).await;
    let queuing = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 5}});
    let tiny = cluster.create(LEVELS, level("tiny", queuing)).await;
    cluster.create(SCHEMAS, schema("tiny", "tiny", "alice")).await;
    let uid = tiny["metadata"]["uid"].as_str().unwrap();
    while cluster.get(CONFIGMAPS).user(&alice).await.header("x-kubernetes-pf-prioritylevel-uid") != uid {
        tokio::task::yield_now().await;
    }
    let holding = held(&cluster, &alice, "POST").await;
    let page = async |what: &str| {
        let path = format!("/debug/api_priority_and_fairness/{what}?includeRequestDetails=1");
        cluster.get(&path).await.code(200).text().to_owned()
    };
    let waiting = async { cluster.get(SECRETS).user(&alice).await.code(200) };
    let looking = async {
        while !page("dump_requests").await.contains("secrets") {
            tokio::task::yield_now().await;
        }
        let levels = page("dump_priority_levels").await;
        let line = levels.lines().find(|line| line.starts_with("tiny,")).unwrap().replace(' ', "");
        assert_eq!(line, "tiny,1,false,false,1,1");
        assert!(page("dump_queues").await.lines().any(|line| line.starts_with("tiny,")));
        drop(holding);
    };
    tests::soon("the turn", async { tokio::join!(waiting, looking) }).await;
    cluster
        .get("/debug/api_priority_and_fairness/dump_requests")
        .user(&tests::TestUser::Anonymous)
        .await
        .code(403);
}

/// Waits until the level "tiny" has so many requests queued and executing.
async fn until_tiny(cluster: &Cluster, waiting: usize, executing: usize) {
    let expected = format!(",{waiting},{executing}");
    let waits = async {
        loop {
            let levels = cluster.get("/debug/api_priority_and_fairness/dump_priority_levels").await.text();
            let line = levels.lines().find(|line| line.starts_with("tiny,")).unwrap().replace(' ', "");
            if line.ends_with(&expected) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tests::soon(&expected, waits).await;
}

#[tokio::test]
async fn a_large_response_keeps_its_seat_until_sent() {
    let mut options = Options::default();
    (options.requests.reading, options.requests.writing) = (10, 5);
    let cluster = Cluster::with(options).await;
    let alice = cluster_admin(&cluster).await;
    for n in 0..5 {
        let large = json!({"metadata": {"name": format!("large-{n}")}, "data": {"k": "x".repeat(100_000)}});
        cluster.create(CONFIGMAPS, large).await;
    }
    let one = json!({"metadata": {"name": "one"}, "data": {"k": "x".repeat(500_000)}});
    cluster.create(SECRETS, json!({"metadata": {"name": "small"}})).await;
    cluster.create(CONFIGMAPS, one).await;
    let queuing = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 10}});
    let tiny = cluster.create(LEVELS, level("tiny", queuing)).await;
    cluster.create(SCHEMAS, schema("tiny", "tiny", "alice")).await;
    let uid = tiny["metadata"]["uid"].as_str().unwrap();
    while cluster.get(SECRETS).user(&alice).await.header("x-kubernetes-pf-prioritylevel-uid") != uid {
        tokio::task::yield_now().await;
    }
    // a client that takes no more than the first bytes of an answer
    let mut slow = Http2::open_as(&cluster, &alice).await;
    let answered = |stream| move |frame: &Frame| frame.kind == HEADERS && frame.stream == stream;
    slow.get(1, CONFIGMAPS).await;
    slow.until(answered(1)).await;
    slow.get(3, &format!("{CONFIGMAPS}/one")).await;
    slow.get(5, CONFIGMAPS).await;
    until_tiny(&cluster, 2, 1).await;
    // an answer that is given up
    slow.send(&[Frame::new(RESET, 0, 1, [0, 0, 0, 8])]).await.unwrap();
    slow.until(answered(3)).await;
    until_tiny(&cluster, 1, 1).await;
    // an answer that is taken
    let more = (8u32 << 20).to_be_bytes();
    let updates = [0, 3].map(|stream| Frame::new(WINDOW_UPDATE, 0, stream, more));
    slow.send(&updates).await.unwrap();
    slow.until(answered(5)).await;
    until_tiny(&cluster, 0, 1).await;
    // a connection that ends
    drop(slow);
    until_tiny(&cluster, 0, 0).await;
    // a watch has no seat while it lasts
    let mut watching = Http2::open_as(&cluster, &alice).await;
    watching.get(1, &format!("{CONFIGMAPS}?watch=1")).await;
    watching.until(answered(1)).await;
    until_tiny(&cluster, 0, 0).await;
    cluster.get(SECRETS).user(&alice).await.code(200);
}
