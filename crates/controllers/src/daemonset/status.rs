//! The status of a daemon set.

use super::fit::Fit;
use super::plan::View;
use crate::pods::state::is_ready;
use api::Resource;
use api::apps::v1::DaemonSetStatus;

/// The status of the existing pods. Of several pods on a node the first counts.
pub fn status(view: &View<'_>, collisions: i32) -> DaemonSetStatus {
    let by_node = view.by_node();
    let mut next = DaemonSetStatus {
        observed_generation: view.set.metadata.generation,
        collision_count: (collisions > 0).then_some(collisions),
        conditions: view.set.status.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    for (node, fit) in view.nodes {
        let pod = by_node.get(node.name()).and_then(|pods| pods.first());
        if *fit != Fit::Runs {
            next.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        next.desired_number_scheduled += 1;
        let Some(pod) = pod else { continue };
        next.current_number_scheduled += 1;
        next.number_ready += i32::from(is_ready(pod));
        next.number_available += i32::from(view.is_available(pod));
        next.updated_number_scheduled += i32::from((view.is_updated)(pod));
    }
    next.number_unavailable = next.desired_number_scheduled - next.number_available;
    next
}
