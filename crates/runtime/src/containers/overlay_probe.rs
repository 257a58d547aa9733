//! Whether the filesystems of containers can be overlays.

use crate::images::root_dir::remove_tree;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether overlayfs works on the filesystem of a folder that is made and removed. Nothing is mounted.
pub fn probe_overlay(probe: &Path) -> bool {
    let names = ["lower", "upper", "work"];
    let is_made = names.iter().all(|it| durable_file::directory(&probe.join(it), 0o700).is_ok());
    let mounted = || -> rustix::io::Result<()> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, name) in ["lowerdir", "upperdir", "workdir"].into_iter().zip(names) {
            fsconfig_set_string(&context, key, probe.join(name))?;
        }
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map(drop)
    };
    let works = is_made && mounted().is_ok();
    // leftovers are used by the next probe
    let _ = remove_tree(CWD, probe.as_os_str().as_bytes(), 0);
    works
}
