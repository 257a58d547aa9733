//! Answers that mutated objects have found to differ from upstream's.

use super::custom_resources::{definition, version, wait_for};
use super::parity_bodies::{api_version, message, things};
use super::protobuf::{PROTOBUF, envelope, field};
use super::*;
use http::Method;
use tests::Cluster;

const APPLY: &str = "application/apply-patch+yaml";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test]
async fn a_dropped_source_of_a_nodes_configuration_has_an_owner() {
    let cluster = Cluster::start().await;
    // an object without owned fields has no owners until it is applied
    cluster.labelled("/api/v1/nodes", "n", json!({"a": "b"})).await;
    let config = json!({"assigned": {"configMap": {"name": "c", "namespace": "n", "kubeletConfigKey": "k"}}});
    let path = "/api/v1/nodes/n/status?fieldManager=m";
    let new = json!({"metadata": {"name": "m"}, "status": {"config": config}});
    assert_eq!(cluster.create("/api/v1/nodes", new).await["status"].get("config"), None);
    let patch = cluster.patch(path, json!({"status": {"config": config}})).content_type(STRATEGIC);
    let patched = patch.await.code(200).json();
    assert_eq!(patched["status"].get("config"), None);
    let entries = patched["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|entry| entry["manager"] == "m").unwrap();
    let assigned = &own["fieldsV1"]["f:status"]["f:config"]["f:assigned"];
    assert_eq!(assigned["f:configMap"]["f:name"], json!({}), "{own}");
}

#[tokio::test]
async fn text_behind_an_applied_document_is_not_looked_at() {
    let cluster = Cluster::start().await;
    for (name, behind) in [("a", "]"), ("b", " }"), ("c", "\n,"), ("d", r#" "v1", "kind": "Pod"}"#)] {
        let text =
            format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}"}}}}"#);
        let path = format!("{CONFIGMAPS}/{name}?fieldManager=m");
        let sent = cluster.request(Method::PATCH, &path).body(text + behind).content_type(APPLY).await;
        assert_eq!(sent.code(201).json()["metadata"]["name"], name, "{behind:?}");
    }
}

#[tokio::test]
async fn an_event_cannot_be_read_at_a_version_that_is_no_number() {
    let cluster = Cluster::start().await;
    for group in ["/api/v1", "/apis/events.k8s.io/v1"] {
        let path = format!("{group}/namespaces/default/events/e?resourceVersion=-1");
        let refused = cluster.get(&path).await.refused(400, "BadRequest");
        let expected = r#"invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax"#;
        assert_eq!(refused["message"], expected);
    }
}

#[tokio::test]
async fn failed_actions_warn_of_unknown_fields() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let body = json!({"metadata": {"name": "none"}, "target": {"name": "n"}, "Spec": "a"});
    let unknown = [r#"299 - "unknown field \"Spec\"""#];
    let bindings = "/api/v1/namespaces/default/bindings";
    assert_eq!(cluster.post(bindings, body.clone()).await.code(404).warnings(), unknown);
    let path = format!("{PODS}/none/binding");
    assert_eq!(cluster.post(&path, body.clone()).await.code(404).warnings(), unknown);
}

#[tokio::test]
async fn the_type_of_a_patched_object_is_read_from_keys_in_any_case() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    let path = format!("{CONFIGMAPS}/c");
    for (patch, field) in [(json!({"APIVERSION": []}), "apiVersion"), (json!({"Kind": []}), "kind")] {
        let refused = message(&cluster.patch(&path, patch.clone()).content_type(MERGE).await.code(422));
        let expected = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field .{field} of \
             type string"
        );
        assert!(refused.ends_with(&expected), "{refused}");
        // a strategic patch is merged into the type of the object
        cluster.patch(&path, patch).content_type(STRATEGIC).await.code(200);
    }
}

#[tokio::test]
async fn a_custom_resource_without_a_namespace_is_not_selected_by_one() {
    let cluster = Cluster::start().await;
    let mut definition = definition(&[version("v1", json!({"type": "object"}))]);
    definition["spec"]["scope"] = "Cluster".into();
    cluster.create(DEFINITIONS, definition.clone()).await;
    let group = definition["spec"]["group"].as_str().unwrap();
    wait_for(&cluster, &format!("things.{group}"), "Established", "True").await;
    for selector in ["metadata.namespace=", "metadata.namespace!=x"] {
        let path = format!("/apis/{group}/v1/things?fieldSelector={}", selector.replace('=', "%3D"));
        let refused = cluster.get(&path).await.refused(400, "BadRequest");
        assert_eq!(refused["message"], "field label not supported: metadata.namespace");
        cluster.delete(&path).await.code(400);
    }
}

#[tokio::test]
async fn repeated_keys_of_a_custom_resource_are_reported_in_the_order_of_its_text() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (cluster, things) = things(&[version("v1", open)]).await;
    let head = format!(r#""apiVersion":"{}","kind":"Thing""#, api_version(&things));
    let name = r#""name":"t""#;
    let cases = [
        (
            format!(
                r#"{{{head},"metadata":{{}},"metadata":{{"labels":{{"b":"1","a":"1","b":"2","a":"1"}},{name}}},"kind":"Thing"}}"#
            ),
            vec!["metadata", "metadata.labels.b", "metadata.labels.a", "kind"],
        ),
        // fields that no schema declares, and fields that are pruned
        (
            format!(r#"{{{head},"spec":{{"d":1,"d":[{{"e":1,"e":2}}]}},"metadata":{{{name}}}}}"#),
            vec!["spec.d", "spec.d[0].e"],
        ),
        (
            format!(
                r#"{{{head},"x":{{"d":1,"d":2}},"metadata":{{{name},"labels":{{}},"labels":{{}}}},"x":1}}"#
            ),
            vec!["x.d", "metadata.labels", "x"],
        ),
    ];
    for (text, paths) in cases {
        let path = format!("{things}?dryRun=All");
        let warnings = cluster.post(&path, text.as_str()).await.code(201).warnings();
        let duplicates: Vec<_> = warnings.into_iter().filter(|it| it.contains("duplicate")).collect();
        let expected: Vec<_> =
            paths.iter().map(|path| format!(r#"299 - "duplicate field \"{path}\"""#)).collect();
        assert_eq!(duplicates, expected, "{text}");
    }
}

#[tokio::test]
async fn null_is_never_an_allowed_value() {
    let color = json!({"type": "string", "nullable": true, "enum": ["a", null]});
    let (cluster, things) =
        things(&[version("v1", json!({"type": "object", "properties": {"c": color}}))]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"c": null}});
    let refused = message(&cluster.post(&things, thing).await.code(422));
    let expected = r#"spec.c: Unsupported value: "null": supported values: "a", "null""#;
    assert!(refused.ends_with(expected), "{refused}");
}

#[tokio::test]
async fn rules_of_inner_schemas_are_judged_first() {
    let rules = |rule: &str| json!([{"rule": rule}]);
    let inner = json!({"type": "object", "x-kubernetes-validations": rules("self.none"),
        "properties": {"b": {"type": "integer", "x-kubernetes-validations": rules("self.none")}}});
    let spec = json!({"type": "object", "x-kubernetes-validations": rules("self.none"),
        "properties": {"a": inner}});
    let cluster = Cluster::start().await;
    let refused = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.code(422).json();
    let causes = refused["details"]["causes"].as_array().unwrap();
    let fields = causes.iter().map(|cause| cause["field"].as_str().unwrap());
    let ends: Vec<_> = fields
        .map(|field| field.split(".x-kubernetes").next().unwrap().rsplit('.').next().unwrap())
        .collect();
    assert_eq!(ends, ["properties[b]", "properties[a]", "properties[spec]"], "{refused}");
}

#[tokio::test]
async fn a_list_of_values_has_the_name_of_its_type_in_errors() {
    let cluster = Cluster::start().await;
    // field 5 of the spec maps names to lists, and no list has a field 0
    let entry = [field(1, b"k"), field(2, &[0x02])].concat();
    let body = envelope("authorization.k8s.io/v1", "SubjectAccessReview", &field(2, &field(5, &entry)));
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let refused = message(&cluster.post(path, body).content_type(PROTOBUF).await.code(400));
    assert!(refused.ends_with("proto: ExtraValue: illegal tag 0 (wire type 2)"), "{refused}");
    for (extra, found, expected) in [
        (json!({"k": "v"}), "string", "v1.ExtraValue"),
        (json!({"k": [1]}), "number", "string"),
        (json!([]), "array", "map[string]v1.ExtraValue"),
    ] {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "u", "extra": extra}});
        let refused = message(&cluster.post(path, review).await.code(400));
        let field = "Go struct field SubjectAccessReviewSpec.spec.extra";
        let expected = format!("json: cannot unmarshal {found} into {field} of type {expected}");
        assert!(refused.ends_with(&expected), "{refused}");
    }
}

#[tokio::test]
async fn a_claim_names_one_source_if_it_is_in_another_namespace() {
    let cluster = Cluster::start().await;
    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": source});
    cluster.create(CLAIMS, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    let path = format!("{CLAIMS}/c");
    for (namespace, cause) in [("other", None), ("A_b", Some("spec.dataSourceRef.namespace: Invalid value"))]
    {
        let patch = json!({"spec": {"dataSourceRef": {"namespace": namespace}}});
        let refused = message(&cluster.patch(&path, patch).content_type(MERGE).await.code(422));
        let both = "may not be specified when dataSourceRef.namespace is specified";
        assert!(refused.contains(both) && !refused.contains("must match"), "{refused}");
        assert!(cause.is_none_or(|cause| refused.contains(cause)), "{refused}");
    }
}

#[tokio::test]
async fn an_empty_namespace_of_a_source_is_none() {
    let cluster = Cluster::start().await;
    let source = json!({"apiGroup": "example.com", "kind": "Foo", "name": "s"});
    let mut here = source.clone();
    here["namespace"] = "".into();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": here});
    let claim = cluster.create(CLAIMS, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    assert_eq!(claim["spec"]["dataSource"], source);
    assert_eq!(claim["spec"]["dataSourceRef"], here);
}

#[tokio::test]
async fn a_whole_number_may_have_more_thousandths_than_fit() {
    let cluster = Cluster::start().await;
    let quota =
        |name: &str, pods: &str| json!({"metadata": {"name": name}, "spec": {"hard": {"pods": pods}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    cluster.post(quotas, quota("a", "1E")).await.code(201);
    cluster.post(quotas, quota("b", "1.5")).await.code(422);
}

#[tokio::test]
async fn a_list_as_the_merge_key_of_a_strategic_patch_does_not_fit_its_field() {
    let cluster = Cluster::start().await;
    let spec = json!({"ports": [{"port": 80}]});
    let services = "/api/v1/namespaces/default/services";
    cluster.create(services, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    let patch = json!({"spec": {"ports": [{"port": []}]}});
    cluster.patch(&format!("{services}/s"), patch).content_type(STRATEGIC).await.refused(422, "Invalid");
}

#[tokio::test]
async fn an_entry_of_a_default_is_a_field_of_it() {
    let map = json!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 1},
        "default": {"k": "long"}});
    let spec = json!({"type": "object", "properties": {"m": map}});
    let cluster = Cluster::start().await;
    let refused = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.code(422).json();
    let field = refused["details"]["causes"][0]["field"].as_str().unwrap();
    assert!(field.ends_with("properties[m].default.k"), "{field}");
}

#[tokio::test]
async fn rules_are_not_evaluated_without_a_name() {
    let rules = json!([{"rule": "self.a > 0"}]);
    let spec = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": rules});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "spec": {"a": 0}});
    let refused = cluster.post(&things, thing).await.code(422).json();
    let causes = refused["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| &cause["field"]).collect();
    assert_eq!(fields, ["metadata.name", "<nil>"], "{refused}");
}

#[tokio::test]
async fn the_default_of_a_status_is_not_validated_in_a_new_object() {
    let mut v1 = version("v1", json!({"type": "object"}));
    v1["subresources"] = json!({"status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.a"}});
    v1["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({"type": "object", "default": {"a": ["x"]},
        "properties": {"a": {"type": "array", "items": {"type": "string"}}}});
    let (cluster, things) = things(&[v1]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "t"}});
    let created = cluster.create(&things, thing).await;
    assert_eq!(created["status"], json!({"a": ["x"]}));
    assert_eq!(cluster.read(&format!("{things}/t")).await["status"], created["status"]);
}

#[tokio::test]
async fn a_review_forgets_what_only_the_server_says() {
    let cluster = Cluster::start().await;
    let metadata =
        json!({"deletionGracePeriodSeconds": 5, "uid": "u", "deletionTimestamp": "2020-01-01T00:00:00Z"});
    let spec = json!({"user": "u", "resourceAttributes": {"namespace": "default", "verb": "get"}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let review = cluster.post(path, json!({"metadata": metadata, "spec": spec})).await.code(201).json();
    assert_eq!(review["metadata"].get("uid"), None, "{review}");
}

#[tokio::test]
async fn the_finalizers_of_a_namespace_have_no_table() {
    let cluster = Cluster::start().await;
    let namespace = cluster.named("/api/v1/namespaces", "n").await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    cluster.put("/api/v1/namespaces/n/finalize", namespace).accept(table).await.code(406);
}

#[tokio::test]
async fn an_apply_in_another_version_keeps_what_only_that_version_has() {
    let schema = |fields: Value| json!({"type": "object", "properties": fields});
    let text = json!({"type": "string"});
    let versions =
        [version("v1", schema(json!({"a": text, "own": text}))), version("v2", schema(json!({"a": text})))];
    let (cluster, things) = things(&versions).await;
    let other = things.replace("/v1/", "/v2/");
    let apply = |things: &str, spec: Value| {
        let config = json!({"apiVersion": api_version(things), "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
        let path = format!("{things}/t?fieldManager=m");
        cluster.request(Method::PATCH, &path).body(config).content_type(APPLY)
    };
    apply(&other, json!({"a": "x"})).await.code(201);
    let applied = apply(&things, json!({"own": "y"})).await.code(200).json();
    assert_eq!(applied["spec"], json!({"own": "y"}), "{applied}");
    // fields that the older version has in annotations
    let apply = |version: &str, fields: Value| {
        let mut spec = json!({"scaleTargetRef": {"kind": "D", "name": "d"}, "maxReplicas": 3});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let config = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": spec});
        let path = format!(
            "/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a?fieldManager=m"
        );
        cluster.request(Method::PATCH, &path).body(config).content_type(APPLY)
    };
    apply("v1", json!({"minReplicas": 2})).await.code(201);
    let memory = json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "1Gi"}}}]);
    let window = json!({"scaleDown": {"stabilizationWindowSeconds": 3}});
    let applied = apply("v2", json!({"metrics": memory, "behavior": window})).await.code(200).json();
    let spec = &applied["spec"];
    assert_eq!((&spec["metrics"], &spec["minReplicas"]), (&memory, &json!(1)), "{applied}");
    assert_eq!(spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 3, "{applied}");
}

#[tokio::test]
async fn repeated_keys_of_a_patch_are_reported_with_the_patched_object() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    let send = |text: &str, media: &str, validation: &str| {
        let path = format!("{CONFIGMAPS}/c?dryRun=All&fieldValidation={validation}");
        cluster.request(Method::PATCH, &path).body(text).content_type(media)
    };
    let json = "application/json-patch+json";
    let labels = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"x":1}"#;
    let data = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"data":5}"#;
    let add = r#"[{"op":"add","path":"/data","value":1,"value":{},"z":1}]"#;
    let both = r#"strict decoding error: duplicate field "metadata.labels.a", unknown field "x""#;
    let of_json =
        r#"strict decoding error: json patch duplicate field "[0].value", json patch unknown field "[0].z""#;
    for (text, media, expected) in [(labels, MERGE, both), (labels, STRATEGIC, both), (add, json, of_json)] {
        let refused = message(&send(text, media, "Strict").await.code(422));
        assert!(refused.ends_with(expected), "{refused}");
        assert_eq!(send(text, media, "Warn").await.code(200).warnings().len(), 2);
    }
    // a patched object that cannot be decoded has this error alone
    for media in [MERGE, STRATEGIC] {
        for validation in ["Strict", "Warn"] {
            let refused = send(data, media, validation).await.code(422);
            assert!(!message(&refused).contains("strict"), "{}", message(&refused));
            assert_eq!(refused.warnings(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_fraction_in_the_place_of_a_port_has_an_error_without_its_field() {
    let cluster = Cluster::start().await;
    let services = "/api/v1/namespaces/default/services";
    let spec = json!({"ports": [{"port": 80}]});
    cluster.create(services, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    let patch = json!({"spec": {"ports": [{"port": 80, "targetPort": 1.5}]}});
    let patch = cluster.patch(&format!("{services}/s"), patch).content_type(STRATEGIC);
    let refused = message(&patch.await.code(422));
    assert!(refused.ends_with("json: cannot unmarshal number 1.5 into Go value of type int32"), "{refused}");
}

#[tokio::test]
async fn an_unreadable_selector_of_a_deletion_is_its_only_problem() {
    let cluster = Cluster::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let refused = cluster.delete(&format!("{jobs}?labelSelector=a%3Db%3Dc")).body(json!({})).await.code(400);
    assert_eq!(refused.warnings(), [""; 0]);
    let deleted = cluster.delete(&format!("{jobs}?labelSelector=a%3Db")).body(json!({})).await.code(200);
    assert_eq!(deleted.warnings().len(), 1);
}

#[tokio::test]
async fn a_status_of_an_attachment_may_change_the_prefix_of_a_name() {
    let cluster = Cluster::start().await;
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    let spec = json!({"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}});
    let created = cluster.create(attachments, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let mut next = created.clone();
    next["metadata"]["generateName"] = "b-".into();
    next["metadata"]["labels"] = json!({"l": "m"});
    let written = cluster.put(&format!("{attachments}/a/status"), next).await.code(200).json();
    assert_eq!(written["metadata"]["generateName"], "b-");
    assert_eq!(written["metadata"].get("labels"), None);
}

#[tokio::test]
async fn a_replacing_list_of_a_strategic_patch_keeps_its_nulls() {
    let cluster = Cluster::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let selectors =
        |labels: Value| json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}});
    let mut role = selectors(json!({"a": "b"}));
    role["metadata"] = json!({"name": "r"});
    cluster.create(roles, role).await;
    let patch = cluster.patch(&format!("{roles}/r"), selectors(json!({"a": null}))).content_type(STRATEGIC);
    let patched = patch.await.code(200).json();
    assert_eq!(patched["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"], json!({"a": ""}));
}

#[tokio::test]
async fn raw_data_in_a_message_may_have_any_form() {
    let cluster = Cluster::start().await;
    let message = [field(1, &field(1, b"r")), field(2, &field(1, b"[1]"))].concat();
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let body = envelope("apps/v1", "ControllerRevision", &message);
    let created = cluster.post(revisions, body).content_type(PROTOBUF).await.code(201).json();
    assert_eq!(created["data"], json!([1]));
}

#[tokio::test]
async fn a_patched_object_in_another_namespace_needs_no_name_to_be_refused() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    for namespace in ["other", "::1"] {
        let patch = json!({"metadata": {"namespace": namespace, "$patch": "replace"}});
        let refused = cluster.patch(&format!("{CONFIGMAPS}/c"), patch).content_type(STRATEGIC).await;
        let expected =
            "the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!(message(&refused.code(400)), expected);
    }
}

#[tokio::test]
async fn the_first_misfit_of_a_strategic_patch_is_that_of_the_first_field() {
    let cluster = Cluster::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    cluster.create(budgets, json!({"metadata": {"name": "b"}})).await;
    let patch = json!({"status": {"currentHealthy": "a", "disruptedPods": {"p": "2020-01-01"}}});
    let patch = cluster.patch(&format!("{budgets}/b/status"), patch).content_type(STRATEGIC);
    let refused = message(&patch.await.code(422));
    let expected = r#"parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#;
    assert!(refused.ends_with(expected), "{refused}");
}

#[tokio::test]
async fn the_order_of_a_list_needs_a_list() {
    let cluster = Cluster::start().await;
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    cluster.create(nodes, json!({"metadata": {"name": "n"}, "spec": {"drivers": null}})).await;
    let patch = json!({"spec": {"drivers": [], "$setElementOrder/drivers": []}});
    let refused = cluster.patch(&format!("{nodes}/n"), patch).content_type(STRATEGIC).await.code(500);
    assert_eq!(message(&refused), "expected a []interface {}, but received a %!s(<nil>)");
}

#[tokio::test]
async fn an_ordered_list_is_spent_when_its_patch_is_shown() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let metadata =
        json!({"ownerReferences": [owner], "$setElementOrder/ownerReferences": [{"uid": "u"}], "labels": 1});
    let patch = json!({"metadata": metadata});
    let patch = cluster.patch(&format!("{CONFIGMAPS}/c"), patch).content_type(STRATEGIC);
    let refused = message(&patch.await.code(422));
    assert!(refused.contains(r#"Invalid value: "map[metadata:map[labels:1]]""#), "{refused}");
}

#[tokio::test]
async fn unprintable_characters_of_options_are_shown_as_bytes() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    for option in ["propagationPolicy", "dryRun"] {
        let path = format!("{CONFIGMAPS}/c?{option}=%00%01");
        let refused = message(&cluster.delete(&path).await.code(422));
        assert!(refused.contains(r#""\x00\x01""#), "{refused}");
    }
    let refused = message(&cluster.get(&format!("{CONFIGMAPS}/c?resourceVersion=%01")).await.code(500));
    assert!(refused.contains(r#"parsing "\x01""#), "{refused}");
}

#[tokio::test]
async fn items_of_an_ordered_list_are_maps() {
    let cluster = Cluster::start().await;
    let spec = json!({"ports": [{"port": 80}]});
    let services = "/api/v1/namespaces/default/services";
    cluster.create(services, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    for (item, found) in [(Value::Null, "%!s(<nil>)"), (json!("a"), "string")] {
        let patch =
            json!({"spec": {"ports": [{"port": 80}, item], "$setElementOrder/ports": [{"port": 80}]}});
        let patch = cluster.patch(&format!("{services}/s"), patch).content_type(STRATEGIC);
        let expected = format!("expected a map[string]interface {{}}, but received a {found}");
        assert_eq!(message(&patch.await.code(500)), expected);
    }
}

#[tokio::test]
async fn a_list_of_values_in_a_map_has_the_name_of_its_type() {
    let cluster = Cluster::start().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (extra, type_name) in [(json!(1), "map[string]v1.ExtraValue"), (json!({"k": 1}), "v1.ExtraValue")] {
        let refused = message(&cluster.post(path, json!({"spec": {"extra": extra}})).await.code(400));
        let expected = format!("Go struct field SubjectAccessReviewSpec.spec.extra of type {type_name}");
        assert!(refused.ends_with(&expected), "{refused}");
    }
}

#[tokio::test]
async fn an_empty_address_of_a_node_is_shown() {
    let cluster = Cluster::start().await;
    let addresses = json!([{"type": "InternalIP", "address": ""}]);
    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": addresses}});
    cluster.create("/api/v1/nodes", node).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = cluster.get("/api/v1/nodes/n").accept(table).await.code(200).json();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[5..7], [json!(""), json!("<none>")]);
}

#[tokio::test]
async fn nulls_of_a_new_list_are_spent_when_its_patch_is_shown() {
    let cluster = Cluster::start().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create(CLAIMS, claim).await;
    let patch = json!({"status": {"conditions": [{"lastProbeTime": 5, "type": null}]}});
    let patch = cluster.patch(&format!("{CLAIMS}/c/status"), patch).content_type(STRATEGIC);
    let refused = message(&patch.await.code(422));
    assert!(refused.contains(r#""map[status:map[conditions:[map[lastProbeTime:5]]]]""#), "{refused}");
}

#[tokio::test]
async fn an_apply_to_a_part_of_a_missing_object_finds_nothing() {
    let cluster = Cluster::start().await;
    for body in ["{}", "a: b", "]"] {
        let path = format!("{PODS}/none/status?fieldManager=m");
        let request = cluster.request(Method::PATCH, &path).body(body).content_type(APPLY);
        request.await.refused(404, "NotFound");
    }
}

#[tokio::test]
async fn unknown_fields_of_a_patch_are_reported_in_the_order_of_its_text() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    let text = r#"[{"op":"add","path":"/metadata/ownerReferences","value":[{"z\u0001":1,"apiVersion":"v1","kind":"K",
        "name":"n","uid":"u","b":1,"a":1}]}]"#;
    let path = format!("{CONFIGMAPS}/c?fieldValidation=Strict");
    let patch = cluster.request(Method::PATCH, &path).body(text).content_type("application/json-patch+json");
    let refused = message(&patch.await.code(422));
    let place = "metadata.ownerReferences[0]";
    let expected = ["z\\x01", "b", "a"].map(|field| format!(r#"unknown field "{place}.{field}""#)).join(", ");
    assert!(refused.ends_with(&expected), "{refused}");
}

#[tokio::test]
async fn names_of_certificate_requests_are_checked_once() {
    let sample = include_str!("../../samples/certificates.v1.CertificateSigningRequest.yaml");
    let cluster = Cluster::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let created = cluster.post(requests, sample).content_type("application/yaml").await.code(201).json();
    let path = format!("{requests}/{}", created["metadata"]["name"].as_str().unwrap());
    let fields = |refused: Value| -> Vec<String> {
        let causes = refused["details"]["causes"].as_array().unwrap();
        causes.iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect()
    };
    let mut changed = created.clone();
    changed["metadata"]["generateName"] = "a/b".into();
    let refused = cluster.put(&path, changed.clone()).await.code(422).json();
    assert_eq!(fields(refused), ["metadata.generateName"]);
    // a new one is checked by its own rules first, which take any name
    let mut new = json!({"metadata": {"name": "a%b"}, "spec": created["spec"]});
    assert_eq!(fields(cluster.post(requests, new.clone()).await.code(422).json()), ["metadata.name"]);
    new["spec"]["usages"] = json!(["bogus"]);
    let refused = fields(cluster.post(requests, new).await.code(422).json());
    assert!(refused.iter().all(|field| field.starts_with("spec.usages")), "{refused:?}");
}
