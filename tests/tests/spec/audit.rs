//! Audit events.

use super::{CONFIGMAPS, NAMESPACES, SECRETS, pod};
use apiserver::StartError;
use apiserver::audit::{
    Batching, Format, LogOptions, Mode, Options as Audit, Policy, Rotation, Target, WebhookOptions,
};
use http::Method;
use names::Names;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tests::{Cluster, Options, Protocol, TestUser, authority, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const EVERYTHING: &str = "rules: [{level: RequestResponse}]";

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    Policy::parse(&text, &Names::default()).unwrap()
}

fn log(path: PathBuf, mode: Mode) -> LogOptions {
    let (format, rotation) = (Format::Json, Rotation::default());
    LogOptions { target: Target::File(path), format, rotation, mode, truncate: None }
}

/// A server that records into a file, and that file.
struct Recorded {
    cluster: Cluster,
    folder: TempDir,
}

impl Recorded {
    async fn start(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = Some(log(folder.path().join("log"), Mode::Blocking));
        let audit = Audit { policy: Some(policy(rules)), log, webhook: None };
        let cluster = Cluster::with(Options { audit, ..Options::default() }).await;
        Recorded { cluster, folder }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The events of a request, in the order in which they came.
    fn events(&self, id: &str) -> Vec<Value> {
        let all = self.text();
        let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["auditID"] == id).collect()
    }

    fn stages(&self, id: &str) -> Vec<String> {
        self.events(id).iter().map(|event| event["stage"].as_str().unwrap().to_owned()).collect()
    }

    /// The last event of a request.
    fn last(&self, id: &str) -> Value {
        self.events(id).pop().unwrap_or_else(|| panic!("nothing is recorded of {id}"))
    }
}

#[tokio::test]
async fn an_event_has_user_request_and_response() {
    let recorded = Recorded::start(EVERYTHING).await;
    let cluster = &recorded.cluster;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let created = cluster.post(CONFIGMAPS, body).header("audit-id", "one").await.code(201);
    assert_eq!(created.header("audit-id"), "one");
    let mut events = recorded.events("one");
    for event in &mut events {
        assert!(event["stageTimestamp"].as_str().unwrap().ends_with(".000000Z"), "{event}");
    }
    let admin = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    let time = "2023-11-14T22:13:20.000000Z";
    let received = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "one",
        "stage": "RequestReceived", "requestURI": CONFIGMAPS, "verb": "create", "user": admin,
        "sourceIPs": ["127.0.0.1"], "userAgent": "spec/1.0",
        "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": time, "stageTimestamp": time,
    });
    let mut complete = received.clone();
    complete["stage"] = "ResponseComplete".into();
    complete["objectRef"]["name"] = "a".into();
    complete["responseStatus"] = json!({"metadata": {}, "code": 201});
    complete["requestObject"] = json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "a", "creationTimestamp": null}, "data": {"k": "v"},
    });
    complete["responseObject"] = created.json();
    complete["annotations"] =
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""});
    assert_eq!(events, [received, complete]);
    // without a name from the client the server gives one
    let given = cluster.get("/version").await.code(200).header("audit-id").to_owned();
    assert_eq!((given.len(), recorded.stages(&given).len()), (36, 2));
}

#[tokio::test]
async fn request_objects_are_recorded_as_decoded() {
    let recorded = Recorded::start(EVERYTHING).await;
    let cluster = &recorded.cluster;
    let one = format!("{CONFIGMAPS}/a");
    let ask = |id: &str, method: Method, path: &str, media: &str, body: &str| {
        let ask = cluster.request(method, path).body(body.to_owned()).content_type(media);
        ask.header("audit-id", id)
    };
    let yaml = "metadata: {name: a}\ndata: {k: v}\n";
    ask("yaml", Method::POST, CONFIGMAPS, "application/yaml", yaml).await.code(201);
    let sent = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "creationTimestamp": null}, "data": {"k": "v"}});
    assert_eq!(recorded.last("yaml")["requestObject"], sent);
    // a patch as it is, but on one line
    let patch = "{\"data\" :\n {\"z\": \"1\\n\"} }";
    ask("merge", Method::PATCH, &one, "application/merge-patch+json", patch).await.code(200);
    assert_eq!(recorded.last("merge")["requestObject"], json!({"data": {"z": "1\n"}}));
    let patch = r#"[{"op": "remove", "path": "/data/z"}]"#;
    ask("json", Method::PATCH, &one, "application/json-patch+json", patch).await.code(200);
    assert_eq!(recorded.last("json")["requestObject"], json!([{"op": "remove", "path": "/data/z"}]));
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {w: '1'}\n";
    let path = format!("{one}?fieldManager=m");
    ask("apply", Method::PATCH, &path, "application/apply-patch+yaml", applied).await.code(200);
    assert_eq!(recorded.last("apply")["requestObject"]["data"], json!({"w": "1"}));
    // unreadable bodies are not recorded
    ask("broken", Method::PATCH, &one, "application/merge-patch+json", "{\n\"a\": [").await.code(400);
    assert_eq!(recorded.last("broken").get("requestObject"), None);
    let options = r#"{"propagationPolicy": "Background"}"#;
    ask("delete", Method::DELETE, &one, "application/json", options).await.code(200);
    let deleted = recorded.last("delete");
    assert_eq!(
        deleted["requestObject"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Background"})
    );
    assert_eq!(
        (&deleted["responseStatus"]["status"], &deleted["responseStatus"]["code"]),
        (&json!("Success"), &json!(200))
    );
    // request objects have defaults, and references their names
    cluster.post(super::PODS, pod("p")).header("audit-id", "pod").await.code(201);
    let created = recorded.last("pod");
    assert_eq!(created["requestObject"]["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(created["objectRef"]["name"], "p");
    let path = format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dfoo");
    cluster.get(&path).header("audit-id", "selected").await.code(200);
    assert_eq!(recorded.last("selected")["objectRef"]["name"], "foo");
}

#[tokio::test]
async fn response_objects_are_recorded_as_json() {
    let recorded = Recorded::start(EVERYTHING).await;
    let cluster = &recorded.cluster;
    let one = format!("{NAMESPACES}/default");
    let plain = cluster.read(&one).await;
    let list = cluster.read(NAMESPACES).await;
    for (id, path, accept) in [
        ("pretty", format!("{one}?pretty=1"), "application/json"),
        ("yaml", one.clone(), "application/yaml"),
        ("protobuf", one.clone(), "application/vnd.kubernetes.protobuf"),
        ("list", NAMESPACES.to_owned(), "application/json"),
        ("yaml-list", NAMESPACES.to_owned(), "application/yaml"),
        ("protobuf-list", NAMESPACES.to_owned(), "application/vnd.kubernetes.protobuf"),
    ] {
        cluster.get(&path).accept(accept).header("audit-id", id).await.code(200);
        let expected = if id.ends_with("list") { &list } else { &plain };
        assert_eq!(&recorded.last(id)["responseObject"], expected, "{id}");
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = cluster.get(NAMESPACES).accept(table).header("audit-id", "table").await.json();
    assert_eq!(recorded.last("table")["responseObject"], answer);
    let api = cluster.get("/api/v1").header("audit-id", "api").await.json();
    assert_eq!(recorded.last("api")["responseObject"], api);
    for path in ["/version", "/healthz", "/openapi/v2", "/metrics", "/", "/nothing"] {
        cluster.get(path).header("audit-id", path).await;
        assert_eq!(recorded.last(path).get("responseObject"), None, "{path}");
    }
}

#[tokio::test]
async fn every_refusal_is_recorded() {
    let recorded = Recorded::start("rules: [{level: Metadata}]").await;
    let cluster = &recorded.cluster;
    let alice = TestUser::Certificate(authority().client("alice", "devs"));
    let message = |id: &str| recorded.last(id)["responseStatus"]["message"].as_str().unwrap_or("").to_owned();
    let ask = |id: &str| cluster.get(CONFIGMAPS).header("audit-id", id);
    // the user is unknown and not recorded
    let refused =
        ask("401").user(&TestUser::Anonymous).header("authorization", "Bearer wrong").await.code(401);
    assert_eq!(
        (refused.header("audit-id"), recorded.stages("401")),
        ("401", vec!["ResponseStarted".to_owned()])
    );
    let event = recorded.last("401");
    assert_eq!((&event["user"], &event["responseStatus"]["code"]), (&json!({}), &json!(401)));
    assert!(!recorded.text().contains("wrong"));
    ask("anonymous").user(&TestUser::Anonymous).await.code(403);
    assert_eq!(recorded.last("anonymous")["user"]["username"], "system:anonymous");
    assert_eq!(recorded.last("anonymous")["annotations"]["authorization.k8s.io/decision"], "forbid");
    ask("403").user(&alice).await.code(403);
    assert!(
        message("403").starts_with("configmaps is forbidden: User \"alice\" cannot list"),
        "{}",
        message("403")
    );
    ask("as").user(&alice).header("impersonate-user", "bob").await.code(403);
    let event = recorded.last("as");
    assert_eq!((&event["user"]["username"], event.get("impersonatedUser")), (&json!("alice"), None));
    assert!(message("as").contains("cannot impersonate"), "{event}");
    ask("nonsense").header("impersonate-group", "g").await.code(500);
    assert_eq!(recorded.last("nonsense")["responseStatus"], json!({"metadata": {}, "code": 500}));
    ask("allowed").header("impersonate-user", "bob").header("impersonate-group", "g").await.code(403);
    let event = recorded.last("allowed");
    assert_eq!(
        event["impersonatedUser"],
        json!({"username": "bob", "groups": ["g", "system:authenticated"]})
    );
    assert_eq!(event["user"]["username"], "admin");
    cluster.get(&format!("{CONFIGMAPS}?timeout=x")).header("audit-id", "timeout").await.code(400);
    assert_eq!(recorded.stages("timeout"), ["ResponseStarted"]);
    for (id, path, code) in [
        ("path", "/api/v1/nothing", 404),
        ("page", "/nothing", 404),
        ("none", "/api/v1/namespaces/none", 404),
    ] {
        cluster.get(path).header("audit-id", id).await.code(code);
        assert_eq!(recorded.last(id)["responseStatus"]["code"], code, "{path}");
    }
}

#[tokio::test]
async fn bodies_are_recorded_only_where_the_policy_says_so() {
    let recorded = Recorded::start(
        "omitStages: [RequestReceived]\nrules:\n- {level: None, users: [quiet]}\n\
         - {level: Metadata, resources: [{resources: [secrets]}]}\n\
         - {level: Request, namespaces: [default], omitManagedFields: true}\n\
         - {level: RequestResponse, omitManagedFields: true, verbs: [get]}\n",
    )
    .await;
    let cluster = &recorded.cluster;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    cluster.post(SECRETS, secret).header("audit-id", "secret").await.code(201);
    cluster.get(SECRETS).header("audit-id", "secrets").await.code(200);
    let patch = json!({"stringData": {"password": "hunter2"}});
    cluster.patch(&format!("{SECRETS}/s"), patch).await.code(200);
    let text = recorded.text();
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    assert!(!text.contains("requestObject") && !text.contains("responseObject"), "{text}");
    assert_eq!(recorded.stages("secret"), ["ResponseComplete"]);
    assert_eq!(recorded.last("secret")["objectRef"]["name"], "s");
    let map = json!({"metadata": {"name": "m", "managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]}});
    cluster.post(CONFIGMAPS, map).header("audit-id", "request").await.code(201);
    let event = recorded.last("request");
    assert_eq!(event["requestObject"]["metadata"], json!({"name": "m", "creationTimestamp": null}));
    assert_eq!(event.get("responseObject"), None);
    cluster.get(NAMESPACES).header("audit-id", "none").await.code(200);
    assert_eq!(recorded.events("none"), [Value::Null; 0]);
    let whole = cluster.get("/api/v1/nodes/none").header("audit-id", "whole").await.code(404).json();
    assert_eq!(recorded.last("whole")["responseObject"], whole);
    let quiet = TestUser::Certificate(authority().client("quiet", "x"));
    cluster.get(CONFIGMAPS).user(&quiet).header("audit-id", "quiet").await.code(403);
    assert_eq!(recorded.events("quiet"), [Value::Null; 0]);
    // lists and objects are shown without owners
    let path = format!("{NAMESPACES}/kube-system");
    cluster.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
    assert!(cluster.read(&path).await["metadata"]["managedFields"].is_array());
    cluster.get(&path).header("audit-id", "object").await.code(200);
    let shown = recorded.last("object");
    assert_eq!(shown["responseObject"]["metadata"]["labels"]["a"], "b");
    assert_eq!(shown["responseObject"]["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn a_watch_is_recorded_when_it_begins_and_when_it_ends() {
    let recorded = Recorded::start(EVERYTHING).await;
    let cluster = &recorded.cluster;
    let path = format!("{CONFIGMAPS}?watch=1");
    let watch = cluster.get(&path).header("audit-id", "w").watch().await;
    assert_eq!(recorded.stages("w"), ["RequestReceived", "ResponseStarted"]);
    drop(watch);
    let ended = async {
        while recorded.stages("w").len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the end of the watch in the record", ended).await;
    let event = recorded.last("w");
    assert_eq!((&event["stage"], event.get("responseObject")), (&json!("ResponseComplete"), None));
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 200}));
    cluster.get(&format!("{path}&resourceVersion=x")).header("audit-id", "x").await.code(500);
    assert_eq!(recorded.stages("x"), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    // a server that ends lets no watch go unrecorded
    let open = cluster.get(&path).header("audit-id", "last").watch().await;
    let Recorded { cluster, folder } = recorded;
    cluster.stop().await;
    drop(open);
    let text = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(text.matches("\"auditID\":\"last\"").count(), 3, "{text}");
}

#[tokio::test]
async fn source_addresses_include_proxies() {
    let recorded = Recorded::start("rules: [{level: Metadata}]").await;
    for (id, forwarded, real, expected) in [
        ("a", "1.2.3.4, 5.6.7.8", "9.9.9.9", &["1.2.3.4", "5.6.7.8", "9.9.9.9", "127.0.0.1"][..]),
        ("b", "x, 5.6.7.8, 127.0.0.1", "5.6.7.8", &["5.6.7.8", "127.0.0.1"]),
        ("c", "", "9.9.9.9", &["9.9.9.9", "127.0.0.1"]),
    ] {
        let ask = recorded.cluster.get("/version").header("audit-id", id);
        ask.header("x-forwarded-for", forwarded).header("x-real-ip", real).await.code(200);
        assert_eq!(recorded.last(id)["sourceIPs"], json!(expected));
    }
}

#[tokio::test]
async fn annotations_come_from_every_stage() {
    let recorded = Recorded::start("rules: [{level: Metadata}]").await;
    let cluster = &recorded.cluster;
    let anonymous = cluster.get("/version").user(&TestUser::Anonymous).header("audit-id", "rbac");
    anonymous.protocol(Protocol::Http1).await.code(200);
    let reason = &recorded.last("rbac")["annotations"]["authorization.k8s.io/reason"];
    assert!(reason.as_str().unwrap().starts_with("RBAC: allowed by ClusterRoleBinding"), "{reason}");
    let old = "/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas";
    cluster.get(old).header("audit-id", "old").await.code(200);
    let annotations = &recorded.last("old")["annotations"];
    assert_eq!(annotations["k8s.io/deprecated"], "true");
    assert_eq!(annotations["k8s.io/removed-release"], "1.29");
    let metrics = cluster.get("/metrics").await.code(200).text();
    for part in [
        "apiserver_audit_event_total ",
        "apiserver_audit_level_total{level=\"Metadata\"} ",
        "apiserver_audit_requests_rejected_total 0",
        "apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",removed_release=\"1.29\",resource=\"flowschemas\",subresource=\"\",version=\"v1beta2\"} 1",
    ] {
        assert!(metrics.contains(part), "{part} is not in {metrics}");
    }
}

#[tokio::test]
async fn blocking_strict_rejects_requests_that_cannot_be_recorded() {
    for (mode, code) in [(Mode::Blocking, 200), (Mode::BlockingStrict, 500)] {
        let log = Some(log("/dev/full".into(), mode));
        let audit =
            Audit { policy: Some(policy("rules: [{level: Metadata, verbs: [get]}]")), log, webhook: None };
        let cluster = Cluster::with(Options { audit, ..Options::default() }).await;
        let answer = cluster.get("/api/v1/namespaces/default").await.code(code);
        if code == 500 {
            let expected =
                "Internal Server Error: \"/api/v1/namespaces/default\": failed to store audit event\n";
            assert_eq!(answer.text(), expected);
        }
        // requests without events are served
        cluster.named(CONFIGMAPS, "a").await;
    }
    let log = Some(log("/dev/null/x".into(), Mode::Blocking));
    let audit = Audit { policy: Some(policy(EVERYTHING)), log, webhook: None };
    let refused = Cluster::attempt(Options { audit, ..Options::default() }).await;
    assert!(matches!(refused, Err(StartError::Audit(_))));
}

#[tokio::test]
async fn events_are_sent_to_a_webhook_and_flushed_at_shutdown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // takes everything that comes on a connection, and says so
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut seen, mut part) = (Vec::new(), [0; 65536]);
        loop {
            let count = stream.read(&mut part).await.unwrap();
            seen.extend_from_slice(&part[..count]);
            let text = String::from_utf8_lossy(&seen).into_owned();
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(list) = serde_json::from_str::<Value>(body)
            {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                return list;
            }
        }
    });
    let batching =
        Batching { buffer: 100, max_size: 50, max_wait: Duration::from_secs(3600), throttle: None };
    let hook = WebhookOptions {
        receiver: outbound::Target { url, ..outbound::Target::default() },
        initial_backoff: Duration::from_millis(1),
        mode: Mode::Batch(batching),
        truncate: None,
    };
    let audit = Audit { policy: Some(policy(EVERYTHING)), log: None, webhook: Some(hook) };
    let cluster = Cluster::with(Options { audit, ..Options::default() }).await;
    cluster.named(CONFIGMAPS, "a").await;
    cluster.stop().await;
    let list = soon("the list of events", receiver).await.unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    let items = list["items"].as_array().unwrap();
    let stages: Vec<_> = items.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    assert_eq!((items[1].get("kind"), &items[1]["objectRef"]["name"]), (None, &json!("a")));
}

#[tokio::test]
async fn webhook_mutations_are_recorded() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use tests::{HttpsServer, Reply};
    let server = HttpsServer::start(|seen| {
        let patch = json!([{"op": "add", "path": "/data/by", "value": "hook"}]).to_string();
        let mut response = json!({"uid": seen.body["request"]["uid"], "allowed": true});
        match seen.path.split('?').next().unwrap() {
            "/broken" => return Reply::Text(500, String::from("no")),
            "/change" => {
                response["patch"] = STANDARD.encode(patch).into();
                response["patchType"] = "JSONPatch".into();
                response["auditAnnotations"] = json!({"why": "because", "not a key": "x"});
            }
            _ => {}
        }
        let version = &seen.body["apiVersion"];
        Reply::Json(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
    })
    .await;
    let hook = |name: &str, path: &str| {
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"url": format!("{}{path}", server.url), "caBundle": STANDARD.encode(&server.certificate)},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]})
    };
    for (rules, shows_patch) in [(EVERYTHING, true), ("rules: [{level: Metadata}]", false)] {
        let recorded = Recorded::start(rules).await;
        let cluster = &recorded.cluster;
        let group = "/apis/admissionregistration.k8s.io/v1";
        let hooks = json!([hook("a.example.com", "/broken"), hook("b.example.com", "/change")]);
        let body = json!({"metadata": {"name": "one"}, "webhooks": hooks});
        cluster.create(&format!("{group}/mutatingwebhookconfigurations"), body).await;
        let body = json!({"metadata": {"name": "two"}, "webhooks": [hook("c.example.com", "/broken")]});
        cluster.create(&format!("{group}/validatingwebhookconfigurations"), body).await;
        let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        cluster.post(CONFIGMAPS, body).header("audit-id", "hooked").await.code(201);
        let mut expected = json!({
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": "a.example.com",
            "mutation.webhook.admission.k8s.io/round_0_index_0":
                "{\"configuration\":\"one\",\"webhook\":\"a.example.com\",\"mutated\":false}",
            "mutation.webhook.admission.k8s.io/round_0_index_1":
                "{\"configuration\":\"one\",\"webhook\":\"b.example.com\",\"mutated\":true}",
            "b.example.com/why": "because",
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "c.example.com",
        });
        if shows_patch {
            expected["patch.webhook.admission.k8s.io/round_0_index_1"] =
                "{\"configuration\":\"one\",\"webhook\":\"b.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/data/by\",\"value\":\"hook\"}],\"patchType\":\"JSONPatch\"}".into();
        }
        let mut found = recorded.last("hooked")["annotations"].clone();
        found.as_object_mut().unwrap().retain(|key, _| !key.starts_with("authorization."));
        assert_eq!(found, expected);
    }
}
