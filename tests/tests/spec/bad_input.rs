//! Bad input: whatever comes, the answer is a `Status` or a cut connection, and the server goes on.

use super::*;
use apiserver::serve::Limits;
use env::Env;
use http::Method;
use std::time::Duration;
use tests::{Cluster, Options, Protocol, TestUser, escape, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn garbage_bodies() {
    const SEED: u64 = 20;
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let random = env::Seeded::new(0, SEED);
    for round in 0..60 {
        let mut bytes = vec![0; 1 + round * 7];
        random.fill(&mut bytes);
        for media in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
            let answer = cluster.post(CONFIGMAPS, bytes.clone()).content_type(media).await;
            let shown = format!("seed {SEED} round {round} as {media}: {}", answer.text());
            // random bytes may be YAML by chance, but hardly a config map
            assert!(matches!(answer.status, 400 | 422), "{shown}");
        }
        let ask = cluster.patch(&format!("{CONFIGMAPS}/x"), json!({})).body(bytes);
        let answer = ask.content_type("application/merge-patch+json").await;
        assert_eq!(answer.status, 400, "seed {SEED} round {round}: {}", answer.text());
    }
    for text in [
        "",
        "{",
        "}",
        "nul",
        "[]",
        "\"x\"",
        "5",
        "{\"a\"",
        "{\"metadata\":{\"name\":\"x\"}} x",
        "{'a':1}",
        "\u{feff}{}",
    ] {
        let answer = cluster.post(CONFIGMAPS, text).await;
        assert_eq!(answer.status, 400, "{text}: {}", answer.text());
    }
    cluster.answers().await;
}

#[tokio::test]
async fn text_that_is_not_utf8() {
    let cluster = Cluster::start().await;
    for bytes in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"] {
        for (before, after) in
            [("{\"metadata\":{\"name\":\"x\"},\"data\":{\"k\":\"", "\"}}"), ("{\"", "\":1}")]
        {
            let body = [before.as_bytes(), bytes, after.as_bytes()].concat();
            cluster.post(CONFIGMAPS, body.clone()).await.refused(400, "BadRequest");
            cluster.post(CONFIGMAPS, body).content_type("application/yaml").await.refused(400, "BadRequest");
        }
    }
    cluster.answers().await;
}

#[tokio::test]
async fn a_hundred_thousand_nested_brackets() {
    const DEPTH: usize = 100_000;
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let path = format!("{CONFIGMAPS}/x");
    let nested = |open: &str, close: &str| open.repeat(DEPTH) + &close.repeat(DEPTH);
    for deep in [nested("[", "]"), nested("{\"a\":", "}").replace(":}", ":1}"), "[".repeat(DEPTH)] {
        let within = format!("{{\"metadata\":{{\"name\":\"y\"}},\"data\":{deep}}}");
        for body in [&deep, &within] {
            for media in ["application/json", "application/yaml"] {
                cluster.post(CONFIGMAPS, body.clone()).content_type(media).await.refused(400, "BadRequest");
                cluster.put(&path, body.clone()).content_type(media).await.refused(400, "BadRequest");
            }
            for media in [
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/json-patch+json",
            ] {
                let answer = cluster.patch(&path, json!({})).body(body.clone()).content_type(media).await;
                assert_eq!(answer.status, 400, "{media}: {}", answer.text());
            }
            cluster.delete(&path).body(body.clone()).await.refused(400, "BadRequest");
        }
        let value = format!("[{{\"op\":\"add\",\"path\":\"/data\",\"value\":{deep}}}]");
        let answer =
            cluster.patch(&path, json!([])).body(value).content_type("application/json-patch+json").await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    let dashes = "- ".repeat(DEPTH) + "x";
    cluster.post(CONFIGMAPS, dashes).content_type("application/yaml").await.refused(400, "BadRequest");
    assert_eq!(cluster.read(&path).await["metadata"]["name"], "x");
    cluster.answers().await;
}

#[tokio::test]
async fn yaml_that_grows_when_read() {
    let cluster = Cluster::start().await;
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let from = format!("*a{}", level - 1);
        let items = vec![from; 9].join(",");
        bomb += &format!("a{level}: &a{level} [{items}]\n");
    }
    cluster.post(CONFIGMAPS, bomb).content_type("application/yaml").await.refused(400, "BadRequest");
    let circle = "a: &a\n  b: *a\n";
    cluster.post(CONFIGMAPS, circle).content_type("application/yaml").await.refused(400, "BadRequest");
    cluster.answers().await;
}

#[tokio::test]
async fn ten_mebibytes() {
    let cluster = Cluster::start().await;
    let body = vec![b' '; 10 << 20];
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let ask = cluster.post(CONFIGMAPS, body.clone()).protocol(protocol);
        // a client that does not stop sending may see the connection cut before it reads the answer
        match ask.attempt().await {
            Ok(answer) => drop(answer.refused(413, "RequestEntityTooLarge")),
            Err(why) => assert_eq!(protocol, Protocol::Http1, "{why}"),
        }
    }
    cluster.answers().await;
}

#[tokio::test]
async fn wrong_types() {
    let cluster = Cluster::start().await;
    for body in [
        json!({"metadata": "x"}),
        json!({"metadata": []}),
        json!({"metadata": {"name": 5}}),
        json!({"metadata": {"name": "x", "labels": ["a"]}}),
        json!({"metadata": {"name": "x", "labels": {"a": 1}}}),
        json!({"metadata": {"name": "x", "creationTimestamp": "yesterday"}}),
        json!({"metadata": {"name": "x", "finalizers": "a.b/c"}}),
        json!({"metadata": {"name": "x"}, "data": {"k": {"deep": true}}}),
        json!({"metadata": {"name": "x"}, "binaryData": {"k": "not base64!"}}),
        json!({"metadata": {"name": "x"}, "immutable": "yes"}),
        json!({"kind": 5, "metadata": {"name": "x"}}),
    ] {
        let answer = cluster.post(CONFIGMAPS, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    for spec in [
        json!({"containers": {}}),
        json!({"containers": [5]}),
        json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 9_999_999_999_u64}]}]}),
        json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1.5}]}]}),
        json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "many"}}}]}),
        json!({"containers": [], "terminationGracePeriodSeconds": "long"}),
    ] {
        let answer = cluster.post(PODS, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        assert_eq!(answer.status, 400, "{spec}: {}", answer.text());
    }
    cluster.answers().await;
}

#[tokio::test]
async fn odd_paths() {
    let cluster = Cluster::start().await;
    let mut served = Vec::new();
    for path in [
        "//api/v1",
        "/api/v1//pods",
        "/api/v1/namespaces/default/configmaps/%2e%2e%2fsecrets",
        "/api/v1/namespaces/default/configmaps/..",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/%ff%fe",
        "/api/v1/namespaces/default/configmaps/%zz",
        "/api/v1/namespaces/%2e%2e/configmaps/x",
        "/api/v1/namespaces/default/configmaps/a/b/c/d/e/f",
        "/apis//v1/pods",
        "/apis/../api/v1",
        "/healthz/../../etc/passwd",
        "/openapi/v3/../v2",
        "/openapi/v3/apis/bogus/v1",
    ] {
        let answer = cluster.get(path).protocol(Protocol::Http1).await;
        if !matches!(answer.status, 400 | 404) {
            served.push(format!("{path}: {} {}", answer.status, answer.text()));
        }
    }
    assert_eq!(served, Vec::<String>::new());
    let long = format!("{CONFIGMAPS}/{}", "x".repeat(60_000));
    for protocol in [Protocol::Http1, Protocol::Http2] {
        if let Ok(answer) = cluster.get(&long).protocol(protocol).attempt().await {
            assert!(matches!(answer.status, 400 | 404 | 414 | 431), "{}", answer.status);
        }
    }
    cluster.answers().await;
}

#[tokio::test]
async fn bad_names_never_reach_the_store() {
    let cluster = Cluster::start().await;
    let before = version(&cluster.read("/api/v1/configmaps").await);
    for name in ["../secrets/x", "a/b", ".", "..", "a%b", " ", "\u{0}", "\u{202e}", "A", &"a".repeat(5000)] {
        cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await.refused(422, "Invalid");
        let lease = json!({"metadata": {"name": name}});
        let put = cluster.put(&format!("{LEASES}/{}", escape(name)), lease).await;
        assert!(matches!(put.status, 400 | 404 | 405 | 422), "{name:?}: {}", put.text());
    }
    assert_eq!(version(&cluster.read("/api/v1/configmaps").await), before);
}

#[tokio::test]
async fn bad_selectors() {
    let cluster = Cluster::start().await;
    for selector in [
        "!!", "a=b=c", "a in", "a in (", "a in (b", "a in b", "a in ()x", "=b", ",", ",,", "a,", "a b",
        "a>x", "a<", "a notin", "(a)", "a=b,", "-a", "a/b/c", "a=_", "a=b c", "é",
    ] {
        for path in [CONFIGMAPS, "/api/v1/configmaps"] {
            let answer = cluster.get(&format!("{path}?labelSelector={}", escape(selector))).await;
            assert_eq!(answer.status, 400, "{selector}: {}", answer.text());
        }
    }
    for selector in
        ["a", "a=b", "metadata.name", "=x", "metadata.name=a=b", "metadata.name=a\\", "metadata.name=a\\x"]
    {
        let answer = cluster.get(&format!("{CONFIGMAPS}?fieldSelector={}", escape(selector))).await;
        assert_eq!(answer.status, 400, "{selector}: {}", answer.text());
    }
    // long ones are work in proportion to their length
    let many = (0..6_000).map(|n| format!("k{n}")).collect::<Vec<_>>().join(",");
    let answer = cluster.get(&format!("{CONFIGMAPS}?labelSelector={}", escape(&many))).await;
    assert!(matches!(answer.status, 200 | 400 | 414), "{}", answer.status);
    cluster.answers().await;
}

#[tokio::test]
async fn bad_query_values() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    for query in [
        "limit=",
        "limit=ten",
        "limit=1e3",
        "timeoutSeconds=soon",
        "limit=99999999999999999999",
        "continue=%F0",
    ] {
        cluster.get(&format!("{CONFIGMAPS}?{query}")).await.refused(400, "BadRequest");
    }
    for query in ["dryRun=yes", "fieldValidation=Maybe", "fieldManager=a%0Ab"] {
        cluster
            .post(&format!("{CONFIGMAPS}?{query}"), json!({"metadata": {"name": "y"}}))
            .await
            .refused(422, "Invalid");
    }
    cluster.delete(&format!("{CONFIGMAPS}/x?gracePeriodSeconds=x")).await.refused(400, "BadRequest");
    cluster.delete(&format!("{CONFIGMAPS}/x?propagationPolicy=x")).await.refused(422, "Invalid");
    // unknown parameters, empty pairs and invalid escapes are ignored
    cluster.get(&format!("{CONFIGMAPS}?&&=&a=%&b=%z&unknown=1")).await.code(200);
    cluster.read(&format!("{CONFIGMAPS}/x")).await;
}

/// Reads until the server closes.
async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    // a reset is an end as well
    let _ = soon("the end of the connection", stream.read_to_end(&mut all)).await;
    all
}

fn impatient() -> Options {
    // long enough for honest clients on a busy machine
    let (handshake_timeout, header_timeout) = (Duration::from_secs(1), Duration::from_millis(200));
    let limits = Limits { handshake_timeout, header_timeout, ..Limits::default() };
    Options { limits, ..Options::default() }
}

#[tokio::test]
async fn connections_that_say_nothing() {
    let cluster = Cluster::with(impatient()).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(cluster.address).await.unwrap());
    }
    for stream in &mut silent {
        assert_eq!(until_closed(stream).await, b"");
    }
    // half a handshake is no better
    let mut half = TcpStream::connect(cluster.address).await.unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    until_closed(&mut half).await;
}

#[tokio::test]
async fn requests_that_stop_half_way() {
    let cluster = Cluster::with(impatient()).await;
    for start in ["G", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: "] {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        stream.write_all(start.as_bytes()).await.unwrap();
        until_closed(&mut stream).await;
    }
    // the preface of HTTP/2 does not come
    let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http2).await;
    stream.write_all(b"PRI *").await.unwrap();
    until_closed(&mut stream).await;
}

#[tokio::test]
async fn endless_bodies_delay_no_other_request() {
    let cluster = Cluster::start().await;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        let head = format!("POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    cluster.named(CONFIGMAPS, "meanwhile").await;
    drop(open);
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["meanwhile"]);
}

#[tokio::test]
async fn clients_that_leave_before_the_answer() {
    let cluster = Cluster::start().await;
    for n in 0..20 {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        let body = format!("{{\"metadata\":{{\"name\":\"c{n}\"}}}}");
        let length = body.len();
        let request = format!(
            "POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
    }
    // each was done or not, whole; the server does not mind
    for object in cluster.read(CONFIGMAPS).await["items"].as_array().unwrap() {
        assert_eq!(uid(object).len(), 36);
    }
    cluster.answers().await;
}

#[tokio::test]
async fn malformed_http() {
    let cluster = Cluster::with(impatient()).await;
    for raw in [
        &b"GARBAGE\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /a b c HTTP/1.1\r\nhost: a\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
    ] {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        stream.write_all(raw).await.unwrap();
        let answer = String::from_utf8_lossy(&until_closed(&mut stream).await).into_owned();
        let shown = String::from_utf8_lossy(raw);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
    }
    let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http2).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff").await.unwrap();
    until_closed(&mut stream).await;
    cluster.answers().await;
}

#[tokio::test]
async fn invalid_hosts() {
    let cluster = Cluster::start().await;
    for (version, hosts, expected) in [
        ("1.1", "", "400 Bad Request: missing required Host header"),
        ("1.1", "host: a\r\nhost: b\r\n", "400 Bad Request"),
        ("1.1", "host: a\r\nhost: a\r\n", "400 Bad Request"),
        ("1.0", "host: a\r\nhost: b\r\n", "400 Bad Request"),
        ("1.1", "host: a b\r\n", "400 Bad Request: malformed Host header"),
        ("1.1", "host: a/b\r\n", "400 Bad Request: malformed Host header"),
        ("1.1", "host: a<b\r\n", "400 Bad Request: malformed Host header"),
        ("1.1", "host: \r\n", "200 OK"),
        ("1.1", "host: [::1]:6443\r\n", "200 OK"),
        ("1.0", "", "200 OK"),
    ] {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        let request = format!("GET /version HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
        let (line, rest) = answer.split_once("\r\n").unwrap();
        assert_eq!(line.split_once(' ').unwrap().1, expected, "{request}");
        if expected != "200 OK" {
            assert!(rest.starts_with("content-type: text/plain; charset=utf-8\r\n"), "{answer}");
            assert!(rest.ends_with(&format!("\r\n\r\n{expected}")), "{answer}");
        }
    }
}

#[tokio::test]
async fn http_without_tls_is_rejected() {
    let cluster = Cluster::start().await;
    let mut stream = TcpStream::connect(cluster.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("HTTPS"), "{answer}");
}

#[tokio::test]
async fn odd_methods_and_headers() {
    let cluster = Cluster::start().await;
    for method in ["PROPFIND", "CONNECT", "TRACE", "M-SEARCH", "get"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        if let Ok(answer) =
            cluster.request(method.clone(), CONFIGMAPS).protocol(Protocol::Http1).attempt().await
        {
            assert!(matches!(answer.status, 400 | 404 | 405), "{method}: {}", answer.status);
        }
    }
    for (name, value) in [
        ("accept", ";;;,,,q=x"),
        ("accept", "application/json;q=banana"),
        ("accept-encoding", "gzip;q=;;,"),
        ("content-type", ";"),
        ("user-agent", ""),
    ] {
        let answer = cluster.get(CONFIGMAPS).header(name, value).await;
        assert!(answer.status < 500, "{name}: {value}: {}", answer.text());
    }
    cluster.answers().await;
}

#[tokio::test]
async fn a_client_that_never_reads_its_watch() {
    let cache = cache::Options { watcher_bytes: 4 << 20, ..cache::Options::default() };
    let cluster = Cluster::with(Options { cache, ..Options::default() }).await;
    let large = "x".repeat(1_000_000);
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": large}})).await;
    let from = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&created));
    let mut lazy = cluster.get(&from).watch().await;
    let mut keen = cluster.get(&from).watch().await;
    // more than a watcher's share and the buffers of both ends hold
    const CHANGES: usize = 20;
    for n in 0..CHANGES {
        let patch = json!({"metadata": {"labels": {"n": n.to_string()}}});
        cluster.patch(&format!("{CONFIGMAPS}/x"), patch).await.code(200);
        let seen = keen.expect("MODIFIED", "x").await;
        assert_eq!(seen["metadata"]["labels"]["n"], n.to_string(), "who reads gets everything");
    }
    let late = lazy.rest().await;
    assert!(late.len() < CHANGES, "who does not was cut off, and finds the end when it looks");
    for (n, event) in late.iter().enumerate() {
        assert_eq!(
            event["object"]["metadata"]["labels"]["n"],
            n.to_string(),
            "nothing is left out before it"
        );
    }
    cluster.answers().await;
}
