//! The filesystem of a container: layers, mounts, devices; then it becomes the root.
//!
//! Sources of mounts are taken as detached trees before anything changes, so they keep their connection to the mounts of
//! the machine. Everything else in this mount namespace is private: nothing that is mounted here is seen outside, and
//! nothing is left when the container ends. Targets are opened inside of the new root, so no link of the image leads a
//! mount elsewhere.

use super::failure::during;
use crate::containers::overlay;
use crate::containers::spec::{DeviceSpec, MountPropagation, MountSpec, RootSpec};
use crate::images::root_dir::{RootDir, descriptor_path};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chmodat, chownat, makedev, mkdirat, mknodat, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{fchdir, pivot_root};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const SAFE: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Builds the filesystem and changes the root to it.
pub fn enter(spec: &RootSpec) -> Result<(), String> {
    let sources = spec.mounts.iter().map(detach).collect::<Result<Vec<_>, _>>()?;
    let shm = spec.shm.as_deref().map(clone_tree).transpose()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(during("make the mounts private"))?;
    mount_root(spec)?;
    let root = RootDir::open(&spec.directory).map_err(during("open the root"))?;
    mount_kernel_filesystems(spec, &root, shm)?;
    for (mount, source) in spec.mounts.iter().zip(&sources) {
        attach(&root, mount, source).map_err(|why| {
            let (source, why) = (mount.source.display().to_string(), outbound::io_text(&why.into()));
            format!("error mounting {source:?} to rootfs at {:?}: {why}", mount.target)
        })?;
    }
    for path in &spec.readonly_paths {
        protect(&root, path).map_err(|why| format!("make {path:?} read-only: {why}"))?;
    }
    for path in &spec.masked_paths {
        mask(&root, path).map_err(|why| format!("mask {path:?}: {why}"))?;
    }
    change_root(spec)
}

/// A detached copy of a tree of mounts.
fn clone_tree(path: &Path) -> Result<OwnedFd, String> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).map_err(during(format_args!("open {}", path.display())))
}

fn detach(mount: &MountSpec) -> Result<OwnedFd, String> {
    clone_tree(&mount.source)
}

/// Makes a filesystem that is not attached yet.
pub fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value.is_empty() {
            true => fsconfig_set_flag(&context, *key)?,
            false => fsconfig_set_string(&context, *key, *value)?,
        }
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Attaches a detached tree to an open directory or file.
fn attach_to(tree: impl AsFd, target: impl AsFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", flags)
}

/// Mounts the layers at the directory of the root.
pub fn mount_root(spec: &RootSpec) -> Result<(), String> {
    let tree = match &spec.overlay {
        Some(overlay) => {
            let changes = overlay::Changes { upper: &overlay.upper, work: &overlay.work };
            let layers = overlay::Layers { paths: &overlay.layers, place: &spec.directory };
            layers.mount(Some(changes), has_inert_devices(spec)).map_err(during("mount overlayfs"))?
        }
        None => clone_tree(&spec.directory)?,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target =
        rustix::fs::open(&spec.directory, flags, Mode::empty()).map_err(during("open the mount point"))?;
    attach_to(tree, target).map_err(during("attach the root"))
}

/// Where no control group restricts devices, those of an image are not usable: those of the container are in `/dev`.
fn has_inert_devices(spec: &RootSpec) -> bool {
    !spec.is_privileged && !spec.has_restricted_devices
}

fn mount_kernel_filesystems(spec: &RootSpec, root: &RootDir, shm: Option<OwnedFd>) -> Result<(), String> {
    let noexec = SAFE | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let readonly = if spec.is_privileged { noexec } else { noexec | MountAttrFlags::MOUNT_ATTR_RDONLY };
    let put = |path: &str, kind: &str, options: &[(&str, &str)], attributes| {
        let target = ensure_directory(root, path)?;
        attach_to(new_filesystem(kind, options, attributes)?, target)
    };
    let failed = |path: &'static str| move |why: Errno| format!("mount {path}: {why}");
    put("proc", "proc", &[], noexec).map_err(failed("/proc"))?;
    put("sys", "sysfs", &[], readonly).map_err(failed("/sys"))?;
    mount_cgroups(spec, root, readonly).map_err(failed("/sys/fs/cgroup"))?;
    let dev = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    put("dev", "tmpfs", &[("mode", "755"), ("size", "65536k")], dev).map_err(failed("/dev"))?;
    let pts = [("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5"), ("newinstance", "")];
    let no_device = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    put("dev/pts", "devpts", &pts, no_device).map_err(failed("/dev/pts"))?;
    match put("dev/mqueue", "mqueue", &[], noexec) {
        // a kernel without POSIX queues
        Err(Errno::NODEV) => {}
        other => other.map_err(failed("/dev/mqueue"))?,
    }
    let shm = match shm {
        Some(tree) => Ok(tree),
        None => new_filesystem("tmpfs", &[("mode", "1777"), ("size", "65536k")], noexec),
    };
    let target = ensure_directory(root, "dev/shm").map_err(failed("/dev/shm"))?;
    shm.and_then(|tree| {
        attach_to(&tree, target)?;
        // that of the machine is connected to it
        mount_change(descriptor_path(&tree), MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
    })
    .map_err(failed("/dev/shm"))?;
    let folder = root.directory(b"dev").map_err(failed("/dev"))?;
    for (name, target) in LINKS.into_iter().chain([("ptmx", "pts/ptmx")]) {
        symlinkat(target, &folder, name).map_err(failed("/dev"))?;
    }
    for device in &spec.devices {
        make_device(root, device).map_err(|why| format!("make the device {}: {why}", device.path))?;
    }
    Ok(())
}

/// The groups of this container, as the root of what it sees.
fn mount_cgroups(spec: &RootSpec, root: &RootDir, attributes: MountAttrFlags) -> Result<(), Errno> {
    let target = match root.directory(b"sys/fs/cgroup") {
        // a kernel without cgroups
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    if spec.cgroup_controllers.is_empty() {
        return attach_to(new_filesystem("cgroup2", &[], attributes)?, target);
    }
    let noexec = SAFE | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    attach_to(new_filesystem("tmpfs", &[("mode", "755"), ("size", "1m")], noexec)?, target)?;
    for controller in &spec.cgroup_controllers {
        let target = ensure_directory(root, &format!("sys/fs/cgroup/{controller}"))?;
        let options: &[(&str, &str)] = match controller.as_str() {
            "systemd" => &[("none", ""), ("name", "systemd")],
            controller => &[(controller, "")],
        };
        attach_to(new_filesystem("cgroup", options, attributes)?, target)?;
    }
    Ok(())
}

/// Opens a directory of the new root, and makes what is missing.
pub fn ensure_directory(root: &RootDir, path: &str) -> Result<OwnedFd, Errno> {
    let components: Vec<_> = path.split('/').filter(|it| !it.is_empty() && *it != ".").collect();
    ensure_components(root, &components)
}

/// Most directories are there, so the whole path is tried first.
fn ensure_components(root: &RootDir, components: &[&str]) -> Result<OwnedFd, Errno> {
    let path = components.join("/");
    let find = || root.directory(path.as_bytes());
    let Some((name, parents)) = components.split_last() else { return find() };
    if let Some(found) = present(find())? {
        return Ok(found);
    }
    let parent = ensure_components(root, parents)?;
    // with its parents, `..` is there too
    if let Some(found) = present(find())? {
        return Ok(found);
    }
    match mkdirat(&parent, *name, Mode::from_raw_mode(0o755)) {
        // a link without a target
        Err(Errno::EXIST) => Err(Errno::NOENT),
        made => made.and_then(|()| find()),
    }
}

/// What was found, or `None` if there is nothing.
fn present<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

/// Opens the target of a mount, and makes a file or a directory if there is none.
fn ensure_target(root: &RootDir, path: &str, is_directory: bool) -> Result<OwnedFd, Errno> {
    if is_directory {
        return ensure_directory(root, path);
    }
    match root.open_inside(path.as_bytes(), OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    ensure_directory(root, folder)?;
    // by now it may be a pipe
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    root.open_inside(path.as_bytes(), flags, Mode::from_raw_mode(0o644))?;
    root.open_inside(path.as_bytes(), OFlags::PATH, Mode::empty())
}

fn attach(root: &RootDir, mount: &MountSpec, source: &OwnedFd) -> Result<(), Errno> {
    let found = rustix::fs::statat(source, "", AtFlags::EMPTY_PATH)?;
    let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let target = ensure_target(root, &mount.target, is_directory)?;
    attach_to(source, target)?;
    // the tree's own descriptor names its root, wherever it is attached
    let path = descriptor_path(source);
    let propagation = match mount.propagation {
        MountPropagation::Private => Some(MountPropagationFlags::PRIVATE),
        MountPropagation::HostToContainer => Some(MountPropagationFlags::DOWNSTREAM),
        // as the source is
        MountPropagation::Bidirectional => None,
    };
    if let Some(propagation) = propagation {
        mount_change(&path, propagation | MountPropagationFlags::REC)?;
    }
    if mount.is_readonly {
        remount_readonly(source)?;
    }
    Ok(())
}

/// Makes a mount read-only, and leaves its other flags.
fn remount_readonly(mount: &OwnedFd) -> Result<(), Errno> {
    let present = rustix::fs::fstatvfs(mount)?.f_flag;
    let pairs = [
        (rustix::fs::StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (rustix::fs::StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (rustix::fs::StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (rustix::fs::StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (rustix::fs::StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (rustix::fs::StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = pairs
        .iter()
        .filter(|(flag, _)| present.contains(*flag))
        .fold(MountFlags::empty(), |all, it| all | it.1);
    mount_remount(descriptor_path(mount), MountFlags::BIND | MountFlags::RDONLY | kept, c"")
}

/// Makes a path of the container read-only, if it exists.
fn protect(root: &RootDir, path: &str) -> Result<(), Errno> {
    let place = match root.open_inside(path.trim_start_matches('/').as_bytes(), OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&place, "", flags)?;
    attach_to(&tree, place)?;
    remount_readonly(&tree)
}

/// Hides a path of the container, if it exists.
fn mask(root: &RootDir, path: &str) -> Result<(), Errno> {
    let place = match root.open_inside(path.trim_start_matches('/').as_bytes(), OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    let found = rustix::fs::fstat(&place)?;
    let tree = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => new_filesystem("tmpfs", &[], MountAttrFlags::MOUNT_ATTR_RDONLY)?,
        _ => {
            let null = root.open_inside(b"dev/null", OFlags::PATH, Mode::empty())?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            open_tree(&null, "", flags)?
        }
    };
    attach_to(tree, place)
}

fn make_device(root: &RootDir, device: &DeviceSpec) -> Result<(), Errno> {
    let path = device.path.trim_start_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = ensure_directory(root, folder)?;
    let kind = if device.is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
    let mode = Mode::from_raw_mode(device.mode & 0o777);
    match mknodat(&parent, name, kind, mode, makedev(device.major, device.minor)) {
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    }
    chownat(
        &parent,
        name,
        Some(Uid::from_raw(device.uid)),
        Some(Gid::from_raw(device.gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    chmodat(&parent, name, mode, AtFlags::empty())
}

/// The old root is detached: no descriptor or path leads to it.
fn change_root(spec: &RootSpec) -> Result<(), String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&spec.directory, flags, Mode::empty()).map_err(during("open the root"))?;
    fchdir(&root).map_err(during("enter the root"))?;
    pivot_root(".", ".").map_err(during("pivot_root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(during("detach the old root"))?;
    rustix::process::chdir("/").map_err(during("enter the root"))?;
    if spec.is_readonly {
        remount_readonly(&root).map_err(during("make the root read-only"))?;
    }
    Ok(())
}
