//! What a job's rules say about a pod that failed.

use crate::pods::state;
use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// What becomes of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// It counts towards the limit.
    Count,
    Ignore,
    /// The job has failed, with these words.
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

/// What the first rule that matches says; without one a failure counts.
pub(super) fn action(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Option<Action> {
    for (at, rule) in policy.iter().flat_map(|it| &it.rules).enumerate() {
        let failed = || {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            if let Some(wanted) = &rule.on_exit_codes {
                let (container, code) = exit(pod, wanted)?;
                return Some(format!(
                    "Container {container} for pod {namespace}/{name} failed with exit code {code} matching {} rule at index {at}",
                    rule.action
                ));
            }
            let has =
                |kind: &str, status: &str| state::condition(pod, kind).is_some_and(|it| it.status == status);
            let pattern = rule.on_pod_conditions.iter().flatten().find(|it| has(&it.type_, &it.status))?;
            Some(format!(
                "Pod {namespace}/{name} has condition {} matching {} rule at index {at}",
                pattern.type_, rule.action
            ))
        };
        match (rule.action.as_str(), failed()) {
            (_, None) => {}
            ("Ignore", _) => return Some(Action::Ignore),
            ("Count", _) => return Some(Action::Count),
            ("FailJob", Some(message)) => return Some(Action::FailJob(message)),
            // one that is not known to this version
            _ => {}
        }
    }
    None
}

/// The container that ended as is asked for, and how.
fn exit<'a>(pod: &'a Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let code = |it: &ContainerStatus| it.state.as_ref()?.terminated.as_ref().map(|it| it.exit_code);
    let ended = containers.filter_map(|it| Some((it.name.as_str(), code(it)?)));
    let matches = |code: i32| match wanted.operator.as_str() {
        "In" => wanted.values.contains(&code),
        "NotIn" => !wanted.values.contains(&code),
        _ => false,
    };
    let mut named = ended.filter(|(name, _)| wanted.container_name.as_deref().is_none_or(|it| it == *name));
    named.find(|(_, code)| *code != 0 && matches(*code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(rules: Value, status: Value, expected: impl Into<Option<Action>>) {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "status": status});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(action(Some(&policy), &pod), expected.into(), "{rules} {status}");
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}}
        })
    }

    fn on_codes(action: &str, container: Option<&str>, operator: &str, values: &[i32]) -> Value {
        let wanted = json!({"containerName": container, "operator": operator, "values": values});
        json!({"action": action, "onExitCodes": wanted, "onPodConditions": []})
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
        // success is no failure, whatever it is not
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
