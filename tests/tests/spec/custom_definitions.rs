//! Definitions of custom resources: names, versions, changes and deletion.

use super::custom_resources::{DEFINITIONS, GROUP, THINGS, define, definition, thing, version, wait_for};
use super::*;
use tests::Cluster;

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.stable.example.com";

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn condition<'v>(definition: &'v Value, kind: &str) -> &'v Value {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == kind).unwrap()
}

#[tokio::test]
async fn names_belong_to_the_first_definition() {
    let cluster = Cluster::start().await;
    define(&cluster, definition(&[version("v1", open())])).await;
    let mut other = definition(&[version("v1", open())]);
    other["metadata"]["name"] = format!("others.{GROUP}").into();
    other["spec"]["names"] = json!({"plural": "others", "kind": "Other", "shortNames": ["things"]});
    cluster.create(DEFINITIONS, other).await;
    let name = format!("others.{GROUP}");
    let rejected = wait_for(&cluster, &name, "NamesAccepted", "False").await;
    assert_eq!(condition(&rejected, "NamesAccepted")["message"], "\"things\" is already in use");
    assert_eq!(condition(&rejected, "Established")["status"], "False");
    cluster.get("/apis/stable.example.com/v1/namespaces/default/others").await.code(404);
    // and to the waiting definition, once they are free
    cluster.delete(DEFINITION).await.code(200);
    let rejected = wait_for(&cluster, &name, "Established", "True").await;
    assert_eq!(rejected["status"]["acceptedNames"]["shortNames"], json!(["things"]));
    cluster.get("/apis/stable.example.com/v1/namespaces/default/others").await.code(200);
}

#[tokio::test]
async fn objects_are_deleted_before_their_definition() {
    let cluster = Cluster::start().await;
    define(&cluster, definition(&[version("v1", open())])).await;
    let mut held = thing("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(THINGS, held).await;
    cluster.create(THINGS, thing("free", json!({}))).await;
    let mut watch = cluster.get(&format!("{DEFINITIONS}?watch=1")).watch().await;
    watch.some().await;
    let mut objects = cluster.get(&format!("{THINGS}?watch=1")).watch().await;
    objects.expect("ADDED", "free").await;
    objects.expect("ADDED", "held").await;
    let going = cluster.delete(DEFINITION).await.code(200).json();
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&going, "Terminating")["status"], "True");
    // the watch has ended, or tells of the deletions; either way one object stays for now
    loop {
        let left = cluster.read(THINGS).await;
        if names(&left) == ["held"] && left["items"][0]["metadata"]["deletionTimestamp"].is_string() {
            break;
        }
        tokio::task::yield_now().await;
    }
    cluster.post(THINGS, thing("new", json!({}))).await.code(405);
    cluster.patch(&format!("{THINGS}/held"), json!({"metadata": {"finalizers": null}})).await.code(200);
    while watch.some().await["type"] != "DELETED" {}
    cluster.get(DEFINITION).await.refused(404, "NotFound");
    // a new definition of the same name begins with nothing
    define(&cluster, definition(&[version("v1", open())])).await;
    assert_eq!(cluster.read(THINGS).await["items"], json!([]));
}

#[tokio::test]
async fn a_changed_schema_applies_to_existing_objects() {
    let cluster = Cluster::start().await;
    let before = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    define(&cluster, definition(&[version("v1", before)])).await;
    let created = cluster.create(THINGS, thing("x", json!({"a": "1", "b": "2"}))).await;
    let mut watch = cluster.get(&format!("{THINGS}?watch=1&resourceVersion=0")).watch().await;
    watch.expect("ADDED", "x").await;
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let change = json!([{"op": "remove", "path": format!("{properties}/b")},
        {"op": "add", "path": format!("{properties}/late"), "value": {"type": "string", "default": "L"}}]);
    cluster.patch(DEFINITION, change).await.code(200);
    // watches of the old form end
    assert_eq!(watch.rest().await, Vec::<Value>::new());
    let read = cluster.read(&format!("{THINGS}/x")).await;
    assert_eq!(read["spec"], json!({"a": "1", "late": "L"}), "pruned and defaulted when read");
    assert_eq!(
        read["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"],
        "but not written"
    );
    let list = cluster.read(THINGS).await;
    assert_eq!(list["items"][0]["spec"], json!({"a": "1", "late": "L"}));
    let next = cluster.patch(&format!("{THINGS}/x"), json!({"spec": {"a": "3"}})).await.code(200).json();
    assert_eq!(next["spec"], json!({"a": "3", "late": "L"}));
}

#[tokio::test]
async fn versions_share_their_objects() {
    let cluster = Cluster::start().await;
    let narrow = json!({"type": "object", "properties": {"x": {"type": "string", "default": "two"}}});
    let mut old = version("v1beta1", open());
    old["deprecated"] = true.into();
    let mut gone = version("v0", open());
    gone["served"] = false.into();
    define(&cluster, definition(&[version("v1", open()), version("v2", narrow), old, gone])).await;
    let at = |version: &str| format!("/apis/{GROUP}/{version}/namespaces/default/things");
    let mut one = thing("a", json!({"x": "1", "more": {"y": 2}}));
    one["apiVersion"] = format!("{GROUP}/v1beta1").into();
    let answer = cluster.post(&at("v1beta1"), one).await.code(201);
    let warning = "stable.example.com/v1beta1 Thing is deprecated; use stable.example.com/v2 Thing";
    assert_eq!(answer.warnings(), [format!("299 - \"{warning}\"")]);
    assert_eq!(cluster.read(&format!("{THINGS}/a")).await["spec"], json!({"x": "1", "more": {"y": 2}}));
    assert_eq!(cluster.read(&format!("{}/a", at("v2"))).await["spec"], json!({"x": "1"}));
    cluster.get(&at("v0")).await.code(404);
    // fields of other versions survive a metadata write
    let next =
        cluster.patch(&format!("{}/a", at("v1beta1")), json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(next.code(200).json()["spec"]["more"]["y"], 2);
    let mut watch = cluster.get(&format!("{}?watch=1", at("v2"))).watch().await;
    assert_eq!(watch.expect("ADDED", "a").await["apiVersion"], "stable.example.com/v2");
    // the stored version changes, and a write that changes nothing else writes it
    let change = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    let changed = cluster.patch(DEFINITION, change).await.code(200).json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(watch.rest().await, Vec::<Value>::new());
    let before = cluster.read(&format!("{}/a", at("v2"))).await;
    let after = cluster.put(&format!("{}/a", at("v2")), before.clone()).await.code(200).json();
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    let again = cluster.put(&format!("{}/a", at("v2")), after.clone()).await.code(200).json();
    assert_eq!(after, again);
    // a version that is no longer served is not there
    let change = json!([{"op": "replace", "path": "/spec/versions/2/served", "value": false}]);
    cluster.patch(DEFINITION, change).await.code(200);
    wait_until_gone(&cluster, &at("v1beta1")).await;
}

async fn wait_until_gone(cluster: &Cluster, path: &str) {
    while cluster.get(path).await.status != 404 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn invalid_definitions_are_rejected() {
    let cluster = Cluster::start().await;
    let refused = async |spec: Value| {
        let answer = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await;
        let status = answer.refused(422, "Invalid");
        fields(&status).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    assert_eq!(refused(json!({"properties": {}})).await, [format!("{at}.type")]);
    assert_eq!(refused(json!({"type": "string", "pattern": "("})).await, [format!("{at}.pattern")]);
    assert_eq!(
        refused(json!({"type": "string", "pattern": "(a{1000}){1000}"})).await,
        [format!("{at}.pattern")]
    );
    assert_eq!(refused(json!({"type": "integer", "default": "x"})).await, [format!("{at}.default")]);
    let found = refused(json!({"$ref": "#/definitions/x"})).await;
    assert!(found.contains(&format!("{at}.$ref")), "{found:?}");
    // too deep, and too many
    let mut deep = json!({"type": "string"});
    for _ in 0..130 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert_eq!(refused(deep).await, ["spec.validation.openAPIV3Schema"]);
    let many: serde_json::Map<String, Value> =
        (0..60_001).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
    assert_eq!(refused(json!({"type": "object", "properties": many})).await, [format!("{at}.properties")]);
    cluster.answers().await;
}

#[tokio::test]
async fn built_in_kinds_cannot_be_redefined() {
    let cluster = Cluster::start().await;
    let mut other = definition(&[version("v1", open())]);
    other["metadata"] = json!({"name": "leases.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
    other["spec"]["group"] = "coordination.k8s.io".into();
    other["spec"]["names"] = json!({"plural": "leases", "kind": "Lease"});
    define(&cluster, other).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"leaseDurationSeconds": "x"}});
    cluster.post(LEASES, lease).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn many_definitions_are_served_soon() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.get(&format!("{DEFINITIONS}?watch=1")).watch().await;
    for n in 0..50 {
        let mut one = definition(&[version("v1", open())]);
        one["metadata"]["name"] = format!("things{n}.{GROUP}").into();
        one["spec"]["names"] = json!({"plural": format!("things{n}"), "kind": format!("Thing{n}")});
        cluster.create(DEFINITIONS, one).await;
    }
    let mut established = std::collections::HashSet::new();
    while established.len() < 50 {
        let event = watch.some().await;
        let conditions = event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True") {
            let plural = event["object"]["spec"]["names"]["plural"].as_str().unwrap().to_owned();
            let path = format!("/apis/{GROUP}/v1/namespaces/default/{plural}");
            assert_eq!(cluster.read(&path).await["items"], json!([]), "served by then");
            established.insert(plural);
        }
    }
}

#[tokio::test]
async fn a_deletion_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    define(&cluster, definition(&[version("v1", open())])).await;
    let mut held = thing("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(THINGS, held).await;
    cluster.delete(DEFINITION).await.code(200);
    cluster.stop().await;
    let cluster = Cluster::on(directory.path()).await;
    let mut watch = cluster.get(&format!("{DEFINITIONS}?watch=1")).watch().await;
    watch.some().await;
    cluster.patch(&format!("{THINGS}/held"), json!({"metadata": {"finalizers": null}})).await.code(200);
    // the deletion of remaining objects continues
    while watch.some().await["type"] != "DELETED" {}
    cluster.get(DEFINITION).await.refused(404, "NotFound");
    cluster.stop().await;
}

#[tokio::test]
async fn changes_do_not_disturb_writes() {
    let cluster = Cluster::start().await;
    let schema = |fields: usize| {
        let properties: serde_json::Map<String, Value> =
            (0..fields).map(|n| (format!("f{n}"), json!({"type": "integer", "default": n}))).collect();
        json!({"type": "object", "properties": properties})
    };
    define(&cluster, definition(&[version("v1", schema(1))])).await;
    let writes = async {
        for n in 0..60 {
            let path = format!("{THINGS}/t{}", n % 6);
            cluster.post(THINGS, thing(&format!("t{}", n % 6), json!({"f0": n}))).await;
            assert_eq!(
                cluster.patch(&path, json!({"spec": {"f0": n}})).await.code(200).json()["spec"]["f0"],
                n
            );
            assert_eq!(cluster.read(&path).await["spec"]["f0"], n);
        }
    };
    let changes = async {
        for fields in 2..12 {
            let change = json!([{"op": "replace", "value": schema(fields),
                "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec"}]);
            cluster.patch(DEFINITION, change).await.code(200);
        }
    };
    tokio::join!(writes, changes);
    // in the end everything is seen through the last table
    loop {
        let list = cluster.read(THINGS).await;
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 6);
        if items.iter().all(|it| it["spec"].as_object().unwrap().len() == 11) {
            break;
        }
        tokio::task::yield_now().await;
    }
}
