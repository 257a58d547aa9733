//! Aggregated cluster roles.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tests::{ManagedCluster, until};

#[tokio::test]
async fn aggregated_rules_follow_their_roles() {
    let mut managed = ManagedCluster::start(&["clusterrole-aggregation"]).await;
    let roles: Api<ClusterRole> = Api::all(managed.client());
    let make = async |role: serde_json::Value| {
        roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    };
    let rule = |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
    make(json!({
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "whole"}}]},
        "rules": rule("overwritten"),
    }))
    .await;
    for name in ["b", "a"] {
        make(json!({"metadata": {"name": name, "labels": {"part-of": "whole"}}, "rules": rule(name)})).await;
    }
    let has = |expected: &'static [&'static str]| {
        move |all: &std::collections::BTreeMap<String, ClusterRole>| {
            let rules = all["whole"].rules.iter().flatten();
            rules.flat_map(|it| it.resources.iter().flatten()).eq(expected.iter())
        }
    };
    let gathered = until("both parts", &roles, has(&["a", "b"])).await;
    let fields = gathered["whole"].metadata.managed_fields.iter().flatten();
    let mut appliers = fields.filter(|it| it.operation.as_deref() == Some("Apply"));
    assert_eq!(
        appliers.next().and_then(|it| it.manager.as_deref()),
        Some("clusterrole-aggregation-controller")
    );
    managed.restart_loops().await;
    let without = json!({"metadata": {"labels": {"part-of": null}}});
    roles.patch("a", &PatchParams::default(), &Patch::Merge(without)).await.unwrap();
    until("one part", &roles, has(&["b"])).await;
    roles.delete("b", &DeleteParams::default()).await.unwrap();
    until("no part", &roles, has(&[])).await;
}

#[tokio::test]
async fn bootstrap_roles_need_no_aggregation_write() {
    let managed = ManagedCluster::start(&["clusterrole-aggregation"]).await;
    let roles: Api<ClusterRole> = Api::all(managed.client());
    until("the rules of all", &roles, |all| {
        ["admin", "edit", "view"]
            .iter()
            .all(|name| all[*name].rules.as_ref().is_some_and(|it| !it.is_empty()))
    })
    .await;
}
