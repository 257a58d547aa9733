//! `/metrics`: the agent's counters, and what is read at each scrape.

use super::exposition::{AGENT, PageSamples};
use super::usage::Usage;
use super::volume_usage::VolumeStats;
use crate::runtime::ContainerState;
use crate::volumes::claims::claim_name;
use api::core::v1::Pod;
use bytes::Bytes;
use names::node;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

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
        self.add_claims(&mut samples, &pods).await;
        samples.add_registry(self.sources.metrics.registry(), AGENT);
        samples.render(AGENT).into()
    }

    /// Usage of the volumes of claims.
    async fn add_claims(&self, samples: &mut PageSamples, pods: &[Arc<Pod>]) {
        let sources = &self.sources;
        sources.volumes.retain(&pods.iter().map(|pod| pod.metadata.uid.as_str()).collect());
        let mut measured = Vec::new();
        for pod in pods.iter().filter(|pod| pod.spec.volumes.iter().any(|it| claim_name(pod, it).is_some())) {
            measured.push((pod.clone(), sources.volumes.of_pod(&pod.metadata.uid, &sources.metrics).await));
        }
        add_claim_usage(samples, &measured);
    }

    /// Bytes of the log files of containers.
    fn add_logs(&self, samples: &mut PageSamples, pods: &[Arc<Pod>]) {
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

/// The usage of each claim once, although several pods may use it.
fn add_claim_usage(samples: &mut PageSamples, measured: &[(Arc<Pod>, Arc<Vec<VolumeStats>>)]) {
    let mut known = HashSet::new();
    for (pod, volume) in measured.iter().flat_map(|(pod, volumes)| volumes.iter().map(move |it| (pod, it))) {
        let spec = pod.spec.volumes.iter().find(|it| it.name == volume.name);
        let Some(claim) = spec.and_then(|it| claim_name(pod, it)) else { continue };
        let namespace = pod.metadata.namespace.as_str();
        if !known.insert((namespace, claim.clone())) {
            continue;
        }
        let labels = [("namespace", namespace), ("persistentvolumeclaim", claim.as_str())];
        let filesystem = &volume.filesystem;
        for (name, value) in [
            ("kubelet_volume_stats_available_bytes", filesystem.available),
            ("kubelet_volume_stats_capacity_bytes", filesystem.capacity),
            ("kubelet_volume_stats_inodes", filesystem.inodes),
            ("kubelet_volume_stats_inodes_free", filesystem.inodes_free),
            ("kubelet_volume_stats_inodes_used", volume.inodes_used),
            ("kubelet_volume_stats_used_bytes", volume.used_bytes),
        ] {
            samples.add(name, &labels, value as f64, 0);
        }
    }
}

/// Volumes that pods want and have, by plugin.
fn add_volumes(samples: &mut PageSamples, pods: &[Arc<Pod>]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;
    use crate::stats::FilesystemUsage;

    #[test]
    fn the_volume_of_a_claim_has_metrics_once() {
        let pod = |name: &str| -> Arc<Pod> {
            Arc::new(object(&format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n"}},"spec":{{"volumes":[{{"name":"scratch","emptyDir":{{}}}},
                    {{"name":"data","persistentVolumeClaim":{{"claimName":"shared"}}}},{{"name":"own","ephemeral":{{}}}}]}}}}"#
            )))
        };
        let stats = |name: &str, used_bytes| VolumeStats {
            name: name.to_owned(),
            plugin: String::new(),
            filesystem: FilesystemUsage { available: 60, capacity: 100, inodes: 10, inodes_free: 7 },
            used_bytes,
            inodes_used: 3,
        };
        let volumes = Arc::new(vec![stats("scratch", 1), stats("data", 40), stats("own", 2)]);
        let mut samples = PageSamples::default();
        add_claim_usage(&mut samples, &[(pod("a"), volumes.clone()), (pod("b"), volumes)]);
        let page = samples.render(AGENT);
        let lines: Vec<&str> = page.lines().filter(|it| it.contains("shared")).collect();
        let labels = r#"{namespace="n",persistentvolumeclaim="shared"}"#;
        let expected = [
            ("available_bytes", 60),
            ("capacity_bytes", 100),
            ("inodes", 10),
            ("inodes_free", 7),
            ("inodes_used", 3),
            ("used_bytes", 40),
        ]
        .map(|(name, value)| format!("kubelet_volume_stats_{name}{labels} {value}"));
        assert_eq!(lines, expected);
        for claim in ["a-own", "b-own"] {
            let sample = format!(
                r#"kubelet_volume_stats_used_bytes{{namespace="n",persistentvolumeclaim="{claim}"}} 2"#
            );
            assert!(page.lines().any(|it| it == sample), "{page}");
        }
        assert!(!page.contains("scratch"), "{page}");
        assert!(page.contains("# TYPE kubelet_volume_stats_inodes gauge\n"), "{page}");
    }
}
