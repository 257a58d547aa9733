//! `/stats/summary`.

use super::agent_page::size_of;
use super::cgroup_usage::{self, CgroupUsage};
use super::filesystem::{FilesystemUsage, filesystem};
use super::processes::{self, Interface};
use super::system_containers::{StartTimes, SystemContainer};
use super::usage::{ContainerUsage, NodeUsage, Usage};
use super::volume_usage::VolumeStats;
use crate::runtime::{FilesystemStats, InterfaceStats, SandboxStats};
use crate::volumes::claims::claim_name;
use api::core::v1::{Pod, Volume};
use bytes::Bytes;
use schema::time::format_time;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;

/// What a summary has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    All,
    /// Nothing that filesystems and networks are read for.
    CpuAndMemory,
}

impl Usage {
    pub(super) async fn summary(&self, extent: Extent) -> Result<Bytes, String> {
        let containers = self.containers().await?;
        Ok(self.summary_of(&containers, extent).await.to_string().into())
    }

    async fn summary_of(&self, containers: &[ContainerUsage], extent: Extent) -> Value {
        let sandboxes = match extent {
            Extent::All => self.sources.runtime.sandbox_stats().await.unwrap_or_default(),
            Extent::CpuAndMemory => Vec::new(),
        };
        let pods = self.sources.pods.pods();
        let uids: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        self.sources.volumes.retain(&uids);
        let mut summaries = Vec::new();
        for pod in &pods {
            let own: Vec<&ContainerUsage> =
                containers.iter().filter(|it| it.uid == pod.metadata.uid).collect();
            if own.is_empty() {
                continue;
            }
            let cgroup = self
                .pod_cgroup(pod)
                .unwrap_or_else(|| own.iter().fold(CgroupUsage::default(), |sum, it| add_container(sum, it)));
            let mut summary = self.pod_summary(pod, &own, &cgroup);
            if extent == Extent::All {
                let sandbox = sandboxes.iter().find(|it| it.uid == pod.metadata.uid);
                self.add_storage(&mut summary, pod, &own).await;
                self.add_network(&mut summary, pod, &cgroup, sandbox);
            }
            summaries.push(summary);
        }
        let usage = self.node();
        let mut node = self.node_summary(&usage);
        if extent == Extent::All {
            self.add_node_storage(&mut node, &usage).await;
        }
        json!({ "node": node, "pods": summaries })
    }

    fn pod_summary(&self, pod: &Pod, containers: &[&ContainerUsage], cgroup: &CgroupUsage) -> Value {
        let (meta, now) = (&pod.metadata, self.now());
        json!({
            "podRef": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
            "startTime": pod.status.start_time.as_ref().map(ToString::to_string),
            "cpu": self.cpu(&meta.uid, now, cgroup.cpu_nanos),
            "memory": memory_summary(now, cgroup),
            "containers": containers.iter().map(|it| self.container(it, pod)).collect::<Vec<_>>(),
        })
    }

    /// Adds the volumes of a pod, and the disk space of its containers.
    async fn add_storage(&self, summary: &mut Value, pod: &Pod, containers: &[&ContainerUsage]) {
        let now = self.now();
        let volumes = self.sources.volumes.of_pod(&pod.metadata.uid, &self.sources.metrics).await;
        let mut storage = volumes.iter().filter(|it| is_ephemeral(pod, &it.name)).fold((0, 0), add_volume);
        for (at, it) in containers.iter().enumerate() {
            let logs = size_of(&self.log_dir(pod).join(&it.container));
            let layer = it.stats.writable_layer.as_ref();
            storage.0 += logs + layer.and_then(|it| it.used_bytes).unwrap_or(0);
            storage.1 += layer.and_then(|it| it.inodes_used).unwrap_or(0);
            self.add_container_storage(&mut summary["containers"][at], it, logs);
        }
        if !volumes.is_empty() {
            summary["volume"] = volumes.iter().map(|it| volume_summary(now, it, pod)).collect();
        }
        if let Some(usage) = filesystem(&self.sources.root_dir) {
            let mut whole = filesystem_summary(now, usage, None);
            (whole["usedBytes"], whole["inodesUsed"]) = (json!(storage.0), json!(storage.1));
            summary["ephemeral-storage"] = whole;
        }
    }

    /// Adds the interfaces and processes of a pod.
    fn add_network(
        &self,
        summary: &mut Value,
        pod: &Pod,
        cgroup: &CgroupUsage,
        sandbox: Option<&SandboxStats>,
    ) {
        summary["process_stats"] = json!({ "process_count": cgroup.processes.len() });
        let interfaces = sandbox.filter(|it| !it.interfaces.is_empty());
        let interfaces = match interfaces {
            Some(sandbox) => sandbox.interfaces.iter().map(reported_interface).collect(),
            None => processes::interfaces(&self.sources.proc, cgroup.processes.first().copied()),
        };
        // pods on the node's network have none of their own
        if !pod.spec.host_network && !interfaces.is_empty() {
            summary["network"] = network_summary(self.now(), &interfaces);
        }
    }

    fn node_summary(&self, node: &NodeUsage) -> Value {
        let now = self.now();
        let mut summary = json!({
            "nodeName": self.sources.node_name,
            "startTime": format_time(node.boot_time),
            "cpu": self.cpu("/", now, node.cpu_nanos),
            "memory": {
                "time": time(now),
                "availableBytes": node.memory_available,
                "usageBytes": node.memory_usage,
                "workingSetBytes": node.memory_working_set,
                "rssBytes": node.memory_anonymous,
                "pageFaults": node.page_faults.0,
                "majorPageFaults": node.page_faults.1,
            },
        });
        if let Some(cgroups) = &self.sources.cgroups {
            let sources = &self.sources;
            let start_times = StartTimes { agent: self.start_time as i64, pods: node.boot_time };
            let pods = cgroups.root_path();
            let all = sources.system_cgroups.read(cgroups.files(), &sources.proc, &pods, start_times);
            let container = |it: &SystemContainer| {
                json!({
                    "name": it.name,
                    "startTime": format_time(it.start_time),
                    "cpu": self.cpu(it.name, now, it.usage.cpu_nanos),
                    "memory": memory_summary(now, &it.usage),
                })
            };
            summary["systemContainers"] = all.iter().map(container).collect();
        }
        summary
    }

    /// Adds the processes, interfaces and filesystems of the node.
    async fn add_node_storage(&self, summary: &mut Value, node: &NodeUsage) {
        let now = self.now();
        summary["rlimit"] =
            json!({ "time": time(now), "maxpid": node.process_limit, "curproc": node.processes });
        let interfaces = processes::interfaces(&self.sources.proc, None);
        if !interfaces.is_empty() {
            summary["network"] = network_summary(now, &interfaces);
        }
        if let Some(usage) = filesystem(&self.sources.root_dir) {
            summary["fs"] = filesystem_summary(now, usage, None);
        }
        if let Some(image_fs) = self.image_fs().await
            && let Some(usage) = filesystem(Path::new(&image_fs.mountpoint))
        {
            let own = filesystem_summary(now, usage, Some(&image_fs));
            summary["runtime"] = json!({ "imageFs": own });
        }
    }

    fn container(&self, usage: &ContainerUsage, pod: &Pod) -> Value {
        let (stats, now) = (&usage.stats, self.now());
        let mut statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let running = statuses.find(|it| it.name == usage.container).and_then(|it| it.state.running.as_ref());
        let cgroup = self.container_cgroup(pod, &stats.id);
        let cgroup = cgroup.unwrap_or_else(|| add_container(CgroupUsage::default(), usage));
        json!({
            "name": usage.container,
            "startTime": running.and_then(|it| it.started_at.as_ref()).map(ToString::to_string),
            "cpu": self.cpu(&stats.id, now, cgroup.cpu_nanos),
            "memory": memory_summary(now, &cgroup),
        })
    }

    fn add_container_storage(&self, summary: &mut Value, usage: &ContainerUsage, log_bytes: u64) {
        if let Some(layer) = &usage.stats.writable_layer {
            let mut rootfs = filesystem(Path::new(&layer.mountpoint))
                .map_or_else(|| json!({}), |usage| filesystem_summary(layer.timestamp, usage, Some(layer)));
            rootfs["time"] = json!(time(layer.timestamp));
            summary["rootfs"] = rootfs;
        }
        if let Some(usage) = filesystem(&self.sources.log_dir) {
            let mut logs = filesystem_summary(self.now(), usage, None);
            logs["usedBytes"] = json!(log_bytes);
            summary["logs"] = logs;
        }
    }

    fn log_dir(&self, pod: &Pod) -> std::path::PathBuf {
        let meta = &pod.metadata;
        self.sources.log_dir.join(format!("{}_{}_{}", meta.namespace, meta.name, meta.uid))
    }

    fn pod_cgroup(&self, pod: &Pod) -> Option<CgroupUsage> {
        let cgroups = self.sources.cgroups.as_ref()?;
        let path = cgroups.pod_path(pod);
        cgroups.files().exists(&path).then(|| cgroup_usage::read(cgroups.files(), &path))
    }

    /// The cgroup of a container, under the names that runtimes give it.
    fn container_cgroup(&self, pod: &Pod, id: &str) -> Option<CgroupUsage> {
        let cgroups = self.sources.cgroups.as_ref()?;
        let names = [id.to_owned(), format!("cri-containerd-{id}.scope"), format!("crio-{id}.scope")];
        let paths = names.map(|name| format!("{}/{name}", cgroups.pod_path(pod)));
        let path = paths.into_iter().find(|path| cgroups.files().exists(path))?;
        Some(cgroup_usage::read(cgroups.files(), &path))
    }

    fn cpu(&self, id: &str, at: i64, total: u64) -> Value {
        let rate = self.rates.nano_cores(id, at, total);
        json!({ "time": time(at), "usageNanoCores": rate.unwrap_or(0), "usageCoreNanoSeconds": total })
    }
}

/// Adds what the runtime reports of a container.
fn add_container(mut sum: CgroupUsage, usage: &ContainerUsage) -> CgroupUsage {
    if let Some(cpu) = &usage.stats.cpu {
        sum.cpu_nanos += cpu.usage_core_nano_seconds.unwrap_or(0);
    }
    if let Some(memory) = &usage.stats.memory {
        sum.memory_usage += memory.usage_bytes.unwrap_or(0);
        sum.memory_working_set += memory.working_set_bytes.unwrap_or(0);
        sum.memory_rss += memory.rss_bytes.unwrap_or(0);
        sum.page_faults.0 += memory.page_faults.unwrap_or(0);
        sum.page_faults.1 += memory.major_page_faults.unwrap_or(0);
    }
    sum
}

fn add_volume((bytes, inodes): (u64, u64), volume: &VolumeStats) -> (u64, u64) {
    (bytes + volume.used_bytes, inodes + volume.inodes_used)
}

fn find_volume<'p>(pod: &'p Pod, name: &str) -> Option<&'p Volume> {
    pod.spec.volumes.iter().find(|it| it.name == name)
}

/// Whether a volume lives on the node's disk and ends with its pod.
fn is_ephemeral(pod: &Pod, name: &str) -> bool {
    find_volume(pod, name).is_some_and(|volume| match &volume.empty_dir {
        Some(empty) => empty.medium.is_empty(),
        None => volume.config_map.is_some() || volume.downward_api.is_some(),
    })
}

fn time(nanos: i64) -> String {
    format_time(nanos / 1_000_000_000)
}

fn memory_summary(at: i64, usage: &CgroupUsage) -> Value {
    let mut summary = json!({
        "time": time(at),
        "usageBytes": usage.memory_usage,
        "workingSetBytes": usage.memory_working_set,
        "rssBytes": usage.memory_rss,
        "pageFaults": usage.page_faults.0,
        "majorPageFaults": usage.page_faults.1,
    });
    if usage.memory_limit > 0 {
        summary["availableBytes"] = json!(usage.memory_limit.saturating_sub(usage.memory_working_set));
    }
    summary
}

fn reported_interface(it: &InterfaceStats) -> Interface {
    let number = |value: Option<u64>| value.unwrap_or(0);
    Interface {
        name: it.name.clone(),
        received: [number(it.rx_bytes), 0, number(it.rx_errors), 0],
        sent: [number(it.tx_bytes), 0, number(it.tx_errors), 0],
    }
}

/// The first interface as the whole, and all of them.
fn network_summary(at: i64, interfaces: &[Interface]) -> Value {
    let one = |it: &Interface| {
        json!({
            "name": it.name,
            "rxBytes": it.received[0],
            "rxErrors": it.received[2],
            "txBytes": it.sent[0],
            "txErrors": it.sent[2],
        })
    };
    let default = interfaces.iter().find(|it| it.name == "eth0").or(interfaces.first());
    let mut network = default.map_or_else(|| json!({}), one);
    network["time"] = json!(time(at));
    network["interfaces"] = interfaces.iter().map(one).collect();
    network
}

fn volume_summary(at: i64, volume: &VolumeStats, pod: &Pod) -> Value {
    let mut summary = filesystem_summary(at, volume.filesystem, None);
    summary["usedBytes"] = json!(volume.used_bytes);
    summary["inodesUsed"] = json!(volume.inodes_used);
    summary["name"] = json!(volume.name);
    if let Some(claim) = find_volume(pod, &volume.name).and_then(|it| claim_name(pod, it)) {
        summary["pvcRef"] = json!({ "name": claim, "namespace": pod.metadata.namespace });
    }
    summary
}

/// Usage of a filesystem; `own` is the part of one container or of all images.
fn filesystem_summary(at: i64, usage: FilesystemUsage, own: Option<&FilesystemStats>) -> Value {
    let used = usage.capacity.saturating_sub(usage.available);
    let inodes_used = usage.inodes.saturating_sub(usage.inodes_free);
    json!({
        "time": time(at),
        "availableBytes": usage.available,
        "capacityBytes": usage.capacity,
        "usedBytes": own.and_then(|it| it.used_bytes).unwrap_or(used),
        "inodesFree": usage.inodes_free,
        "inodes": usage.inodes,
        "inodesUsed": own.and_then(|it| it.inodes_used).unwrap_or(inodes_used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::testing::FakeFilesystem;
    use crate::objects::testing::{FixedObjects, object};
    use crate::runtime::simulated::SimulatedRuntime;
    use crate::server::PodView;
    use crate::stats::{AgentMetrics, StatsSources, SystemCgroups, VolumeUsage};
    use crate::volumes::VolumeManager;
    use std::sync::Arc;
    use std::time::Duration;

    struct OnePod(Arc<Pod>);

    impl PodView for OnePod {
        fn pods(&self) -> Vec<Arc<Pod>> {
            vec![self.0.clone()]
        }
    }

    fn keys(value: &Value) -> Vec<&str> {
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    #[tokio::test]
    async fn a_summary_of_cpu_and_memory_measures_no_filesystem() {
        let (root, world): (_, env::World) =
            (tempfile::tempdir().unwrap(), env::Simulated::new(1_700_000_000, 1));
        let pod: Arc<Pod> = Arc::new(object(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u"},"spec":{"volumes":[{"name":"v","emptyDir":{}}],
                "containers":[{"name":"c","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}"#,
        ));
        let filesystem = Arc::new(FakeFilesystem::default());
        let objects = Arc::new(FixedObjects::default());
        let volumes = VolumeManager::new(root.path(), filesystem, objects, world.clone());
        volumes.mount_all(&pod).await.unwrap();
        let metrics = AgentMetrics::default();
        let usage = Usage::new(StatsSources {
            runtime: Arc::new(SimulatedRuntime::new(world.clone())),
            pods: Arc::new(OnePod(pod)),
            node_name: "n1".to_owned(),
            world: world.clone(),
            proc: root.path().join("proc"),
            root_dir: root.path().to_owned(),
            log_dir: root.path().to_owned(),
            machine: Default::default(),
            cgroups: None,
            system_cgroups: SystemCgroups::default(),
            metrics: metrics.clone(),
            volumes: VolumeUsage::new(volumes, Duration::from_secs(60), world),
            last_listed: Box::new(|| 0.0),
        });
        let container = ContainerUsage {
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            container: "c".to_owned(),
            stats: Default::default(),
        };
        let has_measured = || metrics.registry().text().contains("kubelet_volume_metric_collection");
        let some = usage.summary_of(std::slice::from_ref(&container), Extent::CpuAndMemory).await;
        assert!(!has_measured());
        assert_eq!(keys(&some["node"]), ["cpu", "memory", "nodeName", "startTime"]);
        assert_eq!(keys(&some["pods"][0]), ["containers", "cpu", "memory", "podRef", "startTime"]);
        assert_eq!(keys(&some["pods"][0]["containers"][0]), ["cpu", "memory", "name", "startTime"]);
        let all = usage.summary_of(&[container], Extent::All).await;
        assert!(has_measured());
        assert!(keys(&all["node"]).contains(&"fs"), "{all}");
        assert_eq!(all["pods"][0]["volume"][0]["name"], "v", "{all}");
        assert!(keys(&all["pods"][0]["containers"][0]).contains(&"logs"), "{all}");
    }
}
