//! The rights of components that upstream's bootstrap policy does not know, each as a user of its own.
//!
//! | user | role | what for |
//! |---|---|---|
//! | `system:kube-dns` | `pintle:dns`, and in the system namespace a role of this name | names of services; the DNS service and its slices |
//! | `system:pintle:network-policies`, nodes | `pintle:node-policies` | network policies, and the pods that they select |
//!
//! Roles and bindings that exist are left as they are.

use api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use client::{Api, Client, Error};
use names::Names;
use serde_json::{Value, json};

use super::create_missing::ensure;

const DNS: &str = "pintle:dns";
/// The role of those who enforce network policies.
pub const NODE_POLICIES: &str = "pintle:node-policies";

/// The user that enforces network policies beside the API server.
pub const POLICIES_USER: &str = "system:pintle:network-policies";

/// The user of cluster DNS beside the API server.
pub fn dns_user(names: &Names) -> String {
    format!("system:{}-dns", names.prefix)
}

fn reference(names: &Names, kind: &str, name: &str) -> Value {
    json!({"kind": kind, "apiGroup": names.group("rbac.authorization"), "name": name})
}

fn read(group: &str, resources: &[&str]) -> Value {
    json!({"verbs": ["get", "list", "watch"], "apiGroups": [group], "resources": resources})
}

/// Creates a role for the whole cluster, and binds it to a user.
async fn grant(client: &Client, names: &Names, role: Value, user: &str) -> Result<(), Error> {
    let name = role["metadata"]["name"].clone();
    let binding = json!({
        "metadata": {"name": if user == POLICIES_USER { json!("pintle:network-policies") } else { name.clone() }},
        "roleRef": reference(names, "ClusterRole", name.as_str().unwrap_or_default()),
        "subjects": [reference(names, "User", user)],
    });
    ensure(&Api::<ClusterRole>::all(client), role).await?;
    ensure(&Api::<ClusterRoleBinding>::all(client), binding).await?;
    Ok(())
}

/// The role of those who enforce network policies, which select pods by their namespaces.
pub fn node_policies(names: &Names) -> Value {
    json!({
        "metadata": {"name": NODE_POLICIES},
        "rules": [
            read("", &["namespaces", "pods"]),
            read(&names.group("networking"), &["networkpolicies"]),
        ],
    })
}

fn dns(names: &Names) -> Value {
    json!({
        "metadata": {"name": DNS},
        "rules": [
            read("", &["namespaces", "nodes", "services"]),
            read(&names.group("discovery"), &["endpointslices"]),
        ],
    })
}

/// The DNS service by its name, and the slices that lead to servers.
fn dns_service(names: &Names) -> Value {
    let namespace = names.system_namespace();
    json!({
        "metadata": {"name": DNS, "namespace": namespace},
        "rules": [
            {"verbs": ["create"], "apiGroups": [""], "resources": ["services"]},
            {"verbs": ["patch"], "apiGroups": [""], "resources": ["services"],
                "resourceNames": [format!("{}-dns", names.prefix)]},
            {"verbs": ["create", "update", "delete"], "apiGroups": [names.group("discovery")],
                "resources": ["endpointslices"]},
        ],
    })
}

/// Grants cluster DNS what it needs. The client is an administrator's.
pub async fn grant_dns(client: &Client, names: &Names) -> Result<(), Error> {
    let user = dns_user(names);
    grant(client, names, dns(names), &user).await?;
    let namespace = names.system_namespace();
    let binding = json!({
        "metadata": {"name": DNS, "namespace": namespace},
        "roleRef": reference(names, "Role", DNS),
        "subjects": [reference(names, "User", &user)],
    });
    ensure(&Api::<Role>::namespaced(client, &namespace), dns_service(names)).await?;
    ensure(&Api::<RoleBinding>::namespaced(client, &namespace), binding).await?;
    Ok(())
}

/// Grants what network policies need. The client is an administrator's.
pub async fn grant_policies(client: &Client, names: &Names) -> Result<(), Error> {
    grant(client, names, node_policies(names), POLICIES_USER).await
}
