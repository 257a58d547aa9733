//! Attacks over the wire: named cases with an attacker, a request, and the refusal that is expected.
//!
//! `docs/attacks.md` lists all cases, and the tests elsewhere that are attacks as well. Invariants of a case: the
//! response has the code and reason of the table and nothing of a secret, the audit log has the request with its user
//! and code, nothing is written, and the server serves its administrator afterwards.

mod arena;
mod credentials;
mod escalation;
mod exhaustion;
mod impersonation;
mod inventory;
mod leaks;
mod namespaces;
mod nodes;
mod paths;
mod proxies;
mod smuggling;
mod tokens;

use serde_json::{Value, json};

const NAMESPACES: &str = "/api/v1/namespaces";
const NODES: &str = "/api/v1/nodes";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A pod on a node.
fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "i"}]}})
}

fn cluster_role(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name})
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "name": name}])
}
