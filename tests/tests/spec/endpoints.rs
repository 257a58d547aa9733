//! "Endpoints": the shapes of paths, the verbs on them, and optimistic locking.

use super::signing_requests::signing_request;
use super::*;
use http::Method;
use tests::{Cluster, Protocol};

/// Collections of every kind, with an object for each and whether PUT makes missing ones.
fn everything() -> Vec<(&'static str, Value, bool)> {
    let event = json!({"metadata": {"name": "x"}, "reason": "Tested", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let new_event = json!({"metadata": {"name": "x"}, "reason": "Tested", "type": "Normal", "action": "Testing",
        "eventTime": "2023-11-14T22:13:20.000000Z", "reportingController": "example.com/test",
        "reportingInstance": "one", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}});
    vec![
        (NAMESPACES, json!({"metadata": {"name": "x"}}), false),
        (NODES, json!({"metadata": {"name": "x"}}), false),
        (PODS, pod("x"), false),
        (CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": "v"}}), false),
        (SECRETS, json!({"metadata": {"name": "x"}, "stringData": {"k": "v"}}), false),
        (ACCOUNTS, json!({"metadata": {"name": "x"}}), false),
        (EVENTS, event, true),
        ("/apis/events.k8s.io/v1/namespaces/default/events", new_event, true),
        (LEASES, json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}}), true),
        (CLASSES, runtime_class("x"), true),
        (REQUESTS, signing_request("x"), false),
    ]
}

#[tokio::test]
async fn every_kind_has_the_life_of_an_object() {
    for (collection, object, _) in everything() {
        let cluster = Cluster::start().await;
        let path = format!("{collection}/x");
        cluster.get(&path).await.refused(404, "NotFound");
        let created = cluster.create(collection, object).await;
        assert_eq!(cluster.read(&path).await, created, "{collection}");
        assert!(names(&cluster.read(collection).await).contains(&"x"), "{collection}");
        let mut next = created.clone();
        next["metadata"]["labels"] = json!({"step": "put"});
        let put = cluster.put(&path, next).await.code(200).json();
        assert_eq!(put["metadata"]["labels"]["step"], "put", "{collection}");
        let patched = cluster.patch(&path, json!({"metadata": {"labels": {"step": "patch"}}})).await;
        assert_eq!(patched.code(200).json()["metadata"]["labels"]["step"], "patch", "{collection}");
        let selected = cluster.read(&format!("{collection}?labelSelector=step%3Dpatch")).await;
        assert_eq!(names(&selected), ["x"], "{collection}");
        cluster.delete(&path).await.code(200);
    }
}

#[tokio::test]
async fn put_on_a_missing_name_creates_where_the_kind_allows() {
    for (collection, object, creates) in everything() {
        let cluster = Cluster::start().await;
        let answer = cluster.put(&format!("{collection}/x"), object).await;
        assert_eq!(answer.status, if creates { 201 } else { 404 }, "{collection}: {}", answer.text());
    }
}

#[tokio::test]
async fn one_list_spans_all_namespaces() {
    let cluster = Cluster::start().await;
    cluster.named(NAMESPACES, "other").await;
    cluster.named(CONFIGMAPS, "a").await;
    cluster.named("/api/v1/namespaces/other/configmaps", "a").await;
    let all = cluster.read("/api/v1/configmaps").await;
    let places: Vec<_> =
        all["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["namespace"]).collect();
    // the server keeps one itself
    assert_eq!(places, ["default", "kube-system", "other"]);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["a"]);
    // only lists and watches may span them
    cluster
        .post("/api/v1/configmaps", json!({"metadata": {"name": "b"}}))
        .await
        .refused(405, "MethodNotAllowed");
    cluster.delete("/api/v1/configmaps").await.refused(405, "MethodNotAllowed");
    cluster.get("/api/v1/configmaps/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let cluster = Cluster::start().await;
    for path in [
        "/api/v2",
        "/api/v1/bogus",
        "/api/v1/namespaces/default/bogus",
        "/api/v1/namespaces/default/pods/x/bogus",
        "/api/v1/namespaces/default/pods/x/status/y",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/x",
        "/apis/node.k8s.io/v9",
        "/apis/node.k8s.io/v1/bogus",
    ] {
        let status = cluster.get(path).await.refused(404, "NotFound");
        assert_eq!(status["message"], "the server could not find the requested resource", "{path}");
    }
    for path in ["/apis/bogus", "/apis/bogus/v1", "/nothing", "/API/v1"] {
        assert_eq!(cluster.get(path).await.code(404).text(), "404 page not found\n", "{path}");
    }
}

#[tokio::test]
async fn a_method_must_fit_the_path() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let (single, collection) = (format!("{CONFIGMAPS}/x"), CONFIGMAPS);
    for (method, path) in [
        (Method::POST, &*single),
        (Method::PUT, collection),
        (Method::PATCH, collection),
        (Method::DELETE, NAMESPACES),
        (Method::OPTIONS, &single),
        (Method::TRACE, "/api/v1"),
        (Method::POST, "/api/v1"),
        (Method::DELETE, "/apis"),
        (Method::PUT, "/version"),
        (Method::from_bytes(b"FOO").unwrap(), &single),
    ] {
        let what = format!("{method} {path}");
        let answer = cluster.request(method, path).body(json!({})).protocol(Protocol::Http1).await;
        assert_eq!(answer.status, 405, "{what}: {}", answer.text());
        answer.refused(405, "MethodNotAllowed");
    }
}

#[tokio::test]
async fn subresources_have_verbs_of_their_own() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let status = format!("{PODS}/p/status");
    assert_eq!(cluster.read(&status).await["kind"], "Pod");
    cluster.post(&status, pod("p")).await.refused(405, "MethodNotAllowed");
    cluster.delete(&status).await.refused(405, "MethodNotAllowed");
    // a write of the status leaves the rest alone, and a plain write the status
    let mut next = cluster.read(&status).await;
    next["status"]["phase"] = "Running".into();
    next["spec"]["containers"][0]["image"] = "other".into();
    let put = cluster.put(&status, next).await.code(200).json();
    assert_eq!(put["status"]["phase"], "Running");
    assert_eq!(put["spec"]["containers"][0]["image"], "i");
    let patch = json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"l": "1"}}});
    let patched = cluster.patch(&format!("{PODS}/p"), patch).await.code(200).json();
    assert_eq!(patched["status"]["phase"], "Running");
    assert_eq!(patched["metadata"]["labels"]["l"], "1");
}

#[tokio::test]
async fn a_write_that_names_an_old_version_conflicts() {
    let cluster = Cluster::start().await;
    let first = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"n": "1"}})).await;
    let path = format!("{CONFIGMAPS}/x");
    let with = |object: &Value, n: &str| {
        let mut next = object.clone();
        next["data"]["n"] = n.into();
        next
    };
    let second = cluster.put(&path, with(&first, "2")).await.code(200).json();
    let status = cluster.put(&path, with(&first, "3")).await.refused(409, "Conflict");
    assert!(status["message"].as_str().unwrap().contains("the object has been modified"), "{status}");
    let patch = json!({"metadata": {"resourceVersion": version(&first)}, "data": {"n": "3"}});
    cluster.patch(&path, patch).await.refused(409, "Conflict");
    assert_eq!(cluster.read(&path).await, second);
    // a write without a version replaces any, where the kind allows it
    cluster.put(&path, json!({"metadata": {"name": "x"}, "data": {"n": "4"}})).await.code(200);
    cluster.put(&format!("{LEASES}/l"), json!({"metadata": {"name": "l"}})).await.code(201);
    let blind = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    cluster.put(&format!("{LEASES}/l"), blind).await.refused(422, "Invalid");
}

#[tokio::test]
async fn of_racing_writers_each_version_has_one_winner() {
    let cluster = Cluster::start().await;
    let base = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {}})).await;
    let path = format!("{CONFIGMAPS}/x");
    let writes = (0..8).map(|n| {
        let mut next = base.clone();
        next["data"] = json!({"winner": n.to_string()});
        let ask = cluster.put(&path, next);
        async move { ask.await.status }
    });
    let codes = futures_util::future::join_all(writes).await;
    assert_eq!(codes.iter().filter(|code| **code == 200).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 409).count(), 7, "{codes:?}");
    // patches that name no version are tried again until they fit
    let patches = (0..8).map(|n| {
        let ask = cluster.patch(&path, json!({"data": {n.to_string(): "there"}}));
        async move { ask.await.code(200) }
    });
    futures_util::future::join_all(patches).await;
    let data = cluster.read(&path).await["data"].clone();
    assert!((0..8).all(|n| data[n.to_string()] == "there"), "{data}");
}

#[tokio::test]
async fn the_name_in_the_body_is_that_of_the_path() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let path = format!("{CONFIGMAPS}/x");
    cluster.put(&path, json!({"metadata": {"name": "y"}})).await.refused(400, "BadRequest");
    cluster.put(&path, json!({"data": {}})).await.refused(400, "BadRequest");
    cluster.patch(&path, json!({"metadata": {"name": "y"}})).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn the_kind_in_the_body_is_that_of_the_path() {
    let cluster = Cluster::start().await;
    for (version, kind) in [("v1", "Pod"), ("v1", "ConfigMapList"), ("v2", "ConfigMap"), ("v1", "Bogus")] {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        let status = cluster.post(CONFIGMAPS, body).await.refused(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().contains("cannot be handled as a ConfigMap"), "{status}");
    }
}

#[tokio::test]
async fn pretty_indents() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let path = format!("{CONFIGMAPS}/x");
    let plain = cluster.get(&path).await.code(200);
    assert!(!plain.text().contains('\n'));
    for ask in
        [cluster.get(&format!("{path}?pretty=true")), cluster.get(&path).header("user-agent", "curl/8.0")]
    {
        let pretty = ask.await.code(200);
        assert!(pretty.text().contains("\n  \"kind\": \"ConfigMap\""), "{}", pretty.text());
        assert_eq!(pretty.json(), plain.json());
    }
    let off = cluster.get(&format!("{path}?pretty=false")).header("user-agent", "curl/8.0").await;
    assert_eq!(off.text(), plain.text());
}

#[tokio::test]
async fn the_field_manager_is_recorded() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}?fieldManager=me");
    let created = cluster.create(&path, json!({"metadata": {"name": "x"}, "data": {"k": "v"}})).await;
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "me");
    assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    // computed from the user agent where it is not given
    let ask = cluster.patch(&format!("{CONFIGMAPS}/x"), json!({"data": {"k": "w"}}));
    let next = ask.header("user-agent", "tool/1.2 (linux)").await.code(200).json();
    let managers: Vec<_> =
        next["metadata"]["managedFields"].as_array().unwrap().iter().map(|one| &one["manager"]).collect();
    assert!(managers.contains(&&json!("tool")), "{managers:?}");
    let long = format!("{CONFIGMAPS}?fieldManager={}", "x".repeat(129));
    cluster.post(&long, json!({"metadata": {"name": "y"}})).await.refused(422, "Invalid");
}

#[tokio::test]
async fn both_http_versions_are_served() {
    let cluster = Cluster::start().await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let answer = cluster.get(NAMESPACES).protocol(protocol).await.code(200);
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
    }
}
