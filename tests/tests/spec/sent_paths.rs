//! Paths of outgoing requests: webhooks, conversion webhooks, extension API servers.

use super::admission_webhooks::{MUTATING, allow, configure, hook, map};
use super::aggregation::{METRICS, together};
use super::custom_conversion::{converter_at, second, serve_with};
use super::custom_resources::{THINGS, thing};
use super::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tests::{Cluster, HttpsServer};

/// Paths as they are registered, and as they are sent.
const REGISTERED: &[(&str, &str)] = &[
    ("", "/"),
    ("//", "/"),
    ("//mutate", "/mutate"),
    ("/mutate/", "/mutate"),
    ("/a//b/./c", "/a/b/c"),
    ("/a/../b", "/b"),
    ("/../a/b/..", "/a"),
    ("/a%2Fb", "/a/b"),
    ("/%2e%2e/a", "/a"),
    ("/a%20b%3Fc", "/a%20b%3Fc"),
    ("/ä<b>", "/%C3%A4%3Cb%3E"),
    ("/a!b", "/a%21b"),
];

#[tokio::test]
async fn webhooks_are_called_at_clean_paths() {
    let cluster = Cluster::start().await;
    let server = HttpsServer::start(allow).await;
    for (nth, (registered, sent)) in REGISTERED.iter().enumerate() {
        let name = format!("h{nth}");
        configure(&cluster, MUTATING, &name, vec![hook(&server, "a", registered)]).await;
        cluster.create(CONFIGMAPS, map(&format!("m{nth}"))).await;
        let seen = server.requests().pop().unwrap();
        assert_eq!(seen.path, format!("{sent}?timeout=10s"), "{registered}");
        cluster.delete(&format!("{MUTATING}/{name}")).await.code(200);
    }
}

#[tokio::test]
async fn converters_are_called_at_clean_paths() {
    let cluster = Cluster::start().await;
    let server = converter_at(Ipv4Addr::LOCALHOST.into(), "localhost", Arc::default()).await;
    serve_with(&cluster, &server, json!({"url": format!("{}//a/../convert%2Fthings/", server.url)})).await;
    cluster.create(THINGS, thing("a", json!({"size": "2x3"}))).await;
    cluster.read(&format!("{}/a", second())).await;
    let paths: Vec<String> = server.requests().into_iter().map(|seen| seen.path).collect();
    assert!(!paths.is_empty() && paths.iter().all(|path| path == "/convert/things"), "{paths:?}");
}

/// Both servers understand the same by a path: it is sent as it was understood when the request was authorized.
#[tokio::test]
async fn other_api_servers_get_paths_as_they_were_understood() {
    let (cluster, extension) = together().await;
    for (path, sent, forwarded) in [
        ("/nodes/a", "/nodes/a", "/nodes/a"),
        ("/nodes%2Fa", "/nodes/a", "/nodes/a"),
        ("/nodes//a/", "/nodes//a/", "/nodes/a/"),
        ("/nodes/%61!b", "/nodes/a%21b", "/nodes/a%21b"),
        ("/nodes/a?z=1&b=%41+c&b", "/nodes/a?b=A+c&b=&z=1", "/nodes/a"),
        ("/nodes/a?x=1;y=2", "/nodes/a", "/nodes/a"),
    ] {
        cluster.get(&format!("{METRICS}{path}")).await;
        let seen = extension.requests().pop().unwrap();
        assert_eq!(seen.path, format!("{METRICS}{sent}"), "{path}");
        assert_eq!(seen.headers["x-forwarded-uri"], &*format!("{METRICS}{forwarded}"), "{path}");
        assert_eq!(seen.headers["x-forwarded-host"], &*format!("localhost:{}", extension.port));
        assert_eq!(seen.headers["x-forwarded-proto"], "https");
    }
}
