//! The pod failure policy of a job: the action of the first rule that matches a failed pod.

use crate::pods::state;
use api::Resource;
use api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement};
use api::core::v1::Pod;

/// The action for a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// The failure counts towards the backoff limit.
    Count,
    Ignore,
    /// The job fails, with this message.
    FailJob(String),
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Action::Count => "Count",
            Action::Ignore => "Ignore",
            Action::FailJob(_) => "FailJob",
        }
    }
}

/// The action of the first rule that matches; without one a failure counts.
pub(super) fn action(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Option<Action> {
    for (at, rule) in policy.iter().flat_map(|it| &it.rules).enumerate() {
        let matched = || {
            let (namespace, name) = (pod.namespace(), pod.name());
            if let Some(requirement) = &rule.on_exit_codes {
                let (container, code) = failed_container(pod, requirement)?;
                return Some(format!(
                    "Container {container} for pod {namespace}/{name} failed with exit code {code} matching {} rule at index {at}",
                    rule.action
                ));
            }
            let has =
                |kind: &str, status: &str| state::condition(pod, kind).is_some_and(|it| it.status == status);
            let pattern = rule.on_pod_conditions.iter().find(|it| has(&it.type_, &it.status))?;
            Some(format!(
                "Pod {namespace}/{name} has condition {} matching {} rule at index {at}",
                pattern.type_, rule.action
            ))
        };
        match (&*rule.action, matched()) {
            (_, None) => {}
            ("Ignore", _) => return Some(Action::Ignore),
            ("Count", _) => return Some(Action::Count),
            ("FailJob", Some(message)) => return Some(Action::FailJob(message)),
            // an action that this version does not know
            _ => {}
        }
    }
    None
}

/// The first container that failed with a matching exit code, and the code.
fn failed_container<'a>(
    pod: &'a Pod,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let containers = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let ended = containers.filter_map(|it| Some((&*it.name, it.state.terminated.as_ref()?.exit_code)));
    let matches = |code: i32| match &*requirement.operator {
        "In" => requirement.values.contains(&code),
        "NotIn" => !requirement.values.contains(&code),
        _ => false,
    };
    let mut named =
        ended.filter(|(name, _)| requirement.container_name.as_deref().is_none_or(|it| it == *name));
    named.find(|(_, code)| *code != 0 && matches(*code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn check(rules: Value, status: Value, expected: impl Into<Option<Action>>) {
        let policy: PodFailurePolicy = object(json!({ "rules": rules }));
        let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "status": status});
        assert_eq!(action(Some(&policy), &object(pod)), expected.into(), "{rules} {status}");
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}}
        })
    }

    fn on_codes(action: &str, container: Option<&str>, operator: &str, values: &[i32]) -> Value {
        let requirement = json!({"containerName": container, "operator": operator, "values": values});
        json!({"action": action, "onExitCodes": requirement, "onPodConditions": []})
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let failed = json!({"containerStatuses": [ended("a", 0), ended("b", 42)], "initContainerStatuses": [ended("i", 7)]});
        let fails = |message: &str| Action::FailJob(message.to_owned());
        check(json!([]), failed.clone(), None);
        check(json!([on_codes("Ignore", None, "In", &[42])]), failed.clone(), Action::Ignore);
        check(json!([on_codes("Ignore", Some("a"), "In", &[42])]), failed.clone(), None);
        check(json!([on_codes("Count", None, "In", &[42])]), failed.clone(), Action::Count);
        check(json!([on_codes("Ignore", None, "In", &[7])]), failed.clone(), Action::Ignore);
        // exit code 0 never matches
        check(json!([on_codes("Ignore", Some("a"), "NotIn", &[42])]), failed.clone(), None);
        check(
            json!([on_codes("Count", None, "In", &[1]), on_codes("FailJob", None, "NotIn", &[1, 2])]),
            failed,
            fails("Container b for pod ns/p failed with exit code 42 matching FailJob rule at index 1"),
        );
        let disrupted = json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let on = |action: &str, status: &str| json!([{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": status}]}]);
        check(on("Ignore", "True"), disrupted.clone(), Action::Ignore);
        check(on("Ignore", "False"), disrupted.clone(), None);
        check(
            on("FailJob", "True"),
            disrupted,
            fails("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"),
        );
    }
}
