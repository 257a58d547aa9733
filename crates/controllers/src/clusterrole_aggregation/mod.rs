//! Cluster roles that say which others they are made of have the rules of all of these.

use crate::Context;
use client::{Action, Failure, Informer, Queue, Reconcile, run, unless};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use std::sync::Arc;

const MANAGER: &str = "clusterrole-aggregation-controller";
/// The index of those that are made of others.
const GATHERING: &str = "gathering";

struct Roles {
    context: Context,
    roles: Informer<ClusterRole>,
}

pub async fn run(context: Context) {
    // few are made of others: all of these are looked at when any role changes
    let queue = Queue::<&'static str>::default();
    let roles = context.informer::<ClusterRole>();
    roles.index(GATHERING, |role| role.aggregation_rule.iter().map(|_| String::new()).collect());
    let news = queue.clone();
    roles.listen(move |_| news.add("cluster roles"));
    roles.synced().await;
    run::run(Arc::new(Roles { context, roles }), queue, 1).await;
}

/// The rules that a role should have. `all` is in the order of names.
fn gathered(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let selectors = role.aggregation_rule.iter().flat_map(|it| it.cluster_role_selectors.iter().flatten());
    // one that cannot be understood chooses nothing
    for selector in selectors.filter_map(|it| Selector::try_from(it.clone()).ok()) {
        let others = all.iter().filter(|it| it.name_any() != role.name_any());
        for other in others.filter(|it| selector.matches(it.labels())) {
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

impl Reconcile for Roles {
    type Key = &'static str;

    fn name(&self) -> &'static str {
        "clusterrole-aggregation"
    }

    async fn reconcile(&self, _: &&'static str) -> Result<Action, Failure> {
        let mut all = self.roles.all();
        all.sort_by_key(|it| it.name_any());
        let mut failed = None;
        for role in self.roles.by(GATHERING, "") {
            let rules = gathered(&role, &all);
            if rules != role.rules.clone().unwrap_or_default()
                && let Err(why) = self.write(&role, rules).await
            {
                failed = Some(why);
            }
        }
        failed.map_or(Ok(Action::AwaitChange), Err)
    }
}

impl Roles {
    async fn write(&self, role: &ClusterRole, rules: Vec<PolicyRule>) -> Result<(), Failure> {
        let api: Api<ClusterRole> = Api::all(self.context.client.clone());
        let name = role.name_any();
        let applied = serde_json::json!({
            "apiVersion": ClusterRole::api_version(&()), "kind": ClusterRole::kind(&()),
            "metadata": {"name": name, "uid": role.metadata.uid}, "rules": rules,
        });
        let params = PatchParams::apply(MANAGER).force();
        let answer = api.patch(&name, &params, &Patch::Apply(&applied)).await;
        // servers of old do not know how to apply
        if unless(415, answer)?.is_none() {
            let next = ClusterRole { rules: Some(rules), ..role.clone() };
            unless(404, api.replace(&name, &PostParams::default(), &next).await)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(name: &str, label: &str, rules: &[&str], gathers: &[&str]) -> Arc<ClusterRole> {
        let rules: Vec<_> = rules.iter().map(|verb| json!({"verbs": [verb]})).collect();
        let selectors: Vec<_> = gathers.iter().map(|it| json!({"matchLabels": {"to": it}})).collect();
        let aggregation = (!gathers.is_empty()).then(|| json!({"clusterRoleSelectors": selectors}));
        let role = json!({
            "metadata": {"name": name, "labels": {"to": label}}, "rules": rules, "aggregationRule": aggregation,
        });
        Arc::new(serde_json::from_value(role).unwrap())
    }

    #[test]
    fn rules_are_gathered_once_and_in_order() {
        let all = [
            role("a", "y", &["get", "list"], &[]),
            role("b", "x", &["watch"], &[]),
            role("c", "x", &["list"], &[]),
            role("d", "x", &["own"], &["x", "y"]),
            role("e", "z", &["other"], &[]),
        ];
        let verbs: Vec<_> = gathered(&all[3], &all).into_iter().flat_map(|it| it.verbs).collect();
        // by selector, then by name; its own rules do not count although it has the label
        assert_eq!(verbs, ["watch", "list", "get"]);
        let everything = ClusterRole {
            aggregation_rule: serde_json::from_value(json!({"clusterRoleSelectors": [{}]})).unwrap(),
            ..ClusterRole::default()
        };
        assert_eq!(gathered(&everything, &all).len(), 5);
    }
}
