//! The selector of a pod's services and of the workload that owns it, for default spread constraints.

use api::meta::v1::OwnerReference;

use crate::pod_info::PodInfo;
use crate::selector::{LabelMatcher, Labels};
use crate::storage::Workloads;

/// Selects the pods that belong together with `pod`; everything if nothing selects it.
pub fn default_selector(pod: &PodInfo, workloads: &Workloads) -> LabelMatcher {
    let mut labels = Labels::new();
    for service in workloads.services_of(pod.namespace()) {
        let selector = &service.spec.selector;
        let selects =
            !selector.is_empty() && selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
        if selects {
            labels.extend(selector.clone());
        }
    }
    let owners = &pod.pod.metadata.owner_references;
    let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        return LabelMatcher::from_labels(&labels);
    };
    with_owner(pod, owner, workloads, labels)
}

fn with_owner(
    pod: &PodInfo,
    owner: &OwnerReference,
    workloads: &Workloads,
    mut labels: Labels,
) -> LabelMatcher {
    let key = format!("{}/{}", pod.namespace(), owner.name);
    let selector = match (&*owner.api_version, &*owner.kind) {
        ("v1", "ReplicationController") => {
            if let Some(controller) = workloads.replication_controllers.get(&key) {
                labels.extend(controller.spec.selector.clone());
            }
            None
        }
        ("apps/v1", "ReplicaSet") => {
            workloads.replica_sets.get(&key).map(|set| LabelMatcher::new(set.spec.selector.as_deref()))
        }
        ("apps/v1", "StatefulSet") => {
            workloads.stateful_sets.get(&key).map(|set| LabelMatcher::new(set.spec.selector.as_deref()))
        }
        _ => None,
    };
    let own = LabelMatcher::from_labels(&labels);
    match selector {
        Some(Ok(selector)) => own.and(&selector),
        _ => own,
    }
}
