//! OpenAPI: the schemas that clients explain and check with.

use super::custom_resources::{GROUP, define, definition, version};
use super::*;
use tests::Cluster;

#[tokio::test]
async fn version_three_has_a_document_for_each_group_version() {
    let cluster = Cluster::start().await;
    let index = cluster.read("/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    for path in ["api/v1", "apis/node.k8s.io/v1", "apis/certificates.k8s.io/v1", "apis/events.k8s.io/v1"] {
        let url = paths[path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = cluster.read(url).await;
        assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{path}");
        assert!(!document["paths"].as_object().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_document_describes_kinds_and_operations() {
    let cluster = Cluster::start().await;
    let document = cluster.read("/openapi/v3/apis/node.k8s.io/v1").await;
    let class = &document["components"]["schemas"]["io.k8s.api.node.v1.RuntimeClass"];
    assert_eq!(class["required"], json!(["handler"]));
    assert_eq!(class["properties"]["handler"]["type"], "string");
    assert_eq!(
        class["x-kubernetes-group-version-kind"],
        json!([{"group": "node.k8s.io", "kind": "RuntimeClass", "version": "v1"}])
    );
    let path = &document["paths"]["/apis/node.k8s.io/v1/runtimeclasses/{name}"];
    for method in ["get", "put", "patch", "delete"] {
        assert!(path[method].is_object(), "{method}");
    }
    let collection = &document["paths"]["/apis/node.k8s.io/v1/runtimeclasses"];
    let parameters: Vec<_> =
        collection["get"]["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    for name in ["limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "watch"] {
        assert!(parameters.contains(&&json!(name)), "{name}");
    }
}

/// The schemas that a document refers to.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("$ref", Value::String(target)) => found.push(target),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_reference_resolves() {
    let cluster = Cluster::start().await;
    let mut documents = vec![("/openapi/v2".to_owned(), "#/definitions/", "/definitions")];
    let index = cluster.read("/openapi/v3").await;
    for path in index["paths"].as_object().unwrap().keys() {
        documents.push((format!("/openapi/v3/{path}"), "#/components/schemas/", "/components/schemas"));
    }
    for (path, prefix, place) in documents {
        let document = cluster.read(&path).await;
        let mut found = Vec::new();
        references(&document, &mut found);
        for target in found {
            if let Some(name) = target.strip_prefix(prefix) {
                assert!(document.pointer(place).unwrap().get(name).is_some(), "{path}: {target}");
            } else {
                let pointer = target.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{path}: {target}");
            }
        }
    }
}

#[tokio::test]
async fn version_two_is_one_document_in_two_forms() {
    let cluster = Cluster::start().await;
    let document = cluster.read("/openapi/v2").await;
    assert_eq!(document["swagger"], "2.0");
    let pod = &document["definitions"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "kind": "Pod", "version": "v1"}])
    );
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["get"].is_object());
    let media = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let packed = cluster.get("/openapi/v2").accept(media).await.code(200);
    // media types may not hold an at sign, so clients are answered with a dot in its place
    assert_eq!(packed.header("content-type"), media.replace('@', "."));
    // the first field of the message is the version of the format
    assert!(packed.body.starts_with(b"\x0a\x032.0"), "{:?}", &packed.body[..8]);
}

#[tokio::test]
async fn merge_keys_and_list_types_are_published() {
    let cluster = Cluster::start().await;
    let document = cluster.read("/openapi/v2").await;
    let containers = &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    let ports = &document["definitions"]["io.k8s.api.core.v1.Container"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-type"], "map");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
}

#[tokio::test]
async fn lists_that_are_declared_atomic_say_so() {
    let cluster = Cluster::start().await;
    let document = cluster.read("/openapi/v2").await;
    let tolerations = &document["definitions"]["io.k8s.api.node.v1.Scheduling"]["properties"]["tolerations"];
    assert_eq!(tolerations["x-kubernetes-list-type"], "atomic");
}

/// Clients recognize descriptions of common fields by their first words.
#[tokio::test]
async fn descriptions_begin_with_the_words_that_clients_look_for() {
    let cluster = Cluster::start().await;
    let spec =
        json!({"type": "object", "properties": {"size": {"type": "string", "description": "Size of it"}}});
    define(&cluster, definition(&[version("v1", spec)])).await;
    let document = cluster.read("/openapi/v2").await;
    let definitions = &document["definitions"];
    let begins = |text: &Value, words: &str| {
        assert!(text.as_str().is_some_and(|text| text.starts_with(words)), "{words}: {text}");
    };
    for name in ["com.example.stable.v1.Thing", "io.k8s.api.core.v1.Pod"] {
        let properties = &definitions[name]["properties"];
        begins(&properties["apiVersion"]["description"], "APIVersion defines");
        begins(&properties["kind"]["description"], "Kind is a string value");
        begins(&properties["metadata"]["description"], "Standard object's metadata");
    }
    let list = &definitions["com.example.stable.v1.ThingList"];
    begins(&list["description"], "ThingList is a list of Thing");
    begins(&list["properties"]["metadata"]["description"], "Standard list metadata");
    begins(&list["properties"]["items"]["description"], "List of things");
    let metadata = &definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    begins(&metadata["creationTimestamp"]["description"], "CreationTimestamp is a timestamp");
}

/// The published schema has exactly the properties that follow from a custom resource's schema.
#[tokio::test]
async fn schemas_of_custom_resources_are_published_as_clients_read_them() {
    let cluster = Cluster::start().await;
    let open = json!({"type": "object", "description": "any", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    let mut first = version("v1", json!({}));
    first["schema"]["openAPIV3Schema"] = open;
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec"],
        "properties": {"spec": {"type": "string"}}});
    let any = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let mut second = version("v2", json!({}));
    second["storage"] = false.into();
    second["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"embedded": embedded, "any": {"type": "array", "items": any},
            "port": {"x-kubernetes-int-or-string": true}}}}});
    define(&cluster, definition(&[first, second])).await;
    let two = cluster.read("/openapi/v2").await["definitions"].clone();
    // v2 describes a free-form field only as an object
    let kind = json!([{"group": GROUP, "kind": "Thing", "version": "v1"}]);
    assert_eq!(
        two["com.example.stable.v1.Thing"],
        json!({"type": "object", "x-kubernetes-group-version-kind": kind})
    );
    assert_eq!(two["com.example.stable.v1.ThingList"]["type"], Value::Null);
    let three = |version: &str| {
        let path = format!("/openapi/v3/apis/{GROUP}/{version}");
        let cluster = &cluster;
        async move { cluster.read(&path).await["components"]["schemas"].clone() }
    };
    let one = three("v1").await;
    assert_eq!(one["com.example.stable.v1.Thing"]["x-kubernetes-preserve-unknown-fields"], true);
    let item = json!({"$ref": "#/components/schemas/com.example.stable.v1.Thing"});
    assert_eq!(one["com.example.stable.v1.ThingList"]["properties"]["items"]["items"], item);
    let newer = three("v2").await;
    for schemas in [&two, &newer] {
        let spec = &schemas["com.example.stable.v2.Thing"]["properties"]["spec"]["properties"];
        assert_eq!(spec["embedded"]["required"], json!(["spec", "kind", "apiVersion"]));
        let names: Vec<&String> = spec["embedded"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["apiVersion", "kind", "metadata", "spec"]);
    }
    let fields =
        |schemas: &Value| schemas["com.example.stable.v2.Thing"]["properties"]["spec"]["properties"].clone();
    assert_eq!(fields(&newer)["any"]["items"]["required"], json!(["kind", "apiVersion"]));
    assert_eq!(fields(&two)["any"]["items"]["required"], Value::Null);
    assert_eq!(fields(&newer)["port"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
    assert_eq!(fields(&two)["port"], json!({"x-kubernetes-int-or-string": true}));
}
