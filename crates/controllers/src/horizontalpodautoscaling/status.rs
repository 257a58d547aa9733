//! The conditions of an autoscaler.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";

/// Says something; since when it is so is kept as long as it is.
pub(super) fn set(
    status: &mut HorizontalPodAutoscalerStatus,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: &Time,
) {
    let conditions = status.conditions.get_or_insert_default();
    let text = if holds { "True" } else { "False" };
    let at = conditions.iter().position(|it| it.type_ == kind);
    let since = at.map(|at| &conditions[at]).filter(|it| it.status == text);
    let next = HorizontalPodAutoscalerCondition {
        type_: kind.to_owned(),
        status: text.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: since.map_or_else(|| Some(now.clone()), |it| it.last_transition_time.clone()),
    };
    match at {
        Some(at) => conditions[at] = next,
        None => conditions.push(next),
    }
}
