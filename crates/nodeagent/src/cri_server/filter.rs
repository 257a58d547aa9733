//! Filters of lists: an empty field of a filter matches everything.

use crate::runtime::{ContainerInfo, SandboxInfo};
use grpc::cri;
use std::collections::BTreeMap;

/// Whether labels have all pairs of a selector.
pub fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn is_id(id: &str, wanted: &str) -> bool {
    wanted.is_empty() || id == wanted
}

pub fn matches_sandbox(sandbox: &SandboxInfo, filter: &cri::PodSandboxFilter) -> bool {
    let is_state = filter.state.as_ref().is_none_or(|it| {
        let ready = cri::PodSandboxState::SandboxReady as i32;
        (it.state == ready) == sandbox.is_ready
    });
    is_id(&sandbox.id, &filter.id) && is_state && has_labels(&sandbox.labels, &filter.label_selector)
}

pub fn matches_container(container: &ContainerInfo, filter: &cri::ContainerFilter) -> bool {
    let state = super::to_cri::container_state(container.state);
    is_id(&container.id, &filter.id)
        && is_id(&container.sandbox_id, &filter.pod_sandbox_id)
        && filter.state.as_ref().is_none_or(|it| it.state == state)
        && has_labels(&container.labels, &filter.label_selector)
}

pub fn matches_container_stats(container: &ContainerInfo, filter: &cri::ContainerStatsFilter) -> bool {
    is_id(&container.id, &filter.id)
        && is_id(&container.sandbox_id, &filter.pod_sandbox_id)
        && has_labels(&container.labels, &filter.label_selector)
}

pub fn matches_sandbox_stats(sandbox: &SandboxInfo, filter: &cri::PodSandboxStatsFilter) -> bool {
    is_id(&sandbox.id, &filter.id) && has_labels(&sandbox.labels, &filter.label_selector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ContainerState;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_fields_of_a_filter_must_match() {
        let container = ContainerInfo {
            id: "c".into(),
            sandbox_id: "s".into(),
            state: ContainerState::Running,
            labels: labels(&[("a", "1"), ("b", "2")]),
            ..ContainerInfo::default()
        };
        let filter = |id: &str, sandbox: &str, state: Option<i32>, selector: &[(&str, &str)]| {
            let filter = cri::ContainerFilter {
                id: id.into(),
                state: state.map(|state| cri::ContainerStateValue { state }),
                pod_sandbox_id: sandbox.into(),
                label_selector: labels(selector),
            };
            matches_container(&container, &filter)
        };
        let running = cri::ContainerState::ContainerRunning as i32;
        assert!(filter("", "", None, &[]));
        assert!(filter("c", "s", Some(running), &[("a", "1"), ("b", "2")]));
        assert!(!filter("d", "", None, &[]));
        assert!(!filter("", "t", None, &[]));
        assert!(!filter("", "", Some(running + 1), &[]));
        assert!(!filter("", "", None, &[("a", "2")]));
        assert!(!filter("", "", None, &[("c", "")]));
    }

    #[test]
    fn sandboxes_are_ready_or_not() {
        let sandbox = SandboxInfo { id: "s".into(), is_ready: false, ..SandboxInfo::default() };
        let of_state = |state: cri::PodSandboxState| {
            let state = Some(cri::PodSandboxStateValue { state: state as i32 });
            matches_sandbox(&sandbox, &cri::PodSandboxFilter { state, ..Default::default() })
        };
        assert!(of_state(cri::PodSandboxState::SandboxNotready));
        assert!(!of_state(cri::PodSandboxState::SandboxReady));
    }
}
