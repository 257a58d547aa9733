//! CORS and the `Strict-Transport-Security` header.

use super::*;
use apiserver::cors::{self, Origin};
use http::Method;
use tests::{Cluster, Options, TestUser};

async fn with(origins: &[&str], transport_security: &[&str]) -> Cluster {
    let cors = cors::Options {
        origins: origins.iter().map(|it| Origin::parse(it).unwrap()).collect(),
        transport_security: transport_security.iter().map(|it| (*it).to_owned()).collect(),
    };
    Cluster::with(Options { cors, ..Options::default() }).await
}

#[tokio::test]
async fn allowed_origins_get_cors_headers() {
    let cluster = with(&[r"^https://console\.example$", r"^http://localhost(:\d+)?$"], &[]).await;
    for origin in ["https://console.example", "http://localhost:8080"] {
        let answer = cluster.get(NAMESPACES).header("origin", origin).await.code(200);
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert_eq!(answer.header("access-control-expose-headers"), "Date");
        // preflight requests are not authenticated
        let before = cluster
            .request(Method::OPTIONS, NAMESPACES)
            .header("origin", origin)
            .user(&TestUser::Anonymous)
            .await;
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
async fn other_origins_get_no_cors_headers() {
    let cluster = with(&[r"^https://console\.example$"], &[]).await;
    for origin in ["https://console.example.org", "https://other", "null"] {
        let answer = cluster.get(NAMESPACES).header("origin", origin).await.code(200);
        assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
        let before = cluster.request(Method::OPTIONS, NAMESPACES).header("origin", origin).await;
        assert_ne!(before.status, 204, "{origin}");
    }
    let answer = Cluster::start().await.get(NAMESPACES).header("origin", "https://console.example").await;
    assert_eq!(answer.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn every_response_has_the_transport_security_header() {
    let cluster = with(&[], &["max-age=31536000", "includeSubDomains"]).await;
    for path in [NAMESPACES, "/healthz", "/nothing"] {
        let answer = cluster.get(path).await;
        assert_eq!(answer.header("strict-transport-security"), "max-age=31536000; includeSubDomains");
    }
    assert_eq!(Cluster::start().await.get("/healthz").await.header("strict-transport-security"), "");
}
