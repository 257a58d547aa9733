//! Mutating and validating webhooks: their reviews, and the effect of their responses.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::{Cluster, HttpsServer, ReceivedRequest, Reply};

pub(super) const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
pub(super) const BOTH: [&str; 2] = [MUTATING, VALIDATING];

/// An answer to a review.
pub(super) fn answer(seen: &ReceivedRequest, mut response: Value) -> Reply {
    if response["uid"].is_null() {
        response["uid"] = seen.body["request"]["uid"].clone();
    }
    let version = &seen.body["apiVersion"];
    Reply::Json(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
}

pub(super) fn patch(seen: &ReceivedRequest, operations: Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    answer(seen, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

pub(super) fn allow(seen: &ReceivedRequest) -> Reply {
    answer(seen, json!({"allowed": true}))
}

/// A webhook for all writes of config maps, at a path of a server.
pub(super) fn hook(server: &HttpsServer, name: &str, path: &str) -> Value {
    json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": format!("{}{path}", server.url), "caBundle": STANDARD.encode(&server.certificate)},
        "rules": [rule(&["*"], "", "v1", "configmaps")],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    })
}

pub(super) fn rule(operations: &[&str], group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
}

pub(super) fn with(mut hook: Value, field: &str, value: Value) -> Value {
    hook[field] = value;
    hook
}

pub(super) async fn configure(cluster: &Cluster, kind: &str, name: &str, hooks: Vec<Value>) {
    cluster.create(kind, json!({"metadata": {"name": name}, "webhooks": hooks})).await;
}

pub(super) fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub(super) fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_review_describes_the_whole_write() {
    for kind in BOTH {
        let server = HttpsServer::start(allow).await;
        let cluster = Cluster::start().await;
        configure(&cluster, kind, "one", vec![hook(&server, "a", "/here")]).await;
        let created = cluster.post(&format!("{CONFIGMAPS}?fieldManager=me"), map("a")).await.code(201).json();
        cluster.patch(&format!("{CONFIGMAPS}/a?dryRun=All"), json!({"data": {"k": "w"}})).await.code(200);
        cluster.delete(&format!("{CONFIGMAPS}/a?gracePeriodSeconds=7")).await.code(200);
        let seen = server.requests();
        assert_eq!(seen.len(), 3, "{kind}");
        assert_eq!(seen[0].path, "/here?timeout=10s");
        let review = &seen[0].body;
        assert_eq!(
            (&review["apiVersion"], &review["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
        let request = &review["request"];
        let [gvk, gvr] = [
            json!({"group": "", "version": "v1", "kind": "ConfigMap"}),
            json!({"group": "", "version": "v1", "resource": "configmaps"}),
        ];
        assert_eq!([&request["kind"], &request["requestKind"]], [&gvk, &gvk]);
        assert_eq!([&request["resource"], &request["requestResource"]], [&gvr, &gvr]);
        assert_eq!([&request["name"], &request["namespace"]], ["a", "default"]);
        assert_eq!([&request["operation"], &request["dryRun"]], [&json!("CREATE"), &json!(false)]);
        assert_eq!(request["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
        assert_eq!(request["object"]["data"], json!({"k": "v"}));
        assert_eq!(request["object"]["metadata"]["managedFields"][0]["manager"], "me");
        assert_eq!(request["oldObject"], Value::Null);
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"});
        assert_eq!(request["options"], options);
        // validating webhooks see the final object
        let uid = if kind == VALIDATING { created["metadata"]["uid"].clone() } else { Value::Null };
        assert_eq!(request["object"]["metadata"]["uid"], uid);
        let request = &seen[1].body["request"];
        assert_eq!([&request["operation"], &request["dryRun"]], [&json!("UPDATE"), &json!(true)]);
        assert_eq!([&request["object"]["data"]["k"], &request["oldObject"]["data"]["k"]], ["w", "v"]);
        assert_eq!(request["options"]["dryRun"], json!(["All"]));
        let request = &seen[2].body["request"];
        assert_eq!((&request["operation"], &request["object"]), (&json!("DELETE"), &Value::Null));
        assert_eq!(request["oldObject"]["metadata"]["uid"], created["metadata"]["uid"]);
        let options =
            json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 7});
        assert_eq!(request["options"], options);
    }
}

#[tokio::test]
async fn rules_select_writes() {
    let server = HttpsServer::start(allow).await;
    let cluster = Cluster::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = || {
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    // the operations, resources and scopes of a rule, and how often it sees the writes below
    let cases = [
        (json!(["*"]), json!(["*/*"]), "*", 8),
        (json!(["*"]), json!(["*"]), "*", 6),
        (json!(["CREATE"]), json!(["*"]), "*", 3),
        (json!(["CREATE", "DELETE"]), json!(["*"]), "Cluster", 2),
        (json!(["*"]), json!(["*"]), "Namespaced", 4),
        (json!(["*"]), json!(["deployments/scale"]), "*", 1),
        (json!(["*"]), json!(["*/scale", "deployments/status"]), "*", 2),
        (json!(["*"]), json!(["deployments", "deployments/*"]), "*", 4),
        (json!(["CONNECT"]), json!(["*/*"]), "*", 0),
        (json!(["*"]), json!(["secrets"]), "*", 0),
    ];
    let mut hooks = Vec::new();
    for (at, (operations, resources, scope, _)) in cases.iter().enumerate() {
        let rules = json!([{"operations": operations, "apiGroups": ["", "apps"], "apiVersions": ["*"],
            "resources": resources, "scope": scope}]);
        hooks.push(with(hook(&server, &format!("h{at}"), &format!("/{at}")), "rules", rules));
    }
    configure(&cluster, VALIDATING, "rules", hooks).await;
    cluster.create(deployments, deployment()).await;
    let path = format!("{deployments}/d");
    cluster.patch(&format!("{path}/scale"), json!({"spec": {"replicas": 3}})).await.code(200);
    cluster.patch(&format!("{path}/status"), json!({"status": {"replicas": 3}})).await.code(200);
    cluster.delete(&path).await.code(200);
    cluster.named(CONFIGMAPS, "a").await;
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    cluster.named(NAMESPACES, "n").await;
    cluster.delete(&format!("{NAMESPACES}/n")).await.code(200);
    for (at, (.., expected)) in cases.iter().enumerate() {
        let of_hook = format!("/{at}?timeout=10s");
        let found = server.requests().iter().filter(|seen| seen.path == of_hook).count();
        assert_eq!(found, *expected, "rule {at}: {:?}", cases[at]);
    }
    let all = server.requests();
    let scaled = all.iter().find(|seen| seen.body["request"]["subResource"] == "scale").unwrap();
    let request = &scaled.body["request"];
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!([&request["object"]["spec"]["replicas"], &request["oldObject"]["spec"]["replicas"]], [3, 1]);
    let space = all.iter().find(|seen| seen.body["request"]["resource"]["resource"] == "namespaces").unwrap();
    assert_eq!(space.body["request"]["namespace"], "n", "a namespace is in its own");
}

#[tokio::test]
async fn selectors_match_old_and_new_objects_and_namespaces() {
    let server = HttpsServer::start(allow).await;
    let cluster = Cluster::start().await;
    let selector = json!({"matchLabels": {"watched": "yes"}});
    let by_object = with(hook(&server, "o", "/object"), "objectSelector", selector.clone());
    let rules = json!([rule(&["*"], "", "*", "*"), rule(&["*"], "rbac.authorization.k8s.io", "*", "*")]);
    let by_space =
        with(with(hook(&server, "n", "/namespace"), "namespaceSelector", selector), "rules", rules);
    configure(&cluster, VALIDATING, "selecting", vec![by_object, by_space]).await;
    let count = |path: &str| server.requests().iter().filter(|seen| seen.path.starts_with(path)).count();
    cluster.named(CONFIGMAPS, "plain").await;
    assert_eq!(count("/object"), 0);
    cluster.labelled(CONFIGMAPS, "a", json!({"watched": "yes"})).await;
    assert_eq!(count("/object"), 1);
    // it was watched, and is so for the last time
    cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"metadata": {"labels": null}})).await.code(200);
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    assert_eq!((count("/object"), count("/namespace")), (2, 0));
    // a namespace by its own labels, as they will be
    cluster.named(NAMESPACES, "quiet").await;
    assert_eq!(count("/namespace"), 0);
    cluster.labelled(NAMESPACES, "loud", json!({"watched": "yes"})).await;
    cluster.named("/api/v1/namespaces/loud/configmaps", "a").await;
    cluster.named("/api/v1/namespaces/quiet/configmaps", "a").await;
    assert_eq!(count("/namespace"), 2);
    // cluster-scoped objects match a namespace selector
    cluster.named("/apis/rbac.authorization.k8s.io/v1/clusterroles", "r").await;
    assert_eq!(count("/namespace"), 3);
}

#[tokio::test]
async fn reviews_have_the_version_of_the_rule() {
    let server = HttpsServer::start(|seen| match &*seen.path {
        "/change?timeout=10s" => {
            patch(seen, json!([{"op": "add", "path": "/message", "value": "by the hook"}]))
        }
        _ => allow(seen),
    })
    .await;
    let cluster = Cluster::start().await;
    let rules = json!([rule(&["CREATE"], "", "v1", "events")]);
    let exact = with(hook(&server, "exact", "/exact"), "matchPolicy", json!("Exact"));
    let hooks = [hook(&server, "change", "/change"), exact];
    let hooks = hooks.map(|hook| with(hook, "rules", rules.clone())).to_vec();
    configure(&cluster, MUTATING, "events", hooks).await;
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2020-01-01T00:00:00.000000Z", "action": "a",
        "reason": "r", "type": "Normal", "reportingController": "x.io/y", "reportingInstance": "i",
        "regarding": {"namespace": "default", "kind": "Pod", "name": "p"}});
    let created = cluster.create("/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    assert_eq!(created["note"], "by the hook");
    let seen = server.requests();
    assert_eq!(seen.len(), 1, "an exact rule means no other version");
    let request = &seen[0].body["request"];
    assert_eq!(request["object"]["involvedObject"]["name"], "p");
    assert_eq!([&request["kind"]["group"], &request["resource"]["group"]], ["", ""]);
    let requested = [&request["requestKind"]["group"], &request["requestResource"]["group"]];
    assert_eq!(requested, ["events.k8s.io", "events.k8s.io"]);
}

#[tokio::test]
async fn webhooks_mutate_in_order() {
    let server = HttpsServer::start(|seen| {
        let path = seen.path.split('?').next().unwrap();
        let data = &seen.body["request"]["object"]["data"];
        let trace = format!("{}{path}", data["trace"].as_str().unwrap_or(""));
        patch(seen, json!([{"op": "add", "path": "/data/trace", "value": trace}]))
    })
    .await;
    let cluster = Cluster::start().await;
    configure(&cluster, MUTATING, "b", vec![hook(&server, "x", "/bx"), hook(&server, "a", "/ba")]).await;
    configure(&cluster, MUTATING, "a", vec![hook(&server, "z", "/az")]).await;
    let created = cluster.create(CONFIGMAPS, map("a")).await;
    assert_eq!(created["data"], json!({"k": "v", "trace": "/az/bx/ba"}));
    // a configuration that is gone asks for nothing any more, and so does one that has changed
    cluster.delete(&format!("{MUTATING}/a")).await.code(200);
    let only = json!({"webhooks": [hook(&server, "x", "/bx")]});
    cluster.patch(&format!("{MUTATING}/b"), only).await.code(200);
    assert_eq!(cluster.create(CONFIGMAPS, map("b")).await["data"]["trace"], "/bx");
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn reinvoked_webhooks_see_later_changes() {
    let server = HttpsServer::start(|seen| {
        let path = seen.path.split('?').next().unwrap().trim_start_matches('/');
        let data = &seen.body["request"]["object"]["data"];
        match (path, &data["late"]) {
            ("late", Value::Null) => patch(seen, json!([{"op": "add", "path": "/data/late", "value": "1"}])),
            ("never" | "late", _) => allow(seen),
            // an object that it knows needs no change
            (_, Value::Null) => allow(seen),
            (_, _) => patch(seen, json!([{"op": "add", "path": "/data/again", "value": path}])),
        }
    })
    .await;
    let cluster = Cluster::start().await;
    let again = json!("IfNeeded");
    let hooks = vec![
        with(hook(&server, "again", "/again"), "reinvocationPolicy", again.clone()),
        hook(&server, "never", "/never"),
        hook(&server, "late", "/late"),
        with(hook(&server, "last", "/never"), "reinvocationPolicy", again),
    ];
    configure(&cluster, MUTATING, "rounds", hooks).await;
    let created = cluster.create(CONFIGMAPS, map("a")).await;
    assert_eq!(created["data"], json!({"k": "v", "late": "1", "again": "again"}));
    let paths: Vec<String> =
        server.requests().iter().map(|seen| seen.path.split('?').next().unwrap().to_owned()).collect();
    // the last one saw the first round, and the reinvocation of the first
    assert_eq!(paths, ["/again", "/never", "/late", "/never", "/again", "/never"]);
}

#[tokio::test]
async fn the_patch_of_a_webhook_is_validated() {
    let server = HttpsServer::start(|seen| {
        let operations = match seen.body["request"]["object"]["metadata"]["name"].as_str().unwrap() {
            "missing" => json!([{"op": "remove", "path": "/nothing/here"}]),
            "type" => json!([{"op": "add", "path": "/data", "value": 7}]),
            "namespace" => json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}]),
            "kind" => json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            "invalid" => json!([{"op": "add", "path": "/data", "value": {"a b": "c"}}]),
            "unknown" => json!([{"op": "add", "path": "/extra", "value": {"a": "b"}}]),
            "name" => json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]),
            "server" => json!([{"op": "add", "path": "/metadata/uid", "value": "mine"},
                {"op": "add", "path": "/metadata/deletionTimestamp", "value": "2020-01-01T00:00:00Z"}]),
            "record" => json!([{"op": "replace", "path": "/metadata/managedFields/0/fieldsType", "value": "FieldsV9"}]),
            other => json!([{"op": "add", "path": "/metadata/labels", "value": {"by": other}}]),
        };
        patch(seen, operations)
    })
    .await;
    let cluster = Cluster::start().await;
    configure(&cluster, MUTATING, "changing", vec![hook(&server, "a", "/")]).await;
    for (name, code, part) in [
        ("missing", 500, "/nothing/here"),
        (
            "type",
            500,
            "Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data",
        ),
        (
            "namespace",
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("kind", 500, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ("invalid", 422, "a valid config key must consist of"),
    ] {
        let answer = cluster.post(CONFIGMAPS, map(name)).await.code(code).json();
        assert!(message(&answer).contains(part), "{name}: {answer}");
        cluster.get(&format!("{CONFIGMAPS}/{name}")).await.code(404);
    }
    assert_eq!(cluster.create(CONFIGMAPS, map("fine")).await["metadata"]["labels"], json!({"by": "fine"}));
    assert_eq!(cluster.create(CONFIGMAPS, map("unknown")).await["extra"], Value::Null);
    assert_eq!(cluster.create(CONFIGMAPS, map("name")).await["metadata"]["name"], "other");
    let server_side = cluster.create(CONFIGMAPS, map("server")).await;
    assert_ne!(server_side["metadata"]["uid"], "mine");
    assert_eq!(server_side["metadata"]["deletionTimestamp"], Value::Null);
    let record = cluster.post(CONFIGMAPS, map("record")).await.code(201);
    assert!(record.warnings()[0].contains("managedFields was in an invalid state after admission"));
    assert_eq!(record.json()["metadata"]["managedFields"][0]["fieldsType"], "FieldsV1");
}

#[tokio::test]
async fn a_subresource_write_changes_no_more_than_its_part() {
    let server = HttpsServer::start(|seen| {
        let replicas = json!([
            {"op": "add", "path": "/spec/replicas", "value": 9},
            {"op": "add", "path": "/status", "value": {"replicas": 9}},
        ]);
        patch(seen, replicas)
    })
    .await;
    let cluster = Cluster::start().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let rules =
        json!([rule(&["*"], "apps", "v1", "replicasets"), rule(&["*"], "apps", "v1", "replicasets/status")]);
    configure(&cluster, MUTATING, "parts", vec![with(hook(&server, "a", "/"), "rules", rules)]).await;
    // a creation cannot set the status, and a status write cannot change the spec
    let created = cluster.create(sets, set).await;
    assert_eq!((&created["spec"]["replicas"], &created["status"]["replicas"]), (&json!(9), &json!(0)));
    cluster.delete(&format!("{MUTATING}/parts")).await.code(200);
    cluster.patch(&format!("{sets}/s"), json!({"spec": {"replicas": 2}})).await.code(200);
    let rules = json!([rule(&["*"], "apps", "v1", "replicasets/*")]);
    let only_parts = with(hook(&server, "a", "/"), "rules", rules);
    configure(&cluster, MUTATING, "parts", vec![only_parts]).await;
    let message_part =
        cluster.patch(&format!("{sets}/s/status"), json!({"status": {"replicas": 4}})).await.code(200).json();
    assert_eq!(
        (&message_part["spec"]["replicas"], &message_part["status"]["replicas"]),
        (&json!(2), &json!(9))
    );
    // a webhook changes the subresource, not its parent
    let scaled =
        cluster.patch(&format!("{sets}/s/scale"), json!({"spec": {"replicas": 5}})).await.code(200).json();
    assert_eq!(scaled["spec"]["replicas"], 9);
    assert_eq!(cluster.read(&format!("{sets}/s")).await["spec"]["replicas"], 9);
}

#[tokio::test]
async fn denials_reach_the_client() {
    for kind in BOTH {
        let server = HttpsServer::start(|seen| {
            let request = &seen.body["request"];
            let name = request["name"].as_str().or(request["oldObject"]["metadata"]["name"].as_str());
            let status = match name.unwrap() {
                "kept" if request["operation"] == "DELETE" => json!({"message": "it is kept"}),
                "teapot" => json!({"code": 418, "reason": "Teapot", "message": "no coffee", "details": {
                    "name": "x", "causes": [{"message": "it is a teapot", "field": "spout"}]}}),
                "plain" => Value::Null,
                "success" => json!({"code": 200, "status": "Success", "reason": "Because"}),
                "odd" => json!({"code": 99999, "message": "odd"}),
                _ => return allow(seen),
            };
            answer(seen, json!({"allowed": false, "status": status}))
        })
        .await;
        let cluster = Cluster::start().await;
        configure(&cluster, kind, "refusing", vec![hook(&server, "a", "/")]).await;
        let refused = cluster.post(CONFIGMAPS, map("teapot")).await.code(418).json();
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "admission webhook \"a.example.com\" denied the request: no coffee", "reason": "Teapot",
            "details": {"name": "x", "causes": [{"message": "it is a teapot", "field": "spout"}]}, "code": 418});
        assert_eq!(refused, expected);
        for (name, message_part) in
            [("plain", " without explanation"), ("success", ": Because"), ("odd", ": odd")]
        {
            let refused = cluster.post(CONFIGMAPS, map(name)).await.code(400).json();
            let expected = format!("admission webhook \"a.example.com\" denied the request{message_part}");
            assert_eq!(message(&refused), expected);
        }
        cluster.create(CONFIGMAPS, map("kept")).await;
        cluster.create(CONFIGMAPS, map("gone")).await;
        let refused = cluster.delete(&format!("{CONFIGMAPS}/kept")).await.code(400).json();
        assert!(message(&refused).ends_with("it is kept"), "{refused}");
        // each object of a collection is reviewed, without a name in the review
        let refused = cluster.delete(CONFIGMAPS).await.code(400).json();
        assert!(message(&refused).ends_with("it is kept"), "{refused}");
        cluster.read(&format!("{CONFIGMAPS}/kept")).await;
        let seen = server.requests();
        let last = seen.iter().rfind(|seen| seen.body["request"]["operation"] == "DELETE").unwrap();
        assert_eq!(last.body["request"]["name"], Value::Null);
    }
}

/// Paths at which a webhook fails, and the reported errors.
const FAILURES: [(&str, &str); 13] = [
    ("hang", "failed to call webhook: Post \"URL/hang?timeout=1s\": context deadline exceeded"),
    (
        "flood",
        "failed to call webhook: Post \"URL/flood?timeout=20s\": the response is larger than 4194304 bytes",
    ),
    (
        "500",
        "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
    ),
    ("404", "failed to call webhook: the server could not find the requested resource"),
    ("html", "failed to call webhook: couldn't get version/kind; json parse error: "),
    (
        "empty",
        "failed to call webhook: 0-length response with status code: 200 and content type: application/json",
    ),
    ("uid", "received invalid webhook response: expected response.uid="),
    (
        "kind",
        "failed to call webhook: no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:100\"",
    ),
    (
        "version",
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    ("absent", "received invalid webhook response: webhook response was absent"),
    (
        "text",
        "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
    ),
    ("untyped", "received invalid webhook response: "),
    ("status", "failed to call webhook: as it says"),
];

fn failing(seen: &ReceivedRequest) -> Reply {
    let uid = &seen.body["request"]["uid"];
    let review = |version: &str, kind: &str| {
        Reply::Json(json!({"apiVersion": version, "kind": kind, "response": {"uid": uid, "allowed": true}}))
    };
    match seen.path.split('?').next().unwrap().trim_start_matches('/') {
        "hang" => Reply::Silence,
        "flood" => Reply::Flood,
        "500" => Reply::Text(500, "{}".to_owned()),
        "404" => Reply::Text(404, "nothing here".to_owned()),
        "status" => Reply::Text(403, json!({"kind": "Status", "message": "as it says"}).to_string()),
        "html" => Reply::Text(200, "<html>welcome</html>".to_owned()),
        "empty" => Reply::Text(200, String::new()),
        "uid" => answer(seen, json!({"uid": "another", "allowed": true})),
        "kind" => review("v1", "Pod"),
        "version" => review("admission.k8s.io/v1beta1", "AdmissionReview"),
        "absent" => Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})),
        "text" => answer(seen, json!({"allowed": "yes"})),
        "untyped" => answer(seen, json!({"allowed": true, "patch": STANDARD.encode("[{}]")})),
        _ => allow(seen),
    }
}

#[tokio::test]
async fn failures_follow_the_failure_policy() {
    for kind in BOTH {
        let server = HttpsServer::start(failing).await;
        let cluster = Cluster::start().await;
        for (path, why) in FAILURES {
            let seconds = if path == "hang" { 1 } else { 20 };
            let failing = with(hook(&server, "a", &format!("/{path}")), "timeoutSeconds", json!(seconds));
            configure(&cluster, kind, "failing", vec![failing]).await;
            let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
            let expected = format!(
                "Internal error occurred: failed calling webhook \"a.example.com\": {}",
                why.replace("URL", &server.url)
            );
            assert!(message(&refused).starts_with(&expected), "{path}: {refused}");
            // others are not harmed
            cluster.create(SECRETS, json!({"metadata": {"generateName": "s-"}})).await;
            let may_fail = json!([{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
            cluster.patch(&format!("{kind}/failing"), may_fail).await.code(200);
            cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), map("a")).await.code(201);
            cluster.delete(&format!("{kind}/failing")).await.code(200);
        }
        cluster.create(CONFIGMAPS, map("a")).await;
        cluster.answers().await;
        let metrics = cluster.get("/metrics").await.code(200).text();
        let manner = if kind == MUTATING { "admit" } else { "validating" };
        let labels = format!("name=\"a.example.com\",type=\"{manner}\"");
        for line in [
            format!("apiserver_admission_webhook_fail_open_count{{{labels}}} 13"),
            format!(
                "apiserver_admission_webhook_rejection_count{{error_type=\"calling_webhook_error\",name=\"a.example.com\",operation=\"CREATE\",rejection_code=\"404\",type=\"{manner}\"}} 1"
            ),
            format!(
                "apiserver_admission_webhook_request_total{{code=\"503\",name=\"a.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"{manner}\"}}"
            ),
        ] {
            assert!(sorted_lines(&metrics).contains(&line), "{line}\n{metrics}");
        }
    }
}

/// The lines of webhooks, with the labels in order.
fn sorted_lines(metrics: &str) -> String {
    let lines = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook"));
    let lines = lines.map(|line| {
        let Some((name, rest)) = line.split_once('{') else { return line.to_owned() };
        let (labels, value) = rest.split_once('}').unwrap();
        let mut labels: Vec<&str> = labels.split(',').collect();
        labels.sort_unstable();
        format!("{name}{{{}}}{value}", labels.join(","))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_unreachable_or_untrusted_webhook_fails() {
    let server = HttpsServer::start(allow).await;
    let cluster = Cluster::start().await;
    let mut unreachable = hook(&server, "a", "/");
    unreachable["clientConfig"] = json!({"url": "https://127.0.0.1:9/x"});
    let mut stranger = hook(&server, "a", "/");
    stranger["clientConfig"]["caBundle"] = Value::Null;
    let mut missing = hook(&server, "a", "/");
    missing["clientConfig"] = json!({"service": {"namespace": "default", "name": "none", "path": "/p"}});
    for (hook, message_part) in [
        (unreachable, "failed to call webhook: Post \"https://127.0.0.1:9/x?timeout=10s\": "),
        (stranger, "certificate"),
        (missing, "Post \"https://none.default.svc:443/p?timeout=10s\": service \"none\" not found"),
    ] {
        configure(&cluster, VALIDATING, "far", vec![hook]).await;
        let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
        assert!(message(&refused).contains(message_part), "{refused}");
        cluster.delete(&format!("{VALIDATING}/far")).await.code(200);
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_service_is_called_by_its_dns_name() {
    let server = HttpsServer::named("hook.default.svc", allow).await;
    let cluster = Cluster::start().await;
    let port: u16 = server.url.rsplit(':').next().unwrap().parse().unwrap();
    let mut called = hook(&server, "a", "/");
    let service = json!({"namespace": "default", "name": "hook", "path": "/p", "port": port});
    called["clientConfig"] = json!({"service": service, "caBundle": STANDARD.encode(&server.certificate)});
    configure(&cluster, MUTATING, "service", vec![called]).await;
    cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    cluster.create(CONFIGMAPS, map("a")).await;
    assert_eq!(server.requests()[0].path, "/p?timeout=10s");
}

#[tokio::test]
async fn a_dry_run_calls_webhooks_without_side_effects() {
    let server = HttpsServer::start(allow).await;
    let cluster = Cluster::start().await;
    configure(&cluster, VALIDATING, "dry", vec![hook(&server, "a", "/")]).await;
    cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), map("a")).await.code(201);
    assert_eq!(server.count(), 1);
    // and there are no others
    let unknown = json!([{"op": "replace", "path": "/webhooks/0/sideEffects", "value": "Some"}]);
    cluster.patch(&format!("{VALIDATING}/dry"), unknown).await.code(422);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn validating_webhooks_run_concurrently() {
    // each responds only after all were called
    let requested = Arc::new(AtomicUsize::new(0));
    let barrier = Arc::new(std::sync::Barrier::new(3));
    let count = requested.clone();
    let server = HttpsServer::start(move |seen| {
        count.fetch_add(1, Ordering::SeqCst);
        tokio::task::block_in_place(|| barrier.wait());
        let no = seen.path.starts_with("/1") || seen.path.starts_with("/2");
        answer(seen, json!({"allowed": !no, "status": {"message": format!("no {}", &seen.path[1..2])}}))
    });
    let server = server.await;
    let cluster = Cluster::start().await;
    let hooks = ["0", "1", "2"].map(|at| hook(&server, &format!("h{at}"), &format!("/{at}")));
    configure(&cluster, VALIDATING, "together", hooks.to_vec()).await;
    let refused = cluster.post(CONFIGMAPS, map("a")).await.code(400).json();
    assert_eq!(message(&refused), "admission webhook \"h1.example.com\" denied the request: no 1");
    assert_eq!(requested.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_blocking_webhook_can_be_deleted() {
    let server = HttpsServer::start(|seen| answer(seen, json!({"allowed": false}))).await;
    let cluster = Cluster::start().await;
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    for kind in BOTH {
        configure(&cluster, kind, "all", vec![with(hook(&server, "a", "/"), "rules", rules.clone())]).await;
        cluster.post(CONFIGMAPS, map("a")).await.code(400);
        let requested = server.count();
        cluster.patch(&format!("{kind}/all"), json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
        cluster.delete(&format!("{kind}/all")).await.code(200);
        assert_eq!(server.count(), requested);
        cluster.post(CONFIGMAPS, json!({"metadata": {"generateName": "a-"}})).await.code(201);
    }
}

#[tokio::test]
async fn webhooks_return_warnings_and_audit_annotations() {
    let server = HttpsServer::start(|seen| {
        let long: Vec<String> = (0..50).map(|nth| format!("{nth} {}", "x".repeat(400))).collect();
        let warnings = match seen.path.starts_with("/long") {
            true => json!(long),
            false => json!(["careful", "", "not\nthis", "careful"]),
        };
        answer(seen, json!({"allowed": true, "warnings": warnings}))
    })
    .await;
    let cluster = Cluster::start().await;
    configure(&cluster, VALIDATING, "warning", vec![hook(&server, "a", "/")]).await;
    let created = cluster.post(CONFIGMAPS, map("a")).await.code(201);
    assert_eq!(created.warnings(), ["299 - \"careful\""]);
    cluster.delete(&format!("{VALIDATING}/warning")).await.code(200);
    configure(&cluster, VALIDATING, "warning", vec![hook(&server, "a", "/long")]).await;
    let warnings = cluster.post(CONFIGMAPS, map("b")).await.code(201).warnings();
    assert_eq!(warnings.len(), 16, "a head is not for novels");
}

#[tokio::test]
async fn v1beta1_reviews_are_sent() {
    let server = HttpsServer::start(|seen| {
        let patch = STANDARD.encode(json!([{"op": "add", "path": "/data/by", "value": "old"}]).to_string());
        answer(seen, json!({"uid": "", "allowed": true, "patch": patch}))
    })
    .await;
    let cluster = Cluster::start().await;
    let old = with(hook(&server, "a", "/"), "admissionReviewVersions", json!(["v9", "v1beta1", "v1"]));
    configure(&cluster, MUTATING, "old", vec![old]).await;
    assert_eq!(cluster.create(CONFIGMAPS, map("a")).await["data"]["by"], "old");
    assert_eq!(server.requests()[0].body["apiVersion"], "admission.k8s.io/v1beta1");
}

#[tokio::test]
async fn webhooks_get_client_credentials() {
    let server = HttpsServer::start(allow).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let host = server.url.trim_start_matches("https://");
    std::fs::write(&file, format!("users:\n- {{name: '{host}', user: {{token: secret}}}}\n")).unwrap();
    let message_part = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": file});
    let options = tests::Options::plugins(&[], &[], &[("ValidatingAdmissionWebhook", message_part)]);
    let cluster = Cluster::with(options).await;
    for kind in BOTH {
        configure(&cluster, kind, "known", vec![hook(&server, "a", "/")]).await;
    }
    cluster.create(CONFIGMAPS, map("a")).await;
    let shown: Vec<_> =
        server.requests().iter().map(|seen| seen.headers.get("authorization").cloned()).collect();
    assert_eq!(shown[0], None, "one plugin's credentials are not the other's");
    assert_eq!(shown[1].as_ref().unwrap(), "Bearer secret");
}
