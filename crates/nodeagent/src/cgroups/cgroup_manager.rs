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
use crate::pod_facts::{CPU, QosClass, ResourceList, pod_requests, qos_class};
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupOptions {
    pub driver: CgroupDriver,
    /// The cgroup below which those of pods are; empty for the root.
    pub root: String,
    /// Whether pods have cgroups of their own.
    pub is_per_qos: bool,
    pub limits: LimitOptions,
}

/// See the module.
pub struct CgroupManager {
    files: CgroupFiles,
    options: CgroupOptions,
    slices: Option<Box<dyn SliceClient>>,
    filesystem: Arc<dyn Filesystem>,
    root: CgroupName,
    burstable: Mutex<Burstable>,
    /// The limits that were written, by pod.
    written: Mutex<HashMap<String, CgroupLimits>>,
}

/// What burstable pods request together.
#[derive(Default)]
struct Burstable {
    /// Thousandths of a CPU by uid.
    requests: BTreeMap<String, i64>,
    /// The CPU shares of the class, as they were written.
    shares: Option<i64>,
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
            burstable: Mutex::default(),
            written: Mutex::default(),
        })
    }

    /// Makes the cgroups of all pods and of the classes. `amounts` is what the node has for pods.
    pub fn set_up(&self, amounts: &ResourceList) -> io::Result<()> {
        if !self.options.is_per_qos {
            return Ok(());
        }
        self.ensure(&self.root, &node_limits(amounts))?;
        let shares = |shares| CgroupLimits { cpu_shares: Some(shares), ..CgroupLimits::default() };
        self.ensure(&self.root.child(BURSTABLE), &shares(MIN_SHARES))?;
        self.ensure(&self.root.child(BEST_EFFORT), &shares(MIN_SHARES))
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
        let limits = pod_cgroup_limits(pod, &self.options.limits);
        let uid = &pod.metadata.uid;
        // a step of a pod asks again, and nothing has changed
        let is_written = self.written.lock().get(uid) == Some(&limits);
        if is_written && self.files.exists(&name.path(self.options.driver)) {
            return Ok(());
        }
        let made = self.ensure(&name, &limits).and_then(|()| {
            let is_burstable = qos_class(pod) == QosClass::Burstable;
            let request = is_burstable.then(|| pod_requests(pod).get(CPU).map_or(0, Quantity::milli));
            self.count(uid, request)
        });
        if made.is_ok() {
            self.written.lock().insert(uid.clone(), limits);
        }
        let failed = "unable to ensure pod container exists: failed to create container for";
        made.map_err(|error| format!("{failed} {name} : {error}"))
    }

    /// Counts or forgets the request of a burstable pod, and sets the CPU shares of its class.
    fn count(&self, uid: &str, request: Option<i64>) -> io::Result<()> {
        let mut burstable = self.burstable.lock();
        let is_changed = match request {
            Some(milli) => burstable.requests.insert(uid.to_owned(), milli) != Some(milli),
            None => burstable.requests.remove(uid).is_some(),
        };
        if !is_changed {
            return Ok(());
        }
        let sum = burstable.requests.values().fold(0, |sum: i64, &milli| sum.saturating_add(milli));
        let shares = cpu_shares(sum);
        if burstable.shares != Some(shares) {
            let limits = CgroupLimits { cpu_shares: Some(shares), ..CgroupLimits::default() };
            self.apply(&self.root.child(BURSTABLE), &limits)?;
            burstable.shares = Some(shares);
        }
        Ok(())
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
        if let Some(name) = self.pods().get(uid) {
            self.remove(name)?;
        }
        self.forget(uid)
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
        for class in [self.root.clone(), self.root.child(BURSTABLE), self.root.child(BEST_EFFORT)] {
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
        self.files.set(&path, limits, &*self.filesystem)
    }

    fn apply(&self, name: &CgroupName, limits: &CgroupLimits) -> io::Result<()> {
        if let Some(slices) = &self.slices {
            slices.set(&name.unit(), limits, self.files.is_v2())?;
        }
        self.files.set(&name.path(self.options.driver), limits, &*self.filesystem)
    }

    fn remove(&self, name: &CgroupName) -> io::Result<()> {
        let path = name.path(self.options.driver);
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
