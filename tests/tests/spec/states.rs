//! "States and transitions": the conditions of a certificate signing request. Deletion is in `deletion`.

use super::signing_requests::{request, signing_request};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::{Cluster, authority};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/a";

async fn pending() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(REQUESTS, signing_request("a")).await;
    cluster
}

async fn approved() -> Cluster {
    let cluster = pending().await;
    write(&cluster, "approval", json!({"conditions": [condition("Approved")]})).await.code(200);
    cluster
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Tested", "message": "by a test"})
}

/// A certificate, as PEM in base64.
fn certificate() -> String {
    STANDARD.encode(authority().client("issued", "").certificate)
}

async fn write(cluster: &Cluster, part: &str, status: Value) -> tests::ApiResponse {
    let mut next = cluster.read(PATH).await;
    next["status"] = status;
    cluster.put(&format!("{PATH}/{part}"), next).await
}

#[tokio::test]
async fn a_request_starts_without_a_condition() {
    let cluster = pending().await;
    let created = cluster.read(PATH).await;
    assert_eq!(created["status"], json!({}));
    // the status is not the creator's to set
    let mut given = signing_request("b");
    given["status"] = json!({"conditions": [condition("Approved")], "certificate": certificate()});
    assert_eq!(cluster.create(REQUESTS, given).await["status"], json!({}));
}

#[tokio::test]
async fn approval_approves_or_denies() {
    for kind in ["Approved", "Denied"] {
        let cluster = pending().await;
        let next =
            write(&cluster, "approval", json!({"conditions": [condition(kind)]})).await.code(200).json();
        let found = &next["status"]["conditions"][0];
        assert_eq!((&found["type"], &found["status"]), (&json!(kind), &json!("True")));
        assert_eq!(found["lastTransitionTime"], "2023-11-14T22:13:20Z", "set when the client leaves it out");
        assert_eq!(next["status"].get("certificate"), None);
    }
}

#[tokio::test]
async fn approval_may_be_patched() {
    let cluster = pending().await;
    let patch = json!({"status": {"conditions": [condition("Approved")]}});
    let next = cluster.patch(&format!("{PATH}/approval"), patch).await.code(200).json();
    assert_eq!(next["status"]["conditions"][0]["type"], "Approved");
}

#[tokio::test]
async fn only_the_approval_subresource_approves() {
    let cluster = pending().await;
    write(&cluster, "status", json!({"conditions": [condition("Approved")]})).await.refused(422, "Invalid");
    let mut next = cluster.read(PATH).await;
    next["status"] = json!({"conditions": [condition("Approved")]});
    assert_eq!(
        cluster.put(PATH, next).await.code(200).json()["status"],
        json!({}),
        "a plain write has no say"
    );
}

#[tokio::test]
async fn approved_and_denied_exclude_each_other() {
    let cluster = approved().await;
    let both = json!({"conditions": [condition("Approved"), condition("Denied")]});
    write(&cluster, "approval", both).await.refused(422, "Invalid");
}

#[tokio::test]
async fn conditions_stay_once_added() {
    let cluster = approved().await;
    let status = write(&cluster, "approval", json!({"conditions": []})).await.refused(422, "Invalid");
    assert!(status["message"].as_str().unwrap().contains("may not remove a condition"), "{status}");
    let failed = json!({"conditions": [condition("Approved"), condition("Failed")]});
    write(&cluster, "status", failed).await.code(200);
    let only = json!({"conditions": [condition("Approved")]});
    write(&cluster, "status", only).await.refused(422, "Invalid");
}

#[tokio::test]
async fn each_condition_type_occurs_once() {
    let cluster = pending().await;
    let twice = json!({"conditions": [condition("Approved"), condition("Approved")]});
    let status = write(&cluster, "approval", twice).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["status.conditions[1].type"]);
}

#[tokio::test]
async fn the_three_conditions_are_true_or_absent() {
    let cluster = pending().await;
    for (part, kind) in [("approval", "Approved"), ("approval", "Denied"), ("status", "Failed")] {
        for value in ["False", "Unknown", ""] {
            let mut one = condition(kind);
            one["status"] = value.into();
            let status = write(&cluster, part, json!({"conditions": [one]})).await.refused(422, "Invalid");
            assert_eq!(fields(&status), ["status.conditions[0].status"], "{kind} {value}");
        }
    }
}

#[tokio::test]
async fn a_signer_sets_the_certificate_once() {
    let cluster = approved().await;
    let conditions = cluster.read(PATH).await["status"]["conditions"].clone();
    let issued = json!({"conditions": conditions, "certificate": certificate()});
    let next = write(&cluster, "status", issued.clone()).await.code(200).json();
    assert_eq!(next["status"]["certificate"], issued["certificate"]);
    let other = json!({"conditions": conditions, "certificate": certificate()});
    let status = write(&cluster, "status", other).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["status.certificate"]);
}

#[tokio::test]
async fn a_signer_may_fail() {
    let cluster = approved().await;
    let failed = json!({"conditions": [condition("Approved"), condition("Failed")]});
    let next = write(&cluster, "status", failed).await.code(200).json();
    assert_eq!(next["status"]["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(next["status"].get("certificate"), None);
}

#[tokio::test]
async fn a_certificate_is_pem_blocks_of_certificates() {
    let cluster = approved().await;
    let conditions = cluster.read(PATH).await["status"]["conditions"].clone();
    let text = String::from_utf8(STANDARD.decode(certificate()).unwrap()).unwrap();
    let headed = text.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nA: b\n\n");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for bad in [STANDARD.encode("text only"), request(), STANDARD.encode(headed), STANDARD.encode(broken)] {
        let issued = json!({"conditions": conditions, "certificate": bad});
        let status = write(&cluster, "status", issued).await.refused(422, "Invalid");
        assert!(fields(&status).contains(&"status.certificate"), "{status}");
    }
    // text around the blocks is ignored, and intermediates may follow
    let chain = format!("before\n{text}{text}after\n");
    let issued = json!({"conditions": conditions, "certificate": STANDARD.encode(chain)});
    write(&cluster, "status", issued).await.code(200);
}
