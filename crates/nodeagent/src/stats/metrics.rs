//! `/metrics/resource` and `/metrics/cadvisor` in Prometheus's text form.

use super::usage::{ContainerUsage, Usage};
use bytes::Bytes;
use std::fmt::Write as _;

/// Text of families of metrics.
#[derive(Default)]
struct Text(String);

impl Text {
    /// The head of a family. Families without samples have none.
    fn family(&mut self, name: &str, help: &str, ty: &str) {
        // writing to a string cannot fail
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {ty}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64, at_nanos: i64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            let _ = write!(self.0, "{{{}}}", pairs.join(","));
        }
        let _ = match at_nanos {
            0 => writeln!(self.0, " {value}"),
            nanos => writeln!(self.0, " {value} {}", nanos / 1_000_000),
        };
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Usage {
    pub(super) async fn resource_metrics(&self) -> Bytes {
        let mut text = Text::default();
        let (containers, is_failed) = match self.containers().await {
            Ok(containers) => (containers, 0.0),
            Err(_) => (Vec::new(), 1.0),
        };
        let labels = |it: &ContainerUsage| [it.container.clone(), it.namespace.clone(), it.pod.clone()];
        if !containers.is_empty() {
            let name = "container_cpu_usage_seconds_total";
            text.family(
                name,
                "[ALPHA] Cumulative cpu time consumed by the container in core-seconds",
                "counter",
            );
            for it in &containers {
                let [container, namespace, pod] = &labels(it);
                let labels = [("container", container.as_str()), ("namespace", namespace), ("pod", pod)];
                if let Some(cpu) = &it.stats.cpu {
                    let total = cpu.usage_core_nano_seconds.unwrap_or(0);
                    text.sample(name, &labels, seconds(total), cpu.timestamp);
                }
            }
            let name = "container_memory_working_set_bytes";
            text.family(name, "[ALPHA] Current working set of the container in bytes", "gauge");
            for it in &containers {
                let [container, namespace, pod] = &labels(it);
                let labels = [("container", container.as_str()), ("namespace", namespace), ("pod", pod)];
                if let Some(memory) = &it.stats.memory {
                    let bytes = memory.working_set_bytes.unwrap_or(0) as f64;
                    text.sample(name, &labels, bytes, memory.timestamp);
                }
            }
        }
        let (node, now) = (self.node(), self.now());
        let name = "node_cpu_usage_seconds_total";
        text.family(name, "[ALPHA] Cumulative cpu time consumed by the node in core-seconds", "counter");
        text.sample(name, &[], seconds(node.cpu_nanos), now);
        let name = "node_memory_working_set_bytes";
        text.family(name, "[ALPHA] Current working set of the node in bytes", "gauge");
        text.sample(name, &[], node.memory_working_set as f64, now);
        pod_metrics(&mut text, &containers);
        text.family(
            "scrape_error",
            "[ALPHA] 1 if there was an error while getting container metrics, 0 otherwise",
            "gauge",
        );
        text.sample("scrape_error", &[], is_failed, 0);
        text.0.into()
    }

    pub(super) async fn cadvisor_metrics(&self) -> Bytes {
        let mut text = Text::default();
        let containers = self.containers().await.unwrap_or_default();
        type Read = fn(&ContainerUsage) -> Option<(f64, i64)>;
        let families: [(&str, &str, &str, Read); 4] = [
            (
                "container_cpu_usage_seconds_total",
                "Cumulative cpu time consumed in seconds.",
                "counter",
                |it| {
                    let cpu = it.stats.cpu.as_ref()?;
                    Some((seconds(cpu.usage_core_nano_seconds?), cpu.timestamp))
                },
            ),
            ("container_memory_rss", "Size of RSS in bytes.", "gauge", |it| {
                let memory = it.stats.memory.as_ref()?;
                Some((memory.rss_bytes? as f64, memory.timestamp))
            }),
            (
                "container_memory_usage_bytes",
                "Current memory usage in bytes, including all memory regardless of when it was accessed",
                "gauge",
                |it| {
                    let memory = it.stats.memory.as_ref()?;
                    Some((memory.usage_bytes? as f64, memory.timestamp))
                },
            ),
            ("container_memory_working_set_bytes", "Current working set in bytes.", "gauge", |it| {
                let memory = it.stats.memory.as_ref()?;
                Some((memory.working_set_bytes? as f64, memory.timestamp))
            }),
        ];
        for (name, help, ty, read) in families {
            let samples: Vec<_> = containers.iter().filter_map(|it| Some((it, read(it)?))).collect();
            if samples.is_empty() {
                continue;
            }
            text.family(name, help, ty);
            for (it, (value, at)) in samples {
                let labels = [
                    ("container", it.container.as_str()),
                    ("id", &it.stats.id),
                    ("name", &it.stats.id),
                    ("namespace", &it.namespace),
                    ("pod", &it.pod),
                ];
                text.sample(name, &labels, value, at);
            }
        }
        let node = self.node();
        text.family("machine_memory_bytes", "Amount of memory installed on the machine.", "gauge");
        text.sample("machine_memory_bytes", &[], node.memory_total as f64, 0);
        text.0.into()
    }
}

/// Sums over the containers of each pod.
fn pod_metrics(text: &mut Text, containers: &[ContainerUsage]) {
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
    if pods.is_empty() {
        return;
    }
    let name = "pod_cpu_usage_seconds_total";
    text.family(name, "[ALPHA] Cumulative cpu time consumed by the pod in core-seconds", "counter");
    for (namespace, pod, nanos, _, at) in &pods {
        text.sample(name, &[("namespace", namespace), ("pod", pod)], seconds(*nanos), *at);
    }
    let name = "pod_memory_working_set_bytes";
    text.family(name, "[ALPHA] Current working set of the pod in bytes", "gauge");
    for (namespace, pod, _, bytes, at) in &pods {
        text.sample(name, &[("namespace", namespace), ("pod", pod)], *bytes as f64, *at);
    }
}
