//! Answers to applies and odd values of custom resources, as upstream gives them.

use super::custom_resources::{definition, version};
use super::parity_bodies::{api_version, message, things};
use super::protobuf::{PROTOBUF, envelope};
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// Applies a thing in the version of a collection.
async fn apply(cluster: &Cluster, things: &str, manager: &str, mut config: Value) -> ApiResponse {
    let name = config["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    config["apiVersion"] = api_version(things).into();
    config["kind"] = "Thing".into();
    let path = format!("{things}/{name}?fieldManager={manager}");
    cluster.request(Method::PATCH, &path).body(config).content_type(APPLY).await
}

/// A version with the field `a`, and with a default of its own for `d`.
fn with_default(name: &str, default: Option<i64>) -> Value {
    let mut spec =
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "d": {"type": "integer"}}});
    if let Some(default) = default {
        spec["properties"]["d"]["default"] = default.into();
    }
    version(name, spec)
}

#[tokio::test]
async fn an_apply_that_changes_nothing_sets_no_default() {
    // the stored version drops `d`, so that the other one reads objects without its default
    let stored = version("v1", json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    let (cluster, things) = things(&[with_default("v2", Some(2)), stored]).await;
    let created = apply(&cluster, &things, "c", json!({"metadata": {"name": "t"}, "spec": {"a": 1}})).await;
    let created = created.code(201).json();
    assert_eq!(created["metadata"]["generation"], 1);
    // another manager applies the same: only the record changes
    let again = apply(&cluster, &things, "d", json!({"metadata": {"name": "t"}, "spec": {"a": 1}})).await;
    let again = again.code(200).json();
    assert_eq!(again["metadata"]["generation"], 1, "{again}");
    assert_eq!(again["metadata"]["managedFields"].as_array().unwrap().len(), 2);
    // a label is a change, and with it comes the default
    let config = json!({"metadata": {"name": "t", "labels": {"l": "m"}}, "spec": {"a": 1}});
    let labelled = apply(&cluster, &things, "d", config).await.code(200).json();
    assert_eq!(labelled["metadata"]["generation"], 2, "{labelled}");
}

#[tokio::test]
async fn an_apply_that_changes_nothing_is_judged_as_the_object_is_read() {
    let inner =
        json!({"type": "object", "properties": {"d": {"type": "object", "default": {}}}, "required": ["d"]});
    let stored = version(
        "v1",
        json!({"type": "object", "properties": {"x": {"type": "object"}, "l": {"type": "string"}}}),
    );
    let other = version("v2", json!({"type": "object", "properties": {"x": inner, "l": {"type": "string"}}}));
    let (cluster, things) = things(&[other, stored]).await;
    let config = json!({"metadata": {"name": "t"}, "spec": {"x": {}, "l": "a"}});
    apply(&cluster, &things, "c", config).await.code(201);
    let same = json!({"metadata": {"name": "t"}, "spec": {"l": "a"}});
    let refused = apply(&cluster, &things, "d", same).await.code(422);
    assert!(message(&refused).ends_with("is invalid: spec.x.d: Required value"), "{}", refused.text());
    let changed = json!({"metadata": {"name": "t", "labels": {"l": "m"}}, "spec": {"l": "a"}});
    apply(&cluster, &things, "d", changed).await.code(200);
}

#[tokio::test]
async fn applied_fields_that_the_schema_drops_count_until_they_are_dropped() {
    let mut open =
        version("v1", json!({"type": "object", "properties": {"b": {"type": "string"}}, "maxProperties": 1}));
    open["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = true.into();
    let (cluster, things) = things(&[open]).await;
    let generation = async |spec: Value| {
        let applied = apply(&cluster, &things, "c", json!({"metadata": {"name": "t"}, "spec": spec})).await;
        let applied = applied.json();
        assert!(applied["spec"]["other"].is_null(), "{applied}");
        applied["metadata"]["generation"].clone()
    };
    assert_eq!(generation(json!({})).await, 1);
    assert_eq!(generation(json!({"other": 1})).await, 2);
    assert_eq!(generation(json!({"other": 2})).await, 3);
    assert_eq!(generation(json!({})).await, 3);
    // rules see them, too
    let two = json!({"metadata": {"name": "t"}, "spec": {"b": "c", "other": 1}});
    let refused = apply(&cluster, &things, "c", two).await.code(422);
    assert!(message(&refused).contains("must have at most 1 item"), "{}", refused.text());
}

#[tokio::test]
async fn a_list_in_the_place_of_an_open_map_keeps_its_fields() {
    let shut = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut open = shut.clone();
    open["x-kubernetes-preserve-unknown-fields"] = true.into();
    let outer = json!({"type": "object", "additionalProperties": open});
    let spec = json!({"type": "object", "properties": {"open": open, "shut": shut, "outer": outer}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let path = format!("{things}?dryRun=All");
    let cases = [
        (json!({"open": [{"u": 1}]}), None),
        (json!({"open": [[1, {"u": {"v": 1}}]]}), None),
        (json!({"outer": {"x": [{"u": 1}]}}), None),
        (json!({"shut": [{"u": 1}]}), Some("spec.shut[0].u")),
    ];
    for (spec, unknown) in cases {
        let body = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
        let answer = cluster.post(&path, body).await.code(422);
        let expected: Vec<_> =
            unknown.iter().map(|it| format!(r#"299 - "unknown field \"{it}\"""#)).collect();
        assert_eq!(answer.warnings(), expected, "{spec}");
    }
}

/// A server with one version of things that have a nullable field beside the spec, and a status.
async fn with_top(spec: Value) -> (Cluster, String) {
    let mut version = version("v1", spec);
    let fields = &mut version["schema"]["openAPIV3Schema"]["properties"];
    fields["top"] = json!({"type": "integer", "nullable": true});
    fields["status"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    version["subresources"] = json!({"status": {}});
    things(&[version]).await
}

fn thing(things: &str, more: &Value) -> Value {
    let mut thing = json!({"apiVersion": api_version(things), "kind": "Thing", "metadata": {"name": "x"}});
    thing.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    thing
}

#[tokio::test]
async fn a_merged_null_takes_a_nullable_field_away() {
    let (cluster, things) = with_top(json!({"type": "object"})).await;
    for (sent, generation) in [(json!({"top": 1}), 2), (json!({"top": null}), 2)] {
        cluster.create(&things, thing(&things, &sent)).await;
        let path = format!("{things}/x");
        let patched = cluster.patch(&path, json!({"top": null})).await.code(200).json();
        assert!(patched.get("top").is_none(), "{patched}");
        assert_eq!(patched["metadata"]["generation"], generation);
        let fields = &patched["metadata"]["managedFields"];
        assert!(!fields.to_string().contains("f:top"), "{fields}");
        cluster.delete(&path).await.code(200);
    }
}

#[tokio::test]
async fn a_write_of_the_status_cannot_speak_of_the_identity() {
    let (cluster, things) = with_top(json!({"type": "object"})).await;
    let created = cluster.create(&things, thing(&things, &json!({}))).await;
    let path = format!("{things}/x/status");
    let body = json!({"metadata": {"uid": "other", "deletionTimestamp": "2020-01-01T00:00:00Z"}, "status": {"a": 1}});
    let patched = cluster.patch(&path, body).await.code(200).json();
    assert_eq!((uid(&patched), &patched["status"]), (uid(&created), &json!({"a": 1})));
    assert!(patched["metadata"]["deletionTimestamp"].is_null());
    let config = thing(&things, &json!({"metadata": {"name": "x", "uid": "other"}, "status": {"b": 1}}));
    let ask = cluster.request(Method::PATCH, &format!("{path}?fieldManager=m")).body(config);
    assert_eq!(uid(&ask.content_type(APPLY).await.code(200).json()), uid(&created));
}

#[tokio::test]
async fn a_patched_type_is_read_before_the_schema_judges() {
    let (cluster, things) = with_top(json!({"type": "object"})).await;
    cluster.create(&things, thing(&things, &json!({"spec": {}}))).await;
    let odd = json!({"op": "add", "path": "/spec/odd", "value": 1});
    let number =
        |field: &str| format!("cannot unmarshal number into Go struct field .{field} of type string");
    let cases = [
        (json!({"op": "add", "path": "/kind", "value": 5}), 422, number("kind")),
        (json!({"op": "add", "path": "/apiVersion", "value": 5}), 422, number("apiVersion")),
        (json!({"op": "remove", "path": "/kind"}), 422, "Object 'Kind' is missing".to_owned()),
        (json!({"op": "remove", "path": "/apiVersion"}), 500, "Object 'apiVersion' is missing".to_owned()),
        (json!({"op": "add", "path": "/kind", "value": "Other"}), 422, "must be Thing".to_owned()),
        (json!({"op": "add", "path": "/apiVersion", "value": "v9"}), 422, "must be ".to_owned()),
    ];
    for (change, code, words) in cases {
        let ask = cluster.request(Method::PATCH, &format!("{things}/x")).body(json!([odd, change]));
        let answer = ask.content_type("application/json-patch+json").await.code(code);
        assert!(message(&answer).contains(&words), "{change}: {}", answer.text());
        assert_eq!(answer.warnings(), Vec::<String>::new(), "{change}");
    }
}

#[tokio::test]
async fn a_factor_below_one_judges_whole_numbers() {
    let spec = json!({"type": "object", "properties": {"n": {"type": "number", "multipleOf": 0.5}}});
    let (cluster, things) = with_top(spec).await;
    let path = format!("{things}?dryRun=All");
    for (number, code) in
        [(json!(1), 201), (json!(0), 201), (json!(1.5), 201), (json!(-2), 201), (json!(0.3), 422)]
    {
        let answer = cluster.post(&path, thing(&things, &json!({"spec": {"n": number}}))).await;
        assert_eq!(answer.status, code, "{number}: {}", answer.text());
    }
}

/// A schema with maps and embedded objects.
fn with_embedded() -> Value {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let mut declared = embedded.clone();
    declared["properties"] = json!({"apiVersion": {"type": "string"}, "kind": {"type": "string", "nullable": true},
        "metadata": {"type": "object"}});
    let rule = json!([{"rule": "self.all(x, x == x)"}]);
    json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "one": embedded, "declared": declared,
        "list": {"type": "array", "items": embedded, "x-kubernetes-validations": rule}}})
}

fn embedded(fields: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod"});
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn rules_see_applied_values_as_they_were_sent() {
    let (cluster, things) = with_top(with_embedded()).await;
    let must_be = |path: &str, ty: &str| format!("{path} in body must be of type {ty}: \"null\"");
    let cases = [
        (json!({"map": {"a": null}}), must_be("spec.map.a", "string")),
        (
            json!({"declared": embedded(json!({"metadata": null}))}),
            must_be("spec.declared.metadata", "object"),
        ),
        (
            json!({"list": [embedded(json!({"metadata": null}))]}),
            "spec.list: Invalid value: \"array\": failed rule: self.all(x, x == x)".to_owned(),
        ),
        (
            json!({"one": embedded(json!({"metadata": {"creationTimestamp": "x"}}))}),
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"".to_owned(),
        ),
    ];
    for (spec, words) in cases {
        let config = json!({"metadata": {"name": "x"}, "spec": spec});
        let answer = apply(&cluster, &things, "m", config).await.code(422);
        assert!(message(&answer).contains(&words), "{spec}: {}", answer.text());
    }
}

#[tokio::test]
async fn null_in_an_embedded_object_is_dropped_where_the_schema_declares_the_field() {
    let (cluster, things) = with_top(with_embedded()).await;
    let path = format!("{things}?dryRun=All");
    let text = |path: &str| format!("{path}: Invalid value: \"null\": must be a string");
    let refused = [
        (json!({"one": embedded(json!({"apiVersion": null}))}), 400, text("spec.one.apiVersion")),
        (json!({"list": [embedded(json!({"kind": null}))]}), 400, text("spec.list[0].kind")),
        (json!({"declared": embedded(json!({"kind": null}))}), 400, text("spec.declared.kind")),
        (
            json!({"declared": embedded(json!({"apiVersion": null}))}),
            422,
            "spec.declared.apiVersion: Required value: must not be empty".to_owned(),
        ),
    ];
    for (spec, code, words) in refused {
        let answer = cluster.post(&path, thing(&things, &json!({"spec": spec}))).await.code(code);
        assert!(message(&answer).contains(&words), "{spec}: {}", answer.text());
    }
    let read = [
        (json!({"metadata": null}), json!({"metadata": {}}), json!({})),
        (
            json!({"metadata": {"name": null, "managedFields": []}}),
            json!({"metadata": {}}),
            json!({"metadata": {}}),
        ),
    ];
    for (sent, one, declared) in read {
        let spec = json!({"one": embedded(sent.clone()), "declared": embedded(sent)});
        let created = cluster.post(&path, thing(&things, &json!({"spec": spec}))).await.code(201).json();
        assert_eq!(created["spec"], json!({"one": embedded(one), "declared": embedded(declared)}));
    }
}

#[tokio::test]
async fn applied_metadata_of_an_embedded_object_counts_until_it_is_read() {
    let (cluster, things) = with_top(with_embedded()).await;
    cluster
        .create(&things, thing(&things, &json!({"spec": {"one": embedded(json!({"metadata": {}}))}})))
        .await;
    for (metadata, generation) in [(json!({}), 1), (json!(null), 2), (json!({"name": null}), 3)] {
        let spec = json!({"one": embedded(json!({"metadata": metadata}))});
        let config = json!({"metadata": {"name": "x"}, "spec": spec});
        let path = format!("{things}/x?fieldManager=m&force=true");
        let body = thing(&things, &config);
        let applied =
            cluster.request(Method::PATCH, &path).body(body).content_type(APPLY).await.code(200).json();
        assert_eq!(applied["metadata"]["generation"], generation, "{metadata}: {applied}");
        assert_eq!(applied["spec"]["one"]["metadata"], json!({}));
    }
}

#[tokio::test]
async fn an_applied_key_that_is_null_is_a_value_of_the_wrong_type() {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": item}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let config = json!({"metadata": {"name": "t"}, "spec": {"l": [{"name": null}]}});
    let refused = apply(&cluster, &things, "m", config).await.code(422);
    let expected =
        r#"spec.l[0].name: Invalid value: "null": spec.l[0].name in body must be of type string: "null""#;
    assert!(message(&refused).ends_with(expected), "{}", message(&refused));
}

#[tokio::test]
async fn custom_resources_have_no_form_in_protobuf() {
    let (cluster, things) = things(&[with_default("v1", None)]).await;
    let send = |body: Vec<u8>| cluster.request(Method::POST, &things).body(body).content_type(PROTOBUF);
    let text =
        format!(r#"{{"apiVersion":"{}","kind":"Thing","metadata":{{"name":"t"}}}}"#, api_version(&things));
    let refused = message(&send(text.into_bytes()).await.code(400));
    let expected = "the object provided is unrecognized (must be of type Thing): provided data does not appear to be a \
                    protobuf message, expected prefix [107 56 115 0] (";
    assert!(refused.starts_with(expected), "{refused}");
    for (version, kind, shown) in
        [(&*api_version(&things), "Thing", "Thing"), ("", "", "Thing"), ("v1", "Pod", "Pod")]
    {
        let refused = message(&send(envelope(version, kind, &[])).await.code(400));
        let why = "cannot be handled as a Thing: Object 'Kind' is missing in 'object has no kind field '";
        assert_eq!(refused, format!(r#"{shown} in version "v1" {why}"#));
    }
}

#[tokio::test]
async fn a_dry_run_shows_the_defaults_of_a_read() {
    let mut v1 = version("v1", json!({"type": "object"}));
    v1["subresources"] = json!({"status": {}});
    v1["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}});
    let (cluster, things) = things(&[v1]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    let path = format!("{things}?dryRun=All");
    let tried = cluster.post(&path, thing.clone()).await.code(201).json();
    let created = cluster.create(&things, thing).await;
    assert_eq!((&tried["status"], &created["status"]), (&json!({"a": 1}), &json!({"a": 1})));
}

#[tokio::test]
async fn a_changed_prefix_of_a_name_is_part_of_a_path() {
    let (cluster, things) = things(&[with_default("v1", None)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    cluster.create(&things, thing).await;
    let path = format!("{things}/t");
    let patch = |prefix: &str| {
        cluster.patch(&path, json!({"metadata": {"generateName": prefix}})).content_type(MERGE)
    };
    patch("A_b\n").await.code(200);
    let refused = patch("/abs").await.code(422);
    let expected = r#"metadata.generateName: Invalid value: "/abs": may not contain '/'"#;
    assert!(message(&refused).ends_with(expected), "{}", message(&refused));
}

#[tokio::test]
async fn an_entry_of_a_default_has_a_path_that_begins_with_a_dot() {
    let map = json!({"type": "object", "additionalProperties": {"type": "string", "not": {"minLength": 1}},
        "default": {"k": "v"}});
    let spec = json!({"type": "object", "properties": {"m": map}});
    let cluster = Cluster::start().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let refused = cluster.post(path, definition(&[version("v1", spec)])).await.code(422);
    let expected = r#"Invalid value: "": ".k" must not validate the schema (not)"#;
    assert!(message(&refused).contains(expected), "{}", message(&refused));
}

#[tokio::test]
async fn an_apply_of_a_status_without_a_change_ignores_the_metadata() {
    let (cluster, things) = things(&[with_default("v1", None)]).await;
    let group = api_version(&things).split('/').next().unwrap().to_owned();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}");
    let config = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "other"}, "status": {"storedVersions": ["v1"]}});
    let send = |part: &str| {
        let path = format!("{path}{part}?fieldManager=m");
        cluster.request(Method::PATCH, &path).body(config.clone()).content_type(APPLY)
    };
    let applied = send("/status").await.code(200).json();
    assert_eq!(applied["metadata"]["name"], format!("things.{group}"));
    send("").await.code(400);
}

#[tokio::test]
async fn an_applied_item_omits_its_keys_in_the_order_of_their_declaration() {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["b", "a"], "properties": {"a": text, "b": text}});
    let spec = json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["b", "a"], "items": item}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let config = json!({"metadata": {"name": "t"}, "spec": {"l": [{}]}});
    let refused = message(&apply(&cluster, &things, "m", config).await.code(500));
    assert!(refused.contains(r#"omits key field "b""#), "{refused}");
}

#[tokio::test]
async fn times_of_the_server_in_an_applied_custom_resource_may_be_any_text() {
    let (cluster, things) = things(&[with_default("v1", None)]).await;
    let config = json!({"metadata": {"name": "t", "creationTimestamp": "x", "deletionTimestamp": "2020-01-01t00:00:00z"}});
    let created = apply(&cluster, &things, "m", config).await.code(201).json();
    assert_eq!(created["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test]
async fn an_unreadable_time_in_the_metadata_is_reported_before_other_types() {
    let (cluster, things) = things(&[with_default("v1", None)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing",
        "metadata": {"name": "t", "managedFields": [{"fieldsType": 5, "time": ""}]}});
    let refused = message(&cluster.post(&things, thing).await.code(400));
    assert!(refused.ends_with(r#"cannot parse "" as "2006""#), "{refused}");
}

#[tokio::test]
async fn an_error_in_an_embedded_object_shows_it_as_it_was_sent() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"spec": {"type": "object"}}});
    let (cluster, things) =
        things(&[version("v1", json!({"type": "object", "properties": {"e": embedded}}))]).await;
    let map = "map[string]interface {}";
    let cases = [
        (
            json!({"kind": {"metadata": "a,b", "z": [1, null]}}),
            format!(
                "spec.e.kind: Invalid value: {map}{{\"metadata\":\"a,b\", \"z\":[]interface {{}}{{1, interface {{}}(nil)}}}}: \
                must be a string"
            ),
        ),
        (
            json!({"kind": "P", "metadata": {"labels": 5}}),
            format!(
                "spec.e.metadata: Invalid value: {map}{{\"labels\":5}}: json: cannot unmarshal number into Go struct field \
                ObjectMeta.labels of type map[string]string"
            ),
        ),
        (
            json!({"kind": "P", "metadata": ["a"]}),
            "spec.e.metadata: Invalid value: []interface {}{\"a\"}: json: cannot unmarshal array into Go value of type \
                v1.ObjectMeta"
                .to_owned(),
        ),
    ];
    for (mut object, expected) in cases {
        object["apiVersion"] = "v1".into();
        let body = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
            "spec": {"e": object}});
        let refused = cluster.post(&things, body).await.code(400);
        assert_eq!(
            message(&refused),
            format!("Thing in version \"v1\" cannot be handled as a Thing: {expected}")
        );
    }
}

#[tokio::test]
async fn an_empty_list_in_a_definition_is_not_none() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let group = api_version(&things).split('/').next().unwrap_or_default().to_owned();
    let status = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}/status");
    for conditions in [json!([]), json!(null)] {
        let patch = json!({"status": {"conditions": conditions}});
        let patched = cluster.patch(&status, patch).content_type(MERGE).await.code(200).json();
        assert_eq!(patched["status"]["conditions"], conditions);
    }
}

#[tokio::test]
async fn a_whole_float_in_the_place_of_another_type_is_a_number() {
    let field = |kind: &str| json!({"type": kind});
    let properties = json!({"s": field("string"), "b": field("boolean"), "o": field("object"),
        "l": {"type": "array", "items": field("string")}, "i": field("integer"), "n": field("number"),
        "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "m": {"type": "object", "additionalProperties": field("string")}});
    let (cluster, things) =
        things(&[version("v1", json!({"type": "object", "properties": properties}))]).await;
    let post = async |spec: Value| {
        let body = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
            "spec": spec});
        cluster.post(&things, body).await
    };
    for (field, wanted) in
        [("s", "string"), ("b", "boolean"), ("o", "object"), ("l", "array"), ("p", "object")]
    {
        for (value, found) in [(json!(2.0), "number"), (json!(2), "integer")] {
            let refused = post(json!({ field: value })).await.code(422);
            let expected = format!("spec.{field} in body must be of type {wanted}: \"{found}\"");
            assert!(message(&refused).ends_with(&expected), "{}", refused.text());
        }
    }
    let refused = post(json!({"m": {"a": 2.0}})).await.code(422);
    assert!(message(&refused).ends_with(r#"spec.m.a in body must be of type string: "number""#));
    // where a number is expected it is one like any other
    let created = post(json!({"i": 2.0, "n": 2.0})).await.code(201).json();
    assert_eq!(created["spec"], json!({"i": 2, "n": 2}));
}

#[tokio::test]
async fn an_apply_in_another_version_removes_structures_that_the_earlier_version_declares() {
    let fields = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let mut open = version("v1", json!({}));
    open["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (cluster, things) = things(&[version("v2", fields), open]).await;
    let applied = json!({"metadata": {"name": "t"}, "spec": {"x": "z"}});
    apply(&cluster, &things, "a", applied).await.code(201);
    let in_v1 = things.replace("/v2/", "/v1/");
    let applied = apply(&cluster, &in_v1, "a", json!({"metadata": {"name": "t"}})).await.code(200).json();
    assert_eq!(applied.get("spec"), None, "{applied}");
}

#[tokio::test]
async fn a_patch_of_a_status_may_name_another_kind_and_version() {
    let mut with_status = version("v1", json!({"type": "object"}));
    with_status["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"s": {"type": "string"}}});
    with_status["subresources"] = json!({"status": {}});
    let (cluster, things) = things(&[with_status]).await;
    let body = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    cluster.post(&things, body).await.code(201);
    let patch = json!({"apiVersion": "other/v7", "kind": "Other", "status": {"s": "x"}});
    let path = format!("{things}/t/status");
    let patched = cluster.patch(&path, patch).content_type(MERGE).await.code(200).json();
    assert_eq!(patched["apiVersion"], api_version(&things));
    assert_eq!(patched["kind"], "Thing");
    assert_eq!(patched["status"], json!({"s": "x"}));
    let patch = json!({"apiVersion": "other/v7", "status": {"s": 5}});
    let refused = cluster.patch(&path, patch).content_type(MERGE).await.code(422);
    assert!(message(&refused).ends_with(r#"status.s in body must be of type string: "integer""#));
}

#[tokio::test]
async fn a_strategic_patch_of_a_definition_is_read_in_the_order_of_its_fields() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let group = api_version(&things).split('/').next().unwrap_or_default().to_owned();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}");
    let schema = json!({"type": "object", "additionalProperties": [1]});
    let patch = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": [[]]}});
    let refused =
        cluster.patch(&path, patch).content_type("application/strategic-merge-patch+json").await.code(422);
    assert!(message(&refused).ends_with("boolean or JSON schema expected"), "{}", refused.text());
}
