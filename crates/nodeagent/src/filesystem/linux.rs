//! Files and mounts of this machine.

use super::remove_tree::remove_tree;
use super::{Filesystem, parse_mount_points};
use rustix::fs::{AtFlags, CWD, Mode, StatxFlags, statx};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_remount, unmount};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxFilesystem;

fn options(text: String) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Filesystem for LinuxFilesystem {
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(mode).create(path)
    }

    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn create_dir_at(&self, parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode))?)
    }

    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(mode).open(path).map(drop)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        std::fs::write(path, content)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
    }

    fn set_mode_of(&self, file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }

    fn set_owner(&self, path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        std::os::unix::fs::lchown(path, user, group)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn remove_tree_at(&self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        remove_tree(parent, name)
    }

    fn mount_tmpfs(&self, target: &Path, size: Option<u64>) -> io::Result<()> {
        let data = size.map(|size| options(format!("size={size}"))).transpose()?;
        Ok(mount("tmpfs", target, "tmpfs", MountFlags::RELATIME, data.as_deref())?)
    }

    fn mount_hugetlbfs(&self, target: &Path, page_size: u64) -> io::Result<()> {
        let data = options(format!("pagesize={page_size}"))?;
        Ok(mount("nodev", target, "hugetlbfs", MountFlags::RELATIME, Some(&*data))?)
    }

    fn mount_device(&self, device: &Path, target: &Path, kind: &str, is_readonly: bool) -> io::Result<()> {
        let access = if is_readonly { MountFlags::RDONLY } else { MountFlags::empty() };
        Ok(mount(device, target, kind, MountFlags::RELATIME | access, None)?)
    }

    fn bind(&self, source: &Path, target: &Path, is_readonly: bool) -> io::Result<()> {
        mount_bind_recursive(source, target)?;
        if is_readonly {
            mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"")?;
        }
        Ok(())
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = format!("/proc/self/fd/{}", source.as_raw_fd());
        Ok(mount_bind_recursive(&*source, target)?)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        Ok(unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::empty())?;
        let is_root = rustix::fs::StatxAttributes::MOUNT_ROOT;
        if stat.stx_attributes_mask.contains(is_root) {
            return Ok(stat.stx_attributes.contains(is_root));
        }
        Ok(self.mount_points(path)?.first().is_some_and(|point| point == path))
    }

    fn mount_points(&self, below: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(parse_mount_points(&std::fs::read_to_string(MOUNT_TABLE)?, below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Needs the privilege to mount.
    #[test]
    fn real_mounts_are_made_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (memory, bound, file) =
            (dir.path().join("memory"), dir.path().join("bound"), dir.path().join("file"));
        std::fs::create_dir(&memory).unwrap();
        std::fs::create_dir(&bound).unwrap();
        std::fs::write(&file, "").unwrap();
        let mounter = LinuxFilesystem;
        if let Err(error) = mounter.mount_tmpfs(&memory, Some(1 << 20)) {
            return testdata::skip(&format!("filesystems cannot be mounted: {error}"));
        }
        std::fs::write(memory.join("f"), "x").unwrap();
        let opened = std::fs::File::open(memory.join("f")).unwrap();
        let results = [
            mounter.bind(&memory, &bound, true),
            mounter.bind_fd(opened.as_fd(), &file),
            std::fs::write(bound.join("g"), ""),
        ];
        let points = mounter.mount_points(dir.path()).unwrap();
        let is_point = [&memory, &bound, &file].map(|path| mounter.is_mount_point(path).unwrap());
        let size = rustix::fs::statvfs(&memory).unwrap();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        drop(opened);
        for point in points.iter().rev() {
            mounter.unmount(point).unwrap();
        }
        assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
        assert!(results[2].is_err(), "a bind mount for reading was written");
        assert_eq!((points.len(), is_point), (3, [true; 3]));
        assert_eq!((size.f_blocks * size.f_frsize, &*text), (1 << 20, "x"));
        assert!(!mounter.is_mount_point(&memory).unwrap());
    }
}
