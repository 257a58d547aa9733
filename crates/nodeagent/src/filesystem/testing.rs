//! A filesystem of tests, which needs no privileges: mounts are remembered and not made.
//!
//! It can end after a number of actions, as an agent that is killed does, and can be full.

use super::{Filesystem, LinuxFilesystem};
use crate::runtime::simulated::CallLimit;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Default)]
pub struct FakeFilesystem {
    /// The mounts by target, each as a line of text.
    pub mounts: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    /// Where the cgroups of a test are: as in the kernel's filesystem, their files do not hinder their removal.
    pub cgroups: Option<PathBuf>,
    /// The end of the agent.
    pub limit: Option<Arc<CallLimit>>,
    /// Space, in actions that need some.
    pub space: Option<Arc<AtomicUsize>>,
}

impl FakeFilesystem {
    /// Takes an action, unless the agent has ended. The last action takes effect but returns an error.
    fn act(&self, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let killed = || Err(io::Error::other("the agent was killed"));
        let Some(limit) = &self.limit else { return action() };
        if limit.is_reached() {
            return killed();
        }
        let done = action();
        if limit.count() { done } else { killed() }
    }

    /// Like [`FakeFilesystem::act`], for an action that takes space.
    fn grow(&self, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if let Some(space) = &self.space {
            let taken = space.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
            if taken.is_err() {
                return Err(rustix::io::Errno::NOSPC.into());
            }
        }
        self.act(action)
    }

    fn mount(&self, target: &Path, text: String) -> io::Result<()> {
        self.act(|| {
            std::fs::symlink_metadata(target)?;
            self.mounts.lock().insert(target.to_owned(), text);
            Ok(())
        })
    }
}

impl Filesystem for FakeFilesystem {
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.grow(|| LinuxFilesystem.create_dir(path, mode))
    }

    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent, mode)?;
        }
        self.create_dir(path, mode)
    }

    fn create_dir_at(&self, parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
        self.grow(|| LinuxFilesystem.create_dir_at(parent, name, mode))
    }

    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.grow(|| LinuxFilesystem.create_file(path, mode))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // a write may end in the middle
        self.act(|| LinuxFilesystem.write(path, &content[..content.len() / 2]))?;
        self.grow(|| LinuxFilesystem.write(path, content))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.grow(|| LinuxFilesystem.symlink(target, link))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.act(|| LinuxFilesystem.rename(from, to))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.act(|| LinuxFilesystem.set_mode(path, mode))
    }

    fn set_mode_of(&self, file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
        self.act(|| LinuxFilesystem.set_mode_of(file, mode))
    }

    fn set_owner(&self, path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        self.act(|| LinuxFilesystem.set_owner(path, user, group))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::symlink_metadata(path)?;
        self.act(|| LinuxFilesystem.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let is_cgroup = self.cgroups.as_ref().is_some_and(|root| path.starts_with(root));
        self.act(|| {
            for entry in std::fs::read_dir(path)? {
                let entry = entry?;
                if is_cgroup && entry.file_type()?.is_file() {
                    std::fs::remove_file(entry.path())?;
                }
            }
            LinuxFilesystem.remove_dir(path)
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => self.remove_dir_all(&entry.path())?,
                false => self.remove_file(&entry.path())?,
            }
        }
        self.remove_dir(path)
    }

    fn remove_tree_at(&self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        self.act(|| LinuxFilesystem.remove_tree_at(parent, name))
    }

    fn mount_tmpfs(&self, target: &Path, size: Option<u64>) -> io::Result<()> {
        self.mount(target, format!("tmpfs {size:?}"))
    }

    fn mount_hugetlbfs(&self, target: &Path, page_size: u64) -> io::Result<()> {
        self.mount(target, format!("hugetlbfs {page_size}"))
    }

    fn mount_device(&self, device: &Path, target: &Path, kind: &str, is_readonly: bool) -> io::Result<()> {
        self.mount(target, format!("{kind} {} {is_readonly}", device.display()))
    }

    fn bind(&self, source: &Path, target: &Path, is_readonly: bool) -> io::Result<()> {
        self.mount(target, format!("bind {} {is_readonly}", source.display()))
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = std::fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd()))?;
        self.mount(target, format!("bind {}", source.display()))
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        if !self.mounts.lock().contains_key(target) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.act(|| {
            self.mounts.lock().remove(target);
            Ok(())
        })
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        Ok(self.mounts.lock().contains_key(path))
    }

    fn mount_points(&self, below: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.mounts.lock().keys().filter(|point| point.starts_with(below)).cloned().collect())
    }
}

/// A new file of 16 MiB as a block device.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Makes the file and the device. The error says why there is none.
    pub fn new(file: &Path) -> Result<Self, String> {
        let made = std::fs::File::create(file).and_then(|it| it.set_len(16 << 20));
        made.map_err(|why| why.to_string())?;
        match std::process::Command::new("losetup").args(["-f", "--show"]).arg(file).output() {
            Ok(output) if output.status.success() => {
                Ok(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
            }
            other => Err(format!("there are no loop devices: {other:?}")),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}
