//! Responses that mutated requests found: ownership of atomic values, bodies without a kind, deletions with
//! preconditions, tables of scales and the order of causes, as in upstream.

use super::custom_resources::version;
use super::parity_bodies::{api_version, message, things};
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const YAML: &str = "application/yaml";

fn spec_of_two_texts() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
}

/// Applies a spec to the thing `t`.
async fn apply_spec(cluster: &Cluster, things: &str, manager: &str, spec: Value) -> ApiResponse {
    let config = json!({"apiVersion": api_version(things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": spec});
    let path = format!("{things}/t?fieldManager={manager}");
    cluster.request(Method::PATCH, &path).body(config).content_type(APPLY).await
}

/// The fields of each manager of an object.
fn fields_by_manager(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|it| (it["manager"].as_str().unwrap().to_owned(), it["fieldsV1"].clone())).collect()
}

/// Makes the spec of all versions atomic.
async fn make_atomic(cluster: &Cluster, things: &str, versions: &[Value]) {
    let mut versions = versions.to_vec();
    for version in &mut versions {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-map-type"] = "atomic".into();
    }
    let group = api_version(things).split('/').next().unwrap().to_owned();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}");
    cluster.patch(&path, json!({"spec": {"versions": versions}})).content_type(MERGE).await.code(200);
}

#[tokio::test]
async fn owners_of_parts_own_a_value_that_becomes_atomic() {
    let versions = [version("v1", spec_of_two_texts()), version("v2", spec_of_two_texts())];
    let (cluster, things) = things(&versions).await;
    let other = things.replace("/v1/", "/v2/");
    apply_spec(&cluster, &things, "one", json!({"a": "x"})).await.code(201);
    apply_spec(&cluster, &other, "two", json!({"b": "y"})).await.code(200);
    make_atomic(&cluster, &things, &versions).await;
    // an apply: both managers own the whole spec
    let refused = apply_spec(&cluster, &things, "three", json!({"a": "z"})).await.code(409);
    let expected =
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec\nconflicts with \"two\":\n- .spec";
    assert_eq!(message(&refused), expected);
    // an update of another field: the entries have the whole spec
    let path = format!("{things}/t?fieldManager=four");
    let labels = json!({"metadata": {"labels": {"l": "m"}}});
    let object = cluster.patch(&path, labels).content_type(MERGE).await.code(200).json();
    let mut fields = fields_by_manager(&object);
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    let whole = json!({"f:spec": {}});
    assert_eq!(
        fields,
        [
            ("four".to_owned(), json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}})),
            ("one".to_owned(), whole.clone()),
            ("two".to_owned(), whole),
        ]
    );
}

#[tokio::test]
async fn a_custom_resource_without_a_kind_has_an_error_of_its_own_where_fields_are_not_validated() {
    let (cluster, things) = things(&[version("v1", spec_of_two_texts())]).await;
    let json = format!(r#"{{"apiVersion": "{}", "metadata": {{"name": "t"}}}}"#, api_version(&things));
    let yaml = format!("metadata:\n  name: t\napiVersion: {}\n", api_version(&things));
    let shown = format!(r#"{{"apiVersion":"{}","metadata":{{"name":"t"}}}}"#, api_version(&things));
    for (body, media, shown) in [(&json, "application/json", &json), (&yaml, YAML, &shown)] {
        let send = |validation: &str| {
            let path = format!("{things}?fieldValidation={validation}");
            cluster.request(Method::POST, &path).body(body.as_str()).content_type(media)
        };
        let missing = format!("Object 'Kind' is missing in '{shown}'");
        let ignored = send("Ignore").await.code(400);
        let expected = format!(r#"Thing in version "v1" cannot be handled as a Thing: {missing}"#);
        assert_eq!(message(&ignored), expected);
        let strict = message(&send("Strict").await.code(400));
        assert!(
            strict.starts_with("the object provided is unrecognized (must be of type Thing): "),
            "{strict}"
        );
    }
}

#[tokio::test]
async fn a_large_number_has_an_exponent_in_the_error_of_an_apply() {
    let spec = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    for (number, shown) in
        [(json!(1e20), "1e+20"), (json!(1_234_567.5), "1.2345675e+06"), (json!(2.5), "2.5")]
    {
        let refused = apply_spec(&cluster, &things, "one", json!({"l": number})).await.code(500);
        let message = message(&refused);
        assert!(message.ends_with(&format!(".spec.l: expected list, got &{{{shown}}}")), "{message}");
    }
}

#[tokio::test]
async fn a_deletion_with_a_precondition_removes_the_last_finalizer() {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await;
    let path = format!("{CONFIGMAPS}/c");
    let first = cluster.delete(&path).body(json!({"propagationPolicy": "Orphan"})).await.code(200).json();
    assert_eq!(first["metadata"]["finalizers"], json!(["orphan"]));
    let current = &first["metadata"]["resourceVersion"];
    let delete = |version: Value| {
        let body = json!({"propagationPolicy": "Background", "preconditions": {"resourceVersion": version}});
        cluster.delete(&path).body(body)
    };
    delete("1".into()).await.code(409);
    delete(current.clone()).await.code(200);
    cluster.get(&path).await.code(404);
}

#[tokio::test]
async fn the_table_of_a_custom_scale_has_the_formats_of_custom_resources() {
    let mut version = version("v1", json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    version["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    let (cluster, things) = things(&[version]).await;
    for (name, wanted, cell) in [("x", 2, json!(2)), ("y", 0, Value::Null)] {
        let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": name},
            "spec": {"n": wanted}});
        cluster.create(&things, thing).await;
        let table = cluster.get(&format!("{things}/{name}/scale")).accept(TABLE).await.code(200).json();
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        let columns: Vec<_> = columns.map(|it| [&it["name"], &it["type"], &it["format"]]).collect();
        assert_eq!(
            json!(columns),
            json!([
                ["Name", "string", "name"],
                ["Desired", "integer", ""],
                ["Available", "integer", ""],
                ["Age", "date", ""]
            ])
        );
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(cells[..3], [json!(name), cell, json!(0)]);
    }
}

#[tokio::test]
async fn an_event_is_checked_before_its_metadata_and_only_in_versions_that_exist() {
    let cluster = Cluster::start().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event =
        json!({"metadata": {"namespace": "default"}, "regarding": {"namespace": "other"}, "type": "Normal"});
    let refused = cluster.post(events, event).await.refused(422, "Invalid");
    let causes = refused["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|it| it["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["involvedObject.namespace", "metadata.name", "eventTime"]);
    let send = async |path: &str, version: &str| {
        let event = json!({"apiVersion": version, "kind": "Event", "metadata": {"name": "e"}});
        message(&cluster.post(path, event).await.code(400))
    };
    let core = "/api/v1/namespaces/default/events";
    for (path, version) in [(events, "v1"), (core, "events.k8s.io/v1")] {
        let why = send(path, version).await;
        assert!(why.starts_with(&format!("the API version in the data ({version}) does not match")), "{why}");
    }
    for (path, version) in [(events, "v2"), (core, "events.k8s.io/v9")] {
        let why = send(path, version).await;
        assert!(why.contains(&format!(r#"no kind "Event" is registered for version "{version}""#)), "{why}");
    }
}

#[tokio::test]
async fn an_updated_image_is_checked_as_an_image_and_as_a_change() {
    let cluster = Cluster::start().await;
    let container = |name| json!({"name": name, "image": "i"});
    let spec = json!({"initContainers": [container("a")], "containers": [container("b")]});
    let pods = "/api/v1/namespaces/default/pods";
    cluster.create(pods, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let trimmed =
        |image: &str| format!("Invalid value: {image:?}: must not have leading or trailing whitespace");
    for (image, why) in [(" i", trimmed(" i")), (" ", trimmed(" ")), ("", "Required value".to_owned())] {
        for list in ["containers", "initContainers"] {
            let patch = json!([{"op": "replace", "path": format!("/spec/{list}/0/image"), "value": image}]);
            let ask = cluster.patch(&format!("{pods}/p"), patch).content_type("application/json-patch+json");
            let refused = ask.await.refused(422, "Invalid");
            let causes = refused["details"]["causes"].as_array().unwrap().iter();
            let causes: Vec<_> = causes.map(|it| it["message"].as_str().unwrap().to_owned()).collect();
            assert_eq!(causes, [why.clone(), why.clone()], "{refused}");
        }
    }
}

#[tokio::test]
async fn schemas_of_one_value_report_the_same_problem_once() {
    let required = json!({"required": ["a"]});
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut spec = spec_of_two_texts();
        spec["required"] = json!(["a"]);
        spec[keyword] = json!([required, required]);
        let (cluster, things) = things(&[version("v1", spec)]).await;
        let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "spec": {}});
        let refused = cluster.post(&things, thing).await.refused(422, "Invalid");
        let causes = refused["details"]["causes"].as_array().unwrap().iter();
        let fields: Vec<_> = causes.map(|it| it["field"].as_str().unwrap()).collect();
        let count = fields.iter().filter(|it| **it == "spec.a").count();
        assert_eq!(count, 1, "{keyword}: {refused}");
    }
}

#[tokio::test]
async fn unknown_fields_of_a_strategic_patch_are_named_without_keys_of_maps() {
    let (cluster, things) = things(&[version("v1", spec_of_two_texts())]).await;
    let group = api_version(&things).split('/').next().unwrap().to_owned();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}?dryRun=All");
    let mut spec = spec_of_two_texts();
    spec["properties"]["a"]["bogus"] = true.into();
    let patch = json!({"spec": {"versions": [version("v1", spec)]}});
    let schema = "spec.versions[0].schema.openAPIV3Schema";
    for (media, named) in [
        ("application/strategic-merge-patch+json", "properties.properties.bogus"),
        (MERGE, "properties.spec.properties.a.bogus"),
    ] {
        let warnings = cluster.patch(&path, patch.clone()).content_type(media).await.code(200).warnings();
        assert!(warnings.iter().any(|it| it.contains(&format!("{schema}.{named}"))), "{media}: {warnings:?}");
    }
}

#[tokio::test]
async fn a_changed_time_of_an_event_is_shown_as_a_time() {
    let cluster = Cluster::start().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2020-01-02T03:04:05.000006Z", "type": "Normal",
        "action": "a", "reason": "r", "reportingController": "a.b/c", "reportingInstance": "i",
        "regarding": {"namespace": "default"}});
    cluster.create(events, event.clone()).await;
    for (field, time, shown) in [
        (
            "eventTime",
            "2021-01-02T03:04:05.120000+01:00",
            "eventTime: Invalid value: 2021-01-02 02:04:05.12 +0000 UTC",
        ),
        (
            "eventTime",
            "2021-01-02T03:04:05.000000Z",
            "eventTime: Invalid value: 2021-01-02 03:04:05 +0000 UTC",
        ),
        (
            "deprecatedFirstTimestamp",
            "2020-01-02T03:04:05Z",
            "firstTimestamp: Invalid value: 2020-01-02 03:04:05 +0000 UTC",
        ),
    ] {
        let mut changed = event.clone();
        changed[field] = time.into();
        let why = message(&cluster.put(&format!("{events}/e"), changed).await.code(422));
        assert_eq!(why, format!("Event \"e\" is invalid: {shown}: field is immutable"));
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_parsed_ends_the_columns() {
    let mut version = version("v1", spec_of_two_texts());
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    version["additionalPrinterColumns"] =
        json!([column("A", ".spec['a']"), column("B", ".spec[\"b\"]"), column("C", ".spec.a")]);
    let (cluster, things) = things(&[version]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"a": "x", "b": "y"}});
    cluster.create(&things, thing).await;
    let table = cluster.get(&things).accept(TABLE).await.code(200).json();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    assert_eq!(columns.map(|it| it["name"].clone()).collect::<Vec<_>>(), ["Name", "A"]);
    assert_eq!(table["rows"][0]["cells"], json!(["t", "x"]));
}

#[tokio::test]
async fn a_scale_below_a_value_that_is_no_map_cannot_be_set() {
    let map = json!({"type": "object", "nullable": true, "additionalProperties": {"type": "integer"}});
    let mut version = version("v1", json!({"type": "object", "properties": {"b": map}}));
    version["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.b.c", "statusReplicasPath": ".status.n"}});
    let (cluster, things) = things(&[version]).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"},
        "spec": {"replicas": 2}});
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"b": null}});
    cluster.create(&things, thing).await;
    let refused = cluster.put(&format!("{things}/t/scale"), scale.clone()).await.code(500);
    assert_eq!(message(&refused), "value cannot be set because .spec.b is not a map[string]interface{}");
    let patch = json!({"spec": {"b": {"c": 1}}});
    cluster.patch(&format!("{things}/t"), patch).content_type(MERGE).await.code(200);
    cluster.put(&format!("{things}/t/scale"), scale).await.code(200);
}

#[tokio::test]
async fn an_apply_to_an_object_without_properties_is_pruned() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let object = apply_spec(&cluster, &things, "one", json!({"a": {"b": "x"}})).await.code(201).json();
    assert_eq!(object["spec"], json!({}));
}

#[tokio::test]
async fn causes_of_an_update_stand_in_the_order_of_its_checks() {
    let cluster = Cluster::start().await;
    let meta = "metadata.labels";
    let (classes, capacities) = ("/apis/networking.k8s.io/v1/ingressclasses", "csistoragecapacities");
    let storage = "/apis/storage.k8s.io/v1";
    let capacities = format!("{storage}/namespaces/default/{capacities}");
    let cases = [
        (
            classes,
            json!({"spec": {"controller": "a.b/c"}}),
            json!({}),
            vec!["spec.controller", meta, "spec.controller"],
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"handler": "h"}),
            json!({"handler": ""}),
            vec!["handler", meta, "handler"],
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"data": {}}),
            json!({"type": "x", "data": {"a b": ""}}),
            vec!["type", meta, "data[a b]"],
        ),
        (
            CONFIGMAPS,
            json!({"immutable": true}),
            json!({"data": {"a b": ""}}),
            vec!["immutable", "data", meta, "data[a b]"],
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"spec": {"ports": [{"port": 80}]}}),
            json!({"spec": {"ports": [{"port": 80}], "loadBalancerClass": "a.b/c"}}),
            vec!["spec.loadBalancerClass", meta, "spec.loadBalancerClass"],
        ),
        (
            &*capacities,
            json!({"storageClassName": "s"}),
            json!({"storageClassName": ""}),
            vec!["storageClassName", meta, "storageClassName"],
        ),
        (
            &*format!("{storage}/storageclasses"),
            json!({"provisioner": "a.b/c"}),
            json!({"provisioner": ""}),
            vec!["provisioner", meta, "provisioner"],
        ),
        (
            &*format!("{storage}/volumeattachments"),
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {}}}),
            vec!["spec.source", meta, "spec.source", "spec"],
        ),
    ];
    for (collection, first, next, expected) in cases {
        let with = |fields: &Value, labels: Value| {
            let mut object = json!({"metadata": {"name": "x", "labels": labels}});
            object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            object
        };
        let created = cluster.create(collection, with(&first, json!({}))).await;
        let mut body = with(&next, json!({"a b": "c"}));
        for field in ["apiVersion", "kind"] {
            body[field] = created[field].clone();
        }
        body["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        let refused = cluster.put(&format!("{collection}/x"), body).await.refused(422, "Invalid");
        // the rules of all objects come first
        let mut found = fields(&refused);
        found.dedup();
        assert_eq!(found[0], meta, "{refused}");
        assert_eq!(found[1..], expected, "{refused}");
    }
}
