//! `/metrics/cadvisor`: the cgroups of the machine and of pods, and the machine.

use super::cgroup_usage::{self, CgroupUsage};
use super::exposition::{CADVISOR, PageSamples};
use super::processes::{self, FileCounts, Interface};
use super::usage::Usage;
use crate::cgroups::CgroupFiles;
use bytes::Bytes;
use names::node;
use std::collections::{BTreeMap, HashMap};

/// Levels of cgroups below that of all pods: class, pod, container.
const DEPTH: usize = 3;

/// Labels of a cgroup; empty for one that is no container.
#[derive(Debug, Clone, Default)]
struct CgroupLabels {
    container: String,
    image: String,
    name: String,
    namespace: String,
    pod: String,
    /// Nanoseconds since the epoch.
    created_at: i64,
    is_sandbox: bool,
}

/// A cgroup with its usage.
struct Subject {
    id: String,
    labels: CgroupLabels,
    usage: CgroupUsage,
    files: FileCounts,
    interfaces: Vec<Interface>,
}

type Value = fn(&CgroupUsage) -> f64;

/// Families with one value for each cgroup.
const SIMPLE: [(&str, Value); 25] = [
    ("container_cpu_system_seconds_total", |it| seconds(it.cpu_system_nanos)),
    ("container_cpu_user_seconds_total", |it| seconds(it.cpu_user_nanos)),
    ("container_memory_cache", |it| it.memory_cache as f64),
    ("container_memory_failcnt", |it| it.memory_failures as f64),
    ("container_memory_mapped_file", |it| it.memory_mapped as f64),
    ("container_memory_max_usage_bytes", |it| it.memory_max_usage as f64),
    ("container_memory_rss", |it| it.memory_rss as f64),
    ("container_memory_swap", |it| it.memory_swap as f64),
    ("container_memory_usage_bytes", |it| it.memory_usage as f64),
    ("container_memory_working_set_bytes", |it| it.memory_working_set as f64),
    ("container_oom_events_total", |it| it.oom_kills as f64),
    ("container_processes", |it| it.processes.len() as f64),
    ("container_spec_cpu_period", |it| it.cpu_period_micros as f64),
    ("container_spec_cpu_shares", |it| it.cpu_shares as f64),
    ("container_spec_memory_limit_bytes", |it| it.memory_limit as f64),
    ("container_spec_memory_reservation_limit_bytes", |it| it.memory_soft_limit as f64),
    ("container_spec_memory_swap_limit_bytes", |it| it.memory_swap_limit as f64),
    ("container_threads", |it| it.threads as f64),
    ("container_threads_max", |it| it.threads_limit as f64),
    ("container_cpu_cfs_periods_total", |it| it.cpu_periods.0 as f64),
    ("container_cpu_cfs_throttled_periods_total", |it| it.cpu_periods.1 as f64),
    ("container_cpu_cfs_throttled_seconds_total", |it| seconds(it.cpu_periods.2)),
    ("container_spec_cpu_quota", |it| it.cpu_quota_micros.unwrap_or(0) as f64),
    ("container_cpu_usage_seconds_total", |it| seconds(it.cpu_nanos)),
    ("container_last_seen", |_| 0.0),
];

/// Families of cgroups with a CPU limit alone.
const WITH_QUOTA: [&str; 4] = [
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_cpu_cfs_throttled_seconds_total",
    "container_spec_cpu_quota",
];

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Usage {
    pub(super) async fn cadvisor_metrics(&self) -> Bytes {
        let known = self.cgroup_labels().await;
        let cgroups = self.sources.cgroups.clone();
        let proc = self.sources.proc.clone();
        let boot_time = self.node().boot_time;
        // hundreds of small files
        let read = tokio::task::spawn_blocking(move || {
            let mut subjects = Vec::new();
            if let Some(cgroups) = &cgroups {
                let files = cgroups.files();
                for id in cgroup_paths(files, &cgroups.root_path()) {
                    let labels = labels_of(&id, &known, boot_time);
                    let usage = cgroup_usage::read(files, &id);
                    let counts = processes::files(&proc, &usage.processes);
                    let interfaces = match (id.as_str(), labels.is_sandbox) {
                        ("/", _) => processes::interfaces(&proc, None),
                        (_, true) => processes::interfaces(&proc, usage.processes.first().copied()),
                        _ => Vec::new(),
                    };
                    subjects.push(Subject { id, labels, usage, files: counts, interfaces });
                }
            }
            (subjects, processes::disks(&proc))
        });
        let (subjects, disks) = read.await.unwrap_or_default();
        let (mut samples, now) = (PageSamples::default(), self.now());
        for subject in &subjects {
            subject.add(&mut samples, now);
        }
        for disk in &disks {
            let of_root = CgroupLabels::default();
            let labels = [&Subject::labels(&of_root, "/")[..], &[("device", disk.device.as_str())]].concat();
            for (name, value) in disk.values() {
                samples.add(name, &labels, value, now);
            }
        }
        samples.add("container_scrape_error", &[], f64::from(u8::from(subjects.is_empty())), 0);
        self.add_machine(&mut samples, now);
        samples.render(CADVISOR).into()
    }

    fn add_machine(&self, samples: &mut PageSamples, now: i64) {
        let machine = &self.sources.machine;
        let labels = [
            ("boot_id", machine.boot_id.as_str()),
            ("machine_id", &machine.machine_id),
            ("system_uuid", &machine.system_uuid),
        ];
        let topology = processes::topology(&self.sources.proc);
        for (name, value) in [
            ("machine_cpu_cores", f64::from(machine.cpus)),
            ("machine_cpu_physical_cores", topology.cores as f64),
            ("machine_cpu_sockets", topology.sockets as f64),
            ("machine_memory_bytes", machine.memory as f64),
        ] {
            samples.add(name, &labels, value, now);
        }
        let version = [
            ("cadvisorRevision", ""),
            ("cadvisorVersion", ""),
            ("dockerVersion", ""),
            ("kernelVersion", &*machine.kernel_version),
            ("osVersion", &*machine.os_image),
        ];
        samples.add("cadvisor_version_info", &version, 1.0, 0);
    }

    /// Labels by the id of a container or sandbox, and by the uid of a pod.
    async fn cgroup_labels(&self) -> HashMap<String, CgroupLabels> {
        let mut known = HashMap::new();
        let label =
            |labels: &BTreeMap<String, String>, key: &str| labels.get(key).cloned().unwrap_or_default();
        for sandbox in self.sources.runtime.sandboxes(None).await.unwrap_or_default() {
            let of_pod = CgroupLabels {
                namespace: label(&sandbox.labels, node::POD_NAMESPACE),
                pod: label(&sandbox.labels, node::POD_NAME),
                created_at: sandbox.created_at,
                ..CgroupLabels::default()
            };
            known.insert(label(&sandbox.labels, node::POD_UID), of_pod.clone());
            let own = CgroupLabels { name: sandbox.id.clone(), is_sandbox: true, ..of_pod };
            known.insert(sandbox.id, own);
        }
        for container in self.sources.runtime.containers(None).await.unwrap_or_default() {
            let labels = CgroupLabels {
                container: label(&container.labels, node::CONTAINER_NAME),
                image: container.image,
                name: container.id.clone(),
                namespace: label(&container.labels, node::POD_NAMESPACE),
                pod: label(&container.labels, node::POD_NAME),
                created_at: container.created_at,
                is_sandbox: false,
            };
            known.insert(container.id, labels);
        }
        known
    }
}

/// The root, the cgroup of all pods with its ancestors, and those below it.
fn cgroup_paths(files: &CgroupFiles, pods_root: &str) -> Vec<String> {
    let mut paths = vec!["/".to_owned()];
    let mut path = String::new();
    for part in pods_root.split('/').filter(|it| !it.is_empty()) {
        path = format!("{path}/{part}");
        paths.push(path.clone());
    }
    let mut level = vec![path];
    for _ in 0..DEPTH {
        let below = |parent: &String| {
            let children = files.children(parent).into_iter();
            children.map(|child| format!("{parent}/{child}")).collect::<Vec<_>>()
        };
        level = level.iter().flat_map(below).collect();
        paths.extend(level.iter().cloned());
    }
    paths
}

/// The labels of a cgroup by the last part of its path: an id, `pod` and a uid, or their spelling by systemd.
fn labels_of(path: &str, known: &HashMap<String, CgroupLabels>, boot_time: i64) -> CgroupLabels {
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = last.trim_end_matches(".scope").trim_end_matches(".slice");
    let last_part = last.rsplit('-').next().unwrap_or(last);
    let uid = last.rfind("pod").map(|at| last[at + "pod".len()..].replace('_', "-"));
    let found = known.get(last).or_else(|| known.get(last_part)).or_else(|| known.get(&uid?));
    found.cloned().unwrap_or(CgroupLabels {
        created_at: boot_time.saturating_mul(1_000_000_000),
        ..CgroupLabels::default()
    })
}

impl Subject {
    fn labels<'l>(labels: &'l CgroupLabels, id: &'l str) -> [(&'static str, &'l str); 6] {
        [
            ("container", labels.container.as_str()),
            ("id", id),
            ("image", &labels.image),
            ("name", &labels.name),
            ("namespace", &labels.namespace),
            ("pod", &labels.pod),
        ]
    }

    fn add(&self, samples: &mut PageSamples, now: i64) {
        let own = Self::labels(&self.labels, &self.id);
        let with = |more: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            own.iter().chain(more).map(|(key, value)| (*key, (*value).to_owned())).collect()
        };
        let add = |samples: &mut PageSamples, name: &str, labels: Vec<(&str, String)>, value: f64| {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
            samples.add(name, &labels, value, now);
        };
        for (name, value) in SIMPLE {
            if WITH_QUOTA.contains(&name) && self.usage.cpu_quota_micros.is_none() {
                continue;
            }
            match name {
                "container_cpu_usage_seconds_total" => {
                    add(samples, name, with(&[("cpu", "total")]), value(&self.usage));
                }
                "container_last_seen" => add(samples, name, with(&[]), (now / 1_000_000_000) as f64),
                _ => add(samples, name, with(&[]), value(&self.usage)),
            }
        }
        let created = self.labels.created_at as f64 / 1e9;
        add(samples, "container_start_time_seconds", with(&[]), created.floor());
        add(samples, "container_file_descriptors", with(&[]), self.files.open as f64);
        add(samples, "container_sockets", with(&[]), self.files.sockets as f64);
        if let Some(limit) = self.files.limit {
            add(samples, "container_ulimits_soft", with(&[("ulimit", "max_open_files")]), limit as f64);
        }
        let (faults, major) = self.usage.page_faults;
        for (kind, value) in [("pgfault", faults), ("pgmajfault", major)] {
            for scope in ["container", "hierarchy"] {
                let labels = with(&[("failure_type", kind), ("scope", scope)]);
                add(samples, "container_memory_failures_total", labels, value as f64);
            }
        }
        for (device, io) in self.usage.io.iter().filter(|_| self.id != "/") {
            for (name, value) in
                [("container_fs_reads_total", io.reads), ("container_fs_writes_total", io.writes)]
            {
                add(samples, name, with(&[("device", device)]), value as f64);
            }
        }
        for interface in &self.interfaces {
            for (name, value) in interface.values() {
                add(samples, name, with(&[("interface", &interface.name)]), value as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_have_the_labels_of_their_pods() {
        let of = |name: &str| CgroupLabels { pod: name.to_owned(), ..CgroupLabels::default() };
        let known = HashMap::from([("abc".to_owned(), of("container")), ("12-34".to_owned(), of("pod"))]);
        for (path, expected) in [
            ("/kubepods/besteffort/pod12-34/abc", "container"),
            ("/kubepods/besteffort/pod12-34", "pod"),
            ("/kubepods.slice/kubepods-pod12_34.slice", "pod"),
            ("/kubepods.slice/kubepods-pod12_34.slice/cri-containerd-abc.scope", "container"),
            ("/kubepods/besteffort", ""),
            ("/", ""),
        ] {
            assert_eq!(labels_of(path, &known, 1).pod, expected, "{path}");
        }
    }
}
