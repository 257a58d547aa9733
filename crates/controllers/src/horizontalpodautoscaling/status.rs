//! Conditions of an autoscaler.

use api::Time;
use api::autoscaling::v2::{HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus};

pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";

/// Sets a condition; its transition time changes with its status only.
pub(super) fn set(
    status: &mut HorizontalPodAutoscalerStatus,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: Time,
) {
    let text = if is_true { "True" } else { "False" };
    let current = status.conditions.iter_mut().find(|it| it.type_ == kind);
    let since = current.as_ref().filter(|it| it.status == text).map(|it| it.last_transition_time);
    let next = HorizontalPodAutoscalerCondition {
        type_: kind.to_owned(),
        status: text.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or(Some(now)),
        ..HorizontalPodAutoscalerCondition::default()
    };
    match current {
        Some(current) => *current = next,
        None => status.conditions.push(next),
    }
}
