//! Mounts of tests, which need no privileges: they are remembered and not made.

use super::mounter::Mounter;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// The mounts by target, each as a line of text.
#[derive(Default)]
pub struct FakeMounter {
    pub mounts: Mutex<BTreeMap<PathBuf, String>>,
}

impl FakeMounter {
    fn add(&self, target: &Path, text: String) -> io::Result<()> {
        std::fs::symlink_metadata(target)?;
        self.mounts.lock().insert(target.to_owned(), text);
        Ok(())
    }
}

impl Mounter for FakeMounter {
    fn mount_tmpfs(&self, target: &Path, size: Option<u64>) -> io::Result<()> {
        self.add(target, format!("tmpfs {size:?}"))
    }

    fn mount_hugetlbfs(&self, target: &Path, page_size: u64) -> io::Result<()> {
        self.add(target, format!("hugetlbfs {page_size}"))
    }

    fn bind(&self, source: &Path, target: &Path, is_readonly: bool) -> io::Result<()> {
        self.add(target, format!("bind {} {is_readonly}", source.display()))
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let source = std::fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd()))?;
        self.add(target, format!("bind {}", source.display()))
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        match self.mounts.lock().remove(target) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        Ok(self.mounts.lock().contains_key(path))
    }

    fn mount_points(&self, below: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.mounts.lock().keys().filter(|point| point.starts_with(below)).cloned().collect())
    }
}
