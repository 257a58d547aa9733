//! API aggregation: versions that extension servers serve.

use super::custom_resources::{DEFINITIONS, GROUP, define, definition, version};
use super::*;
use apiserver::aggregation;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::{
    Cluster, ExtensionServer, GROUP_VERSION, Options, Protocol, ServerBehavior, TestUser, authority, soon,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const REGISTERED: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1beta1.metrics.example.com";
pub(super) const METRICS: &str = "/apis/metrics.example.com/v1beta1";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// A server with the proxy client certificate.
async fn cluster_for(extension: &ExtensionServer) -> Cluster {
    cluster_with(extension, |_| {}).await
}

async fn cluster_with(extension: &ExtensionServer, change: impl FnOnce(&mut Options)) -> Cluster {
    let (certificate, key) = extension.proxy.clone();
    let identity = Some((certificate.into_bytes(), key.into_bytes()));
    let mut options = Options {
        aggregation: aggregation::Options { identity, ..aggregation::Options::default() },
        ..Options::default()
    };
    change(&mut options);
    let cluster = Cluster::with(options).await;
    // an external name, because cluster IPs are not routed here
    let service = json!({"metadata": {"name": "metrics"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    cluster
}

fn registered(extension: &ExtensionServer) -> Value {
    json!({"metadata": {"name": NAME}, "spec": {
        "group": "metrics.example.com", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "caBundle": STANDARD.encode(&extension.authority),
        "service": {"namespace": "default", "name": "metrics", "port": extension.port}}})
}

fn available(object: &Value) -> (String, String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|it| it["type"] == "Available").unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or("").to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits until an object says this about its server; gives the message.
async fn until(cluster: &Cluster, name: &str, status: &str, reason: &str) -> String {
    let mut watch =
        cluster.get(&format!("{REGISTERED}?watch=1&fieldSelector=metadata.name%3D{name}")).watch().await;
    loop {
        let event = watch.some().await;
        let (is, why, message) = available(&event["object"]);
        if event["type"] != "DELETED" && (&*is, &*why) == (status, reason) {
            return message;
        }
    }
}

/// A server with another one behind it, which answers.
pub(super) async fn together() -> (Cluster, ExtensionServer) {
    let extension = ExtensionServer::start("default", "metrics").await;
    let cluster = cluster_for(&extension).await;
    cluster.create(REGISTERED, registered(&extension)).await;
    assert_eq!(until(&cluster, NAME, "True", "Passed").await, "all checks passed");
    (cluster, extension)
}

fn groups(list: &Value) -> Vec<String> {
    list["groups"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn built_in_versions_have_api_services() {
    let cluster = Cluster::start().await;
    let core = cluster.read(&format!("{REGISTERED}/v1.")).await;
    assert_eq!(core["metadata"]["labels"][AUTOMANAGED], "onstart");
    assert_eq!(core["spec"], json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}));
    let local = ("True".to_owned(), "Local".to_owned(), "Local APIServices are always available".to_owned());
    for object in cluster.read(REGISTERED).await["items"].as_array().unwrap() {
        assert_eq!(available(object), local, "{object}");
    }
    let mut wanted: Vec<String> = Vec::new();
    for group in cluster.read("/apis").await["groups"].as_array().unwrap() {
        let versions = group["versions"].as_array().unwrap().iter();
        let name = group["name"].as_str().unwrap();
        wanted.extend(versions.map(|it| format!("{}.{name}", it["version"].as_str().unwrap())));
    }
    wanted.retain(|name| name != "v1.apiregistration.k8s.io");
    wanted.push("v1.".to_owned());
    wanted.sort();
    assert_eq!(names(&cluster.read(REGISTERED).await), wanted);
    // a deleted APIService stays deleted until the next start
    cluster.delete(&format!("{REGISTERED}/v1.apps")).await.code(200);
    cluster.read("/apis/apps/v1/deployments").await;
    assert_eq!(groups(&cluster.read("/apis").await)[..2], ["apiregistration.k8s.io", "apps"]);
    cluster.get(&format!("{REGISTERED}/v1.apps")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn resource_metrics_can_be_taken_over() {
    const OWN: &str = "v1beta1.metrics.k8s.io";
    const NODE_METRICS: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
    let extension = ExtensionServer::start("default", "metrics").await;
    let gate = apiserver::resource_metrics::GATE.to_owned();
    let cluster =
        cluster_with(&extension, |it| it.serving = kinds::Serving::default().with_gates([gate])).await;
    until(&cluster, OWN, "True", "Local").await;
    assert_eq!(cluster.read(NODE_METRICS).await["kind"], "NodeMetricsList");
    let spec = registered(&extension)["spec"].clone();
    let server = json!({"spec": {"service": spec["service"], "caBundle": spec["caBundle"]}});
    cluster.patch(&format!("{REGISTERED}/{OWN}"), server).await.code(200);
    // the extension server of this test serves another version only
    until(&cluster, OWN, "False", "FailedDiscoveryCheck").await;
    cluster.get(NODE_METRICS).await.code(503);
    assert!(extension.all().iter().any(|it| it.path == "/apis/metrics.k8s.io/v1beta1"));
    let local = json!({"spec": {"service": null, "caBundle": null}});
    cluster.patch(&format!("{REGISTERED}/{OWN}"), local).await.code(200);
    until(&cluster, OWN, "True", "Local").await;
    cluster.read(NODE_METRICS).await;
}

#[tokio::test]
async fn custom_groups_have_api_services_while_served() {
    let cluster = Cluster::start().await;
    let any = json!({"type": "object"});
    define(&cluster, definition(&[version("v1", any)])).await;
    let name = format!("v1.{GROUP}");
    until(&cluster, &name, "True", "Local").await;
    let created = cluster.read(&format!("{REGISTERED}/{name}")).await;
    assert_eq!(created["metadata"]["labels"][AUTOMANAGED], "true");
    let spec = json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(created["spec"], spec);
    let watch = format!("{REGISTERED}?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut watch = cluster.get(&watch).watch().await;
    watch.expect("ADDED", &name).await;
    // deletions and changes are reverted
    cluster.delete(&format!("{REGISTERED}/{name}")).await.code(200);
    watch.expect("DELETED", &name).await;
    assert_eq!(watch.expect("ADDED", &name).await["spec"], spec);
    cluster.patch(&format!("{REGISTERED}/{name}"), json!({"spec": {"versionPriority": 7}})).await.code(200);
    assert_eq!(watch.expect("MODIFIED", &name).await["spec"]["versionPriority"], 7);
    assert_eq!(watch.expect("MODIFIED", &name).await["spec"], spec);
    cluster.delete(&format!("{DEFINITIONS}/things.{GROUP}")).await.code(200);
    watch.expect("DELETED", &name).await;
}

#[tokio::test]
async fn a_start_restores_local_api_services() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(folder.path()).await;
    let odd = json!({"spec": {"versionPriority": 7}});
    cluster.patch(&format!("{REGISTERED}/v1.apps"), odd.clone()).await.code(200);
    let mine = json!({"metadata": {"labels": {AUTOMANAGED: null}}, "spec": {"versionPriority": 7}});
    cluster.patch(&format!("{REGISTERED}/v1.batch"), mine).await.code(200);
    cluster.delete(&format!("{REGISTERED}/v1.policy")).await.code(200);
    cluster.stop().await;
    let cluster = Cluster::on(folder.path()).await;
    assert_eq!(cluster.read(&format!("{REGISTERED}/v1.apps")).await["spec"]["versionPriority"], 15);
    assert_eq!(cluster.read(&format!("{REGISTERED}/v1.batch")).await["spec"]["versionPriority"], 7);
    cluster.read(&format!("{REGISTERED}/v1.policy")).await;
    cluster.stop().await;
}

#[tokio::test]
async fn requests_are_proxied_with_the_user() {
    let (cluster, extension) = together().await;
    let metrics = cluster.read(&format!("{METRICS}/nodes/a?pretty=false")).await;
    assert_eq!((&metrics["kind"], &metrics["usage"]["cpu"]), (&json!("NodeMetrics"), &json!("100m")));
    let seen = extension.requests().pop().unwrap();
    assert_eq!(seen.path, format!("{METRICS}/nodes/a?pretty=false"));
    assert!(seen.has_proxy_certificate, "the proxy showed its certificate");
    let all = |name: &str| -> Vec<String> {
        let seen = extension.requests().pop().unwrap();
        seen.headers.get_all(name).iter().map(|it| it.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(all("x-remote-user"), ["admin"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(all("x-forwarded-for"), ["127.0.0.1"]);
    // nothing that a client says about itself gets through
    cluster
        .get(&format!("{METRICS}/nodes"))
        .header("x-remote-user", "root")
        .header("x-remote-group", "everything")
        .header("x-remote-extra-scope", "all")
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-acme.com%2fproject", "one")
        .await
        .code(200);
    assert_eq!(all("x-remote-user"), ["jane"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(all("x-remote-extra-acme.com%2fproject"), ["one"]);
    for name in ["x-remote-extra-scope", "impersonate-user", "impersonate-group", "authorization"] {
        assert!(all(name).is_empty(), "{name}");
    }
    // unauthorized requests are not proxied
    let before = extension.requests().len();
    let jane = TestUser::Certificate(authority().client("jane", ""));
    cluster.get(&format!("{METRICS}/nodes")).user(&jane).await.refused(403, "Forbidden");
    assert_eq!(extension.requests().len(), before);
    let role = json!({"metadata": {"name": "metrics"}, "rules": [
        {"apiGroups": ["metrics.example.com"], "resources": ["nodes"], "verbs": ["list"]}]});
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({"metadata": {"name": "metrics"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    cluster.get(&format!("{METRICS}/nodes")).user(&jane).await.code(200);
    assert_eq!(all("x-remote-user"), ["jane"]);
    // answers come as they are
    let missing = cluster.get(&format!("{METRICS}/nothing/here")).await.code(404);
    assert_eq!(missing.text(), "404 page not found\n");
}

#[tokio::test]
async fn discovery_orders_aggregated_groups_by_priority() {
    let (cluster, extension) = together().await;
    let list = cluster.read("/apis").await;
    assert_eq!(groups(&list).last().unwrap(), "metrics.example.com");
    let version = json!({"groupVersion": GROUP_VERSION, "version": "v1beta1"});
    let group = cluster.read("/apis/metrics.example.com").await;
    assert_eq!((&group["versions"], &group["preferredVersion"]), (&json!([version]), &version));
    let resources = cluster.read(METRICS).await;
    assert_eq!(resources["resources"][0]["name"], "nodes");
    let before = cluster.get("/apis").await.header("etag").to_owned();
    let spec = json!({"spec": {"groupPriorityMinimum": 17900}});
    cluster.patch(&format!("{REGISTERED}/{NAME}"), spec).await.code(200);
    soon("another order", async {
        while groups(&cluster.read("/apis").await)[1] != "metrics.example.com" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_ne!(cluster.get("/apis").await.header("etag"), before);
    // a second version of the group, less important than the first
    let mut other = registered(&extension);
    other["metadata"]["name"] = "v1.metrics.example.com".into();
    other["spec"]["version"] = "v1".into();
    other["spec"]["versionPriority"] = 1.into();
    cluster.create(REGISTERED, other).await;
    // an absent version is listed, and its requests report the reason
    let why = until(&cluster, "v1.metrics.example.com", "False", "FailedDiscoveryCheck").await;
    assert!(why.contains("bad status from https://localhost:") && why.ends_with(": 404"), "{why}");
    let group = cluster.read("/apis/metrics.example.com").await;
    let versions: Vec<&Value> =
        group["versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
    assert_eq!(versions, ["v1beta1", "v1"]);
    let response = cluster.get("/apis/metrics.example.com/v1").await.code(503);
    assert_eq!(response.text(), "service unavailable\n");
    cluster.delete(&format!("{REGISTERED}/v1.metrics.example.com")).await.code(200);
    cluster.delete(&format!("{REGISTERED}/{NAME}")).await.code(200);
    soon("the end of the group", async {
        while cluster.get("/apis/metrics.example.com").await.status != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.get(&format!("{METRICS}/nodes")).await.code(404);
}

#[tokio::test]
async fn bodies_are_streamed() {
    let (cluster, extension) = together().await;
    let large = "x".repeat(5 << 20);
    let back = cluster.post(&format!("{METRICS}/echo"), large.clone()).await.code(200);
    assert_eq!(back.body.len(), large.len(), "more than this server would take for itself");
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let back = cluster.post(&format!("{METRICS}/echo"), "abc").protocol(protocol).await.code(200);
        assert_eq!(back.text(), "abc");
    }
    let mut watch = cluster.get(&format!("{METRICS}/nodes?watch=1")).watch().await;
    for name in ["a", "b"] {
        extension.send_event(json!({"type": "ADDED", "object": {"metadata": {"name": name}}}));
        watch.expect("ADDED", name).await;
    }
    drop(watch);
    soon("the end of the watch", async {
        while extension.watchers() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The head of an answer.
async fn head(stream: &mut tests::Stream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("the head", stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn upgraded_connections_are_proxied() {
    let (cluster, extension) = together().await;
    let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let request = format!(
        "GET {METRICS}/nodes/a/attach HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, shout.v1\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answered = head(&mut stream).await;
    assert!(answered.starts_with("http/1.1 101 ") && answered.contains("upgrade: shout"), "{answered}");
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut back = [0; 5];
        soon("the echo", stream.read_exact(&mut back)).await.unwrap();
        assert_eq!(back, *word.to_ascii_uppercase().as_bytes());
    }
    let seen = extension.requests().pop().unwrap();
    assert_eq!(seen.headers["sec-websocket-protocol"], "shout.v1");
    assert_eq!(seen.headers["x-remote-user"], "admin");
    // a request without an upgrade is rejected
    let refused = cluster.get(&format!("{METRICS}/nodes/a/attach")).await.code(400);
    assert_eq!(refused.text(), "nothing to switch to");
    // they end with the server
    cluster.stop().await;
    let ended = soon("the end", stream.read(&mut [0; 16])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn unavailable_services_are_reported_and_requests_rejected() {
    let cluster = Cluster::start().await;
    let object = json!({"metadata": {"name": NAME}, "spec": {
        "group": "metrics.example.com", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "s"}}});
    cluster.create(REGISTERED, object).await;
    let said = until(&cluster, NAME, "False", "ServiceNotFound").await;
    assert_eq!(said, "service/s in \"default\" is not present");
    let refused = cluster.get(&format!("{METRICS}/nodes")).await.code(503);
    assert_eq!(refused.text(), "service unavailable\n");
    assert!(groups(&cluster.read("/apis").await).contains(&"metrics.example.com".to_owned()));
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 444, "name": "https"}]}});
    cluster.create(services, service).await;
    let said = until(&cluster, NAME, "False", "ServicePortError").await;
    assert_eq!(said, "service/s in \"default\" is not listening on port 443");
    let ports = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 443}]);
    cluster.patch(&format!("{services}/s"), ports).await.code(200);
    let said = until(&cluster, NAME, "False", "EndpointsNotFound").await;
    assert_eq!(said, "cannot find endpoints for service/s in \"default\"");
    let endpoints = "/api/v1/namespaces/default/endpoints";
    cluster.named(endpoints, "s").await;
    let said = until(&cluster, NAME, "False", "MissingEndpoints").await;
    let why = "endpoints for service/s in \"default\" have no addresses with port name \"https\"";
    assert_eq!(said, why);
    // a false status is corrected
    let path = format!("{REGISTERED}/{NAME}/status");
    let lie = json!([{"op": "replace", "path": "/status/conditions/0/status", "value": "True"}]);
    cluster.patch(&path, lie).await.code(200);
    assert_eq!(until(&cluster, NAME, "False", "MissingEndpoints").await, why);
    cluster.delete(&format!("{services}/s")).await.code(200);
    until(&cluster, NAME, "False", "ServiceNotFound").await;
}

#[tokio::test]
async fn a_failing_server_becomes_unavailable_and_recovers() {
    let (cluster, extension) = together().await;
    extension.behave(ServerBehavior::Failing);
    // its answers are its own
    assert_eq!(cluster.get(&format!("{METRICS}/nodes")).await.code(500).text(), "out of order");
    let touch = json!({"metadata": {"labels": {"a": "b"}}});
    cluster.patch("/api/v1/namespaces/default/services/metrics", touch).await.code(200);
    let why = until(&cluster, NAME, "False", "FailedDiscoveryCheck").await;
    let url = format!("https://localhost:{}{METRICS}", extension.port);
    assert_eq!(why, format!("failing or missing response from {url}: bad status from {url}: 500"));
    cluster.get(&format!("{METRICS}/nodes")).await.code(503);
    let counted = cluster.get("/metrics").await.code(200).text();
    for line in [
        format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 1\n"),
        "aggregator_unavailable_apiservice{name=\"v1.apps\"} 0\n".to_owned(),
        format!(
            "aggregator_unavailable_apiservice_total{{name=\"{NAME}\",reason=\"FailedDiscoveryCheck\"}} 1\n"
        ),
    ] {
        assert!(counted.contains(&line), "{line}");
    }
    extension.behave(ServerBehavior::Good);
    until(&cluster, NAME, "True", "Passed").await;
    cluster.get(&format!("{METRICS}/nodes")).await.code(200);
    let port = extension.port;
    drop(extension);
    let gone = cluster.get(&format!("{METRICS}/nodes")).await.code(503);
    assert!(gone.text().starts_with("error trying to reach service: "), "{port} {}", gone.text());
}

#[tokio::test]
async fn a_hanging_server_delays_no_other_request() {
    let (cluster, extension) = together().await;
    extension.behave(ServerBehavior::Silent);
    let late = cluster.get(&format!("{METRICS}/nodes?timeout=300ms")).await;
    late.refused(504, "Timeout");
    // everything else goes on
    cluster.read("/apis").await;
    cluster.read("/openapi/v2").await;
    extension.behave(ServerBehavior::Good);
    // an answer that does not come to its end breaks off
    let broken = cluster.get(&format!("{METRICS}/slow?timeout=300ms")).protocol(Protocol::Http1).attempt();
    assert!(broken.await.is_err());
    extension.behave(ServerBehavior::Silent);
    let touch = json!({"metadata": {"labels": {"a": "b"}}});
    cluster.patch("/api/v1/namespaces/default/services/metrics", touch).await.code(200);
    let why = until(&cluster, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(why.contains("context deadline exceeded"), "{why}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let extension = ExtensionServer::start("default", "metrics").await;
    for (refuse, code) in [(true, 502), (false, 302)] {
        let cluster = cluster_with(&extension, |options| options.aggregation.refuse_redirects = refuse).await;
        extension.behave(ServerBehavior::Good);
        cluster.create(REGISTERED, registered(&extension)).await;
        until(&cluster, NAME, "True", "Passed").await;
        extension.behave(ServerBehavior::Leading("https://127.0.0.1:1/secrets".to_owned()));
        let response = cluster.get(&format!("{METRICS}/nodes")).await.code(code);
        if refuse {
            let why = "the backend attempted to redirect this request, which is not permitted\n";
            assert_eq!(response.text(), why);
        }
    }
}

#[tokio::test]
async fn an_untrusted_server_gets_no_request() {
    let extension = ExtensionServer::named("another.name.svc").await;
    let cluster = cluster_for(&extension).await;
    cluster.create(REGISTERED, registered(&extension)).await;
    let why = until(&cluster, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(why.contains("certificate"), "{why}");
    assert!(extension.all().is_empty());
    // unless verification is disabled
    let careless = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    cluster.patch(&format!("{REGISTERED}/{NAME}"), careless).await.code(200);
    until(&cluster, NAME, "True", "Passed").await;
    cluster.get(&format!("{METRICS}/nodes")).await.code(200);
}

#[tokio::test]
async fn built_in_versions_cannot_be_aggregated() {
    let extension = ExtensionServer::start("default", "metrics").await;
    let cluster = cluster_for(&extension).await;
    let service = json!({"namespace": "default", "name": "metrics", "port": extension.port});
    let shadow = json!({"spec": {"service": service, "insecureSkipTLSVerify": true}});
    cluster.patch(&format!("{REGISTERED}/v1.apps"), shadow).await.code(200);
    let why = until(&cluster, "v1.apps", "False", "BuiltIn").await;
    assert!(why.starts_with("apps/v1 is built into kube-apiserver"), "{why}");
    cluster.read("/apis/apps/v1/deployments").await;
    assert_eq!(cluster.read("/apis/apps/v1").await["resources"][0]["name"], "controllerrevisions");
    assert!(extension.all().is_empty());
    let back = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    cluster.patch(&format!("{REGISTERED}/v1.apps"), back).await.code(200);
    until(&cluster, "v1.apps", "True", "Local").await;
}

#[tokio::test]
async fn openapi_includes_aggregated_documents() {
    let (cluster, extension) = together().await;
    let described = |document: &Value| document["paths"].get(format!("{METRICS}/nodes")).is_some();
    soon("the description", async {
        while !described(&cluster.read("/openapi/v2").await) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let document = cluster.read("/openapi/v2").await;
    let definitions = &document["definitions"];
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_ne!(definitions[meta]["description"], "otherwise than elsewhere");
    assert_eq!(definitions[format!("{meta}_v2")]["description"], "otherwise than elsewhere");
    let metadata = &definitions["com.example.metrics.v1beta1.NodeMetrics"]["properties"]["metadata"]["$ref"];
    assert_eq!(*metadata, format!("#/definitions/{meta}_v2"));
    assert_eq!(definitions["unused"], Value::Null);
    assert_ne!(document["paths"]["/api/v1/pods"]["get"]["operationId"], "notItsOwn");
    let proto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let proto = cluster.get("/openapi/v2").accept(proto).await.code(200);
    assert!(proto.body.windows(16).any(|it| it == b"listNodeMetrics\x4a" || it == b"*\x0flistNodeMetric"));
    let index = cluster.read("/openapi/v3").await;
    let address = |key: &str| index["paths"][key]["serverRelativeURL"].as_str().unwrap().to_owned();
    let own = address("apis/metrics.example.com/v1beta1");
    assert_eq!(own, "/openapi/v3/apis/metrics.example.com/v1beta1?hash=ABC");
    assert!(!address("apis/apps/v1").contains("LIE"));
    assert_eq!(cluster.read(&own).await["info"]["title"], "metrics");
    assert_eq!(extension.requests().pop().unwrap().headers["x-remote-user"], "admin");
}

#[tokio::test]
async fn invalid_documents_affect_no_other_group() {
    let extension = ExtensionServer::start("default", "metrics").await;
    extension.behave(ServerBehavior::Lying);
    let cluster = cluster_with(&extension, |options| options.gates.aggregated_discovery = true).await;
    cluster.create(REGISTERED, registered(&extension)).await;
    until(&cluster, NAME, "True", "Passed").await;
    let request = |path: &str| extension.all().iter().any(|it| it.path == path);
    soon("all questions", async {
        while !request("/openapi/v2") || !request("/openapi/v3") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for path in ["/apis", "/apis/apps", "/openapi/v2", "/openapi/v3", "/apis/metrics.example.com"] {
        cluster.read(path).await;
    }
    let whole = cluster.get("/apis").accept(WHOLE).await.code(200).json();
    let last = whole["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["metadata"]["name"], "metrics.example.com");
    assert_eq!(last["versions"][0]["freshness"], "Stale");
    cluster.answers().await;
}

const WHOLE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json;q=0.5";

#[tokio::test]
async fn aggregated_discovery_is_one_document() {
    let extension = ExtensionServer::start("default", "metrics").await;
    let cluster = cluster_with(&extension, |options| options.gates.aggregated_discovery = true).await;
    cluster.create(REGISTERED, registered(&extension)).await;
    until(&cluster, NAME, "True", "Passed").await;
    let remote = |whole: &Value| {
        let items = whole["items"].as_array().unwrap();
        items.iter().find(|it| it["metadata"]["name"] == "metrics.example.com").cloned().unwrap_or_default()
    };
    soon("its resources", async {
        let known = |whole: Value| remote(&whole)["versions"][0]["freshness"] == "Current";
        while !known(cluster.get("/apis").accept(WHOLE).await.code(200).json()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let answer = cluster.get("/apis").accept(WHOLE).await.code(200);
    let media = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    assert_eq!(answer.header("content-type"), media);
    let etag = answer.header("etag").to_owned();
    let whole = answer.json();
    assert_eq!(whole["kind"], "APIGroupDiscoveryList");
    assert_eq!(whole["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    let names = names(&whole);
    assert_eq!(names[..2], ["apiregistration.k8s.io", "apps"]);
    assert_eq!(
        remote(&whole)["versions"][0]["resources"][0],
        json!({"resource": "nodes", "scope": "Cluster", "singularResource": "", "verbs": ["get", "list", "watch"],
            "responseKind": {"group": "metrics.example.com", "version": "v1beta1", "kind": "NodeMetrics"},
            "subresources": [{"subresource": "attach", "verbs": ["get"], "responseKind":
                {"group": "metrics.example.com", "version": "v1beta1", "kind": "NodeMetrics"}}]})
    );
    let deployments = whole["items"][1]["versions"][0]["resources"].as_array().unwrap();
    let deployments = deployments.iter().find(|it| it["resource"] == "deployments").unwrap();
    let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let parts = deployments["subresources"].as_array().unwrap();
    assert!(parts.iter().any(|it| it["subresource"] == "scale" && it["responseKind"] == scale), "{parts:?}");
    cluster.get("/apis").accept(WHOLE).header("if-none-match", &etag).await.code(304);
    let core = cluster.get("/api").accept(WHOLE).await.code(200).json();
    assert_eq!(core["items"][0]["versions"][0]["version"], "v1");
    let proto =
        "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let proto = cluster.get("/apis").accept(proto).await.code(200);
    assert!(proto.body.starts_with(b"k8s\0"));
    // without an `Accept` header the response is the unaggregated document
    assert_eq!(cluster.read("/apis").await["kind"], "APIGroupList");
    let other = cluster.get("/apis").accept("application/json, */*").await.code(200).json();
    assert_eq!(other["kind"], "APIGroupList");
}

#[tokio::test]
async fn availability_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let extension = ExtensionServer::start("default", "metrics").await;
    let on =
        |options: &mut Options| options.store = apiserver::StoreChoice::Directory(folder.path().to_owned());
    let cluster = cluster_with(&extension, on).await;
    cluster.create(REGISTERED, registered(&extension)).await;
    until(&cluster, NAME, "True", "Passed").await;
    cluster.stop().await;
    let (certificate, key) = extension.proxy.clone();
    let identity = Some((certificate.into_bytes(), key.into_bytes()));
    let cluster = Cluster::with(Options {
        store: apiserver::StoreChoice::Directory(folder.path().to_owned()),
        aggregation: aggregation::Options { identity, ..aggregation::Options::default() },
        ..Options::default()
    })
    .await;
    cluster.get(&format!("{METRICS}/nodes")).await.code(200);
    cluster.stop().await;
}
