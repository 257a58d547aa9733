//! The status of a disruption budget: pure functions over the budget, its pods and their expected number.

use crate::pods::state;
use api::core::v1::Pod;
use api::meta::v1::Condition;
use api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use api::{IntOrString, Resource, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a pod whose eviction was allowed, and that was not deleted, counts again.
pub(super) const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// The numbers of pods that a budget requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DesiredHealth {
    /// The expected number of pods.
    pub expected: i32,
    /// How many of them must be healthy.
    pub healthy: i32,
}

/// Whether the desired health depends on the scale of the owners.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Computes the desired health. `scale` is the sum of the scales of the owners, `pods` the number of pods.
pub(super) fn desired_health(
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

/// Pods whose eviction was allowed and that are not being deleted yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DisruptedPods {
    pub pods: BTreeMap<String, Time>,
    /// The time until the first of them counts again.
    pub recheck_after: Option<Duration>,
    /// The names of pods that were not deleted in time.
    pub overdue: Vec<String>,
}

pub(super) fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Time) -> DisruptedPods {
    let mut out = DisruptedPods::default();
    for pod in pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let name = pod.name();
        let Some(since) = budget.status.disrupted_pods.get(name) else { continue };
        let passed = Duration::from_secs(u64::try_from(now.0.saturating_sub(since.0)).unwrap_or(0));
        if passed > DELETION_TIMEOUT {
            out.overdue.push(name.to_owned());
            continue;
        }
        // one second more, so that the time has passed then
        let left = DELETION_TIMEOUT - passed + Duration::from_secs(1);
        out.recheck_after = Some(out.recheck_after.map_or(left, |earliest| earliest.min(left)));
        out.pods.insert(name.to_owned(), *since);
    }
    out
}

/// How many pods are ready and are not being disrupted.
pub(super) fn healthy(pods: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(pod.name());
    let count = pods.iter().filter(|pod| stays(pod) && state::is_ready(pod)).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The new status of a budget.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    desired: DesiredHealth,
    healthy: i32,
    disrupted: BTreeMap<String, Time>,
    now: Time,
) -> PodDisruptionBudgetStatus {
    // without pods no disruption is allowed: the first new pods must be counted before one of them is disrupted
    let allowed = if desired.expected <= 0 { 0 } else { healthy.saturating_sub(desired.healthy).max(0) };
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    let mut next = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired.healthy,
        expected_pods: desired.expected,
        disruptions_allowed: allowed,
        disrupted_pods: disrupted,
        observed_generation: budget.metadata.generation,
        conditions: budget.status.conditions.clone(),
        ..PodDisruptionBudgetStatus::default()
    };
    set_condition(&mut next, allowed > 0, reason, "", now);
    next
}

/// The status of a budget that cannot be computed: no disruption is allowed.
pub(super) fn unknown(budget: &PodDisruptionBudget, why: &str, now: Time) -> PodDisruptionBudgetStatus {
    let mut next = budget.status.clone();
    next.disruptions_allowed = 0;
    set_condition(&mut next, false, "SyncFailed", why, now);
    next
}

/// Sets the `DisruptionAllowed` condition; its transition time changes with its status only.
fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    allowed: bool,
    reason: &str,
    message: &str,
    now: Time,
) {
    const TYPE: &str = "DisruptionAllowed";
    let text = if allowed { "True" } else { "False" };
    let current = status.conditions.iter_mut().find(|it| it.type_ == TYPE);
    let since = current.as_ref().filter(|it| it.status == text).map(|it| it.last_transition_time);
    let next = Condition {
        type_: TYPE.to_owned(),
        status: text.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: since.unwrap_or(Some(now)),
        ..Condition::default()
    };
    match current {
        Some(current) => *current = next,
        None => status.conditions.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn budgets_require_pods() {
        let of = |spec: Value, scale, pods| {
            desired_health(&object(spec), scale, pods).map(|it| (it.expected, it.healthy))
        };
        assert_eq!(of(json!({"minAvailable": 3}), 0, 5), Ok((5, 3)));
        assert_eq!(of(json!({"minAvailable": "50%"}), 7, 5), Ok((7, 4)));
        assert_eq!(of(json!({"minAvailable": "100%"}), 7, 5), Ok((7, 7)));
        assert_eq!(of(json!({"maxUnavailable": 2}), 7, 5), Ok((7, 5)));
        assert_eq!(of(json!({"maxUnavailable": 9}), 7, 5), Ok((7, 0)));
        // the share is rounded up, here in favour of disruption
        assert_eq!(of(json!({"maxUnavailable": "30%"}), 7, 5), Ok((7, 4)));
        assert_eq!(of(json!({"maxUnavailable": "0%"}), 7, 5), Ok((7, 7)));
        assert_eq!(of(json!({}), 7, 5), Ok((0, 0)));
        assert!(of(json!({"maxUnavailable": "half"}), 7, 5).is_err());
        let needs = |spec: Value| needs_scale(&object(spec));
        assert!(needs(json!({"maxUnavailable": 1})) && needs(json!({"minAvailable": "1%"})));
        assert!(!needs(json!({"minAvailable": 1})) && !needs(json!({})));
    }

    fn pod(name: &str, ready: bool, deleting: bool) -> Arc<Pod> {
        let json = json!({
            "metadata": {"name": name, "deletionTimestamp": deleting.then_some("2023-01-01T00:00:00Z")},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}
        });
        Arc::new(object(json))
    }

    fn budget(status: Value) -> PodDisruptionBudget {
        object(json!({"metadata": {"name": "b", "generation": 3}, "spec": {}, "status": status}))
    }

    fn status_with(disrupted: Value) -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 1, "disruptedPods": disrupted})
    }

    #[test]
    fn pods_whose_eviction_was_allowed_do_not_count_for_a_while() {
        let since = |seconds: i64| Time(seconds).to_string();
        let budget = budget(status_with(
            json!({"a": since(1000), "b": since(950), "gone": since(1000), "deleting": since(1000), "late": since(800)}),
        ));
        let pods = [
            pod("a", true, false),
            pod("b", true, false),
            pod("deleting", true, true),
            pod("late", true, false),
        ];
        let found = disrupted(&budget, &pods, Time(1000));
        assert_eq!(found.pods.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found.recheck_after, Some(Duration::from_secs(71)));
        assert_eq!(found.overdue, ["late"]);
        assert_eq!(healthy(&pods, &found.pods), 1);
        assert_eq!(healthy(&pods, &BTreeMap::new()), 3);
    }

    #[test]
    fn the_condition_follows_the_allowed_disruptions() {
        let now = Time(1000);
        let desired = DesiredHealth { expected: 3, healthy: 2 };
        let first = status(&budget(status_with(json!({}))), desired, 3, BTreeMap::new(), now);
        assert_eq!((first.disruptions_allowed, first.observed_generation), (1, 3));
        let condition = &first.conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("True", "SufficientPods"));
        let mut next = budget(Value::Null);
        next.status = first.clone();
        let again = status(&next, desired, 3, BTreeMap::new(), Time(2000));
        assert_eq!(again, first);
        let fewer = status(&next, desired, 2, BTreeMap::new(), Time(2000));
        let condition = &fewer.conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "InsufficientPods"));
        assert_eq!(condition.last_transition_time, Some(Time(2000)));
        let none = status(&next, DesiredHealth { expected: 0, healthy: 0 }, 3, BTreeMap::new(), now);
        assert_eq!(none.disruptions_allowed, 0);
        let failed = unknown(&next, "why", now);
        assert_eq!((failed.disruptions_allowed, failed.current_healthy), (0, 3));
        assert_eq!(failed.conditions[0].message, "why");
    }
}
