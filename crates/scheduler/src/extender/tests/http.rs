//! Extenders over HTTP against real servers: good ones, and ones that hang, lie or die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::from_json;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::config::{Extender as Config, ManagedResource};
use crate::extender::{BlockingExtender, Candidate, Extender, HttpExtender};
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// The response of a server.
#[derive(Clone)]
enum Reply {
    Text(u16, String),
    /// Bytes without an end.
    Endless,
    Hang,
    Close,
}

type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// A server with one response to every request. Returns its URL and the requests so far.
async fn serve(reply: Reply) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/scheduler/", listener.local_addr().unwrap());
    let requests = Requests::default();
    let received = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, reply.clone(), received.clone()));
        }
    });
    (url, requests)
}

async fn respond(mut stream: TcpStream, reply: Reply, requests: Requests) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            requests.lock().push((head.lines().next()?.to_owned(), serde_json::from_str(body).ok()?));
            break;
        }
    }
    match reply {
        Reply::Text(status, text) => {
            let head =
                format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
            stream.write_all(format!("{head}{text}").as_bytes()).await.ok()
        }
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[").await.ok()?;
            loop {
                stream.write_all(&[b'1', b','].repeat(32 << 10)).await.ok()?;
            }
        }
        Reply::Hang => std::future::pending().await,
        Reply::Close => None,
    }
}

fn pod(name: &str, resource: &str) -> Arc<PodInfo> {
    let json = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}});
    Arc::new(PodInfo::new(Arc::new(from_json(json.to_string().as_bytes()).unwrap())))
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.keep_objects();
    for name in ["n0", "n1"] {
        let json = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "1"}}});
        snapshot.set_node(Arc::new(from_json(json.to_string().as_bytes()).unwrap()));
        let json = json!({"metadata": {"name": format!("on-{name}"), "namespace": "d", "uid": format!("on-{name}")},
            "spec": {"nodeName": name}});
        snapshot.set_pod(Arc::new(from_json(json.to_string().as_bytes()).unwrap()));
    }
    snapshot
}

fn config(url: &str) -> Config {
    Config {
        url_prefix: url.to_owned(),
        filter_verb: "filter".to_owned(),
        prioritize_verb: "prioritize".to_owned(),
        preempt_verb: "preempt".to_owned(),
        bind_verb: "bind".to_owned(),
        weight: 1,
        http_timeout_nanos: 500_000_000,
        node_cache_capable: true,
        ..Config::default()
    }
}

/// Calls the extender as a cycle does: from a thread of its own.
async fn call<T: Send + 'static>(
    config: Config,
    calls: impl FnOnce(&BlockingExtender, &Snapshot) -> T + Send + 'static,
) -> T {
    let extender = Arc::new(HttpExtender::new(config).unwrap());
    let extender = BlockingExtender::new(extender, Handle::current());
    tokio::task::spawn_blocking(move || calls(&extender, &snapshot())).await.unwrap()
}

async fn filter(config: Config) -> Result<crate::extender::Filtered, String> {
    call(config, |extender, snapshot| {
        let nodes: Vec<_> = snapshot.nodes().collect();
        extender.filter(&pod("p", "cpu"), &nodes)
    })
    .await
}

async fn answer(text: &str) -> (Config, Requests) {
    let (url, requests) = serve(Reply::Text(200, text.to_owned())).await;
    (config(&url), requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn names_or_nodes_are_filtered() {
    // field names are read without regard to case
    let (cached, requests) = answer(
        r#"{"nodenames":["n1"],"failedNodes":{"n0":"no"},"FailedAndUnresolvableNodes":{"n2":"never"},"error":""}"#,
    )
    .await;
    let filtered = filter(cached).await.unwrap();
    assert_eq!(filtered.nodes, ["n1"]);
    assert_eq!(filtered.failed, [("n0".to_owned(), "no".to_owned())]);
    assert_eq!(filtered.failed_and_unresolvable, [("n2".to_owned(), "never".to_owned())]);
    let (line, body) = requests.lock().remove(0);
    assert_eq!(line, "POST /scheduler/filter HTTP/1.1");
    assert_eq!((&body["Pod"]["metadata"]["name"], &body["NodeNames"]), (&json!("p"), &json!(["n0", "n1"])));
    assert!(body["Nodes"].is_null());

    let (config, requests) =
        answer(r#"{"Nodes":{"items":[{"metadata":{"name":"n0"}}]},"NodeNames":["n1"]}"#).await;
    let filtered = filter(Config { node_cache_capable: false, ..config }).await.unwrap();
    assert_eq!(filtered.nodes, ["n0"]);
    let (_, body) = requests.lock().remove(0);
    assert_eq!(body["Nodes"]["items"][1]["metadata"]["name"], "n1");
    assert!(body["NodeNames"].is_null());

    let (config, requests) = answer("{}").await;
    assert_eq!(filter(config.clone()).await.unwrap().nodes, [""; 0]);
    assert_eq!(filter(Config { filter_verb: String::new(), ..config }).await.unwrap().nodes, ["n0", "n1"]);
    assert_eq!(requests.lock().len(), 1, "an extender without a verb is not called");
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_are_errors() {
    for (text, error) in [
        (
            r#"{"NodeNames":["n7"]}"#,
            "claims a filtered node \"n7\" which is not found in the input node list",
        ),
        (r#"{"Error":"too busy"}"#, "too busy"),
        (r#"{"NodeNames":{"a":1}}"#, "NodeNames"),
        (r#"{"NodeNames":[],"FailedNodes":{"n0":1}}"#, "FailedNodes"),
        ("[1", "cannot read the response of extender at URL http://"),
        ("7", "not an object"),
    ] {
        let why = filter(answer(text).await.0).await.unwrap_err();
        assert!(why.contains(error), "{text}: {why}");
    }
    let (url, _) = serve(Reply::Text(500, "{}".to_owned())).await;
    let why = filter(config(&url)).await.unwrap_err();
    assert_eq!(why, format!("failed filter with extender at URL {url}filter, code 500"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_extender_costs_its_timeout_and_no_more() {
    for (name, reply) in [("hangs", Reply::Hang), ("dies", Reply::Close), ("has no end", Reply::Endless)] {
        let (url, _) = serve(reply).await;
        let began = Instant::now();
        let why = filter(config(&url)).await.unwrap_err();
        assert!(why.starts_with("Post \"http://"), "{name}: {why}");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}");
    }
    let why = filter(config("http://127.0.0.1:1")).await.unwrap_err();
    assert!(why.starts_with("Post \"http://127.0.0.1:1/filter\": "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_may_be_absurd() {
    let scores = |config| {
        call(config, |extender, snapshot| {
            let nodes: Vec<_> = snapshot.nodes().collect();
            extender.prioritize(&pod("p", "cpu"), &nodes)
        })
    };
    let (config, requests) =
        answer(r#"[{"Host":"n0","Score":-9223372036854775808},{"host":"n7","score":9223372036854775807}]"#)
            .await;
    let expected = vec![("n0".to_owned(), i64::MIN), ("n7".to_owned(), i64::MAX)];
    assert_eq!(scores(config).await, Ok(expected));
    assert_eq!(requests.lock()[0].0, "POST /scheduler/prioritize HTTP/1.1");
    assert!(scores(answer(r#"[{"Host":"n0","Score":1e400}]"#).await.0).await.is_err());
    assert!(scores(answer(r#"{"Host":"n0"}"#).await.0).await.is_err());
    assert_eq!(scores(answer("null").await.0).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn victims_are_pods_of_their_nodes() {
    let preempt = |config| {
        call(config, |extender, snapshot| {
            let victims = snapshot.node("n0").unwrap().pods.clone();
            let candidates = [Candidate { node: "n0".to_owned(), victims, violations: 1 }];
            let remaining = extender.process_preemption(&pod("p", "cpu"), &candidates, snapshot)?;
            let uids =
                |one: &Candidate| one.victims.iter().map(|pod| pod.uid().to_owned()).collect::<Vec<_>>();
            Ok::<_, String>(remaining.iter().map(|one| (one.node.clone(), uids(one))).collect::<Vec<_>>())
        })
    };
    let text = r#"{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"on-n1"}],"NumPDBViolations":2}}}"#;
    let (config, requests) = answer(text).await;
    let expected = vec![("n1".to_owned(), vec!["on-n1".to_owned()])];
    assert_eq!(preempt(config.clone()).await, Ok(expected.clone()));
    assert_eq!(preempt(Config { node_cache_capable: false, ..config }).await, Ok(expected));
    let requests = std::mem::take(&mut *requests.lock());
    let meta = json!({"n0": {"Pods": [{"UID": "on-n0"}], "NumPDBViolations": 1}});
    assert_eq!(requests[0].1["NodeNameToMetaVictims"], meta);
    assert_eq!(requests[1].1["NodeNameToVictims"]["n0"]["Pods"][0]["metadata"]["name"], "on-n0");
    for (text, error) in [
        (r#"{"NodeNameToMetaVictims":{"n7":{"Pods":[]}}}"#, "nodeinfo not found for node name \"n7\""),
        (
            r#"{"NodeNameToMetaVictims":{"n0":{"Pods":[{"UID":"x"}]}}}"#,
            "claims to preempt pod (UID: x) on node: n0, but the pod is not found on that node",
        ),
        (r#"{"NodeNameToMetaVictims":7}"#, "NodeNameToMetaVictims"),
    ] {
        let why = preempt(answer(text).await.0).await.unwrap_err();
        assert!(why.contains(error), "{text}: {why}");
    }
}

#[tokio::test]
async fn extenders_bind_and_choose_pods_by_resources() {
    let (config, requests) = answer("{}").await;
    let managed = vec![ManagedResource { name: "a.b/c".to_owned(), ignored_by_scheduler: true }];
    let extender = HttpExtender::new(Config { managed_resources: managed, ..config }).unwrap();
    assert!(extender.is_binder() && extender.is_interested(&pod("p", "a.b/c")));
    assert!(!extender.is_interested(&pod("p", "a.b/d")));
    assert_eq!(extender.bind(&pod("p", "a.b/c"), "n0").await, Ok(()));
    let expected = json!({"PodName": "p", "PodNamespace": "d", "PodUID": "p", "Node": "n0"});
    assert_eq!(requests.lock()[0].1, expected);
    let (config, _) = answer(r#"{"Error":"the node is gone"}"#).await;
    let extender = HttpExtender::new(config).unwrap();
    assert_eq!(extender.bind(&pod("p", "a"), "n0").await, Err("the node is gone".to_owned()));
}

#[test]
fn settings_that_cannot_be_used_are_errors() {
    let tls = |change: fn(&mut crate::config::ExtenderTlsConfig)| {
        let mut tls = crate::config::ExtenderTlsConfig::default();
        change(&mut tls);
        let config = Config { enable_https: true, tls_config: Some(tls), ..config("https://a/") };
        HttpExtender::new(config).unwrap_err().to_string()
    };
    for (why, error) in [
        (HttpExtender::new(config("nonsense")).unwrap_err().to_string(), "nonsense"),
        (tls(|tls| tls.ca_data = "?".to_owned()), "extender https://a/: caData is not base64"),
        (tls(|tls| tls.ca_file = "/nowhere".to_owned()), "cannot read /nowhere"),
        (tls(|tls| tls.cert_data = "QQ==".to_owned()), "must be given together"),
        (
            tls(|tls| {
                tls.ca_data = "QQ==".to_owned();
                tls.insecure = true;
            }),
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
    ] {
        assert!(why.contains(error), "{why}");
    }
}
