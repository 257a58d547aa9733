//! "Using RBAC Authorization": roles and bindings.

use super::*;
use tests::{ApiRequest, Cluster};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn role(name: &str, verbs: &[&str], resources: &[&str]) -> Value {
    let rule =
        json!({"apiGroups": ["", "rbac.authorization.k8s.io"], "resources": resources, "verbs": verbs});
    json!({"metadata": {"name": name}, "rules": [rule]})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}],
    })
}

/// A user with the permissions of `system:authenticated` only.
fn bob(ask: ApiRequest<'_>) -> ApiRequest<'_> {
    ask.header("impersonate-user", "bob")
}

/// Roles count shortly after they were written.
async fn permitted(cluster: &Cluster, path: &str) {
    while bob(cluster.get(path)).await.status == 403 {
        tokio::task::yield_now().await;
    }
}

async fn revoked(cluster: &Cluster, path: &str) {
    while bob(cluster.get(path)).await.status != 403 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_bound_role_allows_its_rules_in_its_scope() {
    let cluster = Cluster::start().await;
    bob(cluster.get(CONFIGMAPS)).await.refused(403, "Forbidden");
    cluster.post(ROLES, role("r", &["get", "list", "patch"], &["configmaps", "pods/status"])).await.code(201);
    cluster.post(BINDINGS, binding("b", "Role", "r", "bob")).await.code(201);
    tests::soon("the role counts", permitted(&cluster, CONFIGMAPS)).await;
    bob(cluster.get("/api/v1/configmaps")).await.refused(403, "Forbidden");
    bob(cluster.get(SECRETS)).await.refused(403, "Forbidden");
    // a part of a resource is something of its own
    bob(cluster.get(&format!("{PODS}/none/status"))).await.refused(404, "NotFound");
    bob(cluster.get(&format!("{PODS}/none"))).await.refused(403, "Forbidden");
    bob(cluster.post(CONFIGMAPS, json!({"metadata": {"name": "c"}}))).await.refused(403, "Forbidden");
    // an apply that creates needs the create permission
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let ask = cluster.patch(&format!("{CONFIGMAPS}/c?fieldManager=m"), body);
    let status = bob(ask.content_type("application/apply-patch+yaml")).await.refused(403, "Forbidden");
    assert_eq!(status["message"], "configmaps \"c\" is forbidden: ");
    cluster.delete(&format!("{BINDINGS}/b")).await.code(200);
    tests::soon("the role no longer counts", revoked(&cluster, CONFIGMAPS)).await;
}

#[tokio::test]
async fn users_grant_only_permissions_that_they_have() {
    let cluster = Cluster::start().await;
    let writer = role("writer", &["create", "get"], &["roles", "rolebindings"]);
    cluster.post(CLUSTER_ROLES, writer).await.code(201);
    cluster.post(CLUSTER_BINDINGS, binding("writers", "ClusterRole", "writer", "bob")).await.code(201);
    tests::soon("the role counts", permitted(&cluster, &format!("{ROLES}/none"))).await;
    bob(cluster.post(ROLES, role("same", &["get"], &["roles"]))).await.code(201);
    let status = bob(cluster.post(ROLES, role("more", &["get", "list"], &["roles"]))).await;
    let message = status.refused(403, "Forbidden")["message"].to_string();
    assert!(message.contains("is attempting to grant RBAC permissions not currently held"), "{message}");
    let all = binding("all", "ClusterRole", "cluster-admin", "bob");
    bob(cluster.post(BINDINGS, all)).await.refused(403, "Forbidden");
    bob(cluster.post(BINDINGS, binding("none", "Role", "none", "bob"))).await.refused(404, "NotFound");
    let own = binding("own", "ClusterRole", "writer", "eve");
    bob(cluster.post(BINDINGS, own)).await.code(201);
}

#[tokio::test]
async fn bootstrap_roles_are_created_and_completed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    let viewer = format!("{CLUSTER_ROLES}/system:discovery");
    let before = cluster.get(&viewer).await.code(200).json();
    cluster.patch(&viewer, json!({"rules": []})).await.code(200);
    let kept = format!("{CLUSTER_ROLES}/system:basic-user");
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    let left_alone = json!({"metadata": {"annotations": annotations}, "rules": []});
    cluster.patch(&kept, left_alone).await.code(200);
    cluster.delete(&format!("{CLUSTER_BINDINGS}/system:discovery")).await.code(200);
    cluster.stop().await;
    let cluster = Cluster::on(directory.path()).await;
    assert_eq!(
        rules(&cluster, &viewer).await,
        (before["rules"][0]["nonResourceURLs"].as_array().unwrap().len(), true)
    );
    assert_eq!(rules(&cluster, &kept).await, (0, false));
    cluster.get(&format!("{CLUSTER_BINDINGS}/system:discovery")).await.code(200);
    bob(cluster.get("/apis")).await.code(200);
    // `edit` is aggregated from other roles
    cluster.post(BINDINGS, binding("editors", "ClusterRole", "edit", "bob")).await.code(201);
    tests::soon("the role counts", permitted(&cluster, SECRETS)).await;
}

/// How many paths a role permits, and whether it has rules at all.
async fn rules(cluster: &Cluster, path: &str) -> (usize, bool) {
    let role = cluster.get(path).await.code(200).json();
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    let paths = rules.iter().map(|rule| rule["nonResourceURLs"].as_array().map_or(0, Vec::len)).sum();
    (paths, !rules.is_empty())
}

#[tokio::test]
async fn impersonation_is_authorized_part_by_part() {
    let cluster = Cluster::start().await;
    let rule = |resource: &str, name: &str| json!({"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": ["impersonate"]});
    let rules =
        json!({"metadata": {"name": "actor"}, "rules": [rule("users", "eve"), rule("groups", "staff")]});
    cluster.post(CLUSTER_ROLES, rules).await.code(201);
    let mut actors = binding("actors", "ClusterRole", "actor", "jane");
    actors["subjects"][0]["name"] = json!("jane");
    cluster.post(CLUSTER_BINDINGS, actors).await.code(201);
    let jane = tests::TestUser::Certificate(tests::authority().client("jane", "people"));
    let ask = |user: &str, group: &str| {
        let ask = cluster.get("/api").user(&jane).header("impersonate-user", user);
        if group.is_empty() { ask } else { ask.header("impersonate-group", group) }
    };
    tests::soon("the role counts", async {
        while ask("eve", "").await.status == 403 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ask("eve", "staff").await.code(200);
    let status = ask("eve", "system:masters").await.refused(403, "Forbidden");
    let why = "groups \"system:masters\" is forbidden: User \"jane\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope";
    assert_eq!(status["message"], why);
    ask("root", "").await.refused(403, "Forbidden");
}
