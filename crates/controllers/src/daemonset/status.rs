//! What a daemon set says about itself.

use super::fit::Fit;
use super::plan::View;
use crate::pods::state::is_ready;
use k8s_openapi::api::apps::v1::DaemonSetStatus;

/// The status that follows from what there is. Of several pods on a node the first counts.
pub fn status(view: &View<'_>, collisions: i32) -> DaemonSetStatus {
    let before = view.set.status.as_ref();
    let by_node = view.by_node();
    let mut next = DaemonSetStatus {
        observed_generation: view.set.metadata.generation,
        collision_count: (collisions > 0).then_some(collisions),
        conditions: before.and_then(|it| it.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for (node, fit) in view.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pod = by_node.get(name).and_then(|pods| pods.first());
        if *fit != Fit::Runs {
            next.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        next.desired_number_scheduled += 1;
        let Some(pod) = pod else { continue };
        next.current_number_scheduled += 1;
        next.number_ready += i32::from(is_ready(pod));
        available += i32::from(view.is_available(pod));
        updated += i32::from((view.is_updated)(pod));
    }
    next.updated_number_scheduled = Some(updated);
    next.number_available = Some(available);
    next.number_unavailable = Some(next.desired_number_scheduled - available);
    plain(&next)
}

/// The same with what is zero left out, as the server has it.
pub fn plain(status: &DaemonSetStatus) -> DaemonSetStatus {
    let mut plain = status.clone();
    for count in [
        &mut plain.collision_count,
        &mut plain.number_available,
        &mut plain.number_unavailable,
        &mut plain.updated_number_scheduled,
    ] {
        *count = count.filter(|it| *it != 0);
    }
    plain.conditions = plain.conditions.filter(|it| !it.is_empty());
    plain
}
