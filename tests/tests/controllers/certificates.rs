//! Certificate signing requests: approval, signing and deletion.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controllers::csrsigning::{self, authority::Source};
use controllers::registry;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Request;
use kube::Api;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{ManagedCluster, Options, Pair, TestUser, authority, soon, until};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const AGENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
const TOKEN: &str = "abcdef.0123456789abcdef";

/// A cluster in which certificates are approved, signed and cleaned away.
async fn managed() -> ManagedCluster {
    let names = ["csrapproving", "csrsigning", "csrcleaner"];
    let Pair { certificate, key } = authority().pair();
    let options = registry::Options {
        controllers: names.iter().map(|name| (*name).to_owned()).collect(),
        csr_signing: csrsigning::Options::signed_by(Source::Held { certificate, key }),
        ..registry::Options::default()
    };
    let mut cluster = Options::default();
    cluster.authentication.bootstrap_tokens = true;
    ManagedCluster::with(cluster, options).await
}

/// A certificate signing request, and its key.
fn request(
    name: &str,
    signer: &str,
    subject: (&str, &str),
    hosts: &[&str],
    usages: &[&str],
) -> (Value, String) {
    let key = KeyPair::generate().unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject.0);
    params.distinguished_name.push(DnType::OrganizationName, subject.1);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let spec = json!({"request": STANDARD.encode(pem), "signerName": signer, "usages": usages});
    (json!({"metadata": {"name": name}, "spec": spec}), key.serialize_pem())
}

/// Decides about a request, as `kubectl certificate` does.
async fn decide(managed: &ManagedCluster, name: &str, kind: &str) {
    let path = format!("{REQUESTS}/{name}");
    let mut request = managed.cluster.read(&path).await;
    request["status"]["conditions"] =
        json!([{"type": kind, "status": "True", "reason": "Test", "message": "x"}]);
    managed.cluster.put(&format!("{path}/approval"), request).await.code(200);
}

async fn issued(managed: &ManagedCluster, name: &str) -> String {
    let api: Api<Request> = Api::all(managed.client());
    let has = |it: &Request| it.status.as_ref().is_some_and(|it| it.certificate.is_some());
    let all = until("the certificate", &api, |all| all.get(name).is_some_and(has)).await;
    let certificate = all[name].status.as_ref().unwrap().certificate.as_ref().unwrap();
    String::from_utf8(certificate.0.clone()).unwrap()
}

/// The conditions of a request, with their reasons and messages.
fn conditions(request: &Request) -> Vec<(String, String, String)> {
    let all = request.status.as_ref().and_then(|it| it.conditions.clone()).unwrap_or_default();
    let text = |it: Option<String>| it.unwrap_or_default();
    all.into_iter().map(|it| (it.type_, text(it.reason), text(it.message))).collect()
}

#[tokio::test]
async fn an_approved_request_gets_a_valid_certificate() {
    let mut managed = managed().await;
    let (mut csr, key) = request("jane", CLIENT, ("jane", "dev"), &[], &USAGES);
    csr["spec"]["expirationSeconds"] = 3600.into();
    managed.cluster.create(REQUESTS, csr).await;
    // the loops continue after a crash
    managed.restart_loops().await;
    decide(&managed, "jane", "Approved").await;
    managed.restart_loops().await;
    let certificate = issued(&managed, "jane").await;
    let jane = TestUser::Certificate(Pair { certificate, key });
    let response = managed.cluster.get("/api/v1/nodes").user(&jane).await.refused(403, "Forbidden");
    assert!(response["message"].as_str().unwrap().contains("User \"jane\""), "{response}");
    // it is valid for the requested duration
    managed.cluster.advance(Duration::from_secs(3599));
    managed.cluster.get("/api/v1/nodes").user(&jane).await.refused(403, "Forbidden");
    managed.cluster.advance(Duration::from_secs(2));
    managed.cluster.get("/api/v1/nodes").user(&jane).await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn an_invalid_request_fails_with_a_reason() {
    let managed = managed().await;
    let node = ("system:node:n", "system:nodes");
    for (name, signer, subject, hosts, usages, why) in [
        (
            "server",
            CLIENT,
            ("x", "y"),
            &[][..],
            &["server auth"][..],
            "invalid usage for client certificate: server auth",
        ),
        ("names", AGENT, node, &["n"], &USAGES, "DNS subjectAltNames are not allowed"),
        ("no-group", AGENT, ("system:node:n", "x"), &[], &USAGES, "subject organization is not system:nodes"),
        (
            "nameless",
            SERVING,
            node,
            &[],
            &["server auth", "digital signature"],
            "DNS or IP subjectAltName is required",
        ),
    ] {
        managed.cluster.create(REQUESTS, request(name, signer, subject, hosts, usages).0).await;
        decide(&managed, name, "Approved").await;
        let api: Api<Request> = Api::all(managed.client());
        let failed = |it: &Request| conditions(it).iter().any(|it| it.0 == "Failed");
        let all = until("the failure", &api, |all| all.get(name).is_some_and(failed)).await;
        let found = conditions(&all[name]).pop().unwrap();
        let expected = ("Failed".to_owned(), "SignerValidationFailure".to_owned(), why.to_owned());
        assert_eq!(found, expected, "{name}");
        assert!(all[name].status.as_ref().unwrap().certificate.is_none());
    }
    // other signers and other decisions are left alone
    managed.cluster.create(REQUESTS, request("other", "example.com/x", ("x", "y"), &[], &USAGES).0).await;
    managed.cluster.create(REQUESTS, request("denied", CLIENT, ("x", "y"), &[], &USAGES).0).await;
    decide(&managed, "other", "Approved").await;
    decide(&managed, "denied", "Denied").await;
    // later requests have been signed
    managed
        .cluster
        .create(
            REQUESTS,
            request("after", SERVING, node, &["n", "10.0.0.1"], &["server auth", "digital signature"]).0,
        )
        .await;
    decide(&managed, "after", "Approved").await;
    issued(&managed, "after").await;
    for name in ["other", "denied"] {
        assert_eq!(
            managed.cluster.read(&format!("{REQUESTS}/{name}")).await["status"]["certificate"],
            Value::Null
        );
    }
}

#[tokio::test]
async fn a_bootstrapping_node_gets_and_renews_its_certificate() {
    let mut managed = managed().await;
    let cluster = &managed.cluster;
    let (id, half) = TOKEN.split_once('.').unwrap();
    let token = json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": half, "usage-bootstrap-authentication": "true"}});
    cluster.create("/api/v1/namespaces/kube-system/secrets", token).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let bind = |role: &str, group: &str| {
        json!({"metadata": {"name": format!("{}-{}", role.replace(':', "-"), group.replace(':', "-"))},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]})
    };
    cluster.create(roles, bind("system:node-bootstrapper", "system:bootstrappers")).await;
    let bearer = format!("Bearer {TOKEN}");
    let (csr, key) = request("n", AGENT, ("system:node:n", "system:nodes"), &[], &USAGES);
    cluster.post(REQUESTS, csr).user(&TestUser::Anonymous).header("authorization", &bearer).await.code(201);
    // it waits for permission, also after a crash
    managed.restart_loops().await;
    let role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    managed.cluster.create(roles, bind(role, "system:bootstrappers")).await;
    let certificate = issued(&managed, "n").await;
    let api: Api<Request> = Api::all(managed.client());
    let found = conditions(&api.get("n").await.unwrap());
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!(found, [("Approved".to_owned(), "AutoApproved".to_owned(), message.to_owned())]);
    // with it the agent asks for the next one in its own name
    let agent = TestUser::Certificate(Pair { certificate, key });
    managed.cluster.create(roles, bind("system:node-bootstrapper", "system:nodes")).await;
    let role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
    managed.cluster.create(roles, bind(role, "system:nodes")).await;
    let (csr, _) = request("n2", AGENT, ("system:node:n", "system:nodes"), &[], &USAGES);
    managed.cluster.post(REQUESTS, csr).user(&agent).await.code(201);
    issued(&managed, "n2").await;
    // and for no other node
    let (csr, _) = request("m", AGENT, ("system:node:m", "system:nodes"), &[], &USAGES);
    managed.cluster.post(REQUESTS, csr).user(&agent).await.code(201);
    let (csr, _) = request("n3", AGENT, ("system:node:n", "system:nodes"), &[], &USAGES);
    managed.cluster.post(REQUESTS, csr).user(&agent).await.code(201);
    issued(&managed, "n3").await;
    assert_eq!(conditions(&api.get("m").await.unwrap()), []);
}

#[tokio::test]
async fn expired_requests_are_deleted() {
    let mut managed = managed().await;
    for name in ["approved", "denied", "pending"] {
        managed.cluster.create(REQUESTS, request(name, CLIENT, ("x", "y"), &[], &USAGES).0).await;
    }
    managed.cluster.create(REQUESTS, request("unsigned", "example.com/x", ("x", "y"), &[], &USAGES).0).await;
    decide(&managed, "approved", "Approved").await;
    decide(&managed, "unsigned", "Approved").await;
    decide(&managed, "denied", "Denied").await;
    issued(&managed, "approved").await;
    let api: Api<Request> = Api::all(managed.client());
    // a restart makes the loop read the clock
    managed.cluster.advance(Duration::from_secs(3602));
    managed.restart_loops().await;
    until("two are gone", &api, |all| all.len() == 2).await;
    managed.cluster.advance(Duration::from_secs(24 * 3600));
    managed.restart_loops().await;
    let left = until("one more is gone", &api, |all| all.len() == 1).await;
    assert!(left.contains_key("unsigned"));
}

#[tokio::test]
async fn concurrent_writes_of_requests_are_kept() {
    let managed = managed().await;
    let meddling = async {
        for round in 0.. {
            let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            managed.cluster.patch(&format!("{REQUESTS}/busy"), patch).await.code(200);
        }
    };
    managed.cluster.create(REQUESTS, request("busy", CLIENT, ("x", "y"), &[], &USAGES).0).await;
    let approve = async {
        loop {
            let path = format!("{REQUESTS}/busy");
            let mut request = managed.cluster.read(&path).await;
            request["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "x"}]);
            if managed.cluster.put(&format!("{path}/approval"), request).await.status == 200 {
                break;
            }
        }
        issued(&managed, "busy").await;
    };
    soon("the certificate in spite of others", async {
        tokio::select! {
            () = meddling => unreachable!("it never ends"),
            () = approve => {}
        }
    })
    .await;
}
