//! The cgroups of the node: all pods, the QoS classes, each pod.
//!
//! ```text
//! kubepods                     what the node has for pods
//! kubepods/pod<uid>            a guaranteed pod
//! kubepods/burstable/pod<uid>  a burstable pod
//! kubepods/besteffort/pod<uid> a pod without requests
//! ```
//!
//! A cgroup that exists is kept: a restart of the agent changes limits, and no processes.

use super::files::CgroupFiles;
use super::limits::{CgroupLimits, LimitOptions, node_limits, pod_cgroup_limits};
use super::name::{CgroupDriver, CgroupName};
use super::slices::SliceClient;
use crate::container::resources::{MIN_SHARES, cpu_shares};
use crate::filesystem::Filesystem;
use crate::pod_facts::{CPU, MEMORY, QosClass, ResourceList, pod_requests, qos_class};
use api::Quantity;
use api::core::v1::Pod;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

const ALL_PODS: &str = "kubepods";
const BURSTABLE: &str = "burstable";
const BEST_EFFORT: &str = "besteffort";
const POD: &str = "pod";
/// The least limit of memory of a class, in bytes: zero would be no limit.
const MIN_MEMORY: i64 = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupOptions {
    pub driver: CgroupDriver,
    /// The cgroup below which those of pods are; empty for the root.
    pub root: String,
    /// Whether pods have cgroups of their own.
    pub is_per_qos: bool,
    pub limits: LimitOptions,
    pub reserve: Option<MemoryReserve>,
    /// The sizes of huge pages of the machine, in bytes: a pod gets none that it does not request.
    pub hugepage_sizes: Vec<u64>,
}

/// Memory that classes of pods leave to the more important ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReserve {
    /// Of what the more important classes request.
    pub percent: i64,
    /// Bytes that the node has for pods.
    pub allocatable: i64,
}

/// See the module.
pub struct CgroupManager {
    files: CgroupFiles,
    options: CgroupOptions,
    slices: Option<Box<dyn SliceClient>>,
    filesystem: Arc<dyn Filesystem>,
    root: CgroupName,
    classes: Mutex<Classes>,
    /// The limits that were written, by pod.
    written: Mutex<HashMap<String, CgroupLimits>>,
}

/// What a pod requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodRequest {
    class: QosClass,
    /// Thousandths of a CPU.
    cpu: i64,
    /// Bytes.
    memory: i64,
}

/// The cgroups above those of pods: their limits follow from what the pods request.
#[derive(Default)]
struct Classes {
    /// By uid.
    requests: BTreeMap<String, PodRequest>,
    /// The limits as they were written.
    written: BTreeMap<CgroupName, CgroupLimits>,
}

impl CgroupManager {
    /// `slices` makes the cgroups of the systemd driver; without it they are made by files.
    pub fn new(
        files: CgroupFiles,
        options: CgroupOptions,
        slices: Option<Box<dyn SliceClient>>,
        filesystem: Arc<dyn Filesystem>,
    ) -> Result<Self, String> {
        let root = match options.driver {
            CgroupDriver::Systemd if options.root.ends_with(".slice") => {
                CgroupName::parse_systemd(&options.root)
            }
            _ => CgroupName::parse(&options.root),
        };
        if !root.is_root() && options.is_per_qos && !files.exists(&root.path(options.driver)) {
            return Err(format!("invalid configuration: cgroup-root {:?} doesn't exist", options.root));
        }
        let root = if options.is_per_qos { root.child(ALL_PODS) } else { root };
        Ok(CgroupManager {
            files,
            options,
            slices,
            filesystem,
            root,
            classes: Mutex::default(),
            written: Mutex::default(),
        })
    }

    /// Makes the cgroups of all pods and of the classes. `amounts` is what the node has for pods.
    pub fn set_up(&self, amounts: &ResourceList) -> io::Result<()> {
        if !self.options.is_per_qos {
            return Ok(());
        }
        self.ensure(&self.root, &node_limits(amounts))?;
        for class in [BURSTABLE, BEST_EFFORT] {
            self.ensure(&self.root.child(class), &first_class_limits())?;
        }
        Ok(())
    }

    /// Limits the cgroup of system services or of the agent to what is held back for it. It must exist.
    pub fn enforce(&self, path: &str, amounts: &ResourceList) -> io::Result<()> {
        let name = match self.options.driver {
            CgroupDriver::Systemd => CgroupName::parse_systemd(path),
            CgroupDriver::Cgroupfs => CgroupName::parse(path),
        };
        if !self.files.exists(&name.path(self.options.driver)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("cgroup {path:?} does not exist")));
        }
        let mut limits = node_limits(amounts);
        if self.options.limits.has_memory_quality {
            limits.memory_min = limits.memory;
        }
        self.apply(&name, &limits)
    }

    /// The hierarchies of the machine.
    pub fn files(&self) -> &CgroupFiles {
        &self.files
    }

    /// The path of the cgroup of all pods.
    pub fn root_path(&self) -> String {
        self.root.path(self.options.driver)
    }

    /// The cgroup of a pod.
    pub fn pod_name(&self, pod: &Pod) -> CgroupName {
        if !self.options.is_per_qos {
            return self.root.clone();
        }
        let class = match qos_class(pod) {
            QosClass::Guaranteed => self.root.clone(),
            QosClass::Burstable => self.root.child(BURSTABLE),
            QosClass::BestEffort => self.root.child(BEST_EFFORT),
        };
        class.child(&format!("{POD}{}", pod.metadata.uid))
    }

    /// The path of the cgroup of a pod.
    pub fn pod_path(&self, pod: &Pod) -> String {
        self.pod_name(pod).path(self.options.driver)
    }

    /// The parent of the pod's sandbox, as the runtime gets it.
    pub fn pod_parent(&self, pod: &Pod) -> String {
        match (self.options.is_per_qos, self.root.is_root()) {
            (false, true) => String::new(),
            _ => self.pod_name(pod).runtime_parent(self.options.driver),
        }
    }

    /// Makes the cgroup of a pod with its limits. The error is the text of `FailedCreatePodContainer`.
    pub fn ensure_pod(&self, pod: &Pod) -> Result<(), String> {
        if !self.options.is_per_qos {
            return Ok(());
        }
        let name = self.pod_name(pod);
        let mut limits = pod_cgroup_limits(pod, &self.options.limits);
        for size in &self.options.hugepage_sizes {
            limits.hugepages.entry(*size).or_insert(0);
        }
        let uid = &pod.metadata.uid;
        // each step of a pod calls this, and mostly nothing has changed
        let is_written = self.written.lock().get(uid) == Some(&limits);
        if is_written && self.files.is_limited(&name.path(self.options.driver), &limits) {
            return Ok(());
        }
        let made = self.ensure_limited(&name, &limits).and_then(|()| {
            let requests = pod_requests(pod);
            let request = PodRequest {
                class: qos_class(pod),
                cpu: requests.get(CPU).map_or(0, Quantity::milli),
                memory: requests.get(MEMORY).map_or(0, Quantity::whole),
            };
            self.count(uid, Some(request))
        });
        if made.is_ok() {
            self.written.lock().insert(uid.clone(), limits);
        }
        let failed = "unable to ensure pod container exists: failed to create container for";
        made.map_err(|error| format!("{failed} {name} : {error}"))
    }

    /// Counts or forgets the request of a pod, and sets the limits of the classes.
    fn count(&self, uid: &str, request: Option<PodRequest>) -> io::Result<()> {
        let mut classes = self.classes.lock();
        let is_changed = match request {
            Some(request) => classes.requests.insert(uid.to_owned(), request) != Some(request),
            None => classes.requests.remove(uid).is_some(),
        };
        if !is_changed {
            return Ok(());
        }
        for (name, limits) in self.class_limits(&classes.requests) {
            let is_same = match classes.written.get(&name) {
                Some(written) => *written == limits,
                None => limits == CgroupLimits::default() || limits == first_class_limits(),
            };
            if !is_same {
                self.apply(&name, &limits)?;
                classes.written.insert(name, limits);
            }
        }
        Ok(())
    }

    /// The limits of the cgroups above those of pods.
    fn class_limits(&self, requests: &BTreeMap<String, PodRequest>) -> Vec<(CgroupName, CgroupLimits)> {
        let sum = |class: QosClass, pick: fn(&PodRequest) -> i64| {
            let all = requests.values().filter(|it| it.class == class).map(pick);
            all.fold(0, i64::saturating_add)
        };
        let memory = |class| sum(class, |it| it.memory);
        let mut burstable = CgroupLimits {
            cpu_shares: Some(cpu_shares(sum(QosClass::Burstable, |it| it.cpu))),
            ..CgroupLimits::default()
        };
        let (mut best_effort, mut all) = (CgroupLimits::default(), CgroupLimits::default());
        if self.options.limits.has_memory_quality {
            let of_burstable = memory(QosClass::Burstable);
            burstable.memory_min = Some(of_burstable);
            all.memory_min = Some(of_burstable.saturating_add(memory(QosClass::Guaranteed)));
        }
        if let Some(MemoryReserve { percent, allocatable }) = self.options.reserve {
            let reserved = |class| {
                let part = i128::from(memory(class)) * i128::from(percent) / 100;
                i64::try_from(part).unwrap_or(i64::MAX)
            };
            let left = allocatable.saturating_sub(reserved(QosClass::Guaranteed));
            burstable.memory = Some(left.max(MIN_MEMORY));
            let left = left.saturating_sub(reserved(QosClass::Burstable));
            best_effort.memory = Some(left.max(MIN_MEMORY));
        }
        vec![
            (self.root.clone(), all),
            (self.root.child(BURSTABLE), burstable),
            (self.root.child(BEST_EFFORT), best_effort),
        ]
    }

    /// Removes the cgroup of a pod whose containers have ended. Processes that are left are killed.
    pub fn remove_pod(&self, pod: &Pod) -> io::Result<()> {
        if !self.options.is_per_qos {
            return Ok(());
        }
        self.remove(&self.pod_name(pod))?;
        self.forget(&pod.metadata.uid)
    }

    /// Like [`CgroupManager::remove_pod`], for a pod of which only the uid is known.
    pub fn remove_uid(&self, uid: &str) -> io::Result<()> {
        if !self.options.is_per_qos {
            return Ok(());
        }
        for class in self.classes() {
            let name = class.child(&format!("{POD}{uid}"));
            if self.files.is_anywhere(&name.path(self.options.driver)) {
                self.remove(&name)?;
            }
        }
        self.forget(uid)
    }

    /// The cgroups that have the cgroups of pods below them.
    fn classes(&self) -> [CgroupName; 3] {
        [self.root.clone(), self.root.child(BURSTABLE), self.root.child(BEST_EFFORT)]
    }

    fn forget(&self, uid: &str) -> io::Result<()> {
        self.written.lock().remove(uid);
        self.count(uid, None)
    }

    /// The cgroups of pods that exist, by uid.
    pub fn pods(&self) -> BTreeMap<String, CgroupName> {
        let mut all = BTreeMap::new();
        if !self.options.is_per_qos {
            return all;
        }
        for class in self.classes() {
            for child in self.files.children(&class.path(self.options.driver)) {
                let name = match self.options.driver {
                    CgroupDriver::Cgroupfs => class.child(&child),
                    CgroupDriver::Systemd => CgroupName::parse_systemd(&child),
                };
                if let Some(uid) = name.base().strip_prefix(POD) {
                    all.insert(uid.to_owned(), name.clone());
                }
            }
        }
        all
    }

    fn ensure(&self, name: &CgroupName, limits: &CgroupLimits) -> io::Result<()> {
        let path = name.path(self.options.driver);
        if self.files.exists(&path) {
            return self.apply(name, limits);
        }
        if let Some(slices) = &self.slices {
            slices.start(&name.unit(), limits, self.files.is_v2())?;
        }
        // systemd leaves hierarchies out that it does not use
        self.files.create(&path, &*self.filesystem)?;
        self.files.set_new(&path, limits, &*self.filesystem)
    }

    /// Makes the cgroup of a pod, below that of its class.
    fn ensure_limited(&self, name: &CgroupName, limits: &CgroupLimits) -> io::Result<()> {
        let path = name.path(self.options.driver);
        if let Some(slices) = &self.slices {
            if self.files.is_limited(&path, limits) {
                return self.apply(name, limits);
            }
            slices.start(&name.unit(), limits, self.files.is_v2())?;
            self.files.create_limited(&path, limits, &*self.filesystem)?;
            return self.files.set_new(&path, limits, &*self.filesystem);
        }
        match self.files.create_limited(&path, limits, &*self.filesystem)? {
            true => self.files.set_new(&path, limits, &*self.filesystem),
            false => self.files.set(&path, limits, &*self.filesystem),
        }
    }

    fn apply(&self, name: &CgroupName, limits: &CgroupLimits) -> io::Result<()> {
        if let Some(slices) = &self.slices {
            slices.set(&name.unit(), limits, self.files.is_v2())?;
        }
        self.files.set(&name.path(self.options.driver), limits, &*self.filesystem)
    }

    fn remove(&self, name: &CgroupName) -> io::Result<()> {
        let path = name.path(self.options.driver);
        // a cgroup that can be removed has no processes
        if self.slices.is_none() && self.files.remove(&path, &*self.filesystem).is_ok() {
            return Ok(());
        }
        for pid in self.files.processes(&path) {
            // a process that has ended meanwhile is no error
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        if let Some(slices) = &self.slices {
            slices.stop(&name.unit())?;
        }
        self.files.remove(&path, &*self.filesystem)
    }
}

/// The limits of a class without pods.
fn first_class_limits() -> CgroupLimits {
    CgroupLimits { cpu_shares: Some(MIN_SHARES), ..CgroupLimits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use crate::objects::testing::object;
    use std::path::Path;

    fn pod(uid: &str, resources: &str) -> Pod {
        object(&format!(
            r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"containers":[{{"resources":{resources}}}]}}}}"#
        ))
    }

    fn manager(root: &Path, driver: CgroupDriver) -> CgroupManager {
        let options = CgroupOptions { driver, is_per_qos: true, ..CgroupOptions::default() };
        CgroupManager::new(CgroupFiles::V2(root.to_owned()), options, None, Arc::new(LinuxFilesystem))
            .unwrap()
    }

    #[test]
    fn pods_have_cgroups_below_their_class() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path(), CgroupDriver::Cgroupfs);
        manager.set_up(&ResourceList::from([(CPU.to_owned(), Quantity::new(2))])).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(read("kubepods/cpu.weight"), "79");
        let limit = r#"{"limits":{"cpu":"1","memory":"1Mi"},"requests":{"cpu":"1","memory":"1Mi"}}"#;
        let (guaranteed, burstable) = (pod("g", limit), pod("b", r#"{"requests":{"cpu":"500m"}}"#));
        let best_effort = pod("e", "{}");
        for pod in [&guaranteed, &burstable, &best_effort] {
            manager.ensure_pod(pod).unwrap();
        }
        assert_eq!(manager.pod_parent(&guaranteed), "/kubepods/podg");
        assert_eq!(manager.pod_parent(&burstable), "/kubepods/burstable/podb");
        assert_eq!(manager.pod_parent(&best_effort), "/kubepods/besteffort/pode");
        assert_eq!(read("kubepods/podg/memory.max"), "1048576");
        assert_eq!(read("kubepods/burstable/cpu.weight"), "20");
        manager.ensure_pod(&pod("b2", r#"{"requests":{"cpu":"500m"}}"#)).unwrap();
        assert_eq!(read("kubepods/burstable/cpu.weight"), "39");
        // the tree of a test has files, which hinder its removal
        std::fs::remove_dir_all(dir.path().join("kubepods/burstable/podb2")).unwrap();
        manager.remove_uid("b2").unwrap();
        assert_eq!(read("kubepods/burstable/cpu.weight"), "20");
        assert_eq!(manager.pods().into_keys().collect::<Vec<_>>(), ["b", "e", "g"]);
    }

    #[test]
    fn pods_have_no_huge_pages_that_they_do_not_request() {
        let dir = tempfile::tempdir().unwrap();
        let options = CgroupOptions {
            is_per_qos: true,
            hugepage_sizes: vec![2 << 20, 1 << 30],
            ..CgroupOptions::default()
        };
        let files = CgroupFiles::V2(dir.path().to_owned());
        let manager = CgroupManager::new(files, options, None, Arc::new(LinuxFilesystem)).unwrap();
        let group = dir.path().join("kubepods/burstable/podb");
        std::fs::create_dir_all(&group).unwrap();
        // a real cgroup has them from the start
        for size in ["2MB", "1GB"] {
            std::fs::write(group.join(format!("hugetlb.{size}.max")), "max\n").unwrap();
        }
        manager.ensure_pod(&pod("b", r#"{"requests":{"cpu":"1","hugepages-2Mi":"4Mi"}}"#)).unwrap();
        let read = |size: &str| std::fs::read_to_string(group.join(format!("hugetlb.{size}.max"))).unwrap();
        assert_eq!((&*read("2MB"), &*read("1GB")), ("4194304", "0"));
    }

    #[test]
    fn classes_leave_memory_to_more_important_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mebi = 1 << 20;
        let options = CgroupOptions {
            is_per_qos: true,
            limits: LimitOptions { has_memory_quality: true, ..LimitOptions::default() },
            reserve: Some(MemoryReserve { percent: 50, allocatable: 1000 * mebi }),
            ..CgroupOptions::default()
        };
        let files = CgroupFiles::V2(dir.path().to_owned());
        let manager = CgroupManager::new(files, options, None, Arc::new(LinuxFilesystem)).unwrap();
        manager.set_up(&ResourceList::new()).unwrap();
        let amounts = r#"{"cpu":"1","memory":"200Mi"}"#;
        manager.ensure_pod(&pod("g", &format!(r#"{{"limits":{amounts},"requests":{amounts}}}"#))).unwrap();
        manager.ensure_pod(&pod("b", r#"{"requests":{"memory":"100Mi"}}"#)).unwrap();
        let read =
            |path: &str| -> i64 { std::fs::read_to_string(dir.path().join(path)).unwrap().parse().unwrap() };
        assert_eq!(read("kubepods/memory.min"), 300 * mebi);
        assert_eq!(read("kubepods/burstable/memory.min"), 100 * mebi);
        assert_eq!(read("kubepods/burstable/podb/memory.min"), 100 * mebi);
        assert_eq!(read("kubepods/burstable/memory.max"), 900 * mebi);
        assert_eq!(read("kubepods/besteffort/memory.max"), 850 * mebi);
    }

    #[test]
    fn reserved_cgroups_are_limited_and_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let amounts = ResourceList::from([
            (CPU.to_owned(), Quantity::new(1)),
            (MEMORY.to_owned(), Quantity::from_bytes(1 << 30)),
        ]);
        for (driver, name) in [(CgroupDriver::Cgroupfs, "/system"), (CgroupDriver::Systemd, "/system.slice")]
        {
            let manager = manager(dir.path(), driver);
            let error = manager.enforce(name, &amounts).unwrap_err().to_string();
            assert_eq!(error, format!("cgroup {name:?} does not exist"));
            let directory = dir.path().join(name.trim_start_matches('/'));
            std::fs::create_dir(&directory).unwrap();
            manager.enforce(name, &amounts).unwrap();
            assert_eq!(std::fs::read_to_string(directory.join("memory.max")).unwrap(), "1073741824");
            assert_eq!(std::fs::read_to_string(directory.join("cpu.weight")).unwrap(), "39");
        }
    }

    #[test]
    fn pods_are_removed_by_uid() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path(), CgroupDriver::Systemd);
        let slice = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice";
        let other = "kubepods.slice/kubepods-pod3.slice/container";
        std::fs::create_dir_all(dir.path().join(slice)).unwrap();
        std::fs::create_dir_all(dir.path().join(other)).unwrap();
        assert_eq!(manager.pods().into_keys().collect::<Vec<_>>(), ["1-2", "3"]);
        manager.remove_uid("3").unwrap();
        manager.remove_uid("none").unwrap();
        assert!(
            dir.path().join(slice).exists()
                && !dir.path().join("kubepods.slice/kubepods-pod3.slice").exists()
        );
        assert_eq!(manager.pod_parent(&pod("1-2", "{}")), "kubepods-besteffort-pod1_2.slice");
    }

    #[test]
    fn the_root_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let files = CgroupFiles::V2(dir.path().to_owned());
        let options =
            CgroupOptions { root: "/none".to_owned(), is_per_qos: true, ..CgroupOptions::default() };
        let error = CgroupManager::new(files.clone(), options.clone(), None, Arc::new(LinuxFilesystem))
            .err()
            .unwrap();
        assert_eq!(error, "invalid configuration: cgroup-root \"/none\" doesn't exist");
        let options = CgroupOptions { is_per_qos: false, root: String::new(), ..options };
        let manager = CgroupManager::new(files, options, None, Arc::new(LinuxFilesystem)).unwrap();
        assert_eq!(manager.pod_parent(&pod("u", "{}")), "");
    }
}
