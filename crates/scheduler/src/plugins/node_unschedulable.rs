//! NodeUnschedulable: keeps pods off nodes with `spec.unschedulable`.

use api::core::v1::Taint;
use names::labels::TAINT_UNSCHEDULABLE;

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::taint_toleration::{NO_SCHEDULE, tolerates};
use crate::pod_info::PodInfo;

/// A pod that tolerates the taint of such nodes may go there.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    if !node.node.spec.unschedulable {
        return Ok(());
    }
    let taint = Taint { key: TAINT_UNSCHEDULABLE.into(), effect: NO_SCHEDULE.into(), ..Taint::default() };
    match pod.pod.spec.tolerations.iter().any(|toleration| tolerates(toleration, &taint)) {
        true => Ok(()),
        false => Err(Rejection::unresolvable("node(s) were unschedulable")),
    }
}
