//! "Authorization": privilege escalation is rejected in all its forms.

use super::identity::signing;
use super::signing_requests::signing_request;
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::{ApiRequest, Cluster, Options, TestUser, authority};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MASTERS: &str = "system:masters";

/// Eve may write all roles, bindings and requests for certificates, and nothing else.
async fn with_eve() -> Cluster {
    let cluster = Cluster::with(Options { authentication: signing(), ..Options::default() }).await;
    let rule = |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "create", "update", "patch"]});
    let rules = json!([
        rule(
            "rbac.authorization.k8s.io",
            json!(["roles", "clusterroles", "rolebindings", "clusterrolebindings"])
        ),
        rule(
            "certificates.k8s.io",
            json!([
                "certificatesigningrequests",
                "certificatesigningrequests/approval",
                "certificatesigningrequests/status"
            ])
        ),
        rule("", json!(["serviceaccounts"])),
    ]);
    let named = json!({"name": "eves"});
    cluster.create(&format!("{RBAC}/clusterroles"), json!({"metadata": named, "rules": rules})).await;
    let subjects = json!([{"kind": "User", "name": "eve"}]);
    let binding = json!({"metadata": named, "roleRef": reference("eves"), "subjects": subjects});
    cluster.create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    tests::soon("the role counts", async {
        while eve(cluster.get(&format!("{RBAC}/clusterroles/none"))).await.status == 403 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster
}

fn reference(role: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role})
}

fn eve(ask: ApiRequest<'_>) -> ApiRequest<'_> {
    ask.user(&TestUser::Certificate(authority().client("eve", "people")))
}

#[tokio::test]
async fn no_escalation_by_creating_changing_or_aggregating_a_role() {
    let cluster = with_eve().await;
    let roles = format!("{RBAC}/clusterroles");
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let named = |name: &str, rules: &Value| json!({"metadata": {"name": name}, "rules": rules});
    let held = "is attempting to grant RBAC permissions not currently held";
    for ask in [
        cluster.post(&roles, named("mine", &all)),
        cluster.put(&format!("{roles}/mine"), named("mine", &all)),
        cluster.patch(&format!("{roles}/eves"), json!({"rules": all})),
        cluster.post(&format!("{RBAC}/namespaces/default/roles"), named("mine", &all)),
        cluster.post(&roles, named("paths", &json!([{"nonResourceURLs": ["*"], "verbs": ["get"]}]))),
    ] {
        let status = eve(ask).await.refused(403, "Forbidden");
        assert!(status["message"].to_string().contains(held), "{status}");
    }
    // nor by aggregation from other roles
    let mut gathering = named("mine", &json!([]));
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let status = eve(cluster.post(&roles, gathering)).await.refused(403, "Forbidden");
    let why = "must have cluster-admin privileges to use the aggregationRule";
    assert!(status["message"].to_string().contains(why), "{status}");
    // a dry run asks for the same
    eve(cluster.post(&format!("{roles}?dryRun=All"), named("mine", &all))).await.refused(403, "Forbidden");
}

#[tokio::test]
async fn no_escalation_by_a_binding() {
    let cluster = with_eve().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let own = json!([{"kind": "User", "name": "eve"}]);
    let to = |role: &str| json!({"metadata": {"name": "mine"}, "roleRef": reference(role), "subjects": own});
    eve(cluster.post(&bindings, to("cluster-admin"))).await.refused(403, "Forbidden");
    let here = format!("{RBAC}/namespaces/default/rolebindings");
    eve(cluster.post(&here, to("admin"))).await.refused(403, "Forbidden");
    // one that is there already is not to be joined
    let admins = format!("{bindings}/cluster-admin");
    eve(cluster.patch(&admins, json!({"subjects": own}))).await.refused(403, "Forbidden");
    let without_subjects = json!({"metadata": {"name": "empty"}, "roleRef": reference("cluster-admin")});
    cluster.create(&bindings, without_subjects).await;
    eve(cluster.patch(&format!("{bindings}/empty"), json!({"subjects": own})))
        .await
        .refused(403, "Forbidden");
    // the role of a binding is immutable
    eve(cluster.post(&bindings, to("eves"))).await.code(201);
    eve(cluster.patch(&format!("{bindings}/mine"), json!({"roleRef": {"name": "cluster-admin"}})))
        .await
        .refused(403, "Forbidden");
}

#[tokio::test]
async fn no_escalation_by_a_certificate() {
    let cluster = with_eve().await;
    let asking = |name: &str, signer: &str, group: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "people");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut request = signing_request(name);
        request["spec"]["request"] =
            json!(STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap()));
        request["spec"]["signerName"] = json!(signer);
        request
    };
    // in every spelling of the signer, and for every user
    for signer in ["kubernetes.io/kube-apiserver-client", "kubernetes.io/cluster-apiserver-client"] {
        let status =
            eve(cluster.post(REQUESTS, asking("a", signer, MASTERS))).await.refused(403, "Forbidden");
        let why = format!("use of {signer} signer with {MASTERS} group is not allowed");
        assert!(status["message"].to_string().contains(&why), "{status}");
        cluster.post(REQUESTS, asking("a", signer, MASTERS)).await.refused(403, "Forbidden");
    }
    let client = "kubernetes.io/kube-apiserver-client";
    eve(cluster.post(REQUESTS, asking("b", client, "people"))).await.code(201);
    // approval and signing need permission for the signer
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let decide = |part: &str| eve(cluster.patch(&format!("{REQUESTS}/b/{part}"), approve.clone()));
    let status = decide("approval").await.refused(403, "Forbidden");
    let why = format!("user not permitted to approve requests with signerName \\\"{client}\\\"");
    assert!(status["message"].to_string().contains(&why), "{status}");
    cluster.patch(&format!("{REQUESTS}/b/approval"), approve.clone()).await.code(200);
    let issue =
        json!({"status": {"certificate": STANDARD.encode(authority().client("eve", "x").certificate)}});
    let status = eve(cluster.patch(&format!("{REQUESTS}/b/status"), issue)).await.refused(403, "Forbidden");
    assert!(status["message"].to_string().contains("user not permitted to sign requests"), "{status}");
}

#[tokio::test]
async fn the_certificate_plugins_are_separate() {
    let plugins = ["CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction"];
    for off in plugins {
        let mut admission = Options::default().admission;
        admission.disable.push(off.to_owned());
        let cluster = Cluster::with(Options { admission, ..Options::default() }).await;
        let rules = json!([{"apiGroups": ["*"], "verbs": ["get", "create", "patch"],
            "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
                "certificatesigningrequests/status"]}]);
        cluster
            .create(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "r"}, "rules": rules}))
            .await;
        let subjects = json!([{"kind": "User", "name": "eve"}]);
        let binding = json!({"metadata": {"name": "r"}, "roleRef": reference("r"), "subjects": subjects});
        cluster.create(&format!("{RBAC}/clusterrolebindings"), binding).await;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, MASTERS);
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut masters = signing_request("m");
        masters["spec"]["request"] = json!(STANDARD.encode(pem));
        cluster.create(REQUESTS, signing_request("a")).await;
        tests::soon("the role counts", async {
            while eve(cluster.get(&format!("{REQUESTS}/a"))).await.status == 403 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let condition = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
        let path = format!("{REQUESTS}/a");
        let codes = [
            eve(cluster.patch(&format!("{path}/status"), condition("Other"))).await.status,
            eve(cluster.patch(&format!("{path}/approval"), condition("Approved"))).await.status,
            eve(cluster.post(REQUESTS, masters)).await.status,
        ];
        let expected =
            ["CertificateSigning", "CertificateApproval", "CertificateSubjectRestriction"].map(|plugin| {
                if plugin != off {
                    403
                } else if plugin.ends_with("Restriction") {
                    201
                } else {
                    200
                }
            });
        assert_eq!(codes, expected, "without {off}");
    }
}

#[tokio::test]
async fn no_escalation_by_impersonation() {
    let cluster = with_eve().await;
    for (header, value) in [
        ("impersonate-user", "admin"),
        ("impersonate-user", "system:serviceaccount:kube-system:default"),
        ("impersonate-user", "eve"),
    ] {
        eve(cluster.get(SECRETS)).header(header, value).await.refused(403, "Forbidden");
        let grouped = eve(cluster.get(SECRETS)).header(header, value).header("impersonate-group", MASTERS);
        grouped.await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn no_escalation_by_the_token_of_a_stronger_account() {
    let cluster = with_eve().await;
    cluster.named(ACCOUNTS, "robot").await;
    let subjects = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]);
    let binding =
        json!({"metadata": {"name": "robots"}, "roleRef": reference("cluster-admin"), "subjects": subjects});
    cluster.create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    // permission to write accounts does not permit their tokens
    let ask = eve(cluster.post(&format!("{ACCOUNTS}/robot/token"), json!({"spec": {}})));
    let status = ask.await.refused(403, "Forbidden");
    assert!(
        status["message"].to_string().contains("cannot create resource \\\"serviceaccounts/token\\\""),
        "{status}"
    );
    cluster.post(&format!("{ACCOUNTS}/robot/token"), json!({"spec": {}})).await.code(201);
}

#[tokio::test]
async fn authorizers_run_in_order_until_one_allows() {
    use auth::Mode::{AlwaysAllow, AlwaysDeny, Rbac};
    for (modes, code) in [
        (vec![AlwaysAllow], 200),
        (vec![AlwaysDeny], 403),
        (vec![AlwaysDeny, AlwaysAllow], 200),
        (vec![Rbac], 403),
        (vec![Rbac, AlwaysAllow], 200),
    ] {
        let authorization = apiserver::authorization::Options { modes: modes.clone(), ..Default::default() };
        let cluster = Cluster::with(Options { authorization, ..Options::default() }).await;
        let answer = eve(cluster.get(SECRETS)).await;
        assert_eq!(answer.status, code, "{modes:?}");
        if modes == [AlwaysDeny] {
            assert!(answer.text().contains(": Everything is forbidden."), "{}", answer.text());
        }
        // the masters are above all modes
        cluster.get(SECRETS).await.code(200);
    }
}
