//! "Authorization": the mode ABAC, by the lines of a file.

use super::*;
use apiserver::authorization::{self, policy_file};
use auth::Mode;
use tests::{Cluster, Options, TestUser};

const FILE: &str = r#"
# namespaces of the team
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ann","namespace":"default","resource":"configmaps","apiGroup":""}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"readers","namespace":"*","resource":"*","apiGroup":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"readers","nonResourcePath":"/metr*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","namespace":"*","resource":"*","apiGroup":"authorization.k8s.io"}}
{"user":"old"}
"#;

fn with<'c>(ask: tests::ApiRequest<'c>, token: &str) -> tests::ApiRequest<'c> {
    ask.user(&TestUser::Anonymous).header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn policies_allow_matching_requests() {
    let tokens = auth::Tokens::parse("a,ann,1\nr,rita,2,readers\no,old,3\n").unwrap();
    let cluster = Cluster::with(Options {
        authentication: apiserver::authentication::Options { tokens, ..Default::default() },
        authorization: authorization::Options {
            modes: vec![Mode::Abac],
            policies: policy_file::parse(FILE, &names::Names::kubernetes()).unwrap(),
            ..Default::default()
        },
        ..Options::default()
    })
    .await;
    let object = || json!({"metadata": {"generateName": "x"}});
    with(cluster.post(CONFIGMAPS, object()), "a").await.code(201);
    with(cluster.get(CONFIGMAPS), "r").await.code(200);
    with(cluster.get("/metrics"), "r").await.code(200);
    with(cluster.post(CONFIGMAPS, object()), "o").await.code(201);
    with(cluster.get("/healthz"), "o").await.code(200);
    for (ask, token) in [
        (cluster.get(SECRETS), "a"),
        (cluster.get("/api/v1/namespaces/kube-system/configmaps"), "a"),
        (cluster.get("/healthz"), "a"),
        (cluster.post(CONFIGMAPS, object()), "r"),
        (cluster.get("/healthz"), "r"),
    ] {
        let status = with(ask, token).await.refused(403, "Forbidden");
        assert!(status["message"].as_str().unwrap().ends_with(": No policy matched."), "{status}");
    }
    cluster.get(CONFIGMAPS).user(&TestUser::Anonymous).await.refused(403, "Forbidden");
    let review = json!({"spec": {"namespace": "default"}});
    let rules =
        with(cluster.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review), "r").await;
    let status = rules.code(201).json()["status"].clone();
    let expected = json!({
        "resourceRules": [
            {"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "apiGroups": ["authorization.k8s.io"], "resources": ["*"]},
        ],
        "nonResourceRules": [],
        "incomplete": false,
    });
    assert_eq!(status, expected);
}
