//! Requests that end at the agent of a node, with an agent of the test over TLS.

use super::*;
use apiserver::audit::{Format, LogOptions, Mode, Options as Audit, Policy, Rotation, Target};
use http::Method;
use names::Names;
use tests::{Cluster, HttpsServer, Options, Protocol, Reply, Stream, TestUser, authority, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Logs as text, errors for one container, an echo for streams.
fn answer(request: &tests::ReceivedRequest) -> Reply {
    let path = request.path.split('?').next().unwrap();
    match path {
        "/containerLogs/default/p/c" => Reply::Text(200, "line\n".to_owned()),
        "/containerLogs/default/p/d" => Reply::Text(400, "container \"d\" waits".to_owned()),
        "/exec/default/p/d" => Reply::Text(500, "container not found (\"d\")".to_owned()),
        _ if request.headers.contains_key("upgrade") => Reply::Echo,
        _ => Reply::Text(200, format!("page {}", request.path)),
    }
}

/// A cluster with a node `n` whose agent is the test's, and a pod of two containers on it.
async fn with_agent(options: Options) -> (Cluster, HttpsServer) {
    let agent = HttpsServer::start(answer).await;
    let cluster = Cluster::with(options).await;
    cluster.create(NODES, json!({"metadata": {"name": "n"}})).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.port()}},
    }});
    cluster.patch(&format!("{NODES}/n/status"), status).await.code(200);
    let mut pod = assigned_pod("p");
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    cluster.create(PODS, pod).await;
    (cluster, agent)
}

/// Sends a request that upgrades its connection; returns the first line of the response.
async fn upgrade(cluster: &Cluster, user: &TestUser, method: &str, path: &str) -> (Stream, String) {
    let mut stream = cluster.connect(user, Protocol::Http1).await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAudit-ID: stream\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let first = read_head(&mut stream).await.lines().next().unwrap().to_owned();
    (stream, first)
}

/// The head of a response.
async fn read_head(stream: &mut Stream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("the head", stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn logs_come_from_the_agent_with_all_options() {
    let (cluster, agent) = with_agent(Options::default()).await;
    let log =
        cluster.get(&format!("{PODS}/p/log?container=c&tailLines=3&timestamps=true&limitBytes=9")).await;
    assert_eq!((log.status, log.text()), (200, "line\n".to_owned()));
    assert_eq!(log.header("content-type"), "text/plain");
    let seen = agent.requests().pop().unwrap();
    assert_eq!(seen.path, "/containerLogs/default/p/c?limitBytes=9&tailLines=3&timestamps=true");
    assert!(!seen.headers.contains_key("authorization"));
    let waits = cluster.get(&format!("{PODS}/p/log?container=d")).await.refused(400, "BadRequest");
    assert_eq!(waits["message"], "container \"d\" waits");
    let unnamed = cluster.get(&format!("{PODS}/p/log")).await.refused(400, "BadRequest");
    assert_eq!(unnamed["message"], "a container name must be specified for pod p, choose one of: [c d]");
    let invalid = cluster.get(&format!("{PODS}/p/log?container=c&tailLines=-1")).await.code(422);
    assert!(invalid.text().contains("must be greater than or equal to 0"));
    assert_eq!(agent.count(), 2);
}

#[tokio::test]
async fn streams_are_tunnels_to_the_agent() {
    let (cluster, agent) = with_agent(Options::default()).await;
    for (method, path, expected) in [
        (
            "POST",
            "exec?container=c&command=ls&command=-l&stdout=true",
            "/exec/default/p/c?command=ls&command=-l&output=1",
        ),
        ("GET", "attach?container=c&stdin=true", "/attach/default/p/c?input=1"),
        ("POST", "portforward", "/portForward/default/p"),
        ("GET", "portforward?ports=80", "/portForward/default/p?port=80"),
    ] {
        let (mut stream, first) =
            upgrade(&cluster, &TestUser::Admin, method, &format!("{PODS}/p/{path}")).await;
        assert!(first.starts_with("HTTP/1.1 101 "), "{path}: {first}");
        stream.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        soon("the echo", stream.read_exact(&mut back)).await.unwrap();
        assert_eq!(&back, b"HELLO");
        assert_eq!(agent.requests().pop().unwrap().path, expected);
    }
    let (mut stream, first) =
        upgrade(&cluster, &TestUser::Admin, "POST", &format!("{PODS}/p/exec?container=d&command=x")).await;
    assert!(first.starts_with("HTTP/1.1 500 "), "{first}");
    let mut refusal = [0; 25];
    soon("the refusal", stream.read_exact(&mut refusal)).await.unwrap();
    assert_eq!(&refusal, b"container not found (\"d\")");
    let plain = cluster.post(&format!("{PODS}/p/exec?container=c&command=x"), "").await;
    assert_eq!(plain.refused(400, "BadRequest")["message"], "Upgrade request required");
    // they end with the server
    let (mut stream, _) = upgrade(&cluster, &TestUser::Admin, "POST", &format!("{PODS}/p/portforward")).await;
    cluster.stop().await;
    let ended = soon("the end", stream.read(&mut [0; 16])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

/// Reads one unmasked frame: its first byte and its payload.
async fn frame(stream: &mut Stream) -> (u8, Vec<u8>) {
    let first = soon("a frame", stream.read_u8()).await.unwrap();
    let mut length = usize::from(stream.read_u8().await.unwrap());
    if length == 126 {
        length = usize::from(stream.read_u16().await.unwrap());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

#[tokio::test]
async fn logs_are_sent_over_websockets() {
    let (cluster, agent) = with_agent(Options::default()).await;
    let request = |path: &str, protocol: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
        )
    };
    let path = format!("{PODS}/p/log?container=c&follow=true");
    let base64 = "Sec-WebSocket-Protocol: unknown, base64.binary.k8s.io\r\n";
    for (protocol, opcode, line) in [("", 0x82, &b"line\n"[..]), (base64, 0x81, b"bGluZQo=")] {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        stream.write_all(request(&path, protocol).as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert_eq!(head.to_lowercase().contains("base64.binary.k8s.io"), !protocol.is_empty(), "{head}");
        assert_eq!(frame(&mut stream).await, (opcode, Vec::new()));
        assert_eq!(frame(&mut stream).await, (opcode, line.to_vec()));
        assert_eq!(frame(&mut stream).await, (0x88, vec![3, 232]));
    }
    assert_eq!(agent.requests().pop().unwrap().path, "/containerLogs/default/p/c?follow=true");
    // errors come before the upgrade
    let refusals = [
        (path.clone(), "Sec-WebSocket-Protocol: unknown\r\n", 403),
        (format!("{PODS}/p/log?container=d"), "", 400),
        (format!("{PODS}/none/log"), "", 404),
    ];
    for (path, protocol, code) in refusals {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        stream.write_all(request(&path, protocol).as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {head}");
    }
}

#[tokio::test]
async fn a_proxy_passes_every_method_on() {
    let (cluster, _agent) = with_agent(Options::default()).await;
    let send = async |method: &Method, path: &str| {
        cluster
            .request(method.clone(), &format!("{NODES}/n/proxy{path}"))
            .protocol(Protocol::Http1)
            .await
            .status
    };
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    for method in methods {
        assert_eq!(send(&method, "/x").await, 200, "{method}");
        // without a path, a page is redirected to where its relative links lead to the right place
        let is_page = matches!(method, Method::GET | Method::HEAD);
        assert_eq!(send(&method, "").await, if is_page { 301 } else { 200 }, "{method}");
    }
    cluster.request(Method::OPTIONS, &format!("{PODS}/p/log")).protocol(Protocol::Http1).await.code(405);
}

#[tokio::test]
async fn each_subresource_has_a_permission_of_its_own() {
    let (cluster, agent) = with_agent(Options::default()).await;
    // a method is a verb: a WebSocket client opens streams by GET
    let requests = [
        ("GET", format!("{PODS}/p/log?container=c"), "pods/log", "get"),
        ("POST", format!("{PODS}/p/exec?container=c&command=x"), "pods/exec", "create"),
        ("GET", format!("{PODS}/p/exec?container=c&command=x"), "pods/exec", "get"),
        ("POST", format!("{PODS}/p/attach?container=c"), "pods/attach", "create"),
        ("POST", format!("{PODS}/p/portforward"), "pods/portforward", "create"),
        ("GET", format!("{NODES}/n/proxy/pods"), "nodes/proxy", "get"),
        ("PUT", format!("{NODES}/n/proxy/pods"), "nodes/proxy", "update"),
    ];
    for (at, (method, path, resource, verb)) in requests.iter().enumerate() {
        let user = TestUser::Certificate(authority().client(&format!("user-{at}"), "people"));
        let send = async |method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            cluster.request(method, path).user(&user).protocol(Protocol::Http1).await.status
        };
        assert_eq!(send(method, path).await, 403, "{method} {path}");
        let name = format!("role-{at}");
        let rule = json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]});
        cluster.create(ROLES, json!({"metadata": {"name": name}, "rules": [rule]})).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": format!("user-{at}")}],
        });
        cluster.create(BINDINGS, binding).await;
        let permitted = async {
            while send(method, path).await == 403 {
                tokio::task::yield_now().await;
            }
        };
        soon("the role counts", permitted).await;
        for (other, (method, path, other_resource, other_verb)) in requests.iter().enumerate() {
            let is_same = (other_resource, other_verb) == (resource, verb);
            assert!(other == at || is_same || send(method, path).await == 403, "{resource} allows {path}");
        }
    }
    assert!(agent.count() > 0);
}

#[tokio::test]
async fn streams_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let log = LogOptions {
        target: Target::File(path.clone()),
        format: Format::Json,
        rotation: Rotation::default(),
        mode: Mode::Blocking,
        truncate: None,
    };
    let policy = Some(Policy::parse(text, &Names::default()).unwrap());
    let audit = Audit { policy, log: Some(log), webhook: None };
    let (cluster, _agent) = with_agent(Options { audit, ..Options::default() }).await;
    let (stream, _) =
        upgrade(&cluster, &TestUser::Admin, "POST", &format!("{PODS}/p/exec?container=c&command=x")).await;
    drop(stream);
    let events = || -> Vec<Value> {
        let all = std::fs::read_to_string(&path).unwrap();
        let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["auditID"] == "stream").collect()
    };
    let complete = async {
        while !events().iter().any(|event| event["stage"] == "ResponseComplete") {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of the request", complete).await;
    let last = events().pop().unwrap();
    assert_eq!((&last["verb"], &last["responseStatus"]["code"]), (&json!("create"), &json!(101)));
    let object = &last["objectRef"];
    assert_eq!((&object["resource"], &object["subresource"]), (&json!("pods"), &json!("exec")));
    assert_eq!(last["requestURI"], format!("{PODS}/p/exec?container=c&command=x"));
}
