//! Shapes of roles and bindings that a user writes who must hold all their rules.

use super::shapes::{RBAC, SIZE, items};
use super::{Call, Probe, Shape};
use http::Method;
use names::Names;
use serde_json::{Value, json};

const USER: &str = "grower";

pub fn all() -> Vec<Shape> {
    type Rules = fn(usize) -> Value;
    let of_resources: Rules = |size| {
        items(
            size,
            |nth| json!({ "apiGroups": [format!("g{nth}")], "resources": [format!("r{nth}")], "verbs": ["get"] }),
        )
    };
    let of_names: Rules = |size| {
        let names = items(size, |nth| json!(format!("n{nth}")));
        json!([{ "apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"] }])
    };
    // every rule has the verb, the group and the resource of every other one
    let of_single_names: Rules = |size| {
        items(
            size,
            |nth| json!({ "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("n{nth}")], "verbs": ["get"] }),
        )
    };
    let mut shapes = Vec::new();
    for (name, rules) in
        [("rules", of_resources), ("names", of_names), ("rules of one name", of_single_names)]
    {
        let binding = move |size: usize| probe(&rules(size), "rolebindings", &bound("grown"));
        shapes.push(Shape::new(format!("binding of a role with many {name}"), 4 * SIZE, binding));
        let role = move |size: usize| {
            let rules = rules(size);
            probe(&rules, "roles", &json!({ "metadata": { "name": "grown" }, "rules": rules }))
        };
        shapes.push(Shape::new(format!("role with many {name}"), 4 * SIZE, role));
    }
    let refused = |size: usize| {
        let more = items(
            size,
            |nth| json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [format!("n{nth}")], "verbs": ["get"] }),
        );
        let held = items(
            size,
            |nth| json!({ "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("n{nth}")], "verbs": ["get"] }),
        );
        probe(&held, "roles", &json!({ "metadata": { "name": "grown" }, "rules": more }))
    };
    shapes.push(Shape::new("role with many rules that its writer does not hold", 4 * SIZE, refused));
    shapes
}

/// A binding of the role to the user.
fn bound(name: &str) -> Value {
    let group = Names::kubernetes().group("rbac.authorization");
    json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "grower" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": USER }] })
}

/// The user, who holds these rules and may write roles and bindings, writes one.
fn probe(held: &Value, plural: &str, object: &Value) -> Probe {
    let group = Names::kubernetes().group("rbac.authorization");
    let may = json!({ "apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["create"] });
    let mut rules = held.as_array().cloned().unwrap_or_default();
    rules.push(may);
    let role = json!({ "metadata": { "name": "grower" }, "rules": rules });
    let (roles, bindings) = (format!("{}/clusterroles", *RBAC), format!("{}/clusterrolebindings", *RBAC));
    let path = format!("{}/namespaces/default/{plural}?dryRun=All", *RBAC);
    Probe {
        before: vec![
            Call::json(Method::POST, &*roles, &role),
            Call::json(Method::POST, &*bindings, &bound("grower")),
        ],
        call: Call::json(Method::POST, path, object).by(USER),
        after: vec![
            Call::new(Method::DELETE, format!("{bindings}/grower"), Vec::new()),
            Call::new(Method::DELETE, format!("{roles}/grower"), Vec::new()),
        ],
    }
}
