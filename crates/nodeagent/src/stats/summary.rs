//! `/stats/summary`.

use super::agent_page::size_of;
use super::cgroup_usage::{self, CgroupUsage};
use super::filesystem::{FilesystemUsage, filesystem};
use super::processes::{self, Interface};
use super::system_containers::{StartTimes, SystemContainer};
use super::usage::{ContainerUsage, Usage};
use super::volume_usage::VolumeStats;
use crate::runtime::{FilesystemStats, InterfaceStats, SandboxStats};
use api::core::v1::{Pod, Volume};
use bytes::Bytes;
use schema::time::format_time;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::Path;

impl Usage {
    pub(super) async fn summary(&self) -> Result<Bytes, String> {
        let containers = self.containers().await?;
        let sandboxes = self.sources.runtime.sandbox_stats().await.unwrap_or_default();
        let pods = self.sources.pods.pods();
        let uids: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        self.sources.volumes.retain(&uids);
        let mut summaries = Vec::new();
        for pod in &pods {
            let own: Vec<&ContainerUsage> =
                containers.iter().filter(|it| it.uid == pod.metadata.uid).collect();
            if !own.is_empty() {
                let sandbox = sandboxes.iter().find(|it| it.uid == pod.metadata.uid);
                summaries.push(self.pod_summary(pod, &own, sandbox).await);
            }
        }
        let all = json!({ "node": self.node_summary().await, "pods": summaries });
        Ok(all.to_string().into())
    }

    async fn pod_summary(
        &self,
        pod: &Pod,
        containers: &[&ContainerUsage],
        sandbox: Option<&SandboxStats>,
    ) -> Value {
        let (meta, now) = (&pod.metadata, self.now());
        let mut summary = json!({
            "podRef": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
            "startTime": pod.status.start_time.as_ref().map(ToString::to_string),
        });
        let volumes = self.sources.volumes.of_pod(&meta.uid, &self.sources.metrics).await;
        let mut storage = volumes.iter().filter(|it| is_ephemeral(pod, &it.name)).fold((0, 0), add_volume);
        let mut each = Vec::new();
        for it in containers {
            let logs = size_of(&self.log_dir(pod).join(&it.container));
            let layer = it.stats.writable_layer.as_ref();
            storage.0 += logs + layer.and_then(|it| it.used_bytes).unwrap_or(0);
            storage.1 += layer.and_then(|it| it.inodes_used).unwrap_or(0);
            each.push(self.container(it, pod, logs));
        }
        summary["containers"] = each.into();
        let cgroup = self.pod_cgroup(pod);
        let cgroup = cgroup.unwrap_or_else(|| {
            containers.iter().fold(CgroupUsage::default(), |sum, it| add_container(sum, it))
        });
        summary["cpu"] = self.cpu(&meta.uid, now, cgroup.cpu_nanos);
        summary["memory"] = memory_summary(now, &cgroup);
        summary["process_stats"] = json!({ "process_count": cgroup.processes.len() });
        if !volumes.is_empty() {
            summary["volume"] = volumes.iter().map(|it| volume_summary(now, it, pod)).collect();
        }
        if let Some(usage) = filesystem(&self.sources.root_dir) {
            let mut whole = filesystem_summary(now, usage, None);
            (whole["usedBytes"], whole["inodesUsed"]) = (json!(storage.0), json!(storage.1));
            summary["ephemeral-storage"] = whole;
        }
        let interfaces = sandbox.filter(|it| !it.interfaces.is_empty());
        let interfaces = match interfaces {
            Some(sandbox) => sandbox.interfaces.iter().map(reported_interface).collect(),
            None => processes::interfaces(&self.sources.proc, cgroup.processes.first().copied()),
        };
        // pods on the node's network have none of their own
        if !pod.spec.host_network && !interfaces.is_empty() {
            summary["network"] = network_summary(now, &interfaces);
        }
        summary
    }

    async fn node_summary(&self) -> Value {
        let (node, now) = (self.node(), self.now());
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
            "rlimit": { "time": time(now), "maxpid": node.process_limit, "curproc": node.processes },
        });
        let interfaces = processes::interfaces(&self.sources.proc, None);
        if !interfaces.is_empty() {
            summary["network"] = network_summary(now, &interfaces);
        }
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
        if let Some(usage) = filesystem(&self.sources.root_dir) {
            summary["fs"] = filesystem_summary(now, usage, None);
        }
        if let Some(image_fs) = self.image_fs().await
            && let Some(usage) = filesystem(Path::new(&image_fs.mountpoint))
        {
            let own = filesystem_summary(now, usage, Some(&image_fs));
            summary["runtime"] = json!({ "imageFs": own });
        }
        summary
    }

    fn container(&self, usage: &ContainerUsage, pod: &Pod, log_bytes: u64) -> Value {
        let (stats, now) = (&usage.stats, self.now());
        let mut summary = Map::new();
        summary.insert("name".to_owned(), json!(usage.container));
        let mut statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let running = statuses.find(|it| it.name == usage.container).and_then(|it| it.state.running.as_ref());
        let started = running.and_then(|it| it.started_at.as_ref()).map(ToString::to_string);
        summary.insert("startTime".to_owned(), json!(started));
        let cgroup = self.container_cgroup(pod, &stats.id);
        let cgroup = cgroup.unwrap_or_else(|| add_container(CgroupUsage::default(), usage));
        summary.insert("cpu".to_owned(), self.cpu(&stats.id, now, cgroup.cpu_nanos));
        summary.insert("memory".to_owned(), memory_summary(now, &cgroup));
        if let Some(layer) = &stats.writable_layer {
            let mut rootfs = filesystem(Path::new(&layer.mountpoint))
                .map_or_else(|| json!({}), |usage| filesystem_summary(layer.timestamp, usage, Some(layer)));
            rootfs["time"] = json!(time(layer.timestamp));
            summary.insert("rootfs".to_owned(), rootfs);
        }
        if let Some(usage) = filesystem(&self.sources.log_dir) {
            let mut logs = filesystem_summary(now, usage, None);
            logs["usedBytes"] = json!(log_bytes);
            summary.insert("logs".to_owned(), logs);
        }
        Value::Object(summary)
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
    let claim = find_volume(pod, &volume.name).and_then(|it| it.persistent_volume_claim.as_ref());
    if let Some(claim) = claim {
        summary["pvcRef"] = json!({ "name": claim.claim_name, "namespace": pod.metadata.namespace });
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
