//! `/metrics`: the agent's counters, and what is read at each scrape.

use super::exposition::{AGENT, PageSamples};
use super::usage::Usage;
use crate::runtime::ContainerState;
use api::core::v1::Pod;
use bytes::Bytes;
use names::node;
use std::collections::BTreeMap;
use std::path::Path;

const STATES: [(ContainerState, &str); 4] = [
    (ContainerState::Created, "created"),
    (ContainerState::Exited, "exited"),
    (ContainerState::Running, "running"),
    (ContainerState::Unknown, "unknown"),
];

impl Usage {
    pub(super) async fn agent_metrics(&self) -> Bytes {
        let mut samples = PageSamples::default();
        samples.add("kubelet_node_name", &[("node", &self.sources.node_name)], 1.0, 0);
        let runtime = &self.sources.runtime;
        if let Ok(sandboxes) = runtime.sandboxes(None).await {
            let running = sandboxes.iter().filter(|it| it.is_ready).count();
            samples.add("kubelet_running_pods", &[], running as f64, 0);
        }
        if let Ok(containers) = runtime.containers(None).await {
            for (state, name) in STATES {
                let count = containers.iter().filter(|it| it.state == state).count();
                if count > 0 {
                    let labels = [("container_state", name)];
                    samples.add("kubelet_running_containers", &labels, count as f64, 0);
                }
            }
        }
        let pods = self.sources.pods.pods();
        let ephemeral: usize = pods.iter().map(|pod| pod.spec.ephemeral_containers.len()).sum();
        samples.add("kubelet_managed_ephemeral_containers", &[], ephemeral as f64, 0);
        samples.add("kubelet_pleg_last_seen_seconds", &[], (self.sources.last_listed)(), 0);
        self.add_logs(&mut samples, &pods);
        add_volumes(&mut samples, &pods);
        samples.add_registry(self.sources.metrics.registry(), AGENT);
        samples.render(AGENT).into()
    }

    /// Bytes of the log files of containers.
    fn add_logs(&self, samples: &mut PageSamples, pods: &[std::sync::Arc<Pod>]) {
        for pod in pods {
            let meta = &pod.metadata;
            let folder = format!("{}_{}_{}", meta.namespace, meta.name, meta.uid);
            for status in pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses) {
                let bytes = size_of(&self.sources.log_dir.join(&folder).join(&status.name));
                let labels = [
                    ("container", status.name.as_str()),
                    ("namespace", &meta.namespace),
                    ("pod", &meta.name),
                    ("uid", &meta.uid),
                ];
                samples.add("kubelet_container_log_filesystem_used_bytes", &labels, bytes as f64, 0);
            }
        }
    }
}

/// Bytes of the files of a directory, without those below it.
pub(super) fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|it| it.is_file()).map(|it| it.len()).sum()
}

/// Volumes that pods want and have, by plugin.
fn add_volumes(samples: &mut PageSamples, pods: &[std::sync::Arc<Pod>]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for volume in pods.iter().flat_map(|pod| &pod.spec.volumes) {
        let plugin = match () {
            () if volume.empty_dir.is_some() => node::EMPTY_DIR_PLUGIN,
            () if volume.config_map.is_some() => node::CONFIG_MAP_PLUGIN,
            () if volume.secret.is_some() => node::SECRET_PLUGIN,
            () if volume.projected.is_some() => node::PROJECTED_PLUGIN,
            () if volume.downward_api.is_some() => node::DOWNWARD_API_PLUGIN,
            () if volume.host_path.is_some() => node::HOST_PATH_PLUGIN,
            () if volume.csi.is_some() => node::CSI_DIRECTORY,
            () => node::LOCAL_VOLUME_PLUGIN,
        };
        *counts.entry(plugin).or_default() += 1;
    }
    for (plugin, count) in counts {
        // the name of a directory has no slash
        let plugin = plugin.replacen('~', "/", 1);
        let labels = [("plugin_name", plugin.as_str()), ("state", "desired_state_of_world")];
        samples.add("volume_manager_total_volumes", &labels, count as f64, 0);
    }
}
