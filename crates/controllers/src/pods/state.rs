//! The state of a pod: finished, active, ready, available.

use api::Time;
use api::core::v1::{Pod, PodCondition};
use std::time::Duration;

pub fn phase(pod: &Pod) -> &str {
    &pod.status.phase
}

/// Whether all containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is neither finished nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

pub fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.conditions.iter().find(|it| it.type_ == name)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|it| it.status == "True")
}

/// When it became ready; `None` if it is not ready, or the condition has no time.
pub fn ready_since(pod: &Pod) -> Option<Time> {
    condition(pod, "Ready").filter(|it| it.status == "True")?.last_transition_time
}

/// The time until a ready pod becomes available, which takes `min_ready_seconds`. Zero if it is available, `None` if it
/// is not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Time) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    // a time in the future, by the clock of its node, makes the wait longer
    let available_at = ready_since(pod)?.unix_seconds().saturating_add(min_ready_seconds.into());
    let left = available_at.saturating_sub(now.unix_seconds());
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Time) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn pod(phase: &str, ready: Option<(&str, Option<i64>)>) -> Pod {
        let conditions: Vec<_> = ready
            .iter()
            .map(|(status, since)| {
                let since = since.map(|it| Time(it).to_string());
                json!({"type": "Ready", "status": status, "lastTransitionTime": since})
            })
            .collect();
        object(json!({"status": {"phase": phase, "conditions": conditions}}))
    }

    #[test]
    fn active_pods() {
        assert!(is_active(&Pod::default()));
        assert!(is_active(&pod("Running", None)) && is_active(&pod("Unknown", None)));
        assert!(!is_active(&pod("Failed", None)) && !is_active(&pod("Succeeded", None)));
        let mut terminating = pod("Running", None);
        terminating.metadata.deletion_timestamp = Some(Time(1_000));
        assert!(!is_active(&terminating));
    }

    #[test]
    fn a_pod_is_available_after_the_minimum_time_ready() {
        let of = |ready, min_ready, now| {
            available_in(&pod("Running", ready), min_ready, Time(now)).map(|it| it.as_secs())
        };
        assert_eq!(of(None, 0, 100), None);
        assert_eq!(of(Some(("False", Some(10))), 0, 100), None);
        assert_eq!(of(Some(("True", None)), 0, 100), Some(0));
        // the condition has no time
        assert_eq!(of(Some(("True", None)), 10, 100), None);
        assert_eq!(of(Some(("True", Some(100))), 10, 100), Some(10));
        assert_eq!(of(Some(("True", Some(100))), 10, 109), Some(1));
        assert_eq!(of(Some(("True", Some(100))), 10, 110), Some(0));
        assert_eq!(of(Some(("True", Some(105))), 10, 100), Some(15));
        assert_eq!(of(Some(("True", Some(0))), i32::MAX, 100), Some(i32::MAX as u64 - 100));
        assert_eq!(of(Some(("True", Some(100))), -1, 100), Some(0));
    }
}
