//! The cgroup filesystems of a machine: which hierarchies there are, and how limits are written to them.
//!
//! With version 1 each controller has a hierarchy of its own, and a cgroup is a directory in each of them. With version
//! 2 there is one hierarchy, and a controller works in a cgroup after each of its ancestors has enabled it.

use crate::cgroups::limits::CgroupLimits;
use crate::filesystem::{Filesystem, unless_absent};
use crate::pod_facts::hugepage_unit;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Controllers that pods are limited by.
const CONTROLLERS: &[&str] = &["cpu", "memory", "pids", "hugetlb", "cpuset"];
/// The hierarchy of version 2 beside those of version 1.
const UNIFIED: &str = "unified";
/// The mode of new cgroups, less the mask of the process.
const MODE: u32 = 0o777;
/// The file of the processes of a cgroup.
const PROCESSES: &str = "cgroup.procs";
/// The files without which a cpuset takes no process.
const CPUSET_FILES: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// No limit, in files of version 2.
const MAX: &str = "max";

/// Where the hierarchies are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupFiles {
    /// Directories by controller, or by `name=...` for a hierarchy without one.
    V1(BTreeMap<String, PathBuf>),
    V2(PathBuf),
}

impl CgroupFiles {
    /// Reads the mount table of a process.
    pub fn from_mount_table(text: &str) -> Option<Self> {
        let (mut v1, mut v2) = (BTreeMap::new(), None);
        for line in text.lines() {
            let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
            let Some(path) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut fields = filesystem.split(' ');
            match (fields.next(), fields.nth(1)) {
                (Some("cgroup2"), _) => v2 = v2.or(Some(path)),
                (Some("cgroup"), Some(options)) => {
                    let skipped = ["rw", "ro", "xattr", "noprefix", "clone_children", "release_agent"];
                    let names = options.split(',').filter(|it| !skipped.contains(it));
                    for name in names {
                        v1.entry(name.to_owned()).or_insert_with(|| path.clone());
                    }
                }
                _ => {}
            }
        }
        match (v1.is_empty(), v2) {
            // a hybrid machine has the controllers in version 1; runtimes make cgroups in version 2, too
            (false, Some(path)) => {
                v1.insert(UNIFIED.to_owned(), path);
                Some(CgroupFiles::V1(v1))
            }
            (false, None) => Some(CgroupFiles::V1(v1)),
            (true, Some(path)) => Some(CgroupFiles::V2(path)),
            (true, None) => None,
        }
    }

    pub fn is_v2(&self) -> bool {
        matches!(self, CgroupFiles::V2(_))
    }

    /// The controllers of [`CONTROLLERS`] that the machine lacks. Without huge pages there is no controller of them.
    pub fn missing_controllers(&self) -> Vec<&'static str> {
        let present: Vec<String> = match self {
            CgroupFiles::V1(hierarchies) => hierarchies.keys().cloned().collect(),
            CgroupFiles::V2(root) => {
                let text = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
                text.split_whitespace().map(str::to_owned).collect()
            }
        };
        let is_missing = |it: &&str| *it != "hugetlb" && !present.iter().any(|name| name == *it);
        CONTROLLERS.iter().copied().filter(is_missing).collect()
    }

    /// Where the hierarchies with controllers are mounted.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.directories("/").filter(|(name, _)| *name != UNIFIED).map(|(_, directory)| directory).collect()
    }

    /// The directories of a cgroup, by controller. A hierarchy with several controllers comes once.
    fn directories(&self, path: &str) -> impl Iterator<Item = (&str, PathBuf)> {
        let inside = path.trim_start_matches('/');
        let (v1, v2) = match self {
            CgroupFiles::V1(hierarchies) => (Some(hierarchies), None),
            CgroupFiles::V2(root) => (None, Some(("", root.join(inside)))),
        };
        let of_controllers = v1.into_iter().flat_map(move |hierarchies| {
            let all = hierarchies.iter().enumerate();
            all.filter(move |(nth, (_, root))| !hierarchies.values().take(*nth).any(|it| it == *root))
                .map(move |(_, (name, root))| (&**name, root.join(inside)))
        });
        of_controllers.chain(v2)
    }

    pub fn exists(&self, path: &str) -> bool {
        self.directories(path).all(|(name, directory)| name == UNIFIED || directory.is_dir())
    }

    /// Whether a cgroup exists in any hierarchy.
    pub fn is_anywhere(&self, path: &str) -> bool {
        self.directories(path).any(|(_, directory)| directory.is_dir())
    }

    /// When the directories of a cgroup were made or last changed, the first of them; absent if there are none.
    pub fn modified(&self, path: &str) -> Option<SystemTime> {
        let directories = self.directories(path).filter(|(name, _)| *name != UNIFIED);
        directories.filter_map(|(_, directory)| directory.metadata().ok()?.modified().ok()).min()
    }

    /// Makes the cgroup of a pod, whose class has one, where limits are written. With version 1 a runtime makes it in the
    /// other hierarchies, on the way to those of the pod's containers. Whether it was made just now.
    pub fn create_limited(
        &self,
        path: &str,
        limits: &CgroupLimits,
        filesystem: &dyn Filesystem,
    ) -> io::Result<bool> {
        let CgroupFiles::V1(_) = self else {
            return match self.exists(path) {
                true => Ok(false),
                false => self.create(path, filesystem).map(|()| true),
            };
        };
        let mut is_new = true;
        for directory in self.limited_directories(path, limits) {
            is_new &= match filesystem.create_dir(&directory, MODE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    filesystem.create_dir_all(&directory, MODE)?;
                    true
                }
                made => made.map(|()| true)?,
            };
        }
        Ok(is_new)
    }

    /// Whether the cgroup of a pod is where its limits are written.
    pub fn is_limited(&self, path: &str, limits: &CgroupLimits) -> bool {
        match self {
            CgroupFiles::V1(_) => self.limited_directories(path, limits).iter().all(|it| it.is_dir()),
            CgroupFiles::V2(_) => self.exists(path),
        }
    }

    /// The directories of a cgroup to which limits are written, with version 1.
    fn limited_directories(&self, path: &str, limits: &CgroupLimits) -> Vec<PathBuf> {
        let inside = path.trim_start_matches('/');
        let CgroupFiles::V1(hierarchies) = self else { return Vec::new() };
        let mut directories = Vec::new();
        for (controller, ..) in self.writes(limits) {
            let Some(root) = hierarchies.get(controller) else { continue };
            let directory = root.join(inside);
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        directories
    }

    /// Makes a cgroup and its ancestors.
    pub fn create(&self, path: &str, filesystem: &dyn Filesystem) -> io::Result<()> {
        for (name, directory) in self.directories(path) {
            match self {
                CgroupFiles::V1(hierarchies) if name == "cpuset" => {
                    let root = hierarchies.get("cpuset").map_or(Path::new("/"), PathBuf::as_path);
                    create_cpuset(root, &directory, filesystem)?;
                }
                // it has no controllers: a machine without it limits pods as well
                CgroupFiles::V1(_) if name == UNIFIED => drop(filesystem.create_dir_all(&directory, MODE)),
                CgroupFiles::V1(_) => filesystem.create_dir_all(&directory, MODE)?,
                CgroupFiles::V2(root) => create_unified(root, &directory, filesystem)?,
            }
        }
        Ok(())
    }

    /// Writes limits. A controller that the machine lacks is skipped.
    pub fn set(&self, path: &str, limits: &CgroupLimits, filesystem: &dyn Filesystem) -> io::Result<()> {
        self.set_by(write_changed, path, limits, filesystem)
    }

    /// The same for a cgroup that was made a moment ago: its files are not read before.
    pub fn set_new(&self, path: &str, limits: &CgroupLimits, filesystem: &dyn Filesystem) -> io::Result<()> {
        self.set_by(write, path, limits, filesystem)
    }

    fn set_by(
        &self,
        write: fn(&Path, &str, &dyn Filesystem) -> io::Result<()>,
        path: &str,
        limits: &CgroupLimits,
        filesystem: &dyn Filesystem,
    ) -> io::Result<()> {
        let inside = path.trim_start_matches('/');
        for (controller, file, text) in self.writes(limits) {
            let directory = match self {
                CgroupFiles::V1(hierarchies) => match hierarchies.get(controller) {
                    Some(root) => root.join(inside),
                    None => continue,
                },
                CgroupFiles::V2(root) => root.join(inside),
            };
            let file = directory.join(&file);
            if controller == "hugetlb" && !file.exists() {
                continue;
            }
            write(&file, &text, filesystem)?;
        }
        Ok(())
    }

    /// The controller, file and text of each limit, in the order of writing.
    fn writes(&self, limits: &CgroupLimits) -> Vec<(&'static str, String, String)> {
        let mut writes = Vec::new();
        let mut add = |controller, file: &str, text: String| writes.push((controller, file.to_owned(), text));
        let is_v2 = self.is_v2();
        let limit = |value: i64| if value < 0 { MAX.to_owned() } else { value.to_string() };
        if let Some(shares) = limits.cpu_shares {
            match is_v2 {
                true => add("cpu", "cpu.weight", cpu_weight(shares).to_string()),
                false => add("cpu", "cpu.shares", shares.to_string()),
            }
        }
        if let Some((quota, period)) = limits.cpu_quota {
            match is_v2 {
                true => add("cpu", "cpu.max", format!("{} {period}", limit(quota))),
                false => {
                    add("cpu", "cpu.cfs_period_us", period.to_string());
                    add("cpu", "cpu.cfs_quota_us", quota.to_string());
                }
            }
        }
        if let Some(memory) = limits.memory.filter(|&memory| memory != 0) {
            match is_v2 {
                true => add("memory", "memory.max", limit(memory)),
                false => add("memory", "memory.limit_in_bytes", memory.to_string()),
            }
        }
        if let Some(memory) = limits.memory_min.filter(|_| is_v2) {
            add("memory", "memory.min", memory.to_string());
        }
        if let Some(pids) = limits.pids {
            add("pids", "pids.max", limit(pids));
        }
        for (&size, &bytes) in &limits.hugepages {
            let file = if is_v2 { "max" } else { "limit_in_bytes" };
            add("hugetlb", &format!("hugetlb.{}.{file}", hugepage_unit(size)), bytes.to_string());
        }
        writes
    }

    /// The ids of the processes in a cgroup and below it.
    pub fn processes(&self, path: &str) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut pending: Vec<PathBuf> = self.directories(path).map(|(_, it)| it).collect();
        while let Some(directory) = pending.pop() {
            let text = std::fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            pending.extend(children(&directory));
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The ids of the processes in a cgroup itself.
    pub fn own_processes(&self, path: &str) -> Vec<i32> {
        let read = |directory: PathBuf| {
            let text = std::fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
            text.lines().filter_map(|line| line.parse::<i32>().ok()).collect::<Vec<_>>()
        };
        let mut pids: Vec<i32> = self.directories(path).flat_map(|(_, it)| read(it)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Moves a process to a cgroup.
    pub fn add_process(&self, path: &str, pid: i32, filesystem: &dyn Filesystem) -> io::Result<()> {
        for (name, directory) in self.directories(path) {
            match filesystem.write(&directory.join(PROCESSES), pid.to_string().as_bytes()) {
                // it has no controllers
                Err(_) if name == UNIFIED => {}
                moved => moved?,
            }
        }
        Ok(())
    }

    /// Removes a cgroup and those below it. The cgroups have no processes.
    pub fn remove(&self, path: &str, filesystem: &dyn Filesystem) -> io::Result<()> {
        for (_, directory) in self.directories(path) {
            remove_tree(&directory, filesystem)?;
        }
        Ok(())
    }

    /// The names of the cgroups directly below one.
    pub fn children(&self, path: &str) -> Vec<String> {
        let all = self.directories(path).flat_map(|(_, directory)| children(&directory));
        let names = all.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir())).map(|entry| entry.path()).collect()
}

/// The children first: a cgroup is removed by `rmdir`, which its files do not hinder.
fn remove_tree(directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    // most have no children any more
    if unless_absent(filesystem.remove_dir(directory)).is_ok() {
        return Ok(());
    }
    let mut order = vec![directory.to_owned()];
    let mut next = 0;
    while next < order.len() {
        order.extend(children(&order[next]));
        next += 1;
    }
    for directory in order.iter().rev() {
        unless_absent(filesystem.remove_dir(directory))?;
    }
    Ok(())
}

/// Shares of version 1 as a weight of version 2: 2..=262144 becomes 1..=10000.
pub fn cpu_weight(shares: i64) -> i64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Writes a limit; one that the file has already is left alone.
fn write_changed(file: &Path, text: &str, filesystem: &dyn Filesystem) -> io::Result<()> {
    if std::fs::read_to_string(file).is_ok_and(|current| current.trim() == text) {
        return Ok(());
    }
    write(file, text, filesystem)
}

fn write(file: &Path, text: &str, filesystem: &dyn Filesystem) -> io::Result<()> {
    filesystem
        .write(file, text.as_bytes())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

/// A new cpuset is empty, and takes no process before it has the CPUs and memory nodes of its parent.
/// Returns the texts of its files.
fn create_cpuset(
    root: &Path,
    directory: &Path,
    filesystem: &dyn Filesystem,
) -> io::Result<[String; CPUSET_FILES.len()]> {
    let mut texts =
        CPUSET_FILES.map(|file| std::fs::read_to_string(directory.join(file)).unwrap_or_default());
    let is_empty = |text: &String| text.trim().is_empty();
    let Some(parent) = directory.parent().filter(|_| texts.iter().any(is_empty) && directory != root) else {
        return Ok(texts);
    };
    let inherited = create_cpuset(root, parent, filesystem)?;
    filesystem.create_dir_all(directory, MODE)?;
    for ((file, text), inherited) in CPUSET_FILES.iter().zip(&mut texts).zip(inherited) {
        if is_empty(text) {
            filesystem.write(&directory.join(file), inherited.as_bytes())?;
            *text = inherited;
        }
    }
    Ok(texts)
}

/// Enables the controllers in each ancestor.
fn create_unified(root: &Path, directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    let inside = directory.strip_prefix(root).unwrap_or(Path::new(""));
    let mut parent = root.to_owned();
    for part in inside.components() {
        let available = std::fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
        let enabled = std::fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        let has = |list: &str, name: &str| list.split_whitespace().any(|it| it == name);
        for controller in CONTROLLERS.iter().filter(|it| has(&available, it) && !has(&enabled, it)) {
            write_changed(&parent.join("cgroup.subtree_control"), &format!("+{controller}"), filesystem)?;
        }
        parent = parent.join(part);
        filesystem.create_dir_all(&parent, MODE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
