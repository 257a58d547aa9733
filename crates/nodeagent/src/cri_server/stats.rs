//! Usage of containers and sandboxes, as statistics and as metrics.

use super::CriService;
use super::filter::{matches_container_stats, matches_sandbox_stats};
use super::status::rpc_status;
use super::to_cri::{filesystem, number, sandbox_metadata};
use crate::runtime::{
    ContainerInfo, ContainerStats, CpuStats, InterfaceStats, MemoryStats, RuntimeCode, RuntimeError,
    SandboxInfo, SandboxStats,
};
use grpc::cri;
use grpc::tonic::Status;
use std::collections::BTreeMap;

/// The metrics of a container or a sandbox, with their descriptions. All are without labels of their own.
const METRICS: [(&str, &str, cri::MetricType); 5] = [
    ("container_cpu_usage_seconds_total", "CPU time, in whole seconds", cri::MetricType::Counter),
    ("container_memory_usage_bytes", "Memory in use, with caches", cri::MetricType::Gauge),
    ("container_memory_working_set_bytes", "Memory that cannot be reclaimed", cri::MetricType::Gauge),
    ("container_memory_rss", "Anonymous memory", cri::MetricType::Gauge),
    ("container_memory_failures_total", "Major page faults", cri::MetricType::Counter),
];
/// Metrics of the network of a sandbox, by interface.
const NETWORK_METRICS: [(&str, &str); 4] = [
    ("container_network_receive_bytes_total", "Bytes received"),
    ("container_network_receive_errors_total", "Errors of receiving"),
    ("container_network_transmit_bytes_total", "Bytes sent"),
    ("container_network_transmit_errors_total", "Errors of sending"),
];

fn cpu(from: &CpuStats) -> cri::CpuUsage {
    cri::CpuUsage {
        timestamp: from.timestamp,
        usage_core_nano_seconds: number(from.usage_core_nano_seconds),
        usage_nano_cores: number(from.usage_nano_cores),
    }
}

fn memory(from: &MemoryStats) -> cri::MemoryUsage {
    cri::MemoryUsage {
        timestamp: from.timestamp,
        working_set_bytes: number(from.working_set_bytes),
        available_bytes: number(from.available_bytes),
        usage_bytes: number(from.usage_bytes),
        rss_bytes: number(from.rss_bytes),
        page_faults: number(from.page_faults),
        major_page_faults: number(from.major_page_faults),
    }
}

fn interface(from: &InterfaceStats) -> cri::NetworkInterfaceUsage {
    cri::NetworkInterfaceUsage {
        name: from.name.clone(),
        rx_bytes: number(from.rx_bytes),
        rx_errors: number(from.rx_errors),
        tx_bytes: number(from.tx_bytes),
        tx_errors: number(from.tx_errors),
    }
}

/// The usage of a container; one that does not run has none.
fn container_stats(info: &ContainerInfo, stats: Option<&ContainerStats>) -> cri::ContainerStats {
    cri::ContainerStats {
        attributes: Some(cri::ContainerAttributes {
            id: info.id.clone(),
            metadata: Some(cri::ContainerMetadata { name: info.name.clone(), attempt: info.attempt }),
            labels: info.labels.clone(),
            annotations: info.annotations.clone(),
        }),
        cpu: stats.and_then(|it| it.cpu.as_ref()).map(cpu),
        memory: stats.and_then(|it| it.memory.as_ref()).map(memory),
        writable_layer: stats.and_then(|it| it.writable_layer.clone()).map(filesystem),
    }
}

fn sandbox_stats(
    info: &SandboxInfo,
    stats: &SandboxStats,
    containers: Vec<cri::ContainerStats>,
) -> cri::PodSandboxStats {
    let mut interfaces = stats.interfaces.iter().map(interface);
    let process = stats.process_count.map(|count| cri::ProcessUsage {
        timestamp: stats.network_timestamp,
        process_count: number(Some(count)),
    });
    cri::PodSandboxStats {
        attributes: Some(cri::PodSandboxAttributes {
            id: info.id.clone(),
            metadata: Some(sandbox_metadata(info)),
            labels: info.labels.clone(),
            annotations: info.annotations.clone(),
        }),
        linux: Some(cri::LinuxPodSandboxStats {
            cpu: stats.cpu.as_ref().map(cpu),
            memory: stats.memory.as_ref().map(memory),
            network: Some(cri::NetworkUsage {
                timestamp: stats.network_timestamp,
                default_interface: interfaces.next(),
                interfaces: interfaces.collect(),
            }),
            process,
            containers,
        }),
    }
}

/// A container with its usage, if it runs.
type MeasuredContainer = (ContainerInfo, Option<ContainerStats>);

impl CriService {
    async fn measured_containers(&self) -> Result<Vec<MeasuredContainer>, Status> {
        let stats = self.runtime.container_stats().await.map_err(rpc_status)?;
        let mut stats: BTreeMap<String, ContainerStats> =
            stats.into_iter().map(|it| (it.id.clone(), it)).collect();
        let containers = self.runtime.containers(None).await.map_err(rpc_status)?;
        Ok(containers
            .into_iter()
            .map(|it| (stats.remove(&it.id), it))
            .map(|(stats, it)| (it, stats))
            .collect())
    }

    async fn measured_sandboxes(&self) -> Result<Vec<(SandboxInfo, SandboxStats)>, Status> {
        let stats = self.runtime.sandbox_stats().await.map_err(rpc_status)?;
        let sandboxes = self.runtime.sandboxes(None).await.map_err(rpc_status)?;
        let mut sandboxes: BTreeMap<String, SandboxInfo> =
            sandboxes.into_iter().map(|it| (it.id.clone(), it)).collect();
        Ok(stats.into_iter().filter_map(|it| Some((sandboxes.remove(&it.id)?, it))).collect())
    }

    pub async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>, Status> {
        let mut filter = filter.unwrap_or_default();
        filter.id = self.container_id(&filter.id).await?;
        filter.pod_sandbox_id = self.sandbox_id(&filter.pod_sandbox_id).await?;
        let measured = self.measured_containers().await?;
        let matching =
            measured.iter().filter(|(info, stats)| stats.is_some() && matches_container_stats(info, &filter));
        Ok(matching.map(|(info, stats)| container_stats(info, stats.as_ref())).collect())
    }

    pub async fn one_container_stats(&self, id: &str) -> Result<cri::ContainerStats, Status> {
        let id = self.container_id(id).await?;
        let measured = self.measured_containers().await?;
        let found = measured.iter().find(|(info, _)| info.id == id);
        let (info, stats) = found.ok_or_else(|| not_found("container", &id))?;
        Ok(container_stats(info, stats.as_ref()))
    }

    pub async fn list_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>, Status> {
        let mut filter = filter.unwrap_or_default();
        filter.id = self.sandbox_id(&filter.id).await?;
        let containers = self.measured_containers().await?;
        let sandboxes = self.measured_sandboxes().await?;
        let all = sandboxes.iter().filter(|(info, _)| matches_sandbox_stats(info, &filter));
        Ok(all
            .map(|(info, stats)| {
                let of_sandbox =
                    containers.iter().filter(|(it, stats)| it.sandbox_id == info.id && stats.is_some());
                let of_sandbox = of_sandbox.map(|(info, stats)| container_stats(info, stats.as_ref()));
                sandbox_stats(info, stats, of_sandbox.collect())
            })
            .collect())
    }

    pub async fn one_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats, Status> {
        let id = self.sandbox_id(id).await?;
        let filter = cri::PodSandboxStatsFilter { id: id.clone(), ..Default::default() };
        let found = self.list_sandbox_stats(Some(filter)).await?;
        found.into_iter().next().ok_or_else(|| not_found("sandbox", &id))
    }

    pub async fn sandbox_metrics(&self) -> Result<Vec<cri::PodSandboxMetrics>, Status> {
        let containers = self.measured_containers().await?;
        let sandboxes = self.measured_sandboxes().await?;
        let metrics = |(info, stats): &(SandboxInfo, SandboxStats)| {
            let of_sandbox = containers.iter().filter(|(it, _)| it.sandbox_id == info.id);
            let of_container = |(info, stats): &MeasuredContainer| {
                let stats = stats.as_ref()?;
                let metrics = usage_metrics(stats.cpu.as_ref(), stats.memory.as_ref());
                Some(cri::ContainerMetrics { container_id: info.id.clone(), metrics })
            };
            let mut metrics = usage_metrics(stats.cpu.as_ref(), stats.memory.as_ref());
            metrics
                .extend(stats.interfaces.iter().flat_map(|it| network_metrics(it, stats.network_timestamp)));
            cri::PodSandboxMetrics {
                pod_sandbox_id: info.id.clone(),
                metrics,
                container_metrics: of_sandbox.filter_map(of_container).collect(),
            }
        };
        Ok(sandboxes.iter().map(metrics).collect())
    }
}

fn not_found(kind: &str, id: &str) -> Status {
    rpc_status(RuntimeError::new(RuntimeCode::NotFound, format!("{kind} {id:?} not found")))
}

pub fn metric_descriptors() -> Vec<cri::MetricDescriptor> {
    let descriptor = |name: &str, help: &str, keys: &[&str]| cri::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: keys.iter().map(|it| (*it).to_owned()).collect(),
    };
    let usage = METRICS.iter().map(|(name, help, _)| descriptor(name, help, &[]));
    let network = NETWORK_METRICS.iter().map(|(name, help)| descriptor(name, help, &["interface"]));
    usage.chain(network).collect()
}

fn usage_metrics(cpu: Option<&CpuStats>, memory: Option<&MemoryStats>) -> Vec<cri::Metric> {
    let cpu_seconds = cpu.and_then(|it| it.usage_core_nano_seconds).map(|it| it / 1_000_000_000);
    let of_memory = |value: fn(&MemoryStats) -> Option<u64>| memory.and_then(value);
    let values = [
        cpu_seconds,
        of_memory(|it| it.usage_bytes),
        of_memory(|it| it.working_set_bytes),
        of_memory(|it| it.rss_bytes),
        of_memory(|it| it.major_page_faults),
    ];
    let timestamp = cpu.map(|it| it.timestamp).or(memory.map(|it| it.timestamp)).unwrap_or(0);
    let metric = |((name, _, kind), value): (&(&str, &str, cri::MetricType), Option<u64>)| {
        Some(cri::Metric {
            name: (*name).to_owned(),
            timestamp,
            metric_type: *kind as i32,
            label_values: Vec::new(),
            value: number(Some(value?)),
        })
    };
    METRICS.iter().zip(values).filter_map(metric).collect()
}

fn network_metrics(interface: &InterfaceStats, timestamp: i64) -> Vec<cri::Metric> {
    let values = [interface.rx_bytes, interface.rx_errors, interface.tx_bytes, interface.tx_errors];
    let metric = |((name, _), value): (&(&str, &str), Option<u64>)| {
        Some(cri::Metric {
            name: (*name).to_owned(),
            timestamp,
            metric_type: cri::MetricType::Counter as i32,
            label_values: vec![interface.name.clone()],
            value: number(Some(value?)),
        })
    };
    NETWORK_METRICS.iter().zip(values).filter_map(metric).collect()
}
