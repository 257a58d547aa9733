//! Writes the rules of aggregated cluster roles from the roles that their selectors match.

use crate::Context;
use api::rbac::v1::{ClusterRole, PolicyRule};
use api::{Kinded, Resource};
use apimachinery::labels::Selector;
use client::{Action, Api, Failure, Informer, Patch, Queue, Reconcile, json_value, run, unless};
use serde_json::json;
use std::sync::Arc;

const MANAGER: &str = "clusterrole-aggregation-controller";
/// The index of roles with an aggregation rule.
const AGGREGATED: &str = "aggregated";

struct Roles {
    context: Context,
    roles: Informer<ClusterRole>,
}

pub async fn run(context: Context) {
    // few roles are aggregated: all of them are reconciled when any role changes
    let queue = Queue::<&'static str>::new(&context.world);
    let roles = context.informer::<ClusterRole>();
    roles.index(AGGREGATED, |role| role.aggregation_rule.iter().map(|_| String::new()).collect());
    let changed = queue.clone();
    roles.listen(move |_| changed.add("cluster roles"));
    roles.synced().await;
    run::run(Arc::new(Roles { context, roles }), queue, 1).await;
}

/// The rules of an aggregated role. `all` is sorted by name.
fn aggregate(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let selectors = role.aggregation_rule.iter().flat_map(|it| &it.cluster_role_selectors);
    // an invalid selector matches nothing
    for selector in selectors.filter_map(|it| Selector::try_from(it).ok()) {
        let others = all.iter().filter(|it| it.name() != role.name());
        for other in others.filter(|it| selector.matches(&it.metadata.labels)) {
            for rule in &other.rules {
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
        all.sort_by(|one, other| one.name().cmp(other.name()));
        let mut failed = None;
        for role in self.roles.by(AGGREGATED, "") {
            let rules = aggregate(&role, &all);
            if rules != role.rules
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
        let roles: Api<ClusterRole> = Api::all(&self.context.client);
        let applied = json!({
            "apiVersion": ClusterRole::api_version(), "kind": ClusterRole::kind().name,
            "metadata": {"name": role.name(), "uid": role.uid()},
            // an empty list, not null: the manager owns the field
            "rules": rules.iter().map(json_value).collect::<Vec<_>>(),
        });
        let body = applied.to_string().into_bytes();
        let patch = Patch::Apply { manager: MANAGER.to_owned(), force: true, body };
        // old servers have no server-side apply
        if unless(415, roles.patch(role.name(), &patch).await)?.is_none() {
            let next = ClusterRole { rules, ..role.clone() };
            unless(404, roles.replace(&next).await)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    fn role(name: &str, label: &str, rules: &[&str], selected: &[&str]) -> Arc<ClusterRole> {
        let rules: Vec<_> = rules.iter().map(|verb| json!({"verbs": [verb]})).collect();
        let selectors: Vec<_> = selected.iter().map(|it| json!({"matchLabels": {"to": it}})).collect();
        let aggregation = (!selected.is_empty()).then(|| json!({"clusterRoleSelectors": selectors}));
        Arc::new(object(json!({
            "metadata": {"name": name, "labels": {"to": label}}, "rules": rules, "aggregationRule": aggregation,
        })))
    }

    #[test]
    fn rules_are_aggregated_once_and_in_order() {
        let all = [
            role("a", "y", &["get", "list"], &[]),
            role("b", "x", &["watch"], &[]),
            role("c", "x", &["list"], &[]),
            role("d", "x", &["own"], &["x", "y"]),
            role("e", "z", &["other"], &[]),
        ];
        let verbs: Vec<_> = aggregate(&all[3], &all).into_iter().flat_map(|it| it.verbs).collect();
        // by selector, then by name; without its own rules, although it has the label
        assert_eq!(verbs, ["watch", "list", "get"]);
        let everything: ClusterRole = object(json!({"aggregationRule": {"clusterRoleSelectors": [{}]}}));
        assert_eq!(aggregate(&everything, &all).len(), 5);
    }
}
