//! Attempts of users who write roles, bindings and signing requests to get permissions that they do not have.

use super::arena::{Arena, Attack, Attacker, attack};
use super::*;
use http::Method;

const HELD: &str = "is attempting to grant RBAC permissions not currently held";
const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

fn by_writer(name: &'static str) -> Attack {
    attack(name).by(Attacker::RoleWriter)
}

fn by_roles() -> Vec<Attack> {
    let roles = format!("{RBAC}/clusterroles");
    let own = format!("{roles}/role-writer");
    let role = |rules: Value| json!({"metadata": {"name": "mine"}, "rules": rules});
    let rule = |group: &str, resource: &str, verb: &str| json!([{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]);
    let mut applied = role(everything());
    applied["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    applied["kind"] = json!("ClusterRole");
    let add = json!([{"op": "add", "path": "/rules/-", "value": everything()[0]}]);
    let aggregated = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let path = |verb: &str| json!([{"nonResourceURLs": ["/metrics"], "verbs": [verb]}]);
    vec![
        by_writer("a role by apply")
            .send(Method::PATCH, format!("{roles}/mine?fieldManager=x"))
            .body(applied)
            .header("content-type", APPLY)
            .forbidden(HELD),
        by_writer("a rule by a JSON patch")
            .send(Method::PATCH, &own)
            .body(add)
            .header("content-type", JSON_PATCH)
            .forbidden(HELD),
        by_writer("a rule by a strategic merge patch")
            .send(Method::PATCH, &own)
            .body(json!({"rules": everything()}))
            .header("content-type", STRATEGIC)
            .forbidden(HELD),
        by_writer("a role with the verb escalate")
            .post(&roles, role(rule("rbac.authorization.k8s.io", "clusterroles", "escalate")))
            .forbidden(HELD),
        by_writer("a role with the verb bind for all roles")
            .post(&roles, role(rule("rbac.authorization.k8s.io", "clusterroles", "bind")))
            .forbidden(HELD),
        by_writer("a role with the verb impersonate")
            .post(&roles, role(rule("", "users", "impersonate")))
            .forbidden(HELD),
        by_writer("a role with the tokens of accounts")
            .post(&roles, role(rule("", "serviceaccounts/token", "create")))
            .forbidden(HELD),
        by_writer("a role with the proxies of nodes")
            .post(&roles, role(rule("", "nodes/proxy", "get")))
            .forbidden(HELD),
        by_writer("a role with all subresources")
            .post(&roles, role(rule("", "*/status", "get")))
            .forbidden(HELD),
        by_writer("a role with a path").post(&roles, role(path("get"))).forbidden(HELD),
        by_writer("a role of a namespace with all permissions")
            .post(format!("{RBAC}/namespaces/kube-system/roles"), role(everything()))
            .forbidden(HELD),
        by_writer("the role of the administrators as a part of another role")
            .patch(format!("{roles}/cluster-admin"), aggregated)
            .forbidden(HELD),
        by_writer("a wider aggregation of an existing role")
            .patch(
                format!("{roles}/view"),
                json!({"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [
                    {"key": "kubernetes.io/bootstrapping", "operator": "Exists"}]}]}}),
            )
            .forbidden("must have cluster-admin privileges to use the aggregationRule"),
        by_writer("a role whose creation is a dry run")
            .post(format!("{roles}?dryRun=All"), role(everything()))
            .forbidden(HELD),
    ]
}

fn by_bindings() -> Vec<Attack> {
    let bindings = format!("{RBAC}/clusterrolebindings");
    let of_system = format!("{RBAC}/namespaces/kube-system/rolebindings");
    let binding = |role: &str, subjects: Value| json!({"metadata": {"name": "mine"}, "roleRef": cluster_role(role), "subjects": subjects});
    let own = || user("role-writer");
    let group = json!([{"kind": "Group", "name": "system:authenticated"}]);
    let account = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]);
    let mut applied = binding("cluster-admin", own());
    applied["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    applied["kind"] = json!("ClusterRoleBinding");
    vec![
        by_writer("a binding to the administrators by apply")
            .send(Method::PATCH, format!("{bindings}/mine?fieldManager=x"))
            .body(applied)
            .header("content-type", APPLY)
            .forbidden(HELD),
        by_writer("a binding of all users to the administrators")
            .post(&bindings, binding("cluster-admin", group))
            .forbidden(HELD),
        by_writer("a binding of an account to the administrators")
            .post(&bindings, binding("cluster-admin", account))
            .forbidden(HELD),
        by_writer("a binding in the system's namespace")
            .post(&of_system, binding("cluster-admin", own()))
            .forbidden(HELD),
        by_writer("a binding to another role than the one that may be bound")
            .post(&bindings, binding("system:node", own()))
            .forbidden(HELD),
        by_writer("a binding whose role is replaced")
            .patch(format!("{bindings}/role-writer"), json!({"roleRef": {"name": "cluster-admin"}}))
            .forbidden(HELD),
        by_writer("a member more of the administrators' binding")
            .send(Method::PATCH, format!("{bindings}/cluster-admin"))
            .body(json!([{"op": "add", "path": "/subjects/-", "value": own()[0]}]))
            .header("content-type", JSON_PATCH)
            .forbidden(HELD),
        by_writer("a binding that is deleted without the permission")
            .delete(format!("{bindings}/cluster-admin"))
            .forbidden("cannot delete resource"),
        by_writer("a binding to a role of a kind that does not exist")
            .post(
                &of_system,
                json!({"metadata": {"name": "x"}, "subjects": own(),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Everything", "name": "x"}}),
            )
            .refused(500, "", "unsupported role reference kind"),
    ]
}

fn by_signing_requests() -> Vec<Attack> {
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    vec![
        by_writer("an approval of a request without permission for its signer")
            .patch(format!("{REQUESTS}/pending/approval"), approved.clone())
            .forbidden("user not permitted to approve requests with signerName"),
        by_writer("a certificate that is written into a request")
            .patch(format!("{REQUESTS}/pending/status"), json!({"status": {"certificate": "eA=="}}))
            .forbidden("cannot patch resource"),
        attack("an approval by the owner of a namespace")
            .by(Attacker::Owner)
            .patch(format!("{REQUESTS}/pending/approval"), approved)
            .forbidden("cannot patch resource"),
    ]
}

#[tokio::test]
async fn roles_grant_no_more_than_their_writer_has() {
    Arena::start().await.run("Roles", by_roles()).await;
}

#[tokio::test]
async fn bindings_grant_no_more_than_their_writer_has() {
    Arena::start().await.run("Bindings", by_bindings()).await;
}

#[tokio::test]
async fn requests_are_not_approved_by_their_writer() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let arena = Arena::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let request = json!({"metadata": {"name": "pending"}, "spec": {"request": STANDARD.encode(pem),
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    arena.cluster.create(REQUESTS, request).await;
    arena.run("Signing requests", by_signing_requests()).await;
}
