//! Paths inside volumes, mounted for containers.
//!
//! The content of a volume belongs to containers: they may place symbolic links that lead out of it, and change them
//! at any moment. So a path is resolved, checked to be inside, and opened part by part without following links; the
//! mount is made of the open file.

use crate::filesystem::{Filesystem, unless_absent};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const MODE: u32 = 0o7777;
/// Modes of the targets, less the mask of the process.
const DIRECTORY_MODE: u32 = 0o777;
const FILE_MODE: u32 = 0o666;
/// The directory of these mounts below a pod's directory.
pub const DIRECTORY: &str = "volume-subpaths";

/// A path inside a volume that a container mounts.
pub struct SubPath<'a> {
    pub volume: &'a Path,
    pub path: &'a str,
    /// Where the mount goes: a place of its own for each mount of each container.
    pub target: &'a Path,
}

/// Whether a path has no part `..`, and is relative.
pub fn check(path: &str) -> Result<(), String> {
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    match path.split('/').any(|part| part == "..") {
        true => Err(format!("unable to provision SubPath `{path}`: must not contain '..'")),
        false => Ok(()),
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the path is outside of its volume")
}

/// Makes the directories of a path that do not exist, with the mode of the volume.
pub fn make_directories(sub: &SubPath<'_>, filesystem: &dyn Filesystem) -> io::Result<()> {
    let base = sub.volume.canonicalize()?;
    let mode = std::fs::metadata(&base)?.mode() & MODE;
    let full = base.join(sub.path);
    if full.exists() {
        return Ok(());
    }
    // the part that exists may have links, as long as they stay inside
    let mut existing = full.as_path();
    while !existing.exists() {
        existing = existing.parent().ok_or_else(outside)?;
    }
    let rest = full.strip_prefix(existing).map_err(|_| outside())?;
    let existing = existing.canonicalize()?;
    let mut directory = open_inside(&base, &existing)?;
    for part in rest.components() {
        let Component::Normal(name) = part else { return Err(outside()) };
        match filesystem.create_dir_at(directory.as_fd(), name, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        directory = openat(&directory, name, flags, Mode::empty())?;
        // the mode at creation depends on the process
        filesystem.set_mode_of(directory.as_fd(), mode)?;
    }
    Ok(())
}

/// Opens a resolved path part by part, and follows no link.
fn open_inside(base: &Path, path: &Path) -> io::Result<OwnedFd> {
    let inside = path.strip_prefix(base).map_err(|_| outside())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current = openat(CWD, base, flags | OFlags::DIRECTORY, Mode::empty())?;
    for part in inside.components() {
        let Component::Normal(name) = part else { return Err(outside()) };
        current = openat(&current, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&current)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink {
            return Err(outside());
        }
    }
    Ok(current)
}

/// Mounts a path of a volume at its target.
pub fn mount(sub: &SubPath<'_>, filesystem: &dyn Filesystem) -> io::Result<()> {
    let base = sub.volume.canonicalize()?;
    let path = base.join(sub.path).canonicalize()?;
    let file = open_inside(&base, &path)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
    clear(sub.target, filesystem)?;
    if let Some(parent) = sub.target.parent() {
        filesystem.create_dir_all(parent, DIRECTORY_MODE)?;
    }
    match is_dir {
        true => filesystem.create_dir(sub.target, DIRECTORY_MODE)?,
        false => filesystem.create_file(sub.target, FILE_MODE)?,
    }
    filesystem.bind_fd(file.as_fd(), sub.target)
}

/// Removes the target of an earlier container.
fn clear(target: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    if std::fs::symlink_metadata(target).is_err() {
        return Ok(());
    }
    if filesystem.is_mount_point(target)? {
        filesystem.unmount(target)?;
    }
    match std::fs::symlink_metadata(target) {
        Ok(data) if data.is_dir() => filesystem.remove_dir(target),
        Ok(_) => unless_absent(filesystem.remove_file(target)),
        Err(_) => Ok(()),
    }
}

/// Where a container's mount of a volume goes.
pub fn target(pod_dir: &Path, volume: &str, container: &str, index: usize) -> PathBuf {
    pod_dir.join(DIRECTORY).join(volume).join(container).join(index.to_string())
}
