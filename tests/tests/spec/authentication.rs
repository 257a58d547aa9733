//! "Authentication": users, and their permissions without roles.

use super::*;
use std::time::Duration;
use tests::{Authority, Cluster, NOW, Options, Protocol, TestUser, authority};

fn jane() -> TestUser {
    TestUser::Certificate(authority().client("jane", "developers"))
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_certificate_names_the_user() {
    let cluster = Cluster::start().await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let status = cluster.get(CONFIGMAPS).user(&jane()).protocol(protocol).await.refused(403, "Forbidden");
        assert_eq!(
            message(&status),
            "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
             namespace \"default\""
        );
    }
}

#[tokio::test]
async fn the_organization_is_a_group() {
    let cluster = Cluster::start().await;
    let root = TestUser::Certificate(authority().client("root", "system:masters"));
    let created = cluster
        .post(REQUESTS, super::signing_requests::signing_request("a"))
        .user(&root)
        .await
        .code(201)
        .json();
    assert_eq!(created["spec"]["username"], "root");
    assert_eq!(created["spec"]["groups"], json!(["system:masters", "system:authenticated"]));
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let cluster = Cluster::start().await;
    let stranger = TestUser::Certificate(Authority::new("cluster").client("admin", "system:masters"));
    for path in [CONFIGMAPS, "/healthz", "/api", "/nothing"] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            cluster.get(path).user(&stranger).protocol(protocol).await.refused(401, "Unauthorized");
        }
    }
}

#[tokio::test]
async fn a_certificate_is_valid_only_in_its_period() {
    let cluster = Cluster::start().await;
    let hour = Duration::from_secs(3600);
    let of =
        |from: u64| TestUser::Certificate(authority().client_from("admin", "system:masters", from, hour));
    let (past, present, future) = (of(NOW - 7200), of(NOW - 60), of(NOW + 600));
    cluster.get(NAMESPACES).user(&past).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).user(&future).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).user(&present).await.code(200);
    cluster.advance(hour);
    cluster.get(NAMESPACES).user(&present).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).user(&future).await.code(200);
}

#[tokio::test]
async fn requests_without_a_certificate_are_anonymous() {
    let cluster = Cluster::start().await;
    let status = cluster.get(NODES).user(&TestUser::Anonymous).await.refused(403, "Forbidden");
    assert_eq!(
        message(&status),
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster \
         scope"
    );
    let status = cluster.get("/nothing").user(&TestUser::Anonymous).await.refused(403, "Forbidden");
    assert_eq!(message(&status), "forbidden: User \"system:anonymous\" cannot get path \"/nothing\"");
}

#[tokio::test]
async fn all_users_may_read_health_and_version() {
    let cluster = Cluster::start().await;
    for who in [TestUser::Anonymous, jane()] {
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            cluster.get(path).user(&who).await.code(200);
        }
        cluster.get("/metrics").user(&who).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn authenticated_users_may_read_discovery() {
    let cluster = Cluster::start().await;
    for path in ["/api", "/api/v1", "/apis", "/apis/node.k8s.io", "/apis/node.k8s.io/v1", "/openapi/v3"] {
        cluster.get(path).user(&jane()).await.code(200);
        cluster.get(path).user(&TestUser::Anonymous).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn all_other_requests_are_forbidden() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let before = cluster.read(CONFIGMAPS).await;
    for who in [TestUser::Anonymous, jane()] {
        let path = format!("{CONFIGMAPS}/a");
        cluster.get(&path).user(&who).await.refused(403, "Forbidden");
        cluster.get(&format!("{CONFIGMAPS}?watch=1")).user(&who).await.refused(403, "Forbidden");
        cluster
            .post(CONFIGMAPS, json!({"metadata": {"name": "b"}}))
            .user(&who)
            .await
            .refused(403, "Forbidden");
        cluster.put(&path, json!({"metadata": {"name": "a"}})).user(&who).await.refused(403, "Forbidden");
        cluster.patch(&path, json!({"data": {"k": "v"}})).user(&who).await.refused(403, "Forbidden");
        cluster.delete(&path).user(&who).await.refused(403, "Forbidden");
        cluster.delete(CONFIGMAPS).user(&who).await.refused(403, "Forbidden");
        // also with other errors
        cluster.post(CONFIGMAPS, "garbage").user(&who).await.refused(403, "Forbidden");
        cluster.get("/api/v1/bogus").user(&who).await.refused(403, "Forbidden");
    }
    assert_eq!(cluster.read(CONFIGMAPS).await, before);
}

#[tokio::test]
async fn an_unknown_token_is_rejected() {
    let cluster = Cluster::start().await;
    for path in [CONFIGMAPS, "/healthz", &format!("{CONFIGMAPS}?watch=1")] {
        let ask = cluster.get(path).user(&TestUser::Anonymous).header("authorization", "Bearer bogus");
        assert_eq!(message(&ask.await.refused(401, "Unauthorized")), "Unauthorized");
    }
}

#[tokio::test]
async fn a_token_names_its_user() {
    let tokens = auth::Tokens::parse("t1,alice,1,\"system:masters,dev\"\nt2,bob,2\n").unwrap();
    let cluster = Cluster::with(Options {
        authentication: apiserver::authentication::Options { tokens, ..Default::default() },
        ..Options::default()
    })
    .await;
    let with = |path: &str, token: &str| {
        cluster.get(path).user(&TestUser::Anonymous).header("authorization", &format!("Bearer {token}"))
    };
    with(CONFIGMAPS, "t1").await.code(200);
    let status = with(CONFIGMAPS, "t2").await.refused(403, "Forbidden");
    assert!(message(&status).contains("User \"bob\" cannot list"), "{status}");
    with("/api", "t2").await.code(200);
    with(CONFIGMAPS, "t3").await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn other_authorization_schemes_are_ignored() {
    let cluster = Cluster::start().await;
    for given in ["Basic YTpi", "Bearer ", "bogus"] {
        let ask = cluster.get(CONFIGMAPS).user(&TestUser::Anonymous).header("authorization", given);
        let status = ask.await.refused(403, "Forbidden");
        assert!(message(&status).contains("system:anonymous"), "{status}");
    }
}

#[tokio::test]
async fn masters_may_impersonate() {
    let cluster = Cluster::start().await;
    let status = cluster.get(CONFIGMAPS).header("impersonate-user", "bob").await.refused(403, "Forbidden");
    assert!(message(&status).contains("User \"bob\" cannot list"), "{status}");
    let ask = cluster.get(CONFIGMAPS).header("impersonate-user", "bob");
    ask.and_header("impersonate-group", "dev")
        .and_header("impersonate-group", "system:masters")
        .await
        .code(200);
    let ask = cluster.get(CONFIGMAPS).header("impersonate-user", "system:anonymous");
    assert!(message(&ask.await.refused(403, "Forbidden")).contains("system:anonymous"));
}

#[tokio::test]
async fn other_users_may_not_impersonate_masters() {
    let cluster = Cluster::start().await;
    for who in [jane(), TestUser::Anonymous] {
        let ask = cluster.get(CONFIGMAPS).user(&who).header("impersonate-user", "admin");
        let status = ask.header("impersonate-group", "system:masters").await.refused(403, "Forbidden");
        assert!(message(&status).contains("cannot impersonate"), "{status}");
    }
    // a group without a user is rejected
    let ask = cluster.get(CONFIGMAPS).header("impersonate-group", "system:masters");
    ask.await.code(500);
}
