//! Checks of the kernel for the features that containers need.

pub use super::overlay_probe::probe_overlay;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::path::Path;

const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/// The first feature that this machine lacks, as the end of a sentence. Nothing is changed.
pub fn missing(cgroup_root: &Path) -> Option<String> {
    let lacking: Vec<_> =
        NAMESPACES.into_iter().filter(|it| !Path::new("/proc/self/ns").join(it).exists()).collect();
    if !lacking.is_empty() {
        return Some(format!("the kernel has no namespaces of the kind {}", lacking.join(", ")));
    }
    if openat2(CWD, "/", OFlags::PATH, Mode::empty(), ResolveFlags::IN_ROOT).is_err() {
        return Some("the kernel is older than 5.6 (openat2)".to_owned());
    }
    let mounted = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    });
    if let Err(why) = mounted {
        return Some(format!("this process may not mount filesystems ({why})"));
    }
    let has_cgroups = ["cgroup.controllers", "memory/cgroup.procs", "cpu/cgroup.procs"]
        .iter()
        .any(|it| cgroup_root.join(it).exists());
    if !has_cgroups {
        return Some(format!("no control groups are mounted at {}", cgroup_root.display()));
    }
    None
}
