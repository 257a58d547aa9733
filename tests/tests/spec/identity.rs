//! "TokenRequest", "TokenReview" and access reviews.

use super::*;
use apiserver::authentication;
use apiserver::authentication::jose::Signer;
use std::time::Duration;
use tests::{Cluster, Options, TestUser, authority};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Options of a server that issues tokens.
pub fn signing() -> authentication::Options {
    let signer = Signer::from_pem(authority().client("signer", "signers").key.as_bytes()).unwrap();
    let service_accounts = authentication::ServiceAccounts { signer: Some(signer), ..Default::default() };
    authentication::Options { service_accounts, ..Default::default() }
}

/// A server that gives tokens out.
pub(super) async fn issuing() -> Cluster {
    let cluster = Cluster::with(Options { authentication: signing(), ..Options::default() }).await;
    cluster.named(ACCOUNTS, "robot").await;
    cluster
}

async fn token(cluster: &Cluster, spec: Value) -> String {
    let token_request =
        cluster.post(&format!("{ACCOUNTS}/robot/token"), json!({ "spec": spec })).await.code(201).json();
    token_request["status"]["token"].as_str().unwrap().to_owned()
}

async fn code(cluster: &Cluster, token: &str) -> u16 {
    let ask =
        cluster.get("/api").user(&TestUser::Anonymous).header("authorization", &format!("Bearer {token}"));
    ask.await.status
}

async fn review(cluster: &Cluster, spec: Value) -> Value {
    cluster.post(REVIEWS, json!({ "spec": spec })).await.code(201).json()["status"].clone()
}

#[tokio::test]
async fn a_requested_token_authenticates_its_account() {
    let cluster = issuing().await;
    let token_request = json!({"spec": {"audiences": ["a", "b"], "expirationSeconds": 900}});
    let created = cluster.post(&format!("{ACCOUNTS}/robot/token"), token_request).await.code(201).json();
    assert_eq!(created["kind"], "TokenRequest");
    assert_eq!(created["spec"]["audiences"], json!(["a", "b"]));
    assert_eq!(created["status"]["expirationTimestamp"], "2023-11-14T22:28:20Z");
    let token = token(&cluster, json!({})).await;
    let review_status = review(&cluster, json!({ "token": token })).await;
    assert_eq!(review_status["authenticated"], true);
    assert_eq!(review_status["user"]["username"], "system:serviceaccount:default:robot");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(review_status["user"]["groups"], groups);
    assert_eq!(review_status["user"]["uid"], uid(&cluster.read(&format!("{ACCOUNTS}/robot")).await));
    assert_eq!(code(&cluster, &token).await, 200);
}

#[tokio::test]
async fn a_token_is_valid_for_its_audiences_and_period() {
    let cluster = issuing().await;
    let elsewhere = token(&cluster, json!({"audiences": ["elsewhere"]})).await;
    assert_eq!(code(&cluster, &elsewhere).await, 401);
    let review_status = review(&cluster, json!({"token": elsewhere, "audiences": ["elsewhere", "x"]})).await;
    assert_eq!(review_status["audiences"], json!(["elsewhere"]));
    let review_status = review(&cluster, json!({"token": elsewhere, "audiences": ["x"]})).await;
    let why =
        r#"[invalid bearer token, token audiences ["elsewhere"] is invalid for the target audiences ["x"]]"#;
    assert_eq!(review_status["error"], why);
    let short = token(&cluster, json!({"expirationSeconds": 600})).await;
    assert_eq!(code(&cluster, &short).await, 200);
    // clocks may disagree by a minute
    cluster.advance(Duration::from_secs(660));
    assert_eq!(code(&cluster, &short).await, 200);
    cluster.advance(Duration::from_secs(1));
    assert_eq!(code(&cluster, &short).await, 401);
    let path = format!("{ACCOUNTS}/robot/token");
    cluster.post(&path, json!({"spec": {"expirationSeconds": 599}})).await.refused(422, "Invalid");
}

#[tokio::test]
async fn a_bound_token_ends_with_its_object() {
    let cluster = issuing().await;
    let mut object = pod("bound");
    object["spec"]["serviceAccountName"] = json!("robot");
    let created = cluster.create(PODS, object.clone()).await;
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "bound"}});
    let (to_pod, free) = (token(&cluster, bound).await, token(&cluster, json!({})).await);
    assert_eq!((code(&cluster, &to_pod).await, code(&cluster, &free).await), (200, 200));
    let extra = review(&cluster, json!({ "token": to_pod })).await["user"]["extra"].clone();
    let expected = json!({"authentication.kubernetes.io/pod-name": ["bound"],
        "authentication.kubernetes.io/pod-uid": [uid(&created)]});
    assert_eq!(extra, expected);
    cluster.delete(&format!("{PODS}/bound?gracePeriodSeconds=0")).await.code(200);
    assert_eq!((code(&cluster, &to_pod).await, code(&cluster, &free).await), (401, 200));
    // one of the same name is another
    cluster.create(PODS, object).await;
    assert_eq!(code(&cluster, &to_pod).await, 401);
    cluster.delete(&format!("{ACCOUNTS}/robot")).await.code(200);
    cluster.named(ACCOUNTS, "robot").await;
    assert_eq!(code(&cluster, &free).await, 401);
}

#[tokio::test]
async fn the_issuer_publishes_its_keys() {
    let cluster = issuing().await;
    let about = cluster.get("/.well-known/openid-configuration").await.code(200).json();
    assert_eq!(about["issuer"], "https://kubernetes.default.svc");
    assert_eq!(about["jwks_uri"], format!("https://{}/openid/v1/jwks", cluster.address));
    let answer = cluster.get("/openid/v1/jwks").await.code(200);
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    assert_eq!(answer.json()["keys"][0]["alg"], about["id_token_signing_alg_values_supported"][0]);
    let none = Cluster::start().await;
    none.get("/openid/v1/jwks").await.code(404);
    none.named(ACCOUNTS, "robot").await;
    none.post(&format!("{ACCOUNTS}/robot/token"), json!({})).await.refused(404, "NotFound");
}

#[tokio::test]
async fn access_reviews_match_the_authorizer() {
    let cluster = Cluster::start().await;
    let root = "/apis/authorization.k8s.io/v1";
    let jane = TestUser::Certificate(authority().client("jane", "developers"));
    let secrets = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}});
    let own = format!("{root}/selfsubjectaccessreviews");
    let review_status = cluster.post(&own, secrets.clone()).user(&jane).await.code(201).json();
    assert_eq!(review_status["status"]["allowed"], false);
    assert_eq!(cluster.post(&own, secrets).await.code(201).json()["status"]["allowed"], true);
    let discovery = json!({"spec": {"user": "x", "groups": ["system:authenticated"],
        "nonResourceAttributes": {"verb": "get", "path": "/apis"}}});
    let others = format!("{root}/subjectaccessreviews");
    let review_status = cluster.post(&others, discovery.clone()).await.code(201).json();
    assert_eq!(review_status["status"]["allowed"], true);
    cluster.post(&others, discovery).user(&jane).await.refused(403, "Forbidden");
    let rules = json!({"spec": {"namespace": "default"}});
    let rules =
        cluster.post(&format!("{root}/selfsubjectrulesreviews"), rules).user(&jane).await.code(201).json();
    assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["create"]));
    cluster.get(&others).await.refused(405, "MethodNotAllowed");
    cluster.get(&format!("{others}/x")).await.refused(404, "NotFound");
}
