//! Answers at the corners where clients have met another one from upstream.

use super::custom_resources::{THINGS, define, definition, thing, version as served};
use super::*;
use tests::{ApiResponse, Cluster, Options};

const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn strategic(cluster: &Cluster, path: &str, patch: Value) -> ApiResponse {
    cluster.patch(path, patch).content_type(STRATEGIC).await
}

async fn apply(cluster: &Cluster, path: &str, config: Value) -> ApiResponse {
    cluster.patch(path, config).content_type(APPLY).await
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_binding_means_the_pod_that_it_names() {
    let cluster = Cluster::start().await;
    let created = cluster.create(PODS, pod("p")).await;
    let binding = |field: &str, value: &str| json!({"metadata": {"name": "p", field: value}, "target": {"kind": "Node", "name": "n"}});
    for (field, value) in [("uid", "another"), ("resourceVersion", "1")] {
        let path = format!("{PODS}/p/binding");
        let refused = cluster.post(&path, binding(field, value)).await.refused(409, "Conflict");
        assert!(message(&refused).contains("Precondition failed"), "{refused}");
        assert_eq!(refused["details"]["kind"], "pods");
    }
    assert_eq!(cluster.read(&format!("{PODS}/p")).await["spec"].get("nodeName"), None);
    cluster.post(&format!("{PODS}/p/binding"), binding("uid", &uid(&created))).await.code(201);
}

#[tokio::test]
async fn a_strategic_patch_can_replace_the_whole_object() {
    let cluster = Cluster::start().await;
    cluster
        .create(CONFIGMAPS, json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"a": "1"}}))
        .await;
    let path = format!("{CONFIGMAPS}/x");
    let patch = json!({"$patch": "replace", "metadata": {"name": "x"}, "data": {"b": "2"}});
    let next = strategic(&cluster, &path, patch).await.code(200).json();
    assert_eq!((&next["data"], next["metadata"].get("labels")), (&json!({"b": "2"}), None));
    assert_eq!((&next["kind"], &next["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let next =
        strategic(&cluster, &path, json!({"$retainKeys": ["metadata"], "metadata": {"name": "x"}})).await;
    assert_eq!(next.code(200).json().get("data"), None);
    // nothing at all is no patch
    strategic(&cluster, &path, Value::Null).await.code(200);
    let refused = strategic(&cluster, &path, json!({"$patch": 7})).await;
    assert!(message(&refused.json()).starts_with("unknown patch type: %!s(int64=7)"), "{}", refused.text());
}

#[tokio::test]
async fn ephemeral_containers_can_be_applied() {
    let cluster = Cluster::start().await;
    let created = cluster.create(PODS, pod("p")).await;
    let path = |query: &str| format!("{PODS}/p/ephemeralcontainers?fieldManager=m{query}");
    let config =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    let one = json!({"ephemeralContainers": [{"name": "e", "image": "i"}]});
    let next = apply(&cluster, &path(""), config(one)).await.code(200).json();
    assert_eq!(next["spec"]["ephemeralContainers"][0]["name"], "e");
    // `managedFields` are unchanged
    assert_eq!(next["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    // the rest of the pod is looked at, and left alone
    let other = json!({"containers": [{"name": "c", "image": "other"}]});
    apply(&cluster, &path(""), config(other.clone())).await.refused(409, "Conflict");
    let next = apply(&cluster, &path("&force=true"), config(other)).await.code(200).json();
    assert_eq!(next["spec"]["containers"][0]["image"], "i");
    let ports =
        json!({"ephemeralContainers": [{"name": "f", "image": "i", "ports": [{"containerPort": 80}]}]});
    apply(&cluster, &path(""), config(ports)).await.refused(422, "Invalid");
}

#[tokio::test]
async fn a_gated_pod_waits_and_says_so() {
    let serving = kinds::Serving::default().with_gates(["PodSchedulingReadiness".to_owned()].into_iter());
    let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
    let gated = |gates: Value| {
        let mut pod = pod("p");
        pod["spec"]["schedulingGates"] = gates;
        pod
    };
    let created = cluster.create(PODS, gated(json!([{"name": "a"}, {"name": "b"}]))).await;
    let condition = &created["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("SchedulingGated"))
    );
    let path = format!("{PODS}/p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    cluster.post(&format!("{path}/binding"), binding.clone()).await.refused(409, "Conflict");
    let added = json!({"spec": {"schedulingGates": [{"name": "c"}]}});
    let refused = cluster.patch(&path, added).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.schedulingGates[0].name"]);
    cluster.patch(&path, json!({"spec": {"schedulingGates": null}})).await.code(200);
    cluster.post(&format!("{path}/binding"), binding).await.code(201);
    let mut assigned = gated(json!([{"name": "a"}]));
    assigned["metadata"]["name"] = "q".into();
    assigned["spec"]["nodeName"] = "n".into();
    let refused = cluster.post(PODS, assigned).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.nodeName"]);
    let twice = cluster.post(PODS, gated(json!([{"name": "a"}, {"name": "a"}, {"name": ""}]))).await;
    assert_eq!(
        fields(&twice.refused(422, "Invalid")),
        ["spec.schedulingGates[1]", "spec.schedulingGates[2]"]
    );
}

#[tokio::test]
async fn a_scaled_custom_resource_has_no_owner_of_its_replicas() {
    let cluster = Cluster::start().await;
    let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "other": {"type": "string"}}});
    let mut version = served("v1", schema);
    version["subresources"] = json!({"scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas"}});
    define(&cluster, definition(&[version])).await;
    cluster.create(THINGS, thing("a", json!({"replicas": 1, "other": "x"}))).await;
    let path = format!("{THINGS}/a");
    let scale = |version: &str| json!({"apiVersion": version, "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}});
    cluster.put(&format!("{path}/scale"), scale("autoscaling/v1")).await.code(200);
    let next = cluster.read(&path).await;
    assert_eq!(next["spec"]["replicas"], 3);
    let entries = next["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{next}");
    assert_eq!(entries[0]["fieldsV1"]["f:spec"], json!({".": {}, "f:other": {}}));
    let refused =
        cluster.put(&format!("{path}/scale"), scale("autoscaling/v2")).await.refused(400, "BadRequest");
    assert!(
        message(&refused).starts_with("no kind is registered for the type v1.Scale in scheme"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_scale_of_an_older_version_is_rejected() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    for version in ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"] {
        let scale = json!({"apiVersion": version, "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}});
        let refused = cluster.put(&path, scale).await.refused(400, "BadRequest");
        let expected = format!(
            "the API version in the data ({version}) does not match the expected API version (autoscaling/v1)"
        );
        assert_eq!(message(&refused), expected);
    }
}

#[tokio::test]
async fn rules_are_tried_although_a_value_is_not_among_those_allowed() {
    let cluster = Cluster::start().await;
    let schema = json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "self.n < 5", "message": "too many"}],
        "properties": {"n": {"type": "integer", "maximum": 9}, "e": {"type": "string", "enum": ["a"]}}});
    define(&cluster, definition(&[served("v1", schema)])).await;
    let refused = cluster.post(THINGS, thing("a", json!({"n": 1, "e": "b"}))).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.e"]);
    let refused = cluster.post(THINGS, thing("a", json!({"n": 10, "e": "b"}))).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.e", "spec.n", "spec"]);
    // a number beyond all integers is none
    let refused = cluster.post(THINGS, thing("a", json!({"n": -1e30}))).await.refused(422, "Invalid");
    assert_eq!(fields(&refused)[0], "spec.n");
}

#[tokio::test]
async fn drivers_count_the_changes_that_they_allow() {
    let cluster = Cluster::start().await;
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let created = cluster.create(drivers, json!({"metadata": {"name": "d"}, "spec": {}})).await;
    assert_eq!(created["metadata"].get("generation"), None);
    let path = format!("{drivers}/d");
    let generation = async |patch: Value| {
        cluster.patch(&path, patch).await.code(200).json()["metadata"].get("generation").cloned()
    };
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}}})).await, None);
    assert_eq!(generation(json!({"spec": {"requiresRepublish": true}})).await, Some(json!(1)));
    assert_eq!(generation(json!({"spec": {"tokenRequests": [{"audience": "a"}]}})).await, Some(json!(2)));
    assert_eq!(generation(json!({"spec": {"storageCapacity": true}})).await, Some(json!(2)));
}

#[tokio::test]
async fn numbers_wrap_around_where_they_are_converted_and_are_refused_where_they_are_read() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    let big = json!({"spec": {"replicas": 4_294_967_299_i64}});
    cluster.patch(&path, big.clone()).await.refused(422, "Invalid");
    let next = strategic(&cluster, &path, big).await.code(200).json();
    assert_eq!(next["spec"]["replicas"], 3);
    let mut config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    config["spec"]["replicas"] = json!(4_294_967_300_i64);
    let next =
        apply(&cluster, &format!("{path}?fieldManager=m&force=true"), config.clone()).await.code(200).json();
    assert_eq!(next["spec"]["replicas"], 4);
    config["spec"]["replicas"] = json!(1.5);
    let refused =
        apply(&cluster, &format!("{path}?fieldManager=m&force=true"), config).await.code(500).json();
    assert_eq!(
        message(&refused),
        "failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured \
         object to apps/v1, Kind=Deployment: cannot convert float64 to int32"
    );
    let mut body = deployment("e");
    body["spec"]["replicas"] = json!(4_294_967_299_i64);
    cluster.post(DEPLOYMENTS, body).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn base64_errors_have_a_position() {
    let cluster = Cluster::start().await;
    let secret = |data: Value| json!({"metadata": {"name": "s"}, "data": {"a": data}});
    for (data, at) in [("aGk==", 4), ("aGk", 0), ("a-_=", 1)] {
        let refused = cluster.post(SECRETS, secret(data.into())).await.refused(400, "BadRequest");
        assert!(message(&refused).ends_with(&format!("illegal base64 data at input byte {at}")), "{refused}");
    }
    // bits beyond the last byte go; bytes may be a list
    assert_eq!(cluster.create(SECRETS, secret("aGl=".into())).await["data"]["a"], "aGk=");
    let path = format!("{SECRETS}/s");
    let next = cluster.patch(&path, json!({"data": {"a": [1, 2]}})).await.code(200).json();
    assert_eq!(next["data"]["a"], "AQI=");
    let refused = strategic(&cluster, &path, json!({"data": {"a": "!"}})).await.refused(422, "Invalid");
    assert!(
        message(&refused).ends_with("error decoding from json: illegal base64 data at input byte 0"),
        "{refused}"
    );
}

#[tokio::test]
async fn repeated_keys_of_yaml_are_one_error() {
    let cluster = Cluster::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b, a: c}\nfoo: 1\nfoo: 2\n";
    let post = |mode: &str| {
        let path = format!("{CONFIGMAPS}?dryRun=All&fieldValidation={mode}");
        cluster.post(&path, text.to_owned()).content_type("application/yaml")
    };
    let refused = post("Strict").await.refused(400, "BadRequest");
    let expected = "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map\n  line 6: key \
                    \"foo\" already set in map, unknown field \"foo\"";
    assert!(message(&refused).ends_with(expected), "{refused}");
    assert_eq!(post("Warn").await.code(201).warnings().len(), 3);
}

#[tokio::test]
async fn warnings_of_pods_and_runtime_classes() {
    let cluster = Cluster::start().await;
    let mut hurried = pod("p");
    hurried["spec"]["terminationGracePeriodSeconds"] = (-5).into();
    assert_eq!(cluster.post(PODS, hurried).await.code(201).warnings(), [""; 0]);
    let mut class = runtime_class("c");
    class["scheduling"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
    let warnings = cluster.post(CLASSES, class).await.code(201).warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("scheduling.nodeSelector: deprecated since v1.14; use"), "{warnings:?}");
}

#[tokio::test]
async fn claims_of_ephemeral_volumes_need_names() {
    let cluster = Cluster::start().await;
    let claim = json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1"}}}}});
    let mut long = pod(&"p".repeat(220));
    long["spec"]["volumes"] = json!([{"name": "v".repeat(40), "ephemeral": claim}]);
    let refused = cluster.post(PODS, long).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.volumes[0].name"]);
    assert!(message(&refused).ends_with(": must be no more than 253 characters"), "{refused}");
}

#[tokio::test]
async fn a_deleted_object_has_the_resource_version_of_its_deletion() {
    let cluster = Cluster::start().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let created = cluster.create(classes, json!({"metadata": {"name": "c"}, "provisioner": "a/b"})).await;
    let gone = cluster.delete(&format!("{classes}/c")).await.code(200).json();
    let number = |object: &Value| version(object).parse::<u64>().unwrap();
    assert!(number(&gone) > number(&created), "{gone}");
}

#[tokio::test]
async fn events_are_not_collected_and_so_leave_at_once() {
    let cluster = Cluster::start().await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    cluster.create(EVENTS, event).await;
    cluster.delete(&format!("{EVENTS}/e?propagationPolicy=Orphan")).await.code(200);
    cluster.get(&format!("{EVENTS}/e")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn an_update_of_a_certain_object_needs_that_object() {
    let cluster = Cluster::start().await;
    let body = json!({"metadata": {"name": "x", "uid": "u"}});
    cluster.put(&format!("{CONFIGMAPS}/x"), body).await.refused(409, "Conflict");
    let leases = json!({"metadata": {"name": "x", "resourceVersion": "y"}});
    cluster.put(&format!("{LEASES}/x"), leases).await.code(500);
}

#[tokio::test]
async fn a_missing_object_is_reported_before_an_invalid_patch() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}/x");
    cluster.patch(&path, json!([{"op": "bogus", "path": "/data"}])).await.refused(404, "NotFound");
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"a": "1"}})).await;
    // an absent key is null for a copy
    let copy = json!([{"op": "copy", "from": "/nope", "path": "/data/b"}]);
    let next = cluster.patch(&path, copy).await.code(200).json();
    assert_eq!(next["data"]["a"], "1");
    let refused = cluster.patch(&path, json!({"data": {"b": {}, "a": "2"}})).await.refused(422, "Invalid");
    // maps that the patch has touched are shown by name
    assert!(message(&refused).contains(r#"\"data\":{\"a\":\"2\",\"b\":{}}"#), "{refused}");
}

#[tokio::test]
async fn unreadable_list_options_come_first() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}?labelSelector=a%20foo%20b&resourceVersionMatch=Exact");
    cluster.get(&path).await.refused(400, "BadRequest");
    let path = format!("{CONFIGMAPS}?limit=1&resourceVersion=99999999");
    let refused = cluster.get(&path).await;
    assert_eq!(refused.header("retry-after"), "");
    refused.refused(504, "Timeout");
}
