//! Answers to mutated patches and applies, and to bodies with repeated keys, as upstream gives them.

use super::parity_bodies::message;
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn strategic(cluster: &Cluster, path: &str, patch: Value) -> ApiResponse {
    cluster.patch(path, patch).content_type(STRATEGIC).await
}

async fn send(cluster: &Cluster, method: Method, path: &str, text: &str, media: &str) -> ApiResponse {
    cluster.request(method, path).body(text).content_type(media).await
}

fn causes(answer: &ApiResponse) -> Vec<String> {
    let causes = answer.json()["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
    };
    causes.iter().map(text).collect()
}

fn deployment() -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn a_replacing_map_of_a_strategic_patch_keeps_its_nulls() {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"a": "x"}})).await;
    let patch = json!({"data": {"b": null, "$patch": "replace"}});
    let patched = strategic(&cluster, &format!("{CONFIGMAPS}/c"), patch).await.code(200).json();
    assert_eq!(patched["data"], json!({"b": ""}));
}

#[tokio::test]
async fn lists_of_a_strategic_patch_need_keys_but_no_order() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment()).await;
    let path = format!("{DEPLOYMENTS}/d");
    let pod = |pod: Value| json!({"spec": {"template": {"spec": pod}}});
    let keyless = pod(json!({"containers": [{"image": "j"}, {"$patch": "replace"}]}));
    let refused = strategic(&cluster, &path, keyless).await.code(500);
    assert_eq!(message(&refused), "map: map[image:j] does not contain declared merge key: name");
    let unordered = json!({"containers": [{"name": "c", "image": "j"}], "$setElementOrder/containers": []});
    let patched = strategic(&cluster, &path, pod(unordered)).await.code(200).json();
    assert_eq!(patched["spec"]["template"]["spec"]["containers"][0]["image"], "j");
}

#[tokio::test]
async fn a_strategic_patch_is_merged_into_the_type_of_the_object() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment()).await;
    let path = format!("{DEPLOYMENTS}/d");
    let other = json!({"kind": "Foo", "apiVersion": "x/y", "metadata": {"labels": {"l": "m"}}});
    let patched = strategic(&cluster, &path, other).await.code(200).json();
    assert_eq!((&patched["kind"], &patched["metadata"]["labels"]["l"]), (&json!("Deployment"), &json!("m")));
    // a map in place of a number: its directives mean nothing
    let wrong = json!({"spec": {"replicas": {"$patch": "foo"}}});
    let refused = strategic(&cluster, &path, wrong).await.code(422);
    assert!(message(&refused).ends_with("unrecognized type: int32"), "{}", message(&refused));
}

#[tokio::test]
async fn repeated_keys_of_an_apply_are_reported_once_it_is_merged() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}/c?fieldManager=m");
    let config = |field: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c"}},"{field}":{{"a":"1","a":"2"}}}}"#
        )
    };
    let applied = send(&cluster, Method::PATCH, &path, &config("data"), APPLY).await.code(201);
    assert_eq!(applied.headers.get_all("warning").iter().count(), 1);
    let refused = send(&cluster, Method::PATCH, &path, &config("datum"), APPLY).await.code(500);
    assert_eq!(refused.headers.get_all("warning").iter().count(), 0);
    let strict = format!("{path}&fieldValidation=Strict");
    let refused = send(&cluster, Method::PATCH, &strict, &config("data"), APPLY).await.code(400);
    let expected = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \
                    \"a\" already set in map";
    assert_eq!(message(&refused), expected);
}

#[tokio::test]
async fn an_applied_number_that_may_be_text_has_an_error_without_its_field() {
    let cluster = Cluster::start().await;
    let mut config = deployment();
    config["apiVersion"] = "apps/v1".into();
    config["kind"] = "Deployment".into();
    config["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 2_147_483_648_i64}});
    let path = format!("{DEPLOYMENTS}/d?fieldManager=m");
    let refused = cluster.patch(&path, config).content_type(APPLY).await.code(500);
    let expected = "json: cannot unmarshal number 2147483648 into Go value of type int32";
    assert!(message(&refused).ends_with(expected), "{}", message(&refused));
}

#[tokio::test]
async fn a_structure_under_a_repeated_key_is_read_over_the_first() {
    let cluster = Cluster::start().await;
    let text = r#"{"metadata":{"name":"c","labels":{"a":"b"}},"data":{"k":"v"},"metadata":{"annotations":{"x":"y"}}}"#;
    let created = send(&cluster, Method::POST, CONFIGMAPS, text, "application/json").await.code(201).json();
    let metadata = &created["metadata"];
    assert_eq!((&metadata["name"], &metadata["labels"]["a"]), (&json!("c"), &json!("b")));
    assert_eq!(metadata["annotations"], json!({"x": "y"}));
}

#[tokio::test]
async fn text_behind_a_body_is_reported_before_its_types() {
    let cluster = Cluster::start().await;
    let text = r#"{"metadata":{"name":5}} {}"#;
    let refused = send(&cluster, Method::POST, CONFIGMAPS, text, "application/json").await.code(400);
    let expected = "invalid character '{' after top-level value";
    assert!(message(&refused).contains(expected), "{}", message(&refused));
}

#[tokio::test]
async fn managers_that_cannot_be_read_leave_those_of_the_object() {
    let cluster = Cluster::start().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"a": "b"}})).await;
    let entry = |manager: &str, fields: Value| {
        json!({"metadata": {"managedFields": [{"manager": manager, "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields}]}})
    };
    let path = format!("{CONFIGMAPS}/c");
    let patched = cluster.patch(&path, entry("m", json!(true))).content_type(MERGE).await.code(200).json();
    assert_eq!(patched["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    // an invalid name is a problem of the next state and of the change, each of all kinds and of this one
    let refused =
        cluster.patch(&path, entry("\t", json!({"f:data": {}}))).content_type(MERGE).await.code(422);
    let invalid =
        r#"metadata.managedFields[0].manager: Invalid value: "\t": invalid character U+0009 (at position 0)"#;
    assert_eq!(causes(&refused), [invalid; 4]);
}

#[tokio::test]
async fn conditions_of_a_network_policy_are_written_once_without_their_gate() {
    let cluster = Cluster::start().await;
    let condition = |reason: &str| {
        json!({"conditions": [{"type": "A", "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]})
    };
    let policy =
        json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}, "status": condition("Created")});
    let created = cluster.create(POLICIES, policy).await;
    assert_eq!(created["status"], condition("Created"));
    let path = format!("{POLICIES}/p");
    let status = json!({"status": condition("Changed")});
    for path in [path.clone(), format!("{path}/status")] {
        let patched = cluster.patch(&path, status.clone()).content_type(MERGE).await.code(200).json();
        assert_eq!(patched["status"], condition("Created"), "{path}");
    }
    let removed = json!({"status": {"conditions": null}});
    let patched =
        cluster.patch(&format!("{path}/status"), removed).content_type(MERGE).await.code(200).json();
    assert_eq!(patched["status"], json!({}));
}

#[tokio::test]
async fn a_dropped_part_of_a_claims_status_has_an_owner() {
    let cluster = Cluster::start().await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    cluster.create(CLAIMS, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    let path = format!("{CLAIMS}/c/status?fieldManager=m");
    let status = json!({"status": {"allocatedResources": {"storage": "2Gi"}}});
    let patched = cluster.patch(&path, status).content_type(MERGE).await.code(200).json();
    assert_eq!(patched["status"]["allocatedResources"], Value::Null);
    let entries = patched["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|entry| entry["manager"] == "m").unwrap();
    assert_eq!(own["fieldsV1"]["f:status"]["f:allocatedResources"]["f:storage"], json!({}));
}

#[tokio::test]
async fn users_of_windows_have_names_that_windows_allows() {
    let cluster = Cluster::start().await;
    let users = [
        (r"fe80::1", r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#),
        (r"d\..", "runAsUserName's User cannot contain only periods or spaces"),
        (r"-.d\u", ""),
        (r".\u", "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
        (r"d\", "runAsUserName's User cannot be empty"),
        (r"a\b\c", "runAsUserName cannot contain more than one backslash"),
    ];
    for (user, why) in users {
        let spec = json!({"containers": [{"name": "c", "image": "i"}],
            "securityContext": {"windowsOptions": {"runAsUserName": user}}});
        let path = format!("{PODS}?dryRun=All");
        let answer = cluster.post(&path, json!({"metadata": {"name": "p"}, "spec": spec})).await;
        if why.is_empty() {
            answer.code(201);
            continue;
        }
        let found = causes(&answer.code(422));
        assert!(found.len() == 1 && found[0].ends_with(why), "{user}: {found:?}");
    }
}

#[tokio::test]
async fn a_namespace_that_must_not_orphan_waits_for_its_dependents() {
    let cluster = Cluster::start().await;
    cluster.create(NAMESPACES, json!({"metadata": {"name": "n", "finalizers": ["orphan"]}})).await;
    let body = json!({"orphanDependents": false});
    let deleted = cluster.delete(&format!("{NAMESPACES}/n")).body(body).await.code(202).json();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test]
async fn causes_of_an_api_service_stand_in_the_order_of_its_checks() {
    let cluster = Cluster::start().await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": "z.example.com", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10,
        "service": {"namespace": "a", "name": "b"}, "insecureSkipTLSVerify": true});
    cluster.create(services, json!({"metadata": {"name": "v1.z.example.com"}, "spec": spec})).await;
    let patch = json!({"metadata": {"labels": {"a b": "c"}}, "spec": {"groupPriorityMinimum": -1,
        "versionPriority": 0, "service": {"namespace": "", "name": "", "port": 0}}});
    let path = format!("{services}/v1.z.example.com");
    let refused = cluster.patch(&path, patch).content_type(MERGE).await.code(422);
    let causes = causes(&refused);
    let fields: Vec<&str> = causes.iter().filter_map(|cause| cause.split(':').next()).collect();
    let expected = [
        "metadata.labels",
        "metadata.labels",
        "metadata.labels",
        "metadata.labels",
        "spec.groupPriorityMinimum",
        "spec.versionPriority",
        "spec.service.namespace",
        "spec.service.name",
        "spec.service.port",
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn large_numbers_of_yaml_have_the_digits_of_their_shortest_text() {
    let cluster = Cluster::start().await;
    let quota = |cpu: &str| {
        format!(
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q}}\nspec: {{hard: {{cpu: {cpu}}}}}\n"
        )
    };
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    for (number, shown) in
        [("-9223372036854775809", "-9223372036854776k"), ("-9223372036854775808", "-9223372036854775808")]
    {
        let refused =
            send(&cluster, Method::POST, quotas, &quota(number), "application/yaml").await.code(422);
        let expected =
            format!("spec.hard[cpu]: Invalid value: \"{shown}\": must be greater than or equal to 0");
        assert!(message(&refused).ends_with(&expected), "{}", message(&refused));
    }
    for (number, shown) in [("-9223372036854775809", "-9223372036854776000"), ("1e21", "1e+21")] {
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{{port: 80, targetPort: {number}}}]}}\n"
        );
        let path = "/api/v1/namespaces/default/services/s?fieldManager=m";
        let refused = send(&cluster, Method::PATCH, path, &service, APPLY).await.code(500);
        let expected = format!("json: cannot unmarshal number {shown} into Go value of type int32");
        assert!(message(&refused).ends_with(&expected), "{}", message(&refused));
    }
}
