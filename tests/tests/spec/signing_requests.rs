//! "CertificateSigningRequest": its fields. The conditions are in `states`.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::{Cluster, TestUser, authority, escape};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// A request for a signature, as PEM in base64.
pub fn request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    STANDARD.encode(pem)
}

/// A request for a client certificate.
pub fn signing_request(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"request": request(), "signerName": CLIENT,
        "usages": ["digital signature", "key encipherment", "client auth"]}})
}

#[tokio::test]
async fn client_fields_are_stored_and_user_fields_are_derived() {
    let cluster = Cluster::start().await;
    let mut given = signing_request("a");
    given["spec"]["expirationSeconds"] = 600.into();
    given["spec"]["username"] = "another-user".into();
    given["spec"]["groups"] = json!(["others"]);
    let created = cluster.create(REQUESTS, given.clone()).await;
    for field in ["request", "signerName", "usages", "expirationSeconds"] {
        assert_eq!(created["spec"][field], given["spec"][field]);
    }
    assert_eq!(created["spec"]["username"], "admin");
    assert_eq!(created["spec"]["groups"], json!(["system:masters", "system:authenticated"]));
}

#[tokio::test]
async fn the_creator_may_be_impersonated() {
    let cluster = Cluster::start().await;
    let created = cluster
        .post(REQUESTS, signing_request("a"))
        .header("impersonate-user", "jane")
        .header("impersonate-uid", "u-1")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-scopes", "view")
        .await
        .code(201)
        .json();
    assert_eq!(created["spec"]["username"], "jane");
    assert_eq!(created["spec"]["uid"], "u-1");
    assert_eq!(created["spec"]["extra"], json!({"scopes": ["view"]}));
}

#[tokio::test]
async fn the_spec_does_not_change_after_creation() {
    let cluster = Cluster::start().await;
    let created = cluster.create(REQUESTS, signing_request("a")).await;
    let mut changed = created.clone();
    changed["spec"]["signerName"] = "example.com/other".into();
    changed["spec"]["expirationSeconds"] = 7200.into();
    changed["spec"]["username"] = "jane".into();
    let answer = cluster.put(&format!("{REQUESTS}/a"), changed).await;
    assert!(matches!(answer.status, 200 | 422), "{}", answer.text());
    assert_eq!(cluster.read(&format!("{REQUESTS}/a")).await["spec"], created["spec"]);
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let cluster = Cluster::start().await;
    let set = |field: &str, value: Value| {
        let mut given = signing_request("a");
        given["spec"][field] = value;
        given
    };
    let certificate = authority().client("x", "");
    for (given, field) in [
        (set("request", "".into()), "spec.request"),
        (set("request", STANDARD.encode("not PEM").into()), "spec.request"),
        (set("request", STANDARD.encode(certificate.certificate).into()), "spec.request"),
        (set("signerName", "".into()), "spec.signerName"),
        (set("signerName", "nodomain".into()), "spec.signerName"),
        (set("signerName", "Example.com/X y".into()), "spec.signerName"),
        (set("expirationSeconds", 599.into()), "spec.expirationSeconds"),
        (set("usages", json!(["client auth", "flying"])), "spec.usages[1]"),
        (set("usages", json!(["client auth", "client auth"])), "spec.usages[1]"),
    ] {
        let status = cluster.post(REQUESTS, given).await.refused(422, "Invalid");
        assert!(fields(&status).contains(&field), "{field}: {status}");
    }
}

#[tokio::test]
async fn every_listed_usage_is_allowed() {
    let cluster = Cluster::start().await;
    let usages = [
        "signing",
        "digital signature",
        "content commitment",
        "key encipherment",
        "key agreement",
        "data encipherment",
        "cert sign",
        "crl sign",
        "encipher only",
        "decipher only",
        "any",
        "server auth",
        "client auth",
        "code signing",
        "email protection",
        "s/mime",
        "ipsec end system",
        "ipsec tunnel",
        "ipsec user",
        "timestamping",
        "ocsp signing",
        "microsoft sgc",
        "netscape sgc",
    ];
    let mut given = signing_request("a");
    given["spec"]["usages"] = json!(usages);
    given["spec"]["signerName"] = "example.com/any".into();
    assert_eq!(cluster.create(REQUESTS, given).await["spec"]["usages"], json!(usages));
}

#[tokio::test]
async fn lists_and_watches_select_by_signer() {
    let cluster = Cluster::start().await;
    cluster.create(REQUESTS, signing_request("ours")).await;
    let mut other = signing_request("other");
    other["spec"]["signerName"] = "example.com/other".into();
    cluster.create(REQUESTS, other).await;
    let selected = format!("{REQUESTS}?fieldSelector={}", escape(&format!("spec.signerName={CLIENT}")));
    assert_eq!(names(&cluster.read(&selected).await), ["ours"]);
    let mut watch = cluster.get(&format!("{selected}&watch=1")).watch().await;
    watch.expect("ADDED", "ours").await;
    cluster.create(REQUESTS, signing_request("ours-too")).await;
    watch.expect("ADDED", "ours-too").await;
}

#[tokio::test]
async fn subresources_are_read_like_the_object() {
    let cluster = Cluster::start().await;
    let created = cluster.create(REQUESTS, signing_request("a")).await;
    for part in ["", "/approval", "/status"] {
        assert_eq!(cluster.read(&format!("{REQUESTS}/a{part}")).await, created);
    }
    cluster.delete(&format!("{REQUESTS}/a/approval")).await.refused(405, "MethodNotAllowed");
    cluster.get(&format!("{REQUESTS}/a/approval")).user(&TestUser::Anonymous).await.refused(403, "Forbidden");
    let gone = cluster.delete(&format!("{REQUESTS}/a")).await.code(200).json();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
}
