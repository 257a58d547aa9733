//! The objects that a new node needs: public cluster information, and what bootstrap tokens may.
//!
//! They are created with the first token, so that a cluster that no node joins publishes nothing. Roles and bindings that
//! exist are left as they are; the cluster information follows the server's address and authority.

use super::create_missing::ensure;
use super::token::GROUP;
use super::{cluster_info, component_roles};
use api::core::v1::ConfigMap;
use api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use client::{Api, Client, Error};
use names::Names;
use serde_json::json;

/// Creates what is missing, and updates the cluster information.
pub async fn publish(client: &Client, info: &str, names: &Names) -> Result<(), Error> {
    let rbac = names.group("rbac.authorization");
    let public = names.public_namespace();
    let group = |name: &str| json!({"kind": "Group", "apiGroup": rbac, "name": name});
    let bind = |name: &str, role: &str, subject: &str| {
        json!({
            "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "apiGroup": rbac, "name": role},
            "subjects": [group(subject)],
        })
    };
    let requests = format!("system:{}:certificatesigningrequests", names.group("certificates"));
    let bindings = [
        bind("pintle:node-bootstrapper", "system:node-bootstrapper", GROUP),
        bind("pintle:node-autoapprove-bootstrap", &format!("{requests}:nodeclient"), GROUP),
        bind("pintle:node-autoapprove-renewal", &format!("{requests}:selfnodeclient"), "system:nodes"),
        bind("pintle:get-nodes", "pintle:get-nodes", GROUP),
        bind("pintle:node-proxier", "system:node-proxier", "system:nodes"),
        bind("pintle:node-policies", component_roles::NODE_POLICIES, "system:nodes"),
    ];
    // a new node must not take the name of another
    let nodes = json!({
        "metadata": {"name": "pintle:get-nodes"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}],
    });
    let reader = json!({
        "metadata": {"name": "pintle:cluster-info", "namespace": public},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"],
            "resourceNames": [cluster_info::NAME]}],
    });
    let readers = json!({
        "metadata": {"name": "pintle:cluster-info", "namespace": public},
        "roleRef": {"kind": "Role", "apiGroup": rbac, "name": "pintle:cluster-info"},
        "subjects": [{"kind": "User", "apiGroup": rbac, "name": "system:anonymous"}],
    });
    ensure(&Api::<ClusterRole>::all(client), nodes).await?;
    ensure(&Api::<ClusterRole>::all(client), component_roles::node_policies(names)).await?;
    for binding in bindings {
        ensure(&Api::<ClusterRoleBinding>::all(client), binding).await?;
    }
    ensure(&Api::<Role>::namespaced(client, &public), reader).await?;
    ensure(&Api::<RoleBinding>::namespaced(client, &public), readers).await?;
    publish_info(&Api::namespaced(client, &public), info, &public).await
}

async fn publish_info(maps: &Api<ConfigMap>, info: &str, namespace: &str) -> Result<(), Error> {
    let name = cluster_info::NAME;
    loop {
        let Some(mut map) = maps.get_opt(name).await? else {
            let map = json!({"metadata": {"name": name, "namespace": namespace}, "data": {cluster_info::CONTENT: info}});
            if ensure(maps, map).await? {
                return Ok(());
            }
            continue;
        };
        if map.data.get(cluster_info::CONTENT).is_some_and(|it| it == info) {
            return Ok(());
        }
        map.data.insert(cluster_info::CONTENT.to_owned(), info.to_owned());
        // the signer may write at the same time
        match maps.replace(&map).await {
            Err(error) if error.is_conflict() => {}
            replaced => return replaced.map(drop),
        }
    }
}
