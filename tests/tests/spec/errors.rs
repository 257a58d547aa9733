//! "Errors": the codes, and the `Status` that says the same.

use super::*;
use std::time::Duration;
use tests::{Cluster, TestUser};

#[tokio::test]
async fn success_has_the_listed_codes() {
    let cluster = Cluster::start().await;
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "x"}})).await.code(201);
    let path = format!("{CONFIGMAPS}/x");
    cluster.get(&path).await.code(200);
    cluster.put(&path, json!({"metadata": {"name": "x"}})).await.code(200);
    cluster.patch(&path, json!({})).await.code(200);
    cluster.delete(&path).await.code(200);
    cluster.put(&format!("{LEASES}/x"), json!({"metadata": {"name": "x"}})).await.code(201);
    // accepted, and not done yet
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "held", "finalizers": ["a.b/c"]}})).await;
    cluster.delete(&format!("{CONFIGMAPS}/held")).body(json!({"orphanDependents": false})).await.code(202);
}

#[tokio::test]
async fn each_failure_has_its_code_and_reason() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let path = format!("{CONFIGMAPS}/x");
    let named = |name: &str| json!({"metadata": {"name": name}});
    cluster.post(CONFIGMAPS, "{").await.refused(400, "BadRequest");
    cluster
        .get(&path)
        .user(&TestUser::Anonymous)
        .header("authorization", "Bearer bogus")
        .await
        .refused(401, "Unauthorized");
    cluster.get(&path).header("impersonate-user", "bob").await.refused(403, "Forbidden");
    cluster.get(&format!("{CONFIGMAPS}/missing")).await.refused(404, "NotFound");
    cluster.post(&path, named("x")).await.refused(405, "MethodNotAllowed");
    cluster.get(&path).accept("text/html").await.refused(406, "NotAcceptable");
    cluster.post(CONFIGMAPS, named("x")).await.refused(409, "AlreadyExists");
    let stale = json!({"metadata": {"name": "x", "resourceVersion": "1"}});
    cluster.put(&path, stale).await.refused(409, "Conflict");
    cluster
        .post(CONFIGMAPS, named("y"))
        .content_type("text/plain")
        .await
        .refused(415, "UnsupportedMediaType");
    cluster.post(CONFIGMAPS, named("Y")).await.refused(422, "Invalid");
    let old = version(&cluster.read(CONFIGMAPS).await);
    cluster.named(CONFIGMAPS, "y").await;
    cluster.advance(Duration::from_secs(301));
    cluster.named(CONFIGMAPS, "z").await;
    let gone = format!("{CONFIGMAPS}?resourceVersionMatch=Exact&resourceVersion={old}");
    cluster.get(&gone).await.refused(410, "Expired");
}

#[tokio::test]
async fn a_failure_has_details() {
    let cluster = Cluster::start().await;
    let status = cluster.get(&format!("{LEASES}/missing")).await.refused(404, "NotFound");
    assert_eq!(status["message"], "leases.coordination.k8s.io \"missing\" not found");
    assert_eq!(
        status["details"],
        json!({"name": "missing", "group": "coordination.k8s.io", "kind": "leases"})
    );
    assert_eq!(status["metadata"], json!({}));
}

#[tokio::test]
async fn an_invalid_object_reports_every_problem() {
    let cluster = Cluster::start().await;
    let bad = json!({"metadata": {"name": "A"}, "spec": {"containers": [{"name": "C_", "image": ""}]}});
    let status = cluster.post(PODS, bad).await.refused(422, "Invalid");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("Pod \"A\" is invalid: ["), "{message}");
    assert_eq!(status["details"]["kind"], "Pod");
    for field in ["metadata.name", "spec.containers[0].name", "spec.containers[0].image"] {
        assert!(fields(&status).contains(&field), "{field} in {status}");
        assert!(message.contains(field), "{field} in {message}");
    }
    for cause in status["details"]["causes"].as_array().unwrap() {
        assert!(cause["reason"].as_str().unwrap().starts_with("FieldValue"), "{cause}");
        assert!(!cause["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn unknown_and_invalid_fields_are_a_bad_request() {
    let cluster = Cluster::start().await;
    let body = r#"{"metadata":{"name":"x"},"data":"not a map","extra":1}"#;
    for validation in ["Ignore", "Warn", "Strict"] {
        let path = format!("{CONFIGMAPS}?fieldValidation={validation}");
        cluster.post(&path, body).await.refused(400, "BadRequest");
    }
}
