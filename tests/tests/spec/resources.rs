//! "Resources and their fields", common to all: type, metadata, names.

use super::*;
use tests::Cluster;

const MOMENT: &str = "2023-11-14T22:13:20Z";

#[tokio::test]
async fn an_object_says_its_version_and_kind() {
    let cluster = Cluster::start().await;
    let core = cluster.named(CONFIGMAPS, "a").await;
    assert_eq!((&core["apiVersion"], &core["kind"]), (&json!("v1"), &json!("ConfigMap")));
    let named = cluster.named(LEASES, "a").await;
    assert_eq!((&named["apiVersion"], &named["kind"]), (&json!("coordination.k8s.io/v1"), &json!("Lease")));
}

#[tokio::test]
async fn a_collection_is_of_the_kind_with_list_behind() {
    let cluster = Cluster::start().await;
    for (path, version, kind) in [
        (CONFIGMAPS, "v1", "ConfigMapList"),
        (ACCOUNTS, "v1", "ServiceAccountList"),
        (NODES, "v1", "NodeList"),
        (LEASES, "coordination.k8s.io/v1", "LeaseList"),
        (CLASSES, "node.k8s.io/v1", "RuntimeClassList"),
        (REQUESTS, "certificates.k8s.io/v1", "CertificateSigningRequestList"),
    ] {
        let list = cluster.read(path).await;
        assert_eq!((&list["apiVersion"], &list["kind"]), (&json!(version), &json!(kind)));
        assert!(list["items"].is_array(), "items are there even when there are none: {list}");
        assert!(!super::version(&list).is_empty());
        let metadata = list["metadata"].as_object().unwrap();
        assert!(!metadata.contains_key("continue") && !metadata.contains_key("remainingItemCount"), "{list}");
    }
}

#[tokio::test]
async fn the_server_fills_in_the_metadata() {
    let cluster = Cluster::start().await;
    let given = json!({"metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "2"},
        "finalizers": ["example.com/hold"], "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    let created = cluster.create(CONFIGMAPS, given).await;
    let metadata = &created["metadata"];
    assert_eq!(metadata["name"], "a");
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["labels"], json!({"l": "1"}));
    assert_eq!(metadata["annotations"], json!({"n": "2"}));
    assert_eq!(metadata["finalizers"], json!(["example.com/hold"]));
    assert_eq!(metadata["creationTimestamp"], MOMENT, "the server's clock, as a timestamp");
    assert_eq!(metadata.get("deletionTimestamp"), None);
    assert_eq!(uid(&created).len(), 36);
    assert!(metadata["resourceVersion"].is_string());
    assert_eq!(metadata["managedFields"][0]["manager"], "spec");
    assert_eq!(metadata["managedFields"][0]["operation"], "Update");
    assert_eq!(metadata["managedFields"][0]["time"], MOMENT);
    assert_eq!(cluster.read(&format!("{CONFIGMAPS}/a")).await, created, "what is read is what was answered");
}

#[tokio::test]
async fn an_update_keeps_server_set_fields() {
    let cluster = Cluster::start().await;
    let created = cluster.named(CONFIGMAPS, "a").await;
    let path = format!("{CONFIGMAPS}/a");
    let next =
        cluster.put(&path, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.code(200).json();
    assert_eq!(uid(&next), uid(&created));
    assert_eq!(next["metadata"]["creationTimestamp"], created["metadata"]["creationTimestamp"]);
    assert_ne!(version(&next), version(&created));
    let other = json!({"metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}});
    cluster.put(&path, other).await.refused(409, "Conflict");
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_version() {
    let cluster = Cluster::start().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    cluster.advance(std::time::Duration::from_secs(5));
    let same = cluster.put(&format!("{CONFIGMAPS}/a"), &created).await.code(200).json();
    assert_eq!(same, created);
}

#[tokio::test]
async fn a_name_is_unique_within_a_namespace_and_a_kind() {
    let cluster = Cluster::start().await;
    cluster.named(NAMESPACES, "other").await;
    cluster.named(CONFIGMAPS, "a").await;
    let refused = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await;
    let status = refused.refused(409, "AlreadyExists");
    assert_eq!(status["message"], "configmaps \"a\" already exists");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
    cluster.named("/api/v1/namespaces/other/configmaps", "a").await;
    cluster.named(SECRETS, "a").await;
}

#[tokio::test]
async fn a_name_may_be_used_again_after_deletion() {
    let cluster = Cluster::start().await;
    let first = cluster.named(CONFIGMAPS, "a").await;
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    let second = cluster.named(CONFIGMAPS, "a").await;
    assert_ne!(uid(&first), uid(&second));
}

#[tokio::test]
async fn a_name_without_a_namespace_is_unique_in_the_cluster() {
    let cluster = Cluster::start().await;
    cluster.named(NODES, "a").await;
    cluster.post(NODES, json!({"metadata": {"name": "a"}})).await.refused(409, "AlreadyExists");
    cluster.create(CLASSES, runtime_class("a")).await;
    cluster.post(CLASSES, runtime_class("a")).await.refused(409, "AlreadyExists");
}

#[tokio::test]
async fn names_are_generated_from_a_prefix() {
    let cluster = Cluster::start().await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let created = cluster.create(CONFIGMAPS, json!({"metadata": {"generateName": "job-"}})).await;
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("job-") && name.len() == 9, "{name}");
        assert_eq!(created["metadata"]["generateName"], "job-");
        assert!(seen.insert(name));
    }
    let long = "x".repeat(100);
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"generateName": long}})).await;
    assert_eq!(created["metadata"]["name"].as_str().unwrap().len(), 63);
    let both = json!({"metadata": {"name": "given", "generateName": "job-"}});
    assert_eq!(cluster.create(CONFIGMAPS, both).await["metadata"]["name"], "given");
}

#[tokio::test]
async fn names_have_a_form() {
    let cluster = Cluster::start().await;
    for name in ["Upper", "under_score", "-dash", "dash-", "a..b", "a/b", "ä", &"x".repeat(254)] {
        let status =
            cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await.refused(422, "Invalid");
        assert_eq!(fields(&status)[0], "metadata.name", "{name}: {status}");
    }
    let missing = cluster.post(CONFIGMAPS, json!({"metadata": {}})).await.refused(422, "Invalid");
    assert_eq!(fields(&missing), ["metadata.name"]);
    // namespaces are part of host names: no dots
    cluster.post(NAMESPACES, json!({"metadata": {"name": "a.b"}})).await.refused(422, "Invalid");
    cluster.named(CONFIGMAPS, "a.b-c.1").await;
}

#[tokio::test]
async fn all_problems_of_the_metadata_are_named_at_once() {
    let cluster = Cluster::start().await;
    let bad = json!({"metadata": {"name": "A", "labels": {"k k": "v", "k": "v v"}, "annotations": {"b b": ""},
        "finalizers": ["no-domain"], "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]}});
    let status = cluster.post(CONFIGMAPS, bad).await.refused(422, "Invalid");
    let named = fields(&status);
    for field in ["metadata.name", "metadata.labels", "metadata.annotations", "metadata.ownerReferences.name"]
    {
        assert!(named.contains(&field), "{field} in {named:?}");
    }
    assert_eq!(named.iter().filter(|field| **field == "metadata.labels").count(), 2);
}

#[tokio::test]
async fn the_namespace_is_that_of_the_path_and_must_exist() {
    let cluster = Cluster::start().await;
    let elsewhere = json!({"metadata": {"name": "a", "namespace": "elsewhere"}});
    let status = cluster.post(CONFIGMAPS, elsewhere).await.refused(400, "BadRequest");
    assert!(status["message"].as_str().unwrap().contains("does not match the namespace"), "{status}");
    let missing = "/api/v1/namespaces/missing/configmaps";
    let status = cluster.post(missing, json!({"metadata": {"name": "a"}})).await.refused(404, "NotFound");
    assert_eq!(status["message"], "namespaces \"missing\" not found");
    assert_eq!(names(&cluster.read(missing).await), Vec::<&str>::new());
}

#[tokio::test]
async fn the_system_namespaces_exist_from_the_start() {
    let cluster = Cluster::start().await;
    let list = cluster.read(NAMESPACES).await;
    assert_eq!(names(&list), ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test]
async fn one_sequence_of_versions_runs_through_all_kinds() {
    let cluster = Cluster::start().await;
    let number = |object: &Value| version(object).parse::<u64>().unwrap();
    let first = cluster.named(CONFIGMAPS, "a").await;
    let second = cluster.named(LEASES, "a").await;
    let third = cluster.named(NODES, "a").await;
    assert!(number(&first) < number(&second) && number(&second) < number(&third));
    // an item says when it was modified, the collection when it was put together
    let list = cluster.read(CONFIGMAPS).await;
    assert_eq!(version(&list["items"][0]), version(&first));
    assert!(number(&list) >= number(&third));
}

#[tokio::test]
async fn events_are_kept_for_the_configured_time() {
    let ttl = std::time::Duration::from_secs(60);
    let cluster = Cluster::with(tests::Options { event_ttl: ttl, ..tests::Options::default() }).await;
    let event = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Tested",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let created = cluster.create(EVENTS, event).await;
    let mut watch =
        cluster.get(&format!("{EVENTS}?watch=1&resourceVersion={}", version(&created))).watch().await;
    cluster.advance(ttl + std::time::Duration::from_secs(1));
    watch.expect("DELETED", "e").await;
    cluster.get(&format!("{EVENTS}/e")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn events_are_one_collection_in_two_groups() {
    let cluster = Cluster::start().await;
    let event = json!({"metadata": {"name": "e", "finalizers": ["example.org/hold"]}, "type": "Normal",
        "reason": "Tested", "message": "m",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let created = cluster.create(EVENTS, event).await;
    let other = cluster.read("/apis/events.k8s.io/v1/namespaces/default/events/e").await;
    assert_eq!(other["apiVersion"], "events.k8s.io/v1");
    assert_eq!(uid(&other), uid(&created));
    assert_eq!((&other["regarding"]["name"], &other["note"]), (&json!("p"), &json!("m")));
    // an event written through one group is the same in the other
    cluster.delete("/apis/events.k8s.io/v1/namespaces/default/events/e").await.code(200);
    let marked = cluster.read(&format!("{EVENTS}/e")).await;
    assert_eq!((&marked["apiVersion"], &marked["message"]), (&json!("v1"), &json!("m")));
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
}
