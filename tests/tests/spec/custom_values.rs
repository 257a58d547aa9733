//! Values of custom resources: upstream's responses to objects with one unusual value.

use super::custom_resources::{DEFINITIONS, THINGS, define, definition, thing, version};
use super::protobuf::PROTOBUF;
use super::*;
use tests::{ApiRequest, Cluster};

const APPLY: &str = "application/apply-patch+yaml";
const META: &str = "v=v1;g=meta.k8s.io";

/// A cluster that serves things with these properties in their spec; `extra` is set in the version.
async fn serving(properties: Value, extra: Value) -> Cluster {
    let cluster = Cluster::start().await;
    let mut version = version("v1", json!({"type": "object", "properties": properties}));
    for (name, value) in extra.as_object().unwrap() {
        version[name] = value.clone();
    }
    define(&cluster, definition(&[version])).await;
    cluster
}

fn apply<'c>(cluster: &'c Cluster, name: &str, object: Value) -> ApiRequest<'c> {
    let path = format!("{THINGS}/{name}?fieldManager=m");
    cluster.request(http::Method::PATCH, &path).body(object).content_type(APPLY)
}

#[tokio::test]
async fn media_types_are_negotiated_without_a_route() {
    let cluster = serving(json!({"a": {"type": "integer"}}), json!({})).await;
    cluster.create(THINGS, thing("x", json!({"a": 1}))).await;
    let path = format!("{THINGS}/x");
    let answer = cluster.get(&path).accept("application/*").await.code(200);
    assert_eq!(answer.header("content-type"), "application/json");
    let answer = cluster.get(&path).accept("*/*, application/yaml").await.code(200);
    assert_eq!(answer.header("content-type"), "application/yaml", "wildcards come last");
    let accepted = "only the following media types are accepted: application/json, application/yaml, \
                    application/vnd.kubernetes.protobuf";
    for refused in ["text/plain", "APPLICATION/JSON", "application/yaml;stream=watch"] {
        let status = cluster.get(&path).accept(refused).await.refused(406, "NotAcceptable");
        assert_eq!(status["message"], accepted, "{refused}");
        assert!(status.get("details").is_none(), "{refused}");
    }
    let refused = cluster.get(&path).accept(PROTOBUF).await.code(406);
    assert!(refused.text().contains(accepted), "in the requested format: {}", refused.text());
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;{META}");
    let answer = cluster.get(&path).accept(&metadata).await.code(200);
    assert_eq!(answer.header("content-type"), PROTOBUF, "metadata has numbered fields");
    let list = format!("{PROTOBUF};as=PartialObjectMetadataList;{META}");
    cluster.get(THINGS).accept(&list).await.code(200);
    let status = cluster.get(&path).accept(&list).await.code(500);
    assert!(status.text().contains("content is not a list"), "{}", status.text());
    for media in ["text/plain", "application/json", PROTOBUF, "application/strategic-merge-patch+json"] {
        let patch = cluster.patch(&path, json!({"spec": {}})).content_type(media).accept("text/html");
        let status = patch.await.refused(415, "UnsupportedMediaType");
        assert_eq!(
            status["message"],
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }
}

#[tokio::test]
async fn owners_are_recorded_of_objects_that_fit() {
    let properties = json!({"any": {"x-kubernetes-preserve-unknown-fields": true}});
    let status = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let cluster = serving(properties, json!({"subresources": {"status": {}}})).await;
    let schema = [json!({"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/status",
        "value": status})];
    cluster.patch(&format!("{DEFINITIONS}/things.stable.example.com"), json!(schema)).await.code(200);
    let mut odd = thing("odd", json!({"any": 1}));
    odd["status"] = json!({"n": "text"});
    let created = cluster.create(THINGS, odd.clone()).await;
    assert_eq!(created.get("status"), None, "not set by a creation");
    assert_eq!(created["metadata"].get("managedFields"), None, "what was sent does not fit its schema");
    odd["status"] = json!([{}]);
    odd["metadata"] = cluster.create(THINGS, thing("put", json!({"any": 1}))).await["metadata"].clone();
    let put = cluster.put(&format!("{THINGS}/put"), odd).await.code(200).json();
    assert_eq!(put["metadata"].get("managedFields"), None);
    let created = cluster.create(THINGS, thing("x", json!({"any": {"a": {"b": [1]}}}))).await;
    let owned = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:any"];
    assert_eq!(*owned, json!({".": {}, "f:a": {".": {}, "f:b": {}}}), "maps of no type are granular");
    let config = |any: Value| {
        let mut config = thing("x", json!({"any": any}));
        config["status"] = Value::Null;
        config
    };
    let next = apply(&cluster, "x", config(json!({"c": 2}))).await.code(200).json();
    assert_eq!(next["spec"]["any"], json!({"a": {"b": [1]}, "c": 2}));
}

#[tokio::test]
async fn applied_objects_are_stored_pruned() {
    let properties = json!({"any": {"x-kubernetes-preserve-unknown-fields": true}, "s": {"type": "string"},
        "in": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties":
            {"o": {"type": "object", "properties": {"k": {"type": "string"}}}}}});
    let cluster = serving(properties, json!({})).await;
    let mut config = thing("x", json!({"any": null, "s": "t"}));
    config["metadata"]["creationTimestamp"] = "x".into();
    let created = apply(&cluster, "x", config).await.code(201).json();
    assert_eq!(created["spec"], json!({"s": "t"}), "null is no value here");
    assert_ne!(created["metadata"]["creationTimestamp"], "x");
    // fields below a preserving field are not unknown, and are pruned nevertheless
    let config = thing("y", json!({"in": {"o": {"k": "v", "unknown": 1}}}));
    let created = apply(&cluster, "y", config).await.code(201).json();
    assert_eq!(created["spec"], json!({"in": {"o": {"k": "v"}}}));
    let config = thing("z", json!({"unknown": 1}));
    let refused = apply(&cluster, "z", config).await.code(500);
    assert!(refused.text().contains(".spec.unknown: field not declared in schema"), "{}", refused.text());
}

#[tokio::test]
async fn a_scale_writes_where_the_schema_allows() {
    let scale = json!({"scale": {"specReplicasPath": ".spec.n.m", "statusReplicasPath": ".status.n"}});
    let properties = json!({"s": {"type": "string"}, "n": {"type": "object", "nullable": true}});
    let cluster = serving(properties, json!({"subresources": scale})).await;
    let created = cluster.create(THINGS, thing("x", json!({"n": null}))).await;
    assert_eq!(created["spec"], json!({"n": null}), "null has no replicas, which is nothing wrong");
    let path = format!("{THINGS}/x/scale");
    let refused = cluster.patch(&path, json!({"spec": {"replicas": 3}})).await.code(500);
    assert!(refused.text().contains("because .spec.n is not a map"), "{}", refused.text());
    let read = cluster.read(&format!("{THINGS}/x")).await;
    assert_eq!(read["spec"], json!({"n": null}));
    let status = cluster.post(THINGS, thing("y", json!({"n": {"m": 1}, "s": "t"}))).await;
    status.code(201);
}

#[tokio::test]
async fn validation_errors_match_upstream() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]});
    let properties = json!({
        "five": {"type": "integer", "multipleOf": 5},
        "form": {"type": "integer", "format": "bogus"},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": item},
        "part": {"type": "object", "additionalProperties": {"type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let cluster = serving(properties, json!({})).await;
    for (spec, expected) in [
        (
            json!({"five": 1_099_511_627_776_u64}),
            "spec.five: Invalid value: 1099511627776: spec.five in body should be a multiple of 5",
        ),
        (
            json!({"form": 1.5}),
            "spec.form: Invalid value: \"number\": spec.form in body must be of type integer: \"number\"",
        ),
        (
            json!({"map": [{"k": "a"}, "b"]}),
            "[spec.map[1]: Invalid value: \"string\": spec.map[1] in body must be of type object: \"string\", \
             spec.map[1]: Invalid value: \"b\": must be an object for an array of list-type map]",
        ),
    ] {
        let status = cluster.post(THINGS, thing("x", spec)).await.refused(422, "Invalid");
        assert_eq!(status["message"], format!("Thing.stable.example.com \"x\" is invalid: {expected}"));
    }
    let part =
        |metadata: Value| json!({"part": {"p": {"apiVersion": "v1", "kind": "P", "metadata": metadata}}});
    let status = cluster.post(THINGS, thing("x", part(json!({"labels": {"a": 1}})))).await;
    assert_eq!(
        status.refused(400, "BadRequest")["message"],
        "Thing in version \"v1\" cannot be handled as a Thing: spec.part[p].metadata: Invalid value: \
         map[string]interface {}{\"labels\":map[string]interface {}{\"a\":1}}: json: cannot unmarshal number into Go \
         struct field ObjectMeta.labels of type string"
    );
    let created = cluster.post(THINGS, thing("x", part(json!({"unk": 1})))).await.code(201);
    assert_eq!(created.warnings(), [r#"299 - "unknown field \"spec.part[p].metadata.unk\"""#]);
    // invalid labels are reported once for the object and twice for the change
    let mut object = created.json();
    object["metadata"]["labels"] = json!({"a b": "c"});
    let status = cluster.put(&format!("{THINGS}/x"), object).await.refused(422, "Invalid");
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 3, "{status}");
}

#[tokio::test]
async fn definitions_keep_their_fields() {
    let cluster = Cluster::start().await;
    let list = json!({"type": "array", "items": {"type": "string"}, "default": []});
    let spec = json!({"type": "object", "properties": {"l": list}});
    let created = cluster.create(DEFINITIONS, definition(&[version("v1", spec)])).await;
    let schema = &created["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(schema["properties"]["l"]["default"], json!([]));
    // rules are tried where nothing is wrong with the schema that they are about
    let wrong = json!({"type": "object", "x-kubernetes-map-type": "x", "properties": {"s":
        {"type": "string", "x-kubernetes-validations": [{"rule": "self > 1"}]}}});
    let mut other = definition(&[version("v1", wrong)]);
    other["metadata"]["name"] = "others.stable.example.com".into();
    other["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    let status = cluster.post(DEFINITIONS, other).await.refused(422, "Invalid");
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    assert_eq!(
        fields(&status),
        [
            format!("{at}.x-kubernetes-map-type"),
            format!("{at}.properties[s].x-kubernetes-validations[0].rule")
        ]
    );
}
