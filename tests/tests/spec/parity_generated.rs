//! Responses that generated requests found: preconditions in queries, keys in errors of preconditions, the order of
//! checks, options without a readable kind, raw data, paths and uids of scales, small numbers, repeated nulls, metadata of
//! templates, escapes in errors of patches and names that fit no path, as in upstream.

use super::custom_resources::{DEFINITIONS, definition};
use super::parity_bodies::{api_version, message, things};
use super::*;
use http::Method;
use tests::Cluster;

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";
const APPLY: &str = "application/apply-patch+yaml";

async fn cluster_with_map() -> (Cluster, Value) {
    let cluster = Cluster::start().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await;
    (cluster, created)
}

#[tokio::test]
async fn a_deletion_takes_preconditions_from_its_query() {
    let (cluster, created) = cluster_with_map().await;
    cluster.delete(&format!("{PATH}?uid=x")).await.refused(409, "Conflict");
    cluster.delete(&format!("{PATH}?resourceVersion=1")).await.refused(409, "Conflict");
    let collection = format!("{CONFIGMAPS}?resourceVersion=0&fieldSelector=metadata.name=a");
    cluster.delete(&collection).await.refused(409, "Conflict");
    let metadata = &created["metadata"];
    let (uid, version) = (metadata["uid"].as_str().unwrap(), metadata["resourceVersion"].as_str().unwrap());
    cluster.delete(&format!("{PATH}?uid={uid}&resourceVersion={version}")).await.code(200);
}

#[tokio::test]
async fn the_key_in_the_error_of_a_uid_has_no_prefix_in_a_dry_run() {
    let (cluster, _) = cluster_with_map().await;
    let body = json!({"metadata": {"name": "a", "uid": "x"}});
    for (query, key) in [("", "/registry/configmaps/default/a"), ("?dryRun=All", "/configmaps/default/a")] {
        let refused =
            cluster.request(Method::PUT, &format!("{PATH}{query}")).body(body.clone()).await.code(409);
        assert!(message(&refused).contains(&format!("Code: 4, Key: {key}, ")), "{}", message(&refused));
    }
}

#[tokio::test]
async fn an_update_checks_its_parameters_before_the_media_type() {
    let (cluster, _) = cluster_with_map().await;
    let send = |method, path: &str| {
        cluster.request(method, &format!("{path}?dryRun=x")).body("{}").content_type("application/x")
    };
    send(Method::PUT, PATH).await.refused(422, "Invalid");
    send(Method::POST, CONFIGMAPS).await.refused(415, "UnsupportedMediaType");
}

#[tokio::test]
async fn delete_options_whose_kind_is_no_text_have_no_kind() {
    let (cluster, _) = cluster_with_map().await;
    for field in ["kind", "apiVersion"] {
        let refused = cluster.delete(PATH).body(json!({field: true})).await.code(400);
        let why = format!("json: cannot unmarshal bool into Go struct field .{field} of type string");
        assert_eq!(message(&refused), format!("couldn't get version/kind; json parse error: {why}"));
    }
}

#[tokio::test]
async fn repeated_keys_of_raw_data_are_not_reported() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions?fieldValidation=Strict";
    let body = r#"{"metadata": {"name": "r"}, "revision": 1, "data": {"a": {"b": 1, "b": 2}, "a": 3}}"#;
    let created = cluster.request(Method::POST, path).body(body).await.code(201).json();
    assert_eq!(created["data"], json!({"a": 3}));
}

#[tokio::test]
async fn an_index_in_the_path_of_a_scale_is_part_of_a_name() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "integer"}}});
    let scale = json!({"specReplicasPath": ".spec.a[0]", "statusReplicasPath": ".status.b"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"scale": scale}});
    let (cluster, things) = things(&[version]).await;
    let body =
        json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "spec": 1});
    let refused = cluster.request(Method::POST, &things).body(body).await.code(422);
    let why = ".spec.a[0]: Invalid value: 0: .spec.a[0] accessor error: 1 is of the type int64, expected map";
    assert!(message(&refused).contains(why), "{}", message(&refused));
}

#[tokio::test]
async fn objects_embedded_in_a_default_need_a_kind() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "additionalProperties": embedded, "default": {"x": {"kind": "Pod"}}}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let cluster = Cluster::start().await;
    let refused = cluster.request(Method::POST, DEFINITIONS).body(definition(&[version])).await.code(422);
    let field = "spec.validation.openAPIV3Schema.properties[spec].default[x].apiVersion";
    assert!(
        message(&refused).ends_with(&format!("{field}: Required value: must not be empty")),
        "{}",
        message(&refused)
    );
}

#[tokio::test]
async fn a_field_selector_without_label_and_value_selects_everything() {
    let (cluster, _) = cluster_with_map().await;
    for selector in ["%3D", "!%3D", "%3D,metadata.name%3Da"] {
        let list = cluster.read(&format!("{CONFIGMAPS}?fieldSelector={selector}")).await;
        assert!(list["items"].as_array().unwrap().iter().any(|it| it["metadata"]["name"] == "a"), "{list}");
    }
    cluster.get(&format!("{CONFIGMAPS}?fieldSelector=%3Da")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn a_small_number_has_an_exponent_of_one_digit() {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let (cluster, things) = things(&[version]).await;
    let body =
        json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "a": 1e-7});
    cluster.create(&things, body).await;
    let shown = cluster.get(&format!("{things}/t")).await.code(200);
    assert!(shown.text().contains(r#""a":1e-7"#), "{}", shown.text());
}

#[tokio::test]
async fn a_repeated_field_is_reported_if_it_is_null() {
    let cluster = Cluster::start().await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let body = r#"{"metadata": {"name": "b"}, "spec": {"minAvailable": null, "minAvailable": null,
        "selector": null, "selector": {"matchLabels": {"a": "b"}}}}"#;
    let warnings = cluster.post(path, body).await.code(201).warnings();
    let expected = ["minAvailable", "selector"].map(|it| format!(r#"299 - "duplicate field \"spec.{it}\"""#));
    assert_eq!(warnings, expected);
}

const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "template": {"metadata": {"managedFields": [], "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "args": ["<&>"]}]}}})
}

#[tokio::test]
async fn empty_managed_fields_of_a_template_are_dropped() {
    let cluster = Cluster::start().await;
    let created = cluster.create(TEMPLATES, template("t")).await;
    assert_eq!(created["template"]["metadata"].get("managedFields"), None);
    let path = format!("{TEMPLATES}/t");
    for format in ["merge-patch", "strategic-merge-patch"] {
        let patch = cluster.patch(&path, json!({"template": {"metadata": {"managedFields": []}}}));
        let patched = patch.content_type(&format!("application/{format}+json")).await.code(200).json();
        assert_eq!(patched, created, "{format}");
    }
    // in its own metadata they remove all entries
    let patched = cluster.patch(&path, json!({"metadata": {"managedFields": []}})).await.code(200).json();
    assert_eq!(patched["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn errors_of_patches_escape_html() {
    let cluster = Cluster::start().await;
    cluster.create(TEMPLATES, template("t")).await;
    let merge = json!({"template": {"spec": {"hostNetwork": ">"}}});
    let json = json!([{"op": "add", "path": "/template/spec/hostNetwork", "value": ">"}]);
    for (format, patch) in [("merge-patch", merge), ("json-patch", json)] {
        let patch = cluster.patch(&format!("{TEMPLATES}/t"), patch);
        let refused = message(&patch.content_type(&format!("application/{format}+json")).await.code(422));
        assert!(refused.contains(r#"\"hostNetwork\":\"\\u003e\""#), "{refused}");
        assert!(refused.contains(r#"\"args\":[\"\\u003c\\u0026\\u003e\"]"#), "{refused}");
    }
}

#[tokio::test]
async fn a_list_among_the_keys_of_an_order_is_the_key_of_no_item() {
    let cluster = Cluster::start().await;
    let created = cluster.create(TEMPLATES, template("t")).await;
    let order = json!({"template": {"spec": {"$setElementOrder/containers": [{"name": []}, {"name": "c"}]}}});
    let patch = cluster.patch(&format!("{TEMPLATES}/t"), order);
    let patched = patch.content_type("application/strategic-merge-patch+json").await.code(200).json();
    assert_eq!(patched, created);
    let order = json!({"template": {"spec": {"$setElementOrder/volumes": [], "volumes": []}}});
    let patch = cluster.patch(&format!("{TEMPLATES}/t"), order);
    let refused = patch.content_type("application/strategic-merge-patch+json").await.code(500);
    assert_eq!(message(&refused), "no elements in any of the given slices");
}

#[tokio::test]
async fn a_namespace_that_cannot_be_in_a_path_is_an_internal_error() {
    let cluster = Cluster::start().await;
    let body = json!({"metadata": {"name": "a"}});
    let refused =
        cluster.post("/api/v1/namespaces/a%25b/configmaps", body).await.refused(500, "InternalError");
    let why = r#"Internal error occurred: invalid resource name "a%b": [may not contain '%']"#;
    assert_eq!(refused["message"], why);
}

#[tokio::test]
async fn a_status_without_labels_keeps_those_of_the_template() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let labels = json!({"a": "b"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create(path, json!({"metadata": {"name": "r"}, "spec": {"template": template}})).await;
    let status = json!({"metadata": {"name": "r"}, "spec": {"template": {}}, "status": {"replicas": 1}});
    let written = cluster.put(&format!("{path}/r/status"), status).await.code(200).json();
    assert_eq!(written["metadata"]["labels"], labels);
}

#[tokio::test]
async fn a_format_without_a_type_fits_no_number() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "a": {"x-kubernetes-preserve-unknown-fields": true, "anyOf": [{"format": "ipv4"}]}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}});
    let (cluster, things) = things(&[version]).await;
    let body =
        json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}, "a": 1});
    let refused = message(&cluster.post(&things, body).await.code(422));
    assert!(refused.contains(r#"a in body must be of type ipv4: "int64""#), "{refused}");
}

#[tokio::test]
async fn numbers_of_raw_data_keep_their_text() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions";
    for (place, data) in
        ["9223372036854775808", "18446744073709551616", "2.0", r#"{"a":[1E3,-0.50,1]}"#].iter().enumerate()
    {
        let name = format!("r{place}");
        let body = format!(r#"{{"metadata": {{"name": "{name}"}}, "revision": 1, "data": {data}}}"#);
        cluster.request(Method::POST, path).body(&*body).await.code(201);
        let kept = format!(r#""data":{data},"#);
        for path in [format!("{path}/{name}"), path.to_owned()] {
            let read = cluster.get(&path).await.code(200);
            assert!(read.text().contains(&kept), "{}", read.text());
        }
        // the same number is no change
        cluster.request(Method::PUT, &format!("{path}/{name}")).body(&*body).await.code(200);
    }
}

#[tokio::test]
async fn applied_managed_fields_of_another_form_are_errors_of_the_form() {
    let (cluster, _) = cluster_with_map().await;
    let typed = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.managedFields";
    let readable = "metadata.managedFields must be nil";
    for (entries, code, why) in [
        (json!([[{"manager": "x"}]]), 500, format!("{typed}[0]: expected map, got &{{[map[manager:x]]}}")),
        (json!("x"), 500, format!("{typed}: expected list, got &{{x}}")),
        (json!([]), 400, readable.to_owned()),
        (json!([{"manager": "x", "unknown": 1}]), 400, readable.to_owned()),
    ] {
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "managedFields": entries}});
        let sent = cluster.patch(&format!("{PATH}?fieldManager=m"), config);
        let refused = sent.content_type("application/apply-patch+yaml").await.code(code);
        assert_eq!(message(&refused), why);
    }
}

#[tokio::test]
async fn an_apply_that_creates_checks_the_uid_before_the_names() {
    let cluster = Cluster::start().await;
    for metadata in [
        json!({"name": "m", "uid": "1", "resourceVersion": "x"}),
        json!({"name": "o", "namespace": "other", "uid": "1"}),
    ] {
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let sent = cluster.patch(&format!("{CONFIGMAPS}/o?fieldManager=m"), config);
        let refused = sent.content_type("application/apply-patch+yaml").await.code(409);
        let why = "uid mismatch: the provided object specified uid 1, and no existing object was found";
        assert_eq!(message(&refused), format!("Operation cannot be fulfilled on configmaps \"o\": {why}"));
    }
}

#[tokio::test]
async fn the_name_of_a_binding_is_a_path_segment() {
    let cluster = Cluster::start().await;
    for (name, why) in [
        ("a/b", "may not contain '/'"),
        ("a/%", "may not contain '/';may not contain '%'"),
        ("..", "may not be '..'"),
    ] {
        let binding = json!({"metadata": {"name": name}, "target": {"name": "n"}});
        let refused = cluster.post("/api/v1/namespaces/default/bindings", binding).await.code(400);
        assert_eq!(message(&refused), format!("Name parameter invalid: {name:?}: {why}"));
    }
}

#[tokio::test]
async fn a_patched_scale_checks_its_uid_before_its_version() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let created = cluster.create(path, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let uid = created["metadata"]["uid"].as_str().unwrap();
    for metadata in [json!({"uid": "x", "resourceVersion": "a"}), json!({"uid": "x"})] {
        let patch = json!({"metadata": metadata, "spec": {"replicas": 2}});
        let refused = cluster.patch(&format!("{path}/d/scale"), patch).await.code(409);
        let why = format!("Precondition failed: UID in precondition: x, UID in object meta: {uid}");
        let subject = "Operation cannot be fulfilled on deployments/scale.apps \"d\"";
        assert_eq!(message(&refused), format!("{subject}: {why}"));
    }
}

#[tokio::test]
async fn ambiguous_items_in_an_ignored_part_drop_the_managed_fields() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let port = json!({"containerPort": 80});
    let deployment = |ports: Value| {
        let containers = json!([{"name": "c", "image": "i", "ports": ports}]);
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        json!({"metadata": {"name": "d"}, "spec": spec, "status": {"replicas": 1}})
    };
    cluster.create(path, deployment(json!([port]))).await;
    for (ports, is_tracked) in [(json!([]), true), (json!([port, port]), false)] {
        let written = cluster.put(&format!("{path}/d/status"), deployment(ports)).await.code(200).json();
        assert_eq!(written["metadata"].get("managedFields").is_some(), is_tracked);
    }
}

#[tokio::test]
async fn a_patch_that_changes_the_kind_has_no_unknown_fields() {
    let (cluster, _) = cluster_with_map().await;
    for (kind, count) in [("ConfigMap", 1), ("Other", 0)] {
        let patch =
            json!([{"op": "add", "path": "/x", "value": 1}, {"op": "add", "path": "/kind", "value": kind}]);
        let sent = cluster.patch(PATH, patch).content_type("application/json-patch+json").await;
        assert_eq!(sent.warnings().len(), count, "{kind}");
    }
    let patch = json!([{"op": "move", "from": "/kind", "path": "/metadata/x"}]);
    let sent = cluster.patch(PATH, patch).await.code(200);
    assert_eq!(sent.warnings().len(), 1, "a patch that removes the kind keeps it");
}

#[tokio::test]
async fn the_first_wrong_number_of_a_query_is_reported() {
    let (cluster, _) = cluster_with_map().await;
    let path = "/api/v1/configmaps?limit=much&timeoutSeconds=soon";
    let refused = message(&cluster.get(path).await.code(400));
    assert!(refused.contains("soon") && !refused.contains("much"), "{refused}");
}

#[tokio::test]
async fn an_applied_uid_is_shown_as_text() {
    let (cluster, _) = cluster_with_map().await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "uid": "2020-01-02T03:04:05Z"}});
    let sent = cluster.patch(&format!("{PATH}?fieldManager=m"), config);
    let refused = sent.content_type("application/apply-patch+yaml").await.code(422);
    let why = "metadata.uid: Invalid value: \"2020-01-02T03:04:05Z\": field is immutable";
    assert_eq!(message(&refused), format!("ConfigMap \"a\" is invalid: {why}"));
}

#[tokio::test]
async fn the_time_of_a_manager_is_kept_if_the_client_sent_nothing_else() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/pods";
    // admission appends two more tolerations, so the client's list is a change that admission undoes
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "tolerations": [{"key": "k", "operator": "Exists"}]});
    let body = json!({"metadata": {"name": "p"}, "spec": spec});
    let mut before = cluster.create(path, body.clone()).await;
    let version = |pod: &Value| pod["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let put = async |body: &Value| {
        cluster.advance(std::time::Duration::from_secs(2));
        cluster.put(&format!("{path}/p"), body.clone()).await.code(200).json()
    };
    // without the status and the uid: another object
    let after = put(&body).await;
    assert_ne!(version(&after), version(&before));
    before = after;
    // the whole object, with the client's tolerations
    let mut whole = before.clone();
    whole["spec"]["tolerations"].as_array_mut().unwrap().truncate(1);
    let after = put(&whole).await;
    assert_eq!(after, before);
    whole.as_object_mut().unwrap().remove("status");
    let after = put(&whole).await;
    assert_ne!(version(&after), version(&before));
}

#[tokio::test]
async fn an_applied_field_of_the_server_renews_the_time_of_its_manager() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=c";
    let labels = json!({"a": "b"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": pod});
    let apply = async |metadata: Value, status: Value| {
        cluster.advance(std::time::Duration::from_secs(2));
        let (version, kind) = ("apps/v1", "Deployment");
        let body = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status});
        cluster.request(Method::PATCH, path).body(body).content_type(APPLY).await.json()
    };
    let unchanged =
        async |before: &Value| assert_eq!(apply(json!({"name": "d"}), Value::Null).await, *before);
    let mut before = apply(json!({"name": "d"}), Value::Null).await;
    unchanged(&before).await;
    for (field, value) in [("generation", json!(7)), ("creationTimestamp", json!("2001-01-01T00:00:00Z"))] {
        let after = apply(json!({"name": "d", field: value}), Value::Null).await;
        assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{field}");
        assert_eq!(after["metadata"][field], before["metadata"][field]);
        before = after;
        unchanged(&before).await;
    }
    // an apply to the object leaves its status out before it compares
    assert_eq!(apply(json!({"name": "d"}), json!({"replicas": 3})).await, before);
}

#[tokio::test]
async fn a_schema_without_a_form_is_absent_and_rules_are_a_named_list() {
    let cluster = Cluster::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "items": "1"}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let mut sent = definition(&[version]);
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let created = cluster.post(DEFINITIONS, sent.clone()).await.code(201).json();
    assert_eq!(created.pointer(&format!("{schema}/properties/a")), Some(&json!({"type": "object"})));
    sent.pointer_mut(schema).unwrap()["x-kubernetes-validations"] = json!(1);
    let refused = message(&cluster.post(DEFINITIONS, sent).await.code(400));
    assert!(refused.ends_with(".x-kubernetes-validations of type v1.ValidationRules"), "{refused}");
}

#[tokio::test]
async fn a_wrong_item_of_bytes_does_not_hide_an_earlier_error() {
    let cluster = Cluster::start().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let refused = async |name: Value| {
        let spec = json!({"request": [[{}]], "signerName": "example.com/signer", "usages": ["client auth"]});
        let (version, kind) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let refused = cluster.request(Method::POST, path).body(body).await;
        assert_eq!(refused.status, 400);
        refused.json()["message"].as_str().unwrap().to_owned()
    };
    assert!(
        refused(json!(7))
            .await
            .contains("number into Go struct field ObjectMeta.metadata.name of type string")
    );
    let spec = "array into Go struct field CertificateSigningRequestSpec.spec.request of type uint8";
    assert!(refused(json!("a")).await.contains(spec));
}

#[tokio::test]
async fn an_empty_list_for_none_is_no_change() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/limitranges";
    let body =
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": []}});
    let created = cluster.request(Method::POST, path).body(body.clone()).await.json();
    cluster.advance(std::time::Duration::from_secs(2));
    let patch = cluster.request(Method::PATCH, &format!("{path}/l")).body(body);
    let patched = patch.content_type("application/strategic-merge-patch+json").await.json();
    assert_eq!(patched, created);
}
