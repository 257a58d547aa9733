//! Custom resources: objects of kinds that were defined while the server runs.

use super::*;
use tests::Cluster;

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const GROUP: &str = "stable.example.com";
pub(super) const THINGS: &str = "/apis/stable.example.com/v1/namespaces/default/things";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// A version with this schema of the spec.
pub(super) fn version(name: &str, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"spec": spec}}}})
}

/// A definition of things with these versions.
pub(super) fn definition(versions: &[Value]) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": versions}})
}

/// Waits until a condition of a definition is as it should be.
pub(super) async fn wait_for(cluster: &Cluster, name: &str, condition: &str, status: &str) -> Value {
    let mut watch =
        cluster.get(&format!("{DEFINITIONS}?watch=1&fieldSelector=metadata.name%3D{name}")).watch().await;
    loop {
        let event = watch.some().await;
        let conditions = event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|it| it["type"] == condition && it["status"] == status) {
            return event["object"].clone();
        }
    }
}

/// Makes a definition and waits until it is served.
pub(super) async fn define(cluster: &Cluster, definition: Value) -> Value {
    let created = cluster.create(DEFINITIONS, definition).await;
    wait_for(cluster, created["metadata"]["name"].as_str().unwrap(), "Established", "True").await
}

pub(super) fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

async fn with_things(spec: Value) -> Cluster {
    let cluster = Cluster::start().await;
    define(&cluster, definition(&[version("v1", spec)])).await;
    cluster
}

fn sized() -> Value {
    json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "note": {"type": "string", "nullable": true}}})
}

#[tokio::test]
async fn custom_resources_have_every_verb() {
    let cluster = with_things(sized()).await;
    let path = format!("{THINGS}/a");
    let created = cluster.create(THINGS, thing("a", json!({"size": 3, "shape": "round"}))).await;
    assert_eq!(created["spec"], json!({"size": 3, "color": "red"}), "pruned, and with defaults");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(cluster.read(&path).await, created);
    let mut next = created.clone();
    next["spec"]["size"] = 4.into();
    let next = cluster.put(&path, next).await.code(200).json();
    assert_eq!((&next["spec"]["size"], &next["metadata"]["generation"]), (&json!(4), &json!(2)));
    cluster.put(&path, &created).await.refused(409, "Conflict");
    let next = cluster.patch(&path, json!({"spec": {"note": null, "tags": []}})).await.code(200).json();
    assert_eq!(next["spec"], json!({"size": 4, "color": "red", "tags": []}), "empty is not absent");
    let operations = json!([{"op": "add", "path": "/spec/tags/-", "value": "y"},
        {"op": "add", "path": "/spec/note", "value": null}]);
    let next = cluster.patch(&path, operations).await.code(200).json();
    assert_eq!(next["spec"], json!({"size": 4, "color": "red", "tags": ["y"], "note": null}));
    let apply = cluster
        .request(http::Method::PATCH, &format!("{path}?fieldManager=m"))
        .body(json!({"apiVersion": "stable.example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
            "spec": {"tags": ["z"]}}));
    let next = apply.content_type("application/apply-patch+yaml").await.code(200).json();
    assert_eq!(next["spec"]["tags"], json!(["y", "z"]), "a set is merged");
    let list = cluster.read(THINGS).await;
    assert_eq!((&list["kind"], names(&list)), (&json!("ThingList"), vec!["a"]));
    let mut watch = cluster.get(&format!("{THINGS}?watch=1")).watch().await;
    watch.expect("ADDED", "a").await;
    cluster.delete(&path).await.code(200);
    watch.expect("DELETED", "a").await;
    cluster.get(&path).await.refused(404, "NotFound");
    cluster.create(THINGS, thing("b", json!({"size": 1}))).await;
    cluster.delete(THINGS).await.code(200);
    assert_eq!(cluster.read(THINGS).await["items"], json!([]));
}

#[tokio::test]
async fn all_problems_are_reported_at_once() {
    let cluster = with_things(sized()).await;
    let bad = json!({"size": 11, "color": "green", "name": "A", "tags": ["x", "x"], "note": 5});
    let status = cluster.post(THINGS, thing("a", bad)).await.refused(422, "Invalid");
    let mut found = fields(&status);
    found.sort();
    assert_eq!(found, ["spec.color", "spec.name", "spec.note", "spec.size", "spec.tags[1]"]);
    assert!(status["message"].as_str().unwrap().starts_with("Thing.stable.example.com \"a\" is invalid"));
    let status = cluster.post(THINGS, thing("a", json!({}))).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["spec.size"]);
    // and for every way to write
    cluster.create(THINGS, thing("a", json!({"size": 1}))).await;
    cluster.patch(&format!("{THINGS}/a"), json!({"spec": {"size": 0}})).await.refused(422, "Invalid");
    let strict = format!("{THINGS}?fieldValidation=Strict");
    let status =
        cluster.post(&strict, thing("b", json!({"size": 1, "x": 1}))).await.refused(400, "BadRequest");
    assert!(status["message"].as_str().unwrap().contains("unknown field \"spec.x\""));
}

#[tokio::test]
async fn the_status_is_apart_where_the_definition_says_so() {
    let cluster = Cluster::start().await;
    let mut one = version("v1", sized());
    one["subresources"] = json!({"status": {}});
    one["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"phase": {"type": "string", "enum": ["Ready"]}}});
    define(&cluster, definition(&[one])).await;
    let mut given = thing("a", json!({"size": 1}));
    given["status"] = json!({"phase": "Made up"});
    let created = cluster.create(THINGS, given).await;
    assert_eq!(created["status"], Value::Null);
    let path = format!("{THINGS}/a/status");
    let patch =
        json!({"status": {"phase": "Ready"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}});
    let next = cluster.patch(&path, patch).await.code(200).json();
    assert_eq!((&next["status"]["phase"], &next["spec"]["size"]), (&json!("Ready"), &json!(1)));
    assert_eq!((&next["metadata"]["generation"], &next["metadata"]["labels"]), (&json!(1), &Value::Null));
    assert_eq!(cluster.read(&path).await, next);
    cluster.patch(&path, json!({"status": {"phase": "Other"}})).await.refused(422, "Invalid");
    cluster.get(&format!("{THINGS}/a/scale")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn scale_reads_and_writes_where_the_definition_says() {
    let cluster = Cluster::start().await;
    let mut one = version(
        "v1",
        json!({"type": "object", "properties": {"count": {"type": "integer"}, "selector": {"type": "string"}}}),
    );
    one["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    one["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.count",
        "statusReplicasPath": ".status.count", "labelSelectorPath": ".spec.selector"}});
    define(&cluster, definition(&[one])).await;
    cluster.create(THINGS, thing("a", json!({"count": 2, "selector": "a=b"}))).await;
    let path = format!("{THINGS}/a/scale");
    let scale = cluster.read(&path).await;
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 0, "selector": "a=b"}))
    );
    cluster.patch(&path, json!({"spec": {"replicas": 5}})).await.code(200);
    assert_eq!(cluster.read(&format!("{THINGS}/a")).await["spec"]["count"], 5);
    cluster.patch(&path, json!({"spec": {"replicas": -1}})).await.refused(422, "Invalid");
    let bad = cluster.patch(&format!("{THINGS}/a"), json!({"spec": {"count": -1}})).await;
    assert_eq!(fields(&bad.refused(422, "Invalid")), [".spec.count"]);
}

#[tokio::test]
async fn columns_are_those_of_the_definition() {
    let cluster = Cluster::start().await;
    let mut one = version("v1", json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    one["additionalPrinterColumns"] = json!([
        {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].name"},
        {"name": "Ready", "type": "string", "jsonPath": ".spec.parts[?(@.name==\"b\")].ready"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": -300},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    define(&cluster, definition(&[one])).await;
    let parts = json!([{"name": "a"}, {"name": "b", "ready": true}]);
    cluster.create(THINGS, thing("a", json!({"size": 3, "parts": parts}))).await;
    cluster.create(THINGS, thing("b", json!({"size": "large"}))).await;
    let table = cluster.get(THINGS).accept(TABLE).await.code(200).json();
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(columns, ["Name", "First", "Ready", "Size", "Age"]);
    assert_eq!(table["columnDefinitions"][3]["priority"], -300);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "a", "true", 3, "0s"]));
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, null, "0s"]));
}

#[tokio::test]
async fn custom_resources_are_discovered_and_described() {
    let cluster = Cluster::start().await;
    let mut things = definition(&[version("v1", sized())]);
    things["spec"]["names"]["shortNames"] = json!(["th"]);
    things["spec"]["names"]["categories"] = json!(["all"]);
    things["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] =
        "what is wanted of a thing".into();
    // made once, and made again when there is more
    cluster.read("/openapi/v3").await;
    cluster.get("/apis/stable.example.com").await.code(404);
    define(&cluster, things).await;
    let list = cluster.read("/apis/stable.example.com/v1").await;
    let one = &list["resources"][0];
    assert_eq!(
        (&one["name"], &one["shortNames"], &one["categories"]),
        (&json!("things"), &json!(["th"]), &json!(["all"]))
    );
    for (path, schemas) in
        [("/openapi/v3/apis/stable.example.com/v1", "/components/schemas"), ("/openapi/v2", "/definitions")]
    {
        let document = cluster.read(path).await;
        let schema = &document.pointer(schemas).unwrap()["com.example.stable.v1.Thing"];
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["description"], "what is wanted of a thing", "{path}");
        assert_eq!(spec["properties"]["size"]["maximum"], 10, "{path}");
        assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Thing", "{path}");
        assert!(schema["properties"]["metadata"].is_object(), "{path}");
    }
    let index = cluster.read("/openapi/v3").await;
    assert!(index["paths"]["apis/stable.example.com/v1"].is_object());
}

#[tokio::test]
async fn custom_resources_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    define(&cluster, definition(&[version("v1", sized())])).await;
    let created = cluster.create(THINGS, thing("a", json!({"size": 3}))).await;
    cluster.stop().await;
    let cluster = Cluster::on(directory.path()).await;
    assert_eq!(cluster.read(&format!("{THINGS}/a")).await, created);
    cluster.post(THINGS, thing("b", json!({"size": 30}))).await.refused(422, "Invalid");
    cluster.stop().await;
}

#[tokio::test]
async fn bodies_must_match_the_path() {
    let cluster = with_things(sized()).await;
    let mut other = thing("a", json!({"size": 1}));
    other["kind"] = "Other".into();
    cluster.post(THINGS, other.clone()).await.refused(422, "Invalid");
    other["apiVersion"] = "stable.example.com/v2".into();
    cluster.post(THINGS, other.clone()).await.refused(400, "BadRequest");
    other.as_object_mut().unwrap().remove("kind");
    cluster.post(THINGS, other).await.refused(400, "BadRequest");
    cluster.post("/apis/stable.example.com/v1/things", thing("a", json!({"size": 1}))).await.code(404);
    cluster.get("/apis/stable.example.com/v2/namespaces/default/things").await.code(404);
}
