//! Directories that live as long as a pod: on disk, in memory, or in huge pages.

use crate::filesystem::Filesystem;
use crate::pod_facts::{MEMORY, QosClass, ResourceList, pod_limits, qos_class};
use api::Quantity;
use api::core::v1::{EmptyDirVolumeSource, Pod};
use std::io;
use std::path::Path;

/// All users of the pod may write.
const MODE: u32 = 0o777;

/// Where the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    Disk,
    /// The most that it may hold, in bytes.
    Memory(Option<u64>),
    /// The page size, in bytes.
    HugePages(u64),
}

/// The medium of a volume. A volume in memory holds what the pod may use at most.
pub fn medium(
    volume: &EmptyDirVolumeSource,
    pod: &Pod,
    allocatable: &ResourceList,
) -> Result<Medium, String> {
    match &*volume.medium {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(Medium::Memory(memory_size(volume.size_limit.as_ref(), pod, allocatable))),
        other => match other.strip_prefix("HugePages") {
            Some("") => page_size_of(pod).map(Medium::HugePages),
            Some(size) => {
                let size = size.strip_prefix('-').and_then(|size| size.parse::<Quantity>().ok());
                let size = size.and_then(|size| u64::try_from(size.whole()).ok());
                size.map(Medium::HugePages).ok_or_else(|| format!("unknown storage medium {other:?}"))
            }
            None => Err(format!("unknown storage medium {other:?}")),
        },
    }
}

/// The smallest of the node's memory, the pod's limit and the volume's own.
pub fn memory_size(own: Option<&Quantity>, pod: &Pod, allocatable: &ResourceList) -> Option<u64> {
    let mut size = allocatable.get(MEMORY).map(Quantity::whole).filter(|&size| size > 0);
    let limits = [pod_memory_limit(pod), own.map(Quantity::whole)];
    for limit in limits.into_iter().flatten().filter(|&limit| limit > 0) {
        size = Some(size.map_or(limit, |size| size.min(limit)));
    }
    size.and_then(|size| u64::try_from(size).ok())
}

/// The memory limit of the whole pod, if every container has one.
pub fn pod_memory_limit(pod: &Pod) -> Option<i64> {
    let has_limit = |limits: &ResourceList| limits.get(MEMORY).is_some_and(|it| !it.is_zero());
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let is_limited =
        qos_class(pod) != QosClass::BestEffort && containers.all(|it| has_limit(&it.resources.limits));
    is_limited.then(|| pod_limits(pod).get(MEMORY).map(Quantity::whole)).flatten()
}

/// The one page size that the containers of a pod use.
fn page_size_of(pod: &Pod) -> Result<u64, String> {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let names = containers.flat_map(|it| it.resources.requests.keys());
    let mut sizes: Vec<i64> = names.filter_map(|name| crate::pod_facts::hugepage_size(name)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match *sizes {
        [size] => u64::try_from(size).map_err(|error| error.to_string()),
        [] => Err("hugePages storage requested, but there is no resource request for huge pages".to_owned()),
        _ => Err("medium: HugePages can't be used if container requests multiple huge page sizes".to_owned()),
    }
}

/// Makes the directory, and mounts its medium unless it is mounted.
pub fn set_up(path: &Path, medium: Medium, filesystem: &dyn Filesystem) -> io::Result<()> {
    filesystem.create_dir_all(path, MODE)?;
    if medium == Medium::Disk {
        return filesystem.set_mode(path, MODE);
    }
    if filesystem.is_mount_point(path)? {
        return Ok(());
    }
    match medium {
        Medium::Memory(size) => filesystem.mount_tmpfs(path, size),
        Medium::HugePages(size) => filesystem.mount_hugetlbfs(path, size),
        Medium::Disk => Ok(()),
    }
}

/// The bytes that the files below a directory take on disk.
pub fn usage(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let data = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            data => data?,
        };
        bytes += data.blocks() * 512;
        if data.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn memory_is_sized_to_the_smallest_limit() {
        let allocatable = ResourceList::from([(MEMORY.to_owned(), Quantity::from_bytes(8 << 30))]);
        let check = |pod: &str, volume: &str, expected: Result<Medium, &str>| {
            let (pod, volume): (Pod, EmptyDirVolumeSource) = (object(pod), object(volume));
            let made = medium(&volume, &pod, &allocatable);
            assert_eq!(made, expected.map_err(str::to_owned), "{volume:?}");
        };
        let none = r#"{"spec":{"containers":[{}]}}"#;
        let limited = r#"{"spec":{"containers":[{"resources":{"limits":{"memory":"24Mi"}}}]}}"#;
        check(none, "{}", Ok(Medium::Disk));
        check(none, r#"{"medium":"Memory"}"#, Ok(Medium::Memory(Some(8 << 30))));
        check(none, r#"{"medium":"Memory","sizeLimit":"1Mi"}"#, Ok(Medium::Memory(Some(1 << 20))));
        check(limited, r#"{"medium":"Memory"}"#, Ok(Medium::Memory(Some(24 << 20))));
        check(limited, r#"{"medium":"Memory","sizeLimit":"200Mi"}"#, Ok(Medium::Memory(Some(24 << 20))));
        check(none, r#"{"medium":"HugePages-2Mi"}"#, Ok(Medium::HugePages(2 << 20)));
        check(none, r#"{"medium":"Bogus"}"#, Err("unknown storage medium \"Bogus\""));
    }

    #[test]
    fn usage_counts_all_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/f"), vec![1; 100_000]).unwrap();
        assert!(usage(dir.path()).unwrap() >= 100_000);
        assert_eq!(usage(&dir.path().join("none")).unwrap(), 0);
    }
}
