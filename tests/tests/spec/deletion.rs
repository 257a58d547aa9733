//! "Object deletion": finalizers, grace, preconditions, propagation, collections and namespaces.

use super::protobuf::{PROTOBUF, envelope, field};
use super::*;
use std::time::Duration;
use tests::Cluster;

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";

async fn held(finalizers: Value) -> (Cluster, Value) {
    let cluster = Cluster::start().await;
    let created =
        cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a", "finalizers": finalizers}})).await;
    (cluster, created)
}

#[tokio::test]
async fn a_live_object_without_finalizers_goes_at_once() {
    let (cluster, created) = held(json!([])).await;
    let status = cluster.delete(PATH).await.code(200).json();
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps", "uid": uid(&created)}));
    cluster.get(PATH).await.refused(404, "NotFound");
    cluster.delete(PATH).await.refused(404, "NotFound");
}

#[tokio::test]
async fn a_live_object_with_finalizers_is_finalizing() {
    let (cluster, created) = held(json!(["a.b/c"])).await;
    assert_eq!(created["metadata"].get("deletionTimestamp"), None);
    let marked = cluster.delete(PATH).await.code(200).json();
    assert_eq!(marked["kind"], "ConfigMap");
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(cluster.read(PATH).await, marked);
    // asking again changes nothing
    cluster.advance(Duration::from_secs(60));
    cluster.delete(PATH).await.code(200);
    assert_eq!(cluster.read(PATH).await, marked);
}

#[tokio::test]
async fn finalizers_go_one_by_one_in_any_order_and_the_last_removes() {
    let (cluster, _) = held(json!(["a.b/one", "a.b/two", "a.b/three"])).await;
    cluster.delete(PATH).await.code(200);
    for left in [json!(["a.b/three", "a.b/one"]), json!(["a.b/three"])] {
        let next = cluster.patch(PATH, json!({"metadata": {"finalizers": left}})).await.code(200).json();
        assert_eq!(next["metadata"]["finalizers"], left);
        assert!(next["metadata"]["deletionTimestamp"].is_string());
    }
    cluster.patch(PATH, json!({"metadata": {"finalizers": null}})).await.code(200);
    cluster.get(PATH).await.refused(404, "NotFound");
}

#[tokio::test]
async fn removing_the_last_finalizer_of_a_live_object_keeps_it() {
    let (cluster, _) = held(json!(["a.b/c"])).await;
    cluster.patch(PATH, json!({"metadata": {"finalizers": []}})).await.code(200);
    cluster.read(PATH).await;
}

#[tokio::test]
async fn a_finalizing_object_takes_no_new_finalizers() {
    let (cluster, _) = held(json!(["a.b/c"])).await;
    cluster.delete(PATH).await.code(200);
    let patch = json!({"metadata": {"finalizers": ["a.b/c", "a.b/d"]}});
    let status = cluster.patch(PATH, patch).await.refused(422, "Invalid");
    assert!(fields(&status).iter().all(|field| *field == "metadata.finalizers"), "{status}");
    // everything else may still change
    cluster.patch(PATH, json!({"data": {"k": "v"}})).await.code(200);
}

#[tokio::test]
async fn watchers_receive_the_deletion() {
    let (cluster, created) = held(json!(["a.b/c"])).await;
    let mut watch =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&created))).watch().await;
    cluster.delete(PATH).await.code(200);
    let marked = watch.expect("MODIFIED", "a").await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    cluster.patch(PATH, json!({"metadata": {"finalizers": null}})).await.code(200);
    let gone = watch.expect("DELETED", "a").await;
    assert!(version(&gone).parse::<u64>().unwrap() > version(&marked).parse::<u64>().unwrap());
}

#[tokio::test]
async fn preconditions_must_hold() {
    let (cluster, created) = held(json!([])).await;
    let with = |conditions: Value| cluster.delete(PATH).body(json!({"preconditions": conditions}));
    with(json!({"uid": "00000000-0000-4000-8000-000000000000"})).await.refused(409, "Conflict");
    with(json!({"resourceVersion": "1"})).await.refused(409, "Conflict");
    cluster.read(PATH).await;
    with(json!({"uid": uid(&created), "resourceVersion": version(&created)})).await.code(200);
    cluster.get(PATH).await.refused(404, "NotFound");
}

#[tokio::test]
async fn propagation_is_stored_for_the_collector() {
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let (cluster, _) = held(json!([])).await;
        let marked = cluster.delete(&format!("{PATH}?propagationPolicy={policy}")).await.code(200).json();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
        // the body says the same, and another policy takes its place
        let status =
            cluster.delete(PATH).body(json!({"propagationPolicy": "Background"})).await.code(200).json();
        assert_eq!(status["status"], "Success");
        cluster.get(PATH).await.refused(404, "NotFound");
    }
}

#[tokio::test]
async fn a_finalizer_that_is_there_twice_counts_once() {
    let twice = json!(["foregroundDeletion", "foregroundDeletion"]);
    let (cluster, _) = held(twice.clone()).await;
    let marked = cluster.delete(PATH).await.code(200).json();
    assert_eq!(marked["metadata"]["finalizers"], twice);
    assert_eq!(cluster.delete(PATH).await.code(200).json(), marked);
}

#[tokio::test]
async fn options_of_a_delete_are_checked() {
    let (cluster, _) = held(json!([])).await;
    cluster.delete(&format!("{PATH}?propagationPolicy=Sideways")).await.refused(422, "Invalid");
    cluster.delete(&format!("{PATH}?gracePeriodSeconds=soon")).await.refused(400, "BadRequest");
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    cluster.delete(PATH).body(both).await.refused(422, "Invalid");
    cluster.delete(PATH).body(json!({"gracePeriodSeconds": "soon"})).await.refused(400, "BadRequest");
    cluster.read(PATH).await;
}

#[tokio::test]
async fn a_pod_has_a_grace_period() {
    let cluster = Cluster::start().await;
    let path = format!("{PODS}/p");
    cluster.create(PODS, assigned_pod("p")).await;
    let marked = cluster.delete(&path).await.code(200).json();
    assert_eq!(marked["kind"], "Pod");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2023-11-14T22:13:50Z", "when its time is over");
    // a second request may shorten the time, not prolong it
    let later = cluster.delete(&format!("{path}?gracePeriodSeconds=100")).await.code(200).json();
    assert_eq!(later["metadata"]["deletionGracePeriodSeconds"], 30);
    let sooner = cluster.delete(&format!("{path}?gracePeriodSeconds=5")).await.code(200).json();
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let gone = cluster.delete(&format!("{path}?gracePeriodSeconds=0")).await.code(200).json();
    assert_eq!(gone["kind"], "Pod");
    cluster.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn an_unscheduled_pod_has_no_grace_period() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    cluster.delete(&format!("{PODS}/p")).await.code(200);
    cluster.get(&format!("{PODS}/p")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn a_pods_own_grace_counts_unless_the_request_says_otherwise() {
    let cluster = Cluster::start().await;
    for (name, query, seconds) in [("own", "", 7), ("requested", "?gracePeriodSeconds=3", 3)] {
        let mut pod = assigned_pod(name);
        pod["spec"]["terminationGracePeriodSeconds"] = 7.into();
        cluster.create(PODS, pod).await;
        let marked = cluster.delete(&format!("{PODS}/{name}{query}")).await.code(200).json();
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], seconds);
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selectors() {
    let cluster = Cluster::start().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "blue")] {
        cluster.labelled(CONFIGMAPS, name, json!({"color": color})).await;
    }
    cluster.delete(&format!("{CONFIGMAPS}?labelSelector=color%3Dred")).await.code(200);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["b", "d"]);
    cluster.delete(&format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dd")).await.code(200);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["b"]);
    cluster.delete(&format!("{CONFIGMAPS}?labelSelector=!!")).await.refused(400, "BadRequest");
    cluster.delete(CONFIGMAPS).await.code(200);
    assert_eq!(cluster.read(CONFIGMAPS).await["items"], json!([]));
}

#[tokio::test]
async fn a_collection_is_deleted_in_chunks_and_under_its_options() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    cluster.delete(&format!("{CONFIGMAPS}?limit=1")).await.code(200);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["b", "c"]);
    let other = json!({"preconditions": {"uid": "none"}});
    cluster.delete(CONFIGMAPS).body(other).await.refused(409, "Conflict");
    cluster.delete(CONFIGMAPS).body(json!({"propagationPolicy": "Orphan"})).await.code(200);
    let list = cluster.read(CONFIGMAPS).await;
    assert_eq!(list["items"][1]["metadata"]["finalizers"], json!(["orphan"]));
}

#[tokio::test]
async fn a_body_counts_and_not_the_query_beside_it() {
    let (cluster, _) = held(json!([])).await;
    let both = cluster.delete(&format!("{PATH}?propagationPolicy=Orphan"));
    let marked = both.body(json!({"propagationPolicy": "Foreground"})).await.code(200).json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    // the older word for the same
    let marked = cluster.delete(PATH).body(json!({"orphanDependents": true})).await.code(200).json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    cluster.delete(PATH).body(json!({"kind": "Pod", "apiVersion": "v1"})).await.refused(400, "BadRequest");
    cluster.delete(PATH).body("{").await.refused(400, "BadRequest");
    let finalizers = json!({"metadata": {"finalizers": null}});
    cluster.patch(PATH, finalizers).await.code(200);
    // a foreign finalizer stays beside the garbage collector's
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a", "finalizers": ["a.b/c"]}})).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
    let marked = cluster.delete(PATH).body(options).await.code(200).json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["a.b/c", "foregroundDeletion"]));
}

/// Clients send options under the version of the group that they delete from.
#[tokio::test]
async fn options_come_under_the_version_of_any_group() {
    let cluster = Cluster::start().await;
    const JSON: &str = "application/json";
    let bodies = |version: &str, kind: &str| {
        let json =
            json!({"apiVersion": version, "kind": kind, "propagationPolicy": "Foreground"}).to_string();
        let yaml = format!("apiVersion: {version:?}\nkind: {kind:?}\npropagationPolicy: Foreground\n");
        let message = envelope(version, kind, &field(4, b"Foreground"));
        [(JSON, json.into_bytes()), ("application/yaml", yaml.into_bytes()), (PROTOBUF, message)]
    };
    for version in ["v1", "apps/v1", "batch/v1beta1", "meta.k8s.io/v1", "stable.example.com/v2", "v9", ""] {
        for (format, body) in bodies(version, "DeleteOptions") {
            cluster.named(CONFIGMAPS, "a").await;
            let marked = cluster.delete(PATH).body(body.clone()).content_type(format).await.code(200).json();
            assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{version} {format}");
            cluster.patch(PATH, json!({"metadata": {"finalizers": null}})).await.code(200);
            cluster.delete(CONFIGMAPS).body(body).content_type(format).await.code(200);
        }
    }
    let scheme = "in scheme \"pkg/runtime/scheme.go:100\"";
    for (version, kind, why) in [
        ("v1", "Pod", &*format!("no kind \"Pod\" is registered for version \"v1\" {scheme}")),
        (
            "apps/v1",
            "ListOptions",
            &format!("no kind \"ListOptions\" is registered for version \"apps/v1\" {scheme}"),
        ),
        ("", "Pod", &format!("no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" {scheme}")),
        (
            "apps/v1",
            "UpdateOptions",
            "converting (v1.UpdateOptions) to (v1.DeleteOptions): unknown conversion",
        ),
        ("meta.k8s.io/v1", "Table", "converting (v1.Table) to (v1.DeleteOptions): unknown conversion"),
    ] {
        for (format, body) in bodies(version, kind) {
            let refused =
                cluster.delete(PATH).body(body).content_type(format).await.refused(400, "BadRequest");
            assert_eq!(refused["message"], why, "{version} {kind} {format}");
        }
    }
    for (body, why) in [
        ("{\"apiVersion\":\"a/b/c\"}", "unexpected GroupVersion string: a/b/c"),
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (
            "{\"propagationPolicy\":1}",
            "json: cannot unmarshal number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
        ),
    ] {
        let refused = cluster.delete(PATH).body(body).content_type(JSON).await.refused(400, "BadRequest");
        assert_eq!(refused["message"], why);
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_limit_together() {
    let cluster = Cluster::start().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
        cluster.labelled(CONFIGMAPS, name, json!({"color": color})).await;
    }
    let path = format!("{CONFIGMAPS}?labelSelector=color%3Dred&limit=2");
    let at = version(&cluster.read(CONFIGMAPS).await);
    cluster.delete(&format!("{path}&dryRun=All")).await.code(200);
    assert_eq!(version(&cluster.read(CONFIGMAPS).await), at, "nothing was written");
    let gone = cluster.delete(&path).await.code(200).json();
    assert_eq!(names(&gone), ["a", "c"]);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["b", "d"]);
}

#[tokio::test]
async fn a_namespace_terminates() {
    let cluster = Cluster::start().await;
    let path = format!("{NAMESPACES}/n");
    let created = cluster.named(NAMESPACES, "n").await;
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    cluster.named(&format!("{path}/configmaps"), "a").await;
    let marked = cluster.delete(&path).await.code(200).json();
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let refused = cluster.post(&format!("{path}/configmaps"), json!({"metadata": {"name": "b"}})).await;
    assert_eq!(refused.refused(403, "Forbidden")["details"]["causes"][0]["reason"], "NamespaceTerminating");
    // the last finalizer of its spec keeps it
    let mut empty = cluster.read(&path).await;
    empty["spec"]["finalizers"] = json!([]);
    cluster.put(&format!("{path}/finalize"), empty).await.code(200);
    cluster.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn the_default_namespaces_stay() {
    let cluster = Cluster::start().await;
    for name in ["default", "kube-system", "kube-public"] {
        cluster.delete(&format!("{NAMESPACES}/{name}")).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn without_a_garbage_collector_no_finalizer_is_added() {
    for (uncollected, status) in [(false, 200), (true, 404)] {
        let kinds = kinds::Options { uncollected, ..kinds::Options::default() };
        let cluster = Cluster::with(tests::Options { kinds, ..tests::Options::default() }).await;
        cluster.named(CONFIGMAPS, "a").await;
        cluster.delete(&format!("{CONFIGMAPS}/a?propagationPolicy=Orphan")).await.code(200);
        cluster.get(&format!("{CONFIGMAPS}/a")).await.code(status);
    }
}
