//! Answers to odd patches, versions and metadata, as upstream gives them.

use super::custom_resources::{definition, version};
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster, Options};

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn message(answer: &ApiResponse) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

async fn send(cluster: &Cluster, path: &str, media: &str, text: &str) -> ApiResponse {
    cluster.request(Method::PATCH, path).body(text).content_type(media).await
}

async fn cluster_with_map() -> (Cluster, String) {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"a": "b"}})).await;
    (cluster, format!("{CONFIGMAPS}/c"))
}

#[tokio::test]
async fn unpatched_fields_are_reported_unchanged() {
    let cluster = Cluster::start().await;
    let mut object = pod("p");
    object["spec"]["volumes"] = json!([{"name": "h", "hostPath": {"path": "/x"}}]);
    cluster.create(PODS, object).await;
    let path = format!("{PODS}/p");
    let invalid_message = |answer: ApiResponse| message(&answer.code(422)).replace("\\\"", "'");
    // values of a merge patch are taken apart, and so written by name
    let patch = r#"{"spec": {"volumes": [{"name": "v", "emptyDir": {}, "bad": {"z": 1, "y": 2}}], "nodeSelector": 5}}"#;
    let shown = invalid_message(send(&cluster, &path, MERGE, patch).await);
    assert!(shown.contains("'volumes':[{'bad':{'y':2,'z':1},'emptyDir':{},'name':'v'}]"), "{shown}");
    // those of a JSON patch stay as they were sent, and so does what is moved
    let patch = r#"[{"op": "add", "path": "/spec/volumes/0", "value": {"name": "v", "bad": 1}},
        {"op": "move", "from": "/spec/volumes/1", "path": "/metadata/labels"}]"#;
    let shown = invalid_message(send(&cluster, &path, JSON, patch).await);
    assert!(shown.contains("'volumes':[{'name':'v','bad':1}]"), "{shown}");
    assert!(shown.contains("'labels':{'name':'h','hostPath':{'path':'/x','type':''}}"), "{shown}");
}

#[tokio::test]
async fn a_patch_whose_form_is_not_looked_at_fails_when_it_is_tried() {
    let (cluster, path) = cluster_with_map().await;
    let unchecked = format!("{path}?fieldValidation=Ignore");
    let cases = [
        (JSON, r#""x""#, 400, "json: cannot unmarshal string into Go value of type jsonpatch.Patch"),
        (JSON, "[1]", 400, "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        (JSON, "{", 400, "unexpected end of JSON input"),
        (
            JSON,
            r#"[{"op":"add","path":5}]"#,
            422,
            "the server rejected our request due to an error in our request",
        ),
        (MERGE, r#""x""#, 400, "Invalid JSON Patch"),
        (MERGE, "{", 400, "Invalid JSON Patch"),
    ];
    for (media, text, code, expected) in cases {
        let answer = send(&cluster, &unchecked, media, text).await.code(code);
        assert_eq!(message(&answer), expected, "{text}");
    }
    let answer = send(&cluster, &unchecked, MERGE, r#"[1, {"b": null, "a": 2}]"#).await.code(422);
    let expected = " \"\" is invalid: patch: Invalid value: \"[1,{\\\"a\\\":2}]\": couldn't get version/kind; json parse error: json: \
        cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind \
        string \"json:\\\"kind,omitempty\\\"\" }";
    assert_eq!(message(&answer), expected);
    // looked at, it is expected at once
    let answer = send(&cluster, &path, JSON, r#""x""#).await.code(400);
    let expected =
        "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp";
    assert_eq!(message(&answer), expected);
}

#[tokio::test]
async fn a_patch_at_the_root_puts_an_object_there_or_nothing() {
    let (cluster, path) = cluster_with_map().await;
    let before = cluster.read(&path).await;
    let answer = send(&cluster, &path, JSON, r#"[{"op":"replace","path":"","value":"x"}]"#).await;
    assert_eq!(answer.code(200).json(), before);
    let answer = send(&cluster, &path, JSON, r#"[{"op":"replace","path":"","value":[1]}]"#).await.code(422);
    assert!(
        message(&answer)
            .contains("couldn't get version/kind; json parse error: json: cannot unmarshal array")
    );
    // without its version nothing is known of an object, not even its name
    let expected = "the name of the object (c based on URL) was undeterminable: name must be provided";
    let patches = [
        (JSON, r#"[{"op":"remove","path":"/apiVersion"}]"#),
        (MERGE, r#"{"apiVersion":null}"#),
        (MERGE, r#"{"apiVersion":"/"}"#),
    ];
    for (media, text) in patches {
        let answer = send(&cluster, &path, media, text).await.code(400);
        assert_eq!(message(&answer), expected);
        let warned = |field: &str| format!(r#"299 - "unknown field \"{field}\"""#);
        assert_eq!(answer.warnings(), [warned("data"), warned("metadata")]);
        let answer = send(&cluster, &format!("{path}?fieldValidation=Strict"), media, text).await.code(422);
        let expected = r#": strict decoding error: unknown field "data", unknown field "metadata""#;
        assert!(message(&answer).ends_with(expected), "{}", answer.text());
    }
    let answer =
        send(&cluster, &path, JSON, r#"[{"op":"replace","path":"","value":{"name":"x"}}]"#).await.code(400);
    assert_eq!(message(&answer), "the name of the object (x) does not match the name on the URL (c)");
    send(&cluster, &path, STRATEGIC, r#"{"apiVersion":null}"#).await.code(200);
    let expected = "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .apiVersion \
                of type string";
    let answer = send(&cluster, &path, MERGE, r#"{"apiVersion":5}"#).await.code(422);
    assert!(message(&answer).ends_with(expected), "{}", answer.text());
    let answer =
        cluster.post(CONFIGMAPS, json!({"apiVersion": 5, "metadata": {"name": "d"}})).await.code(400);
    assert!(message(&answer).contains(expected), "{}", answer.text());
}

#[tokio::test]
async fn a_new_object_has_no_version_but_may_name_what_is_none() {
    let cluster = Cluster::start().await;
    let map = |name: &str, version: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}});
    cluster.post(CONFIGMAPS, map("a", "1")).await.code(500);
    for (name, version) in [("b", "x"), ("c", "0"), ("d", "99999999999999999999")] {
        cluster.post(CONFIGMAPS, map(name, version)).await.code(201);
        // what creates because there is nothing to change wants a number
        let path = format!("{CONFIGMAPS}/applied-{name}?fieldManager=m");
        let config = map(&format!("applied-{name}"), version);
        let answer = cluster.patch(&path, config).content_type(APPLY).await;
        let why = if version == "x" { "invalid syntax" } else { "value out of range" };
        match version {
            "0" => drop(answer.code(201)),
            _ => assert_eq!(
                message(&answer.code(500)),
                format!("strconv.ParseUint: parsing {version:?}: {why}")
            ),
        }
    }
    // a dry run shows the version that it was given
    let lease = json!({"metadata": {"name": "l", "resourceVersion": "7"}});
    let shown = cluster.put(&format!("{LEASES}/l?dryRun=All"), lease.clone()).await.code(201).json();
    assert_eq!(shown["metadata"]["resourceVersion"], "7");
    let created = cluster.put(&format!("{LEASES}/l"), lease).await.code(201).json();
    assert_ne!(created["metadata"]["resourceVersion"], "7");
}

/// The causes of a refused write in short: `L`abels, the `D`eletion time and `F`inalizers.
fn causes_of(answer: ApiResponse) -> String {
    let causes = answer.code(422).json()["details"]["causes"].clone();
    let fields = causes.as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap().to_owned());
    let short = |field: String| match field.strip_prefix("metadata.").unwrap().get(..1) {
        Some("l") => 'L',
        Some("d") => 'D',
        Some("f") => 'F',
        _ => '?',
    };
    fields.map(short).collect()
}

#[tokio::test]
async fn metadata_is_judged_as_often_as_the_rules_of_a_kind_look_at_it() {
    let cluster = Cluster::start().await;
    let bad = |mut object: Value| {
        object["metadata"]["labels"] = json!({"a b": "c"});
        object["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!(["bad"]);
        object
    };
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let cron_job = json!({"metadata": {"name": "x"}, "spec": {"schedule": "* * * * *", "jobTemplate": job}});
    let attachment = json!({"metadata": {"name": "x"}, "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    let claim = json!({"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let limits = "/api/v1/namespaces/default/limitranges";
    let limit = json!({"metadata": {"name": "x"}, "spec": {"limits": []}});
    let cases = [
        (CONFIGMAPS, json!({"metadata": {"name": "x"}}), "", "LDLDLFLF"),
        (CRON_JOBS, cron_job, "LDL", "LDLDLF"),
        (ATTACHMENTS, attachment, "-", "LDLLFLF"),
        (claims, claim, "LDLDLF", "LDLLFDLFLF"),
        (limits, limit, "", "LDLLF"),
        (PODS, pod("x"), "LLLF", "LDLDLFLF"),
    ];
    for (collection, object, status, whole) in cases {
        let created = cluster.create(collection, object).await;
        let path = format!("{collection}/x");
        assert_eq!(causes_of(cluster.put(&path, bad(created.clone())).await), whole, "{collection}");
        let part = cluster.put(&format!("{path}/status"), bad(created)).await;
        match status {
            "" => {}
            // this part has no metadata of its own
            "-" => assert_eq!(part.code(200).json()["metadata"].get("labels"), None),
            causes => assert_eq!(causes_of(part), causes, "{collection}"),
        }
    }
}

#[tokio::test]
async fn a_status_that_is_applied_owns_no_metadata_where_it_has_none() {
    let cluster = Cluster::start().await;
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "x",
        "labels": {"a": "b"}}, "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    let created = cluster.create(ATTACHMENTS, attachment.clone()).await;
    let path = format!("{ATTACHMENTS}/x/status?fieldManager=m");
    let next = cluster.patch(&path, attachment).content_type(APPLY).await.code(200).json();
    assert_eq!(next["metadata"], created["metadata"]);
}

#[tokio::test]
async fn an_omitted_deletion_timestamp_is_not_owned() {
    let cluster = Cluster::start().await;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["a.b/c"]}});
    let created = cluster.create(CONFIGMAPS, object.clone()).await;
    let path = format!("{CONFIGMAPS}/c");
    // the record of the object is taken away, so that the next apply makes one for all that is there
    let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]);
    cluster.patch(&path, patch).content_type(JSON).await.code(200);
    cluster.delete(&path).await.code(200);
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
    let applied =
        cluster.patch(&format!("{path}?fieldManager=m"), config).content_type(APPLY).await.code(200);
    assert!(applied.text().contains("f:deletionTimestamp"), "{}", applied.text());
    let next = cluster.put(&path, object).await.code(200);
    assert!(!next.text().contains("f:deletionTimestamp"), "{}", next.text());
    assert_ne!(
        created["metadata"].get("deletionTimestamp"),
        next.json()["metadata"].get("deletionTimestamp")
    );
}

#[tokio::test]
async fn errors_of_times_and_texts_do_not_name_their_field() {
    let cluster = Cluster::with(Options::default()).await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2020-01-02T03:04:05.000006Z", "action": "a", "reason": "r",
        "type": "Normal", "reportingController": "c/d", "reportingInstance": "i"});
    cluster.create(events, event.clone()).await;
    let path = format!("{events}/e");
    let answer = send(&cluster, &path, STRATEGIC, r#"{"eventTime": {"a": "b"}}"#).await.code(422);
    assert!(message(&answer).ends_with("json: cannot unmarshal object into Go value of type string"));
    let mut late = event;
    late["series"] = json!({"count": 4, "lastObservedTime": "é"});
    let answer = cluster.put(&path, late).await.code(400);
    let expected =
        r#"parsing time "\xc3\xa9" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "\xc3\xa9" as "2006""#;
    assert!(message(&answer).ends_with(expected), "{}", answer.text());
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    cluster
        .create(
            revisions,
            json!({"metadata": {"name": "r"}, "revision": 1, "data": {"spec": {"a": 1}, "b": 2}}),
        )
        .await;
    let answer = send(&cluster, &format!("{revisions}/r"), STRATEGIC, r#"{"data": {"spec": {"c": 3}}}"#)
        .await
        .code(500);
    assert_eq!(
        message(&answer),
        r#"unable to find api field in struct RawExtension for the json field "spec""#
    );
    let services = "/api/v1/namespaces/default/services";
    cluster.create(services, json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})).await;
    let patch = r#"{"spec": {"type": {"a": "b"}}}"#;
    let answer = send(&cluster, &format!("{services}/s"), STRATEGIC, patch).await.code(422);
    assert!(message(&answer).ends_with("unrecognized type: string"), "{}", answer.text());
    let patch = r#"{"spec": {"ports": [{"port": 80, "targetPort": [1]}]}}"#;
    let answer = send(&cluster, &format!("{services}/s"), STRATEGIC, patch).await.code(422);
    assert!(
        message(&answer).ends_with("cannot unmarshal array into Go value of type int32"),
        "{}",
        answer.text()
    );
    let answer =
        send(&cluster, &format!("{services}/s"), STRATEGIC, r#"{"spec": {"$patch": ["a", "b"]}}"#).await;
    assert!(message(&answer).starts_with("unknown patch type: [a b] in map: "), "{}", answer.text());
}

#[tokio::test]
async fn an_applied_key_of_another_type_is_shown_by_its_members() {
    let cluster = Cluster::start().await;
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    let config = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": {"ports": [{"port": 80}]}, "nodeID": "x"}]}}"#;
    let answer = send(&cluster, &format!("{nodes}/n?fieldManager=m"), APPLY, config).await.code(500);
    assert!(
        message(&answer).contains(".spec.drivers[name=ports=[port=80]].name: expected string"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn an_applied_configuration_is_converted_before_its_path_is_checked() {
    let cluster = Cluster::start().await;
    let config = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "other"},
        "spec": {"limits": [{"type": "Pod", "max": {"cpu": "much"}}]}});
    let path = "/api/v1/namespaces/default/limitranges/l?fieldManager=m";
    let answer = cluster.patch(path, config).content_type(APPLY).await.code(500);
    assert!(message(&answer).contains("quantities must match the regular expression"), "{}", answer.text());
}

#[tokio::test]
async fn a_definition_bears_no_other_prefix_than_its_name() {
    let cluster = Cluster::start().await;
    let mut definition = definition(&[version("v1", json!({"type": "object"}))]);
    definition["metadata"] = json!({"generateName": "things-"});
    let answer =
        cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.code(422);
    let service = json!({"metadata": {"generateName": "v1.a.b-"}, "spec": {"group": "a.b", "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1}});
    let refused = cluster.post("/apis/apiregistration.k8s.io/v1/apiservices", service).await.code(422);
    assert!(
        message(&refused).contains(r#"metadata.generateName: Invalid value: "v1.a.b-": must be"#),
        "{}",
        refused.text()
    );
    let expected =
        r#"metadata.generateName: Invalid value: "things-": must be spec.names.plural+"."+spec.group"#;
    assert!(message(&answer).contains(expected), "{}", answer.text());
}

#[tokio::test]
async fn owners_that_come_twice_are_warned_of_where_there_is_no_object() {
    let cluster = Cluster::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"});
    let object = json!({"metadata": {"name": "none", "ownerReferences": [owner, owner]}});
    let answer = cluster.put(&format!("{CONFIGMAPS}/none"), object).await.code(404);
    assert_eq!(answer.warnings().len(), 1);
    assert!(answer.warnings()[0].contains("duplicate UID(s) observed: u"), "{:?}", answer.warnings());
    let binding = json!({"metadata": {"name": "none", "ownerReferences": [owner, owner]},
        "target": {"kind": "Node", "name": "n"}});
    for path in ["/api/v1/namespaces/default/bindings", "/api/v1/namespaces/default/pods/none/binding"] {
        let answer = cluster.post(path, binding.clone()).await.code(404);
        assert!(
            answer.warnings()[0].contains("duplicate UID(s) observed: u"),
            "{path}: {:?}",
            answer.warnings()
        );
    }
    // owners of a patch are known once it is merged
    cluster.named(CONFIGMAPS, "c").await;
    let patch = json!({"metadata": {"ownerReferences": [owner, owner]}});
    let patched = cluster.patch(&format!("{CONFIGMAPS}/c"), patch).content_type(MERGE).await.code(200);
    let expected = "duplicate entries after mutating admission happens; ";
    assert!(patched.warnings()[0].contains(expected), "{:?}", patched.warnings());
}

#[tokio::test]
async fn a_job_whose_status_comes_without_labels_has_those_of_its_pods() {
    let cluster = Cluster::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let object = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}}}});
    let created = cluster.create(jobs, object.clone()).await;
    let next = cluster.put(&format!("{jobs}/j/status"), object.clone()).await.code(200).json();
    assert_eq!(next["metadata"]["labels"], created["metadata"]["labels"]);
    assert_eq!(next["metadata"]["labels"]["job-name"], "j");
    // omitted fields of the manager lose their owner
    let mut labelled = object;
    labelled["metadata"] = json!({"name": "k", "labels": {"a": "b"}});
    cluster.create(jobs, labelled.clone()).await;
    labelled["metadata"] = json!({"name": "k"});
    let next = cluster.put(&format!("{jobs}/k/status"), labelled).await.code(200);
    assert!(!next.text().contains("f:labels"), "{}", next.text());
}

#[tokio::test]
async fn duplicates_without_owners_are_reported_before_the_applied_configuration() {
    let cluster = Cluster::start().await;
    let map = json!({"metadata": {"name": "c", "finalizers": ["a.b/c", "a.b/c"]}});
    let created = cluster.create(CONFIGMAPS, map).await;
    assert_eq!(created["metadata"].get("managedFields"), None);
    let path = format!("{CONFIGMAPS}/c?fieldManager=m");
    let config = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":5}}"#;
    let answer = send(&cluster, &path, APPLY, config).await.code(500);
    let expected = "failed to create manager for existing fields: failed to convert new object (default/c; /v1, Kind=ConfigMap) \
                to smd typed: .metadata.finalizers: duplicate entries for key [=\"a.b/c\"]";
    assert_eq!(message(&answer), expected);
}

#[tokio::test]
async fn conflicts_come_in_the_order_of_quoted_names() {
    let cluster = Cluster::start().await;
    let config = |key: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {key: "x"}});
    for (manager, key) in [("c", "k"), ("c%20d", "l")] {
        let path = format!("{CONFIGMAPS}/c?fieldManager={manager}");
        cluster.patch(&path, config(key)).content_type(APPLY).await;
    }
    let mut both = config("k");
    both["data"] = json!({"k": "y", "l": "y"});
    let path = format!("{CONFIGMAPS}/c?fieldManager=e");
    let answer = cluster.patch(&path, both).content_type(APPLY).await.code(409);
    let expected =
        "Apply failed with 2 conflicts: conflicts with \"c d\":\n- .data.l\nconflicts with \"c\":\n- .data.k";
    assert_eq!(message(&answer), expected);
}

#[tokio::test]
async fn an_unknown_directive_is_shown_by_its_parts() {
    let (cluster, path) = cluster_with_map().await;
    for (directive, shown) in [
        (r#"[{"name":"a"}]"#, "[map[name:a]]"),
        (r#"[1,true,null]"#, "[%!s(int64=1) %!s(bool=true) %!s(<nil>)]"),
        ("7", "%!s(int64=7)"),
    ] {
        let patch = format!(r#"{{"data":{{"$patch":{directive}}}}}"#);
        let answer = send(&cluster, &path, STRATEGIC, &patch).await.code(500);
        let expected = format!("unknown patch type: {shown} in map: ");
        assert!(message(&answer).starts_with(&expected), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_kind_without_metadata_rules_reports_metadata_last() {
    let cluster = Cluster::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let events = "/api/v1/namespaces/default/events";
    let budget = json!({"metadata": {"name": "x", "labels": {"a b": "c"}}, "spec": {"minAvailable": -1}});
    let event =
        json!({"metadata": {"name": "x", "labels": {"a b": "c"}}, "involvedObject": {"namespace": "other"}});
    let cases = [
        (budgets, budget, "/spec/minAvailable", json!(1)),
        (events, event, "/involvedObject/namespace", json!("default")),
    ];
    for (collection, mut object, place, right) in cases {
        for answer in [
            cluster.post(collection, object.clone()).await.code(422),
            // what creates because there is nothing to change
            cluster
                .put(
                    &format!("{events}/x"),
                    json!({"metadata": {"name": "x", "labels": {"a b": "c"}},
                "involvedObject": {"namespace": "other"}}),
                )
                .await
                .code(422),
        ] {
            assert_eq!(answer.json()["details"]["causes"].as_array().unwrap().len(), 1, "{}", answer.text());
            assert!(!message(&answer).contains("metadata.labels"), "{}", answer.text());
        }
        *object.pointer_mut(place).unwrap() = right;
        let answer = cluster.post(collection, object).await.code(422);
        assert!(message(&answer).contains("metadata.labels"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_definition_begins_its_deletion_without_a_note_about_dependents() {
    let cluster = Cluster::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut object = definition(&[version("v1", json!({"type": "object"}))]);
    // its own finalizer keeps it
    object["metadata"]["finalizers"] = json!(["a.b/c"]);
    let name = cluster.create(definitions, object).await["metadata"]["name"].as_str().unwrap().to_owned();
    let options = json!({"propagationPolicy": "Orphan"});
    let answer = cluster.delete(&format!("{definitions}/{name}")).body(options).await.code(200).json();
    let finalizers = ["a.b/c", "customresourcecleanup.apiextensions.k8s.io"];
    assert_eq!(answer["metadata"]["finalizers"], json!(finalizers));
}

#[tokio::test]
async fn a_binding_can_be_posted_beside_its_pod() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let bindings = "/api/v1/namespaces/default/bindings";
    let binding = |name: &str, target: Value| json!({"metadata": {"name": name}, "target": target});
    cluster.post(bindings, binding("none", json!({"name": "n"}))).await.code(404);
    let answer = cluster.post(bindings, binding("p", json!({"kind": "X", "name": "n"}))).await.code(500);
    assert!(message(&answer).contains("target.kind: Unsupported value"), "{}", answer.text());
    cluster.post(&format!("{bindings}?dryRun=All"), binding("p", json!({"name": "n"}))).await.code(201);
    assert_eq!(cluster.read(&format!("{PODS}/p")).await["spec"].get("nodeName"), None);
    // unlike at the pod, nothing but the name says which one is meant
    let mut other = binding("p", json!({"kind": "Node", "name": "n"}));
    other["metadata"]["uid"] = json!("other");
    cluster.post(bindings, other).await.code(201);
    assert_eq!(cluster.read(&format!("{PODS}/p")).await["spec"]["nodeName"], "n");
    cluster.post(bindings, binding("p", json!({"name": "n"}))).await.code(409);
    cluster.get(bindings).await.code(405);
}

#[tokio::test]
async fn a_count_of_template_changes_that_is_no_number_cannot_be_converted() {
    let cluster = Cluster::start().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let annotations = json!({"deprecated.daemonset.template.generation": "x"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    let mut set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    cluster.create(sets, set.clone()).await;
    set["metadata"]["annotations"] = annotations.clone();
    let why = r#"strconv.ParseInt: parsing "x": invalid syntax"#;
    let handled = format!(r#"DaemonSet in version "v1" cannot be handled as a DaemonSet: {why}"#);
    let path = format!("{sets}/d");
    assert_eq!(message(&cluster.post(sets, set.clone()).await.code(400)), handled);
    assert_eq!(message(&cluster.put(&path, set.clone()).await.code(400)), handled);
    let patch = json!({"metadata": {"annotations": annotations}}).to_string();
    let answer = send(&cluster, &path, MERGE, &patch).await.code(422);
    assert!(message(&answer).ends_with(why), "{}", answer.text());
    assert_eq!(message(&send(&cluster, &path, STRATEGIC, &patch).await.code(500)), why);
    let answer =
        send(&cluster, &format!("{path}?fieldManager=m&force=true"), APPLY, &set.to_string()).await.code(500);
    assert_eq!(
        message(&answer),
        format!("failed to convert to unversioned (/d; apps/v1, Kind=DaemonSet): {why}")
    );
}

#[tokio::test]
async fn the_first_mistake_of_a_patched_object_is_that_of_its_text() {
    let (cluster, path) = cluster_with_map().await;
    let patch = r#"[{"op": "add", "path": "/metadata/labels", "value": {"b": {}, "a": []}}]"#;
    let answer = send(&cluster, &path, JSON, patch).await.code(422);
    let expected = "cannot unmarshal object into Go struct field ObjectMeta.metadata.labels of type string";
    assert!(message(&answer).ends_with(expected), "{}", answer.text());
}

#[tokio::test]
async fn rules_of_a_kind_are_reported_between_the_rules_of_its_metadata() {
    const APPS: &str = "/apis/apps/v1/namespaces/default";
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let cluster = Cluster::start().await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let policy = json!({"metadata": {"name": "x"}, "spec": {"podSelector": {}}});
    let role = json!({"metadata": {"name": "x"}, "rules": []});
    // the finalizer (F), a rule of the kind (K), and a rule of the change (C)
    let cases = [
        (format!("{APPS}/replicasets"), set.clone(), "/spec/selector/matchLabels/z", json!("z"), "FKFKC"),
        (format!("{APPS}/daemonsets"), set, "/spec/selector/matchLabels/z", json!("z"), "FKFKC"),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies".to_owned(),
            policy,
            "/spec/policyTypes",
            json!(["X"]),
            "FKFK",
        ),
        (format!("{RBAC}/roles"), role, "/rules", json!([{"resources": ["x"], "apiGroups": [""]}]), "FKFKF"),
    ];
    for (collection, object, path, value, expected) in cases {
        let mut next = cluster.create(&collection, object).await;
        let (parent, last) = path.rsplit_once('/').unwrap();
        let parent = if parent.is_empty() { &mut next } else { next.pointer_mut(parent).unwrap() };
        parent[last] = value;
        next["metadata"]["finalizers"] = json!(["bad"]);
        let status = cluster.put(&format!("{collection}/x"), next).await.code(422).json();
        let causes = status["details"]["causes"].as_array().unwrap().iter();
        let shown: String = causes
            .map(|cause| match cause["field"].as_str().unwrap() {
                "metadata.finalizers[0]" => 'F',
                "spec.selector" => 'C',
                _ => 'K',
            })
            .collect();
        assert_eq!(shown, expected, "{collection}: {status}");
    }
}

#[tokio::test]
async fn the_status_of_a_node_reports_a_bad_amount_once() {
    let cluster = Cluster::start().await;
    let node = cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let mut next = node.clone();
    next["status"]["capacity"] = json!({"cpu": "-1"});
    next["status"]["allocatable"] = json!({"pods": "1"});
    let status = cluster.put("/api/v1/nodes/n/status", next.clone()).await.code(422).json();
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(1), "{status}");
}

#[tokio::test]
async fn an_update_keeps_the_deletion_timestamp() {
    let (cluster, path) = cluster_with_map().await;
    let finalizer = json!({"metadata": {"finalizers": ["a.b/c"]}}).to_string();
    send(&cluster, &path, MERGE, &finalizer).await.code(200);
    let deleted = cluster.delete(&path).await.code(200).json();
    let mut next = deleted.clone();
    next["metadata"]["deletionTimestamp"] = json!("2009-01-01T01:01:01Z");
    let answer = cluster.put(&path, next.clone()).await.code(200).json();
    assert_eq!(answer["metadata"]["deletionTimestamp"], deleted["metadata"]["deletionTimestamp"]);
    next["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
    next["metadata"]["deletionGracePeriodSeconds"] = json!(10);
    let refused = message(&cluster.put(&path, next).await.code(422));
    assert!(
        refused.ends_with(
            "is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 10: field is immutable"
        )
    );
}

#[tokio::test]
async fn a_prefix_of_the_name_of_a_role_is_checked_like_a_name() {
    let cluster = Cluster::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let collections = ["namespaces/default/roles", "clusterroles"].map(|it| format!("{rbac}/{it}"));
    for collection in collections {
        let refused = cluster.post(&collection, json!({"metadata": {"generateName": ".."}})).await;
        let refused = refused.refused(422, "Invalid");
        let cause = &refused["details"]["causes"][0];
        assert_eq!(cause["field"], "metadata.generateName", "{refused}");
        assert_eq!(cause["message"], "Invalid value: \"..\": may not be '..'");
    }
    cluster.create(CONFIGMAPS, json!({"metadata": {"generateName": "a-"}})).await;
}
