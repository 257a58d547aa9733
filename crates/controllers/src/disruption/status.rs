//! What a budget's status is: pure functions over the budget, its pods and how many of them there should be.

use crate::pods::state;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a pod whose eviction was allowed may be there before it counts again.
pub(super) const DELETION: Duration = Duration::from_secs(120);

/// The numbers of pods that a budget requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DesiredHealth {
    /// How many there should be in all.
    pub expected: i32,
    /// How many of them must be healthy.
    pub healthy: i32,
}

/// Whether it must be known how many pods their owners ask for.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// `scale` is how many pods their owners ask for, `pods` how many there are.
pub(super) fn wanted(
    spec: &PodDisruptionBudgetSpec,
    scale: i32,
    pods: usize,
) -> Result<DesiredHealth, String> {
    if let Some(most) = &spec.max_unavailable {
        let healthy = scale.saturating_sub(share(most, scale)?).max(0);
        return Ok(DesiredHealth { expected: scale, healthy });
    }
    match &spec.min_available {
        Some(IntOrString::Int(least)) => {
            Ok(DesiredHealth { expected: i32::try_from(pods).unwrap_or(i32::MAX), healthy: *least })
        }
        Some(least) => Ok(DesiredHealth { expected: scale, healthy: share(least, scale)? }),
        None => Ok(DesiredHealth { expected: 0, healthy: 0 }),
    }
}

/// A number, or a percentage of a number, rounded up.
fn share(value: &IntOrString, of: i32) -> Result<i32, String> {
    let text = match value {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<i32>().ok());
    let percent =
        percent.ok_or_else(|| format!("invalid value for IntOrString: {text:?} is not a percentage"))?;
    let share = (i64::from(percent) * i64::from(of) + 99).div_euclid(100);
    Ok(i32::try_from(share).unwrap_or(i32::MAX))
}

/// Pods whose eviction was allowed and that are still there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Disrupted {
    pub pods: BTreeMap<String, Time>,
    /// When the first of them counts again.
    pub again: Option<Duration>,
    /// Those that should be gone and are not.
    pub overdue: Vec<String>,
}

pub(super) fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: DateTime<Utc>) -> Disrupted {
    let mut out = Disrupted::default();
    let Some(there) = budget.status.as_ref().and_then(|it| it.disrupted_pods.as_ref()) else { return out };
    for pod in pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let name = pod.name_any();
        let Some(since) = there.get(&name) else { continue };
        let passed = now.signed_duration_since(since.0).to_std().unwrap_or_default();
        if passed > DELETION {
            out.overdue.push(name);
            continue;
        }
        // a moment more, so that it has passed then
        let left = DELETION - passed + Duration::from_secs(1);
        out.again = Some(out.again.map_or(left, |again| again.min(left)));
        out.pods.insert(name, since.clone());
    }
    out
}

/// How many pods are ready and stay.
pub(super) fn healthy(pods: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let stays = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_none()
            && !pod.metadata.name.as_ref().is_some_and(|name| disrupted.contains_key(name))
    };
    let count = pods.iter().filter(|pod| stays(pod) && state::is_ready(pod)).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The status that follows.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    wanted: DesiredHealth,
    healthy: i32,
    disrupted: BTreeMap<String, Time>,
    now: &Time,
) -> PodDisruptionBudgetStatus {
    // with no pods nothing is allowed: the first that come must not be disrupted before they are looked at
    let allowed = if wanted.expected <= 0 { 0 } else { healthy.saturating_sub(wanted.healthy).max(0) };
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    let mut next = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: wanted.healthy,
        expected_pods: wanted.expected,
        disruptions_allowed: allowed,
        disrupted_pods: Some(disrupted).filter(|it| !it.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: budget.status.as_ref().and_then(|it| it.conditions.clone()),
    };
    set(&mut next, allowed > 0, reason, "", now);
    next
}

/// The status when nothing can be known: nothing is allowed.
pub(super) fn unknown(budget: &PodDisruptionBudget, why: &str, now: &Time) -> PodDisruptionBudgetStatus {
    let mut next = budget.status.clone().unwrap_or_default();
    next.disruptions_allowed = 0;
    set(&mut next, false, "SyncFailed", why, now);
    next
}

fn set(status: &mut PodDisruptionBudgetStatus, allowed: bool, reason: &str, message: &str, now: &Time) {
    const KIND: &str = "DisruptionAllowed";
    let conditions = status.conditions.get_or_insert_default();
    let text = if allowed { "True" } else { "False" };
    let there = conditions.iter().position(|it| it.type_ == KIND);
    let since = there.map(|at| &conditions[at]).filter(|it| it.status == text);
    let next = Condition {
        type_: KIND.to_owned(),
        status: text.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: since.map_or_else(|| now.clone(), |it| it.last_transition_time.clone()),
    };
    match there {
        Some(at) => conditions[at] = next,
        None => conditions.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn budgets_ask_for_pods() {
        let of = |spec: Value, scale, pods| {
            let spec: PodDisruptionBudgetSpec = serde_json::from_value(spec).unwrap();
            wanted(&spec, scale, pods).map(|it| (it.expected, it.healthy))
        };
        assert_eq!(of(json!({"minAvailable": 3}), 0, 5), Ok((5, 3)));
        assert_eq!(of(json!({"minAvailable": "50%"}), 7, 5), Ok((7, 4)));
        assert_eq!(of(json!({"minAvailable": "100%"}), 7, 5), Ok((7, 7)));
        assert_eq!(of(json!({"maxUnavailable": 2}), 7, 5), Ok((7, 5)));
        assert_eq!(of(json!({"maxUnavailable": 9}), 7, 5), Ok((7, 0)));
        // a part of a pod is a pod, here in favour of disruption
        assert_eq!(of(json!({"maxUnavailable": "30%"}), 7, 5), Ok((7, 4)));
        assert_eq!(of(json!({"maxUnavailable": "0%"}), 7, 5), Ok((7, 7)));
        assert_eq!(of(json!({}), 7, 5), Ok((0, 0)));
        assert!(of(json!({"maxUnavailable": "half"}), 7, 5).is_err());
        let needs = |spec: Value| needs_scale(&serde_json::from_value(spec).unwrap());
        assert!(needs(json!({"maxUnavailable": 1})) && needs(json!({"minAvailable": "1%"})));
        assert!(!needs(json!({"minAvailable": 1})) && !needs(json!({})));
    }

    fn pod(name: &str, ready: bool, leaving: bool) -> Arc<Pod> {
        let json = json!({
            "metadata": {"name": name, "deletionTimestamp": leaving.then_some("2023-01-01T00:00:00Z")},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn budget(status: Value) -> PodDisruptionBudget {
        let json = json!({"metadata": {"name": "b", "generation": 3}, "spec": {}, "status": status});
        serde_json::from_value(json).unwrap()
    }

    fn status_with(disrupted: Value) -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 1, "disruptedPods": disrupted})
    }

    #[test]
    fn pods_whose_eviction_was_allowed_do_not_count_for_a_while() {
        let since = |seconds: i64| Value::from(at(seconds).to_rfc3339());
        let budget = budget(status_with(
            json!({"a": since(1000), "b": since(950), "gone": since(1000), "leaving": since(1000), "late": since(800)}),
        ));
        let pods = [
            pod("a", true, false),
            pod("b", true, false),
            pod("leaving", true, true),
            pod("late", true, false),
        ];
        let found = disrupted(&budget, &pods, at(1000));
        assert_eq!(found.pods.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found.again, Some(Duration::from_secs(71)));
        assert_eq!(found.overdue, ["late"]);
        assert_eq!(healthy(&pods, &found.pods), 1);
        assert_eq!(healthy(&pods, &BTreeMap::new()), 3);
    }

    #[test]
    fn the_condition_follows_what_is_allowed() {
        let now = Time(at(1000));
        let wanted = DesiredHealth { expected: 3, healthy: 2 };
        let first = status(&budget(status_with(json!({}))), wanted, 3, BTreeMap::new(), &now);
        assert_eq!((first.disruptions_allowed, first.observed_generation), (1, Some(3)));
        let condition = &first.conditions.as_ref().unwrap()[0];
        assert_eq!((&*condition.status, &*condition.reason), ("True", "SufficientPods"));
        let mut next = budget(Value::Null);
        next.status = Some(first.clone());
        let again = status(&next, wanted, 3, BTreeMap::new(), &Time(at(2000)));
        assert_eq!(again, first);
        let fewer = status(&next, wanted, 2, BTreeMap::new(), &Time(at(2000)));
        let condition = &fewer.conditions.as_ref().unwrap()[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "InsufficientPods"));
        assert_eq!(condition.last_transition_time, Time(at(2000)));
        let none = status(&next, DesiredHealth { expected: 0, healthy: 0 }, 3, BTreeMap::new(), &now);
        assert_eq!(none.disruptions_allowed, 0);
        let failed = unknown(&next, "why", &now);
        assert_eq!((failed.disruptions_allowed, failed.current_healthy), (0, 3));
        assert_eq!(failed.conditions.unwrap()[0].message, "why");
    }
}
