//! `/metrics/resource`: CPU and memory of containers, pods and the node.

use super::exposition::{PageSamples, RESOURCE};
use super::usage::{ContainerUsage, Usage};
use bytes::Bytes;
use std::collections::HashMap;

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Usage {
    pub(super) async fn resource_metrics(&self) -> Bytes {
        let mut samples = PageSamples::default();
        let (containers, is_failed) = match self.containers().await {
            Ok(containers) => (containers, 0.0),
            Err(_) => (Vec::new(), 1.0),
        };
        let listed = self.sources.runtime.containers(None).await.unwrap_or_default();
        let starts: HashMap<String, i64> = listed.into_iter().map(|it| (it.id, it.created_at)).collect();
        for it in &containers {
            let labels =
                [("container", it.container.as_str()), ("namespace", &it.namespace), ("pod", &it.pod)];
            if let Some(cpu) = &it.stats.cpu {
                let total = cpu.usage_core_nano_seconds.unwrap_or(0);
                samples.add("container_cpu_usage_seconds_total", &labels, seconds(total), cpu.timestamp);
            }
            if let Some(memory) = &it.stats.memory {
                let bytes = memory.working_set_bytes.unwrap_or(0) as f64;
                samples.add("container_memory_working_set_bytes", &labels, bytes, memory.timestamp);
            }
            if let Some(start) = starts.get(&it.stats.id) {
                samples.add("container_start_time_seconds", &labels, *start as f64 / 1e9, 0);
            }
        }
        let (node, now) = (self.node(), self.now());
        samples.add("node_cpu_usage_seconds_total", &[], seconds(node.cpu_nanos), now);
        samples.add("node_memory_working_set_bytes", &[], node.memory_working_set as f64, now);
        add_pods(&mut samples, &containers);
        samples.add("scrape_error", &[], is_failed, 0);
        samples.render(RESOURCE).into()
    }
}

/// Sums over the containers of each pod.
fn add_pods(samples: &mut PageSamples, containers: &[ContainerUsage]) {
    let mut pods: Vec<(&str, &str, u64, u64, i64)> = Vec::new();
    for it in containers {
        let cpu = it.stats.cpu.as_ref();
        let nanos = cpu.and_then(|cpu| cpu.usage_core_nano_seconds).unwrap_or(0);
        let at = cpu.map_or(0, |cpu| cpu.timestamp);
        let memory = it.stats.memory.as_ref().and_then(|it| it.working_set_bytes).unwrap_or(0);
        match pods.last_mut() {
            Some(last) if (last.0, last.1) == (it.namespace.as_str(), it.pod.as_str()) => {
                last.2 += nanos;
                last.3 += memory;
                last.4 = last.4.max(at);
            }
            _ => pods.push((&it.namespace, &it.pod, nanos, memory, at)),
        }
    }
    for (namespace, pod, nanos, bytes, at) in pods {
        let labels = [("namespace", namespace), ("pod", pod)];
        samples.add("pod_cpu_usage_seconds_total", &labels, seconds(nanos), at);
        samples.add("pod_memory_working_set_bytes", &labels, bytes as f64, at);
    }
}
