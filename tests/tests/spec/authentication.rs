//! "Authentication": who is calling, and what they may do before there are roles.

use super::*;
use std::time::Duration;
use tests::{Authority, Cluster, NOW, Options, Protocol, Who, authority};

fn jane() -> Who {
    Who::Holder(authority().client("jane", "developers"))
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_certificate_names_the_user() {
    let cluster = Cluster::start().await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let status = cluster.get(CONFIGMAPS).who(&jane()).protocol(protocol).await.refused(403, "Forbidden");
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
    let root = Who::Holder(authority().client("root", "system:masters"));
    let made = cluster
        .post(REQUESTS, super::signing_requests::signing_request("a"))
        .who(&root)
        .await
        .code(201)
        .json();
    assert_eq!(made["spec"]["username"], "root");
    assert_eq!(made["spec"]["groups"], json!(["system:masters", "system:authenticated"]));
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let cluster = Cluster::start().await;
    let stranger = Who::Holder(Authority::new("cluster").client("admin", "system:masters"));
    for path in [CONFIGMAPS, "/healthz", "/api", "/nothing"] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            cluster.get(path).who(&stranger).protocol(protocol).await.refused(401, "Unauthorized");
        }
    }
}

#[tokio::test]
async fn a_certificate_counts_only_in_its_time() {
    let cluster = Cluster::start().await;
    let hour = Duration::from_secs(3600);
    let of = |from: u64| Who::Holder(authority().client_from("admin", "system:masters", from, hour));
    let (past, present, future) = (of(NOW - 7200), of(NOW - 60), of(NOW + 600));
    cluster.get(NAMESPACES).who(&past).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).who(&future).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).who(&present).await.code(200);
    cluster.advance(hour);
    cluster.get(NAMESPACES).who(&present).await.refused(401, "Unauthorized");
    cluster.get(NAMESPACES).who(&future).await.code(200);
}

#[tokio::test]
async fn without_a_certificate_one_is_anonymous() {
    let cluster = Cluster::start().await;
    let status = cluster.get(NODES).who(&Who::Nobody).await.refused(403, "Forbidden");
    assert_eq!(
        message(&status),
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster \
         scope"
    );
    let status = cluster.get("/nothing").who(&Who::Nobody).await.refused(403, "Forbidden");
    assert_eq!(message(&status), "forbidden: User \"system:anonymous\" cannot get path \"/nothing\"");
}

#[tokio::test]
async fn everybody_may_see_health_and_version() {
    let cluster = Cluster::start().await;
    for who in [Who::Nobody, jane()] {
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            cluster.get(path).who(&who).await.code(200);
        }
        cluster.get("/metrics").who(&who).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn the_identified_may_see_discovery() {
    let cluster = Cluster::start().await;
    for path in ["/api", "/api/v1", "/apis", "/apis/node.k8s.io", "/apis/node.k8s.io/v1", "/openapi/v3"] {
        cluster.get(path).who(&jane()).await.code(200);
        cluster.get(path).who(&Who::Nobody).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn nobody_else_may_do_anything() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let before = cluster.read(CONFIGMAPS).await;
    for who in [Who::Nobody, jane()] {
        let path = format!("{CONFIGMAPS}/a");
        cluster.get(&path).who(&who).await.refused(403, "Forbidden");
        cluster.get(&format!("{CONFIGMAPS}?watch=1")).who(&who).await.refused(403, "Forbidden");
        cluster
            .post(CONFIGMAPS, json!({"metadata": {"name": "b"}}))
            .who(&who)
            .await
            .refused(403, "Forbidden");
        cluster.put(&path, json!({"metadata": {"name": "a"}})).who(&who).await.refused(403, "Forbidden");
        cluster.patch(&path, json!({"data": {"k": "v"}})).who(&who).await.refused(403, "Forbidden");
        cluster.delete(&path).who(&who).await.refused(403, "Forbidden");
        cluster.delete(CONFIGMAPS).who(&who).await.refused(403, "Forbidden");
        // even what is wrong in other ways
        cluster.post(CONFIGMAPS, "garbage").who(&who).await.refused(403, "Forbidden");
        cluster.get("/api/v1/bogus").who(&who).await.refused(403, "Forbidden");
    }
    assert_eq!(cluster.read(CONFIGMAPS).await, before);
}

#[tokio::test]
async fn a_token_that_nobody_issued_is_refused() {
    let cluster = Cluster::start().await;
    for path in [CONFIGMAPS, "/healthz", &format!("{CONFIGMAPS}?watch=1")] {
        let ask = cluster.get(path).who(&Who::Nobody).header("authorization", "Bearer bogus");
        assert_eq!(message(&ask.await.refused(401, "Unauthorized")), "Unauthorized");
    }
}

#[tokio::test]
async fn a_token_names_its_user() {
    let tokens = auth::Tokens::parse("t1,alice,1,\"system:masters,dev\"\nt2,bob,2\n").unwrap();
    let cluster = Cluster::with(Options {
        identity: apiserver::authentication::Options { tokens, ..Default::default() },
        ..Options::default()
    })
    .await;
    let with = |path: &str, token: &str| {
        cluster.get(path).who(&Who::Nobody).header("authorization", &format!("Bearer {token}"))
    };
    with(CONFIGMAPS, "t1").await.code(200);
    let status = with(CONFIGMAPS, "t2").await.refused(403, "Forbidden");
    assert!(message(&status).contains("User \"bob\" cannot list"), "{status}");
    with("/api", "t2").await.code(200);
    with(CONFIGMAPS, "t3").await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn other_schemes_say_nothing() {
    let cluster = Cluster::start().await;
    for given in ["Basic YTpi", "Bearer ", "bogus"] {
        let ask = cluster.get(CONFIGMAPS).who(&Who::Nobody).header("authorization", given);
        let status = ask.await.refused(403, "Forbidden");
        assert!(message(&status).contains("system:anonymous"), "{status}");
    }
}

#[tokio::test]
async fn masters_may_act_as_others() {
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
async fn others_may_not_act_as_masters() {
    let cluster = Cluster::start().await;
    for who in [jane(), Who::Nobody] {
        let ask = cluster.get(CONFIGMAPS).who(&who).header("impersonate-user", "admin");
        let status = ask.header("impersonate-group", "system:masters").await.refused(403, "Forbidden");
        assert!(message(&status).contains("cannot impersonate"), "{status}");
    }
    // a group alone is nobody's
    let ask = cluster.get(CONFIGMAPS).header("impersonate-group", "system:masters");
    ask.await.code(500);
}
