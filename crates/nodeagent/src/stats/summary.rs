//! `/stats/summary`.

use super::usage::{ContainerUsage, FilesystemUsage, Usage, filesystem};
use crate::runtime::{CpuStats, FilesystemStats, MemoryStats};
use api::core::v1::Pod;
use bytes::Bytes;
use schema::time::format_time;
use serde_json::{Map, Value, json};
use std::path::Path;

impl Usage {
    pub(super) async fn summary(&self) -> Result<Bytes, String> {
        let containers = self.containers().await?;
        let sandboxes = self.sources.runtime.sandbox_stats().await.unwrap_or_default();
        let pods: Vec<Value> = self
            .sources
            .pods
            .pods()
            .iter()
            .filter_map(|pod| {
                let uid = pod.metadata.uid.clone();
                let own: Vec<&ContainerUsage> = containers.iter().filter(|it| it.uid == uid).collect();
                if own.is_empty() {
                    return None;
                }
                let mut summary = json!({
                    "podRef": {
                        "name": pod.metadata.name,
                        "namespace": pod.metadata.namespace,
                        "uid": uid,
                    },
                    "startTime": pod.status.start_time.as_ref().map(ToString::to_string),
                    "containers": own.iter().map(|it| self.container(it, pod)).collect::<Vec<_>>(),
                });
                self.add_pod_totals(&mut summary, &own, &uid);
                let network =
                    sandboxes.iter().find(|it| it.uid == uid).filter(|it| !it.interfaces.is_empty());
                if let Some(sandbox) = network {
                    let interface = |it: &crate::runtime::InterfaceStats| {
                        json!({
                            "name": it.name,
                            "rxBytes": it.rx_bytes,
                            "rxErrors": it.rx_errors,
                            "txBytes": it.tx_bytes,
                            "txErrors": it.tx_errors,
                        })
                    };
                    let mut network = interface(&sandbox.interfaces[0]);
                    network["time"] = json!(time(sandbox.network_timestamp));
                    network["interfaces"] = sandbox.interfaces.iter().map(interface).collect();
                    summary["network"] = network;
                }
                Some(summary)
            })
            .collect();
        let all = json!({ "node": self.node_summary().await, "pods": pods });
        Ok(all.to_string().into())
    }

    async fn node_summary(&self) -> Value {
        let (node, now) = (self.node(), self.now());
        let mut summary = json!({
            "nodeName": self.sources.node_name,
            "startTime": format_time(node.boot_time),
            "cpu": {
                "time": time(now),
                "usageNanoCores": self.rates.nano_cores("/", now, node.cpu_nanos).unwrap_or(0),
                "usageCoreNanoSeconds": node.cpu_nanos,
            },
            "memory": {
                "time": time(now),
                "availableBytes": node.memory_available,
                "usageBytes": node.memory_usage,
                "workingSetBytes": node.memory_working_set,
                "rssBytes": node.memory_working_set,
                "pageFaults": 0,
                "majorPageFaults": 0,
            },
        });
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

    fn container(&self, usage: &ContainerUsage, pod: &Pod) -> Value {
        let stats = &usage.stats;
        let mut summary = Map::new();
        summary.insert("name".to_owned(), json!(usage.container));
        let mut statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let running = statuses.find(|it| it.name == usage.container).and_then(|it| it.state.running.as_ref());
        let started = running.and_then(|it| it.started_at.as_ref()).map(ToString::to_string);
        summary.insert("startTime".to_owned(), json!(started));
        if let Some(cpu) = &stats.cpu {
            summary.insert("cpu".to_owned(), self.cpu(&stats.id, cpu));
        }
        if let Some(memory) = &stats.memory {
            summary.insert("memory".to_owned(), memory_summary(memory));
        }
        if let Some(layer) = &stats.writable_layer {
            let mut rootfs = filesystem(Path::new(&layer.mountpoint))
                .map_or_else(|| json!({}), |usage| filesystem_summary(layer.timestamp, usage, Some(layer)));
            rootfs["time"] = json!(time(layer.timestamp));
            summary.insert("rootfs".to_owned(), rootfs);
        }
        Value::Object(summary)
    }

    fn cpu(&self, id: &str, cpu: &CpuStats) -> Value {
        let total = cpu.usage_core_nano_seconds.unwrap_or(0);
        let rate = cpu.usage_nano_cores.or_else(|| self.rates.nano_cores(id, cpu.timestamp, total));
        json!({ "time": time(cpu.timestamp), "usageNanoCores": rate.unwrap_or(0), "usageCoreNanoSeconds": total })
    }

    fn add_pod_totals(&self, summary: &mut Value, containers: &[&ContainerUsage], uid: &str) {
        let cpu: Vec<&CpuStats> = containers.iter().filter_map(|it| it.stats.cpu.as_ref()).collect();
        if let Some(last) = cpu.iter().map(|it| it.timestamp).max() {
            let total = cpu.iter().filter_map(|it| it.usage_core_nano_seconds).sum();
            let whole =
                CpuStats { timestamp: last, usage_core_nano_seconds: Some(total), usage_nano_cores: None };
            summary["cpu"] = self.cpu(uid, &whole);
        }
        let memory: Vec<&MemoryStats> = containers.iter().filter_map(|it| it.stats.memory.as_ref()).collect();
        if let Some(last) = memory.iter().map(|it| it.timestamp).max() {
            let sum =
                |field: fn(&MemoryStats) -> Option<u64>| Some(memory.iter().filter_map(|it| field(it)).sum());
            let whole = MemoryStats {
                timestamp: last,
                working_set_bytes: sum(|it| it.working_set_bytes),
                available_bytes: None,
                usage_bytes: sum(|it| it.usage_bytes),
                rss_bytes: sum(|it| it.rss_bytes),
                page_faults: sum(|it| it.page_faults),
                major_page_faults: sum(|it| it.major_page_faults),
            };
            summary["memory"] = memory_summary(&whole);
        }
    }
}

fn time(nanos: i64) -> String {
    format_time(nanos / 1_000_000_000)
}

fn memory_summary(memory: &MemoryStats) -> Value {
    let mut summary = json!({
        "time": time(memory.timestamp),
        "usageBytes": memory.usage_bytes.unwrap_or(0),
        "workingSetBytes": memory.working_set_bytes.unwrap_or(0),
        "rssBytes": memory.rss_bytes.unwrap_or(0),
        "pageFaults": memory.page_faults.unwrap_or(0),
        "majorPageFaults": memory.major_page_faults.unwrap_or(0),
    });
    if let Some(available) = memory.available_bytes {
        summary["availableBytes"] = json!(available);
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
