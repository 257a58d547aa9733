//! Answers about custom resources that mutated objects have found to differ from upstream's.

use super::custom_resources::{DEFINITIONS, definition, version};
use super::parity_bodies::{api_version, message, things};
use super::*;
use http::Method;
use tests::Cluster;

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// A version with these subresources and this schema of the status.
fn with_status(name: &str, spec: Value, status: Value, subresources: Value) -> Value {
    let mut version = version(name, spec);
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = status;
    version["subresources"] = subresources;
    version
}

fn scaled() -> Value {
    json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"})
}

#[tokio::test]
async fn a_scale_of_values_of_other_types_cannot_be_read() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let status =
        json!({"type": "object", "default": {"replicas": {"a": 1}}, "properties": {"replicas": open}});
    let v1 = with_status("v1", open.clone(), status, json!({"status": {}, "scale": scaled()}));
    let (cluster, things) = things(&[v1]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    cluster.create(&things, thing).await;
    let path = format!("{things}/t/scale");
    let expected =
        ".status.replicas accessor error: map[a:1] is of the type map[string]interface {}, expected int64";
    assert_eq!(message(&cluster.get(&path).await.code(500)), expected);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}, "spec": {"replicas": 1}});
    assert_eq!(message(&cluster.put(&path, scale).await.code(500)), expected);
}

#[tokio::test]
async fn a_scale_sets_no_defaults() {
    let replicas = json!({"replicas": {"type": "integer"}});
    let mut more = replicas.clone();
    more["late"] = json!({"type": "string", "default": "L"});
    let spec = |fields: Value| json!({"type": "object", "maxProperties": 1, "properties": fields});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let subresources = json!({"scale": scaled()});
    let versions = [
        with_status("v1", spec(replicas), open.clone(), subresources.clone()),
        with_status("v2", spec(more), open, subresources),
    ];
    let (cluster, things) = things(&versions).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"replicas": 1}});
    cluster.create(&things, thing).await;
    let path = format!("{}/t/scale", things.replace("/v1/", "/v2/"));
    let mut scale = cluster.read(&path).await;
    scale["spec"]["replicas"] = 2.into();
    assert_eq!(cluster.put(&path, scale).await.code(200).json()["spec"]["replicas"], 2);
    assert_eq!(cluster.read(&format!("{things}/t")).await["spec"], json!({"replicas": 2}));
}

#[tokio::test]
async fn the_default_of_a_status_is_stored_with_the_first_update() {
    let status = |field: &str| json!({"type": "object", "default": {field: "d"}, "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let versions = [
        with_status("v1", spec.clone(), status("a"), json!({"status": {}})),
        with_status("v2", spec, status("b"), json!({"status": {}})),
    ];
    let (cluster, things) = things(&versions).await;
    for (name, written) in [("t", things.clone()), ("u", things.replace("/v1/", "/v2/"))] {
        let thing = json!({"apiVersion": api_version(&written), "kind": "Thing", "metadata": {"name": name}});
        let created = cluster.create(&written, thing).await;
        // the stored version decides
        assert_eq!(created["status"], json!({"a": "d"}));
        let path = format!("{written}/{name}");
        assert_eq!(cluster.read(&path).await, created);
        let touch = || cluster.patch(&path, json!({"metadata": {}})).content_type(MERGE);
        let first = touch().await.code(200).json();
        assert_eq!(first["status"], created["status"]);
        assert_ne!(first["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
        assert_eq!(first["metadata"]["generation"], created["metadata"]["generation"]);
        assert_eq!(touch().await.code(200).json(), first);
    }
}

#[tokio::test]
async fn a_write_in_another_version_drops_what_that_version_does_not_have() {
    let text = json!({"type": "string"});
    let spec = |fields: Value| json!({"type": "object", "properties": fields});
    let versions =
        [version("v1", spec(json!({"a": text, "own": text}))), version("v2", spec(json!({"a": text})))];
    let (cluster, things) = things(&versions).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"a": "x", "own": "y"}});
    let created = cluster.create(&things, thing).await;
    let path = format!("{}/t", things.replace("/v1/", "/v2/"));
    let touch = || cluster.patch(&path, json!({"metadata": {}})).content_type(MERGE);
    let first = touch().await.code(200).json();
    assert_ne!(first["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(cluster.read(&format!("{things}/t")).await["spec"], json!({"a": "x"}));
    assert_eq!(touch().await.code(200).json(), first);
}

#[tokio::test]
async fn numbers_of_metadata_are_read_as_floats_first() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let thing = |number: &str| {
        let api_version = api_version(&things);
        format!(
            r#"{{"apiVersion":"{api_version}","kind":"Thing","metadata":{{"name":"t","generation":{number}}}}}"#
        )
    };
    for (number, formatted) in
        [("9223372036854775808", "9223372036854776000"), ("1.5", "1.5"), ("1e22", "1e+22")]
    {
        let refused = message(&cluster.post(&things, thing(number).as_str()).await.code(400));
        let expected = format!(
            "json: cannot unmarshal number {formatted} into Go struct field ObjectMeta.generation of type int64"
        );
        assert!(refused.ends_with(&expected), "{refused}");
        // an apply drops what cannot be read
        let path = format!("{things}/t?fieldManager=m&dryRun=All");
        cluster.request(Method::PATCH, &path).body(thing(number)).content_type(APPLY).await.code(201);
    }
    for number in ["1000.0", "1e3"] {
        let path = format!("{things}?dryRun=All");
        cluster.post(&path, thing(number).as_str()).await.code(201);
    }
}

#[tokio::test]
async fn rules_below_an_unknown_type_cannot_be_compiled() {
    let rules = json!([{"rule": "true"}]);
    let odd =
        json!({"type": "foo", "additionalProperties": {"type": "string", "x-kubernetes-validations": rules}});
    let inner =
        json!({"type": "object", "properties": {"odd": odd.clone()}, "x-kubernetes-validations": rules});
    let spec = json!({"type": "object", "properties": {"ruled": inner, "plain": {"type": "object", "properties": {"odd": odd}}}});
    let cluster = tests::Cluster::start().await;
    let refused = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.code(422).json();
    let causes = refused["details"]["causes"].as_array().unwrap();
    let internal: Vec<_> = causes.iter().filter(|cause| cause["reason"] == "InternalError").collect();
    // a type of its own is enough where no rule above reads the value
    assert_eq!(internal.len(), 1, "{refused}");
    let field = internal[0]["field"].as_str().unwrap();
    let place = "properties[ruled].properties[odd].additionalProperties.x-kubernetes-validations";
    assert!(field.ends_with(place), "{field}");
}

#[tokio::test]
async fn an_entry_of_a_version_that_cannot_read_the_object_stays() {
    let items = |required: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items":
            {"type": "object", "required": required, "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}})
    };
    let spec = |list: Value| json!({"type": "object", "properties": {"l": list, "a": {"type": "string"}}});
    let open =
        json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = [version("v1", spec(items(json!(["k"])))), version("v2", spec(open))];
    let (cluster, things) = things(&versions).await;
    let apply = |things: &str, manager: &str, spec: Value| {
        let config = json!({"apiVersion": api_version(things), "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
        let path = format!("{things}/t?fieldManager={manager}&dryRun=All");
        cluster.request(Method::PATCH, &path).body(config).content_type(APPLY)
    };
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": "x"}});
    cluster.create(&things, thing).await;
    let other = things.replace("/v1/", "/v2/");
    let applied = apply(&other, "m", json!({"l": [{"v": "1"}, {}]})).await.code(200).json();
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{applied}");
}

#[tokio::test]
async fn a_write_of_the_status_keeps_the_kind() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let v1 = with_status("v1", json!({"type": "object"}), open, json!({"status": {}}));
    let (cluster, things) = things(&[v1]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    cluster.create(&things, thing).await;
    let path = format!("{things}/t");
    let patch = json!({"kind": "Other", "status": {"a": 1}});
    cluster.patch(&path, patch.clone()).content_type(MERGE).await.code(422);
    let mut other = cluster.read(&path).await;
    other["kind"] = "Other".into();
    cluster.put(&path, other.clone()).await.code(422);
    assert_eq!(cluster.put(&format!("{path}/status"), other).await.code(200).json()["kind"], "Thing");
    let patched = cluster.patch(&format!("{path}/status"), patch).content_type(MERGE).await.code(200).json();
    assert_eq!((&patched["kind"], &patched["status"]), (&json!("Thing"), &json!({"a": 1})));
}

#[tokio::test]
async fn properties_without_a_type_are_those_of_an_object() {
    let part = json!({"type": "object", "properties": {"known": {"type": "string", "default": "d"}}});
    let open = json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"part": part}});
    let spec = json!({"type": "object", "properties": {"open": open}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = |open: Value| json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "spec": {"open": open}});
    let apply = |open: Value| {
        let path = format!("{things}/t?fieldManager=m&dryRun=All");
        cluster.request(Method::PATCH, &path).body(thing(open)).content_type(APPLY)
    };
    let refused = message(&apply(json!(1)).await.code(500));
    assert!(refused.ends_with(": .spec.open: expected map, got &{1}"), "{refused}");
    apply(json!({"other": [1]})).await.code(201);
    // only an apply asks for an object; the properties of one are pruned and get their defaults
    let created = |open: Value| cluster.create(&things, thing(open));
    assert_eq!(created(json!([{"a": 1}])).await["spec"]["open"], json!([{"a": 1}]));
    cluster.delete(&format!("{things}/t")).await.code(200);
    let created = created(json!({"part": {"unknown": 1}, "other": {"a": 1}})).await;
    assert_eq!(created["spec"]["open"], json!({"part": {"known": "d"}, "other": {"a": 1}}));
}

#[tokio::test]
async fn defaults_fit_rules_that_the_schemas_above_hide() {
    let rules = json!([{"rule": "self > 0"}]);
    let number = json!({"type": "integer", "default": -1, "x-kubernetes-validations": rules});
    let hiding = |outer: Value| {
        let mut outer = outer;
        outer["properties"] = json!({"number": number});
        json!({"type": "object", "properties": {"outer": outer}})
    };
    let cluster = tests::Cluster::start().await;
    for outer in [
        json!({"type": "object", "x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    ] {
        let new = definition(&[version("v1", hiding(outer.clone()))]);
        let refused = cluster.post(DEFINITIONS, new).await.code(422).json();
        let causes = refused["details"]["causes"].as_array().unwrap();
        let [cause] = causes.as_slice() else { panic!("{outer}: {refused}") };
        assert_eq!(cause["message"], "Invalid value: \"integer\": failed rule: self > 0");
        assert!(cause["field"].as_str().unwrap().ends_with("properties[outer].properties[number].default"));
    }
}

#[tokio::test]
async fn rules_below_a_map_of_unknown_type_cannot_compare_with_old_values() {
    let rules = json!([{"rule": "self == oldSelf"}]);
    let list =
        json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": rules.clone()}});
    let number = json!({"type": "integer", "x-kubernetes-validations": rules});
    let spec =
        json!({"type": "object", "x-kubernetes-map-type": "foo", "properties": {"a": number, "b": list}});
    let cluster = Cluster::start().await;
    let refused = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.code(422);
    let causes = refused.json()["details"]["causes"].as_array().unwrap().clone();
    // the outermost map or list is named, in both places
    let around = "within spec.validation.openAPIV3Schema.properties[spec]";
    let found = causes.iter().filter(|it| it["message"].as_str().unwrap().ends_with(around));
    let fields: Vec<_> =
        found.map(|it| it["field"].as_str().unwrap().rsplit("properties").next().unwrap()).collect();
    let expected = ["[a].x-kubernetes-validations[0].rule", "[b].items.x-kubernetes-validations[0].rule"];
    assert_eq!(fields, expected, "{}", refused.text());
}

#[tokio::test]
async fn null_items_and_entries_have_defaults() {
    let text = |default: &str| json!({"type": "string", "default": default});
    let inner = json!({"type": "object", "default": {"a": "A"},
        "properties": {"a": {"type": "string"}, "b": text("B")}});
    let spec = json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": text("m")},
        "plain": {"type": "object", "additionalProperties": {"type": "string"}},
        "nullable": {"type": "object", "additionalProperties":
            {"type": "string", "default": "n", "nullable": true}},
        "maps": {"type": "object", "additionalProperties": inner},
        "list": {"type": "array", "items": text("l")},
        "lists": {"type": "array", "items": inner}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = |name: &str| {
        json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": name}, "spec": {
            "map": {"k": null}, "plain": {"k": null}, "nullable": {"k": null}, "maps": {"k": null},
            "list": [null, "x"], "lists": [null, {}]}})
    };
    let whole = json!({"a": "A", "b": "B"});
    let mut expected = json!({"map": {"k": "m"}, "plain": {}, "nullable": {"k": null}, "maps": {"k": whole},
        "list": ["l", "x"], "lists": [whole, {"b": "B"}]});
    let created = cluster.create(&things, thing("t")).await;
    assert_eq!(created["spec"], expected);
    let owned = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(owned["f:map"]["f:k"], json!({}), "{owned}");
    // an apply keeps nulls where there is no default
    let mut config = thing("u");
    config["spec"]["plain"] = json!({});
    let path = format!("{things}/u?fieldManager=m");
    let applied =
        cluster.request(Method::PATCH, &path).body(config).content_type(APPLY).await.code(201).json();
    expected["plain"] = json!({});
    assert_eq!(applied["spec"], expected);
}

#[tokio::test]
async fn an_applied_null_conflicts_with_owners_in_other_versions() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let (cluster, things) = things(&[version("v1", spec.clone()), version("v2", spec)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": 1}});
    cluster.create(&things, thing.clone()).await;
    for things in [things.clone(), things.replace("/v1/", "/v2/")] {
        let mut config = thing.clone();
        config["apiVersion"] = api_version(&things).into();
        config["spec"]["a"] = Value::Null;
        let path = format!("{things}/t?fieldManager=m");
        let refused = cluster.request(Method::PATCH, &path).body(config).content_type(APPLY).await.code(409);
        assert!(message(&refused).ends_with("/v1: .spec.a"), "{}", message(&refused));
    }
}
