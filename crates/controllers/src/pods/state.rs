//! What a pod is up to: active, ready, available.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::chrono::{DateTime, Utc};
use std::time::Duration;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("")
}

/// Whether it has ended, one way or the other.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it counts: it has not ended and is not going away.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

pub fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_deref()?.iter().find(|it| it.type_ == name)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|it| it.status == "True")
}

/// Since when it is ready; nothing where it is not, or nobody said.
pub fn ready_since(pod: &Pod) -> Option<DateTime<Utc>> {
    let ready = condition(pod, "Ready").filter(|it| it.status == "True")?;
    ready.last_transition_time.as_ref().map(|it| it.0)
}

/// How long until a pod is available if nothing happens to it: it must have been ready for so long. Zero where it is
/// available; nothing where it is not even ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: DateTime<Utc>) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    let Some(least) = u64::try_from(min_ready_seconds).ok().filter(|it| *it > 0) else {
        return Some(Duration::ZERO);
    };
    let ready = now.signed_duration_since(ready_since(pod)?);
    match ready.to_std() {
        Ok(ready) => Some(Duration::from_secs(least).saturating_sub(ready)),
        // it becomes ready in the future, by its own clock
        Err(_) => Some(Duration::from_secs(least).saturating_add((-ready).to_std().unwrap_or_default())),
    }
}

pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: DateTime<Utc>) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn pod(phase: &str, ready: Option<(&str, Option<i64>)>) -> Pod {
        let conditions: Vec<_> = ready
            .iter()
            .map(|(status, since)| {
                let since = since.map(|it| at(it).to_rfc3339());
                json!({"type": "Ready", "status": status, "lastTransitionTime": since})
            })
            .collect();
        serde_json::from_value(json!({"status": {"phase": phase, "conditions": conditions}})).unwrap()
    }

    #[test]
    fn active_pods() {
        assert!(is_active(&Pod::default()));
        assert!(is_active(&pod("Running", None)) && is_active(&pod("Unknown", None)));
        assert!(!is_active(&pod("Failed", None)) && !is_active(&pod("Succeeded", None)));
        let mut leaving = pod("Running", None);
        leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!is_active(&leaving));
    }

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let of =
            |ready, least, now| available_in(&pod("Running", ready), least, at(now)).map(|it| it.as_secs());
        assert_eq!(of(None, 0, 100), None);
        assert_eq!(of(Some(("False", Some(10))), 0, 100), None);
        assert_eq!(of(Some(("True", None)), 0, 100), Some(0));
        // nobody said since when
        assert_eq!(of(Some(("True", None)), 10, 100), None);
        assert_eq!(of(Some(("True", Some(100))), 10, 100), Some(10));
        assert_eq!(of(Some(("True", Some(100))), 10, 109), Some(1));
        assert_eq!(of(Some(("True", Some(100))), 10, 110), Some(0));
        assert_eq!(of(Some(("True", Some(105))), 10, 100), Some(15));
        assert_eq!(of(Some(("True", Some(0))), i32::MAX, 100), Some(i32::MAX as u64 - 100));
        assert_eq!(of(Some(("True", Some(100))), -1, 100), Some(0));
    }
}
