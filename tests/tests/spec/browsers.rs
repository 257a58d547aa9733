//! What browsers are told: pages that may call, and that TLS is to be used.

use super::*;
use apiserver::cors::{self, Origin};
use http::Method;
use tests::{Cluster, Options, Who};

async fn with(origins: &[&str], transport_security: &[&str]) -> Cluster {
    let browsers = cors::Options {
        origins: origins.iter().map(|it| Origin::parse(it).unwrap()).collect(),
        transport_security: transport_security.iter().map(|it| (*it).to_owned()).collect(),
    };
    Cluster::with(Options { browsers, ..Options::default() }).await
}

#[tokio::test]
async fn allowed_pages_may_call() {
    let cluster = with(&[r"^https://console\.example$", r"^http://localhost(:\d+)?$"], &[]).await;
    for origin in ["https://console.example", "http://localhost:8080"] {
        let answer = cluster.get(NAMESPACES).header("origin", origin).await.code(200);
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert_eq!(answer.header("access-control-expose-headers"), "Date");
        // nobody is asked who they are before a browser has asked whether it may ask
        let before =
            cluster.ask(Method::OPTIONS, NAMESPACES).header("origin", origin).who(&Who::Nobody).await;
        let before = before.code(204);
        assert_eq!(before.header("access-control-allow-methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH");
        assert!(before.header("access-control-allow-headers").contains("Authorization"));
    }
    // refusals can be read by the page, too
    let refused =
        cluster.get(&format!("{NAMESPACES}/x")).header("origin", "http://localhost").await.code(404);
    assert_eq!(refused.header("access-control-allow-origin"), "http://localhost");
}

#[tokio::test]
async fn other_pages_may_not() {
    let cluster = with(&[r"^https://console\.example$"], &[]).await;
    for origin in ["https://console.example.org", "https://other", "null"] {
        let answer = cluster.get(NAMESPACES).header("origin", origin).await.code(200);
        assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
        let before = cluster.ask(Method::OPTIONS, NAMESPACES).header("origin", origin).await;
        assert_ne!(before.status, 204, "{origin}");
    }
    let answer = Cluster::start().await.get(NAMESPACES).header("origin", "https://console.example").await;
    assert_eq!(answer.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn transport_security_is_told_with_every_answer() {
    let cluster = with(&[], &["max-age=31536000", "includeSubDomains"]).await;
    for path in [NAMESPACES, "/healthz", "/nothing"] {
        let answer = cluster.get(path).await;
        assert_eq!(answer.header("strict-transport-security"), "max-age=31536000; includeSubDomains");
    }
    assert_eq!(Cluster::start().await.get("/healthz").await.header("strict-transport-security"), "");
}
