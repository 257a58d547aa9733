//! This program as the monitors of pods execute it.
//!
//! A process that enters a container is this program until it executes the container's, and the container could write to
//! it by `/proc/PID/exe`. So it is executed from a read-only mount, which is detached as soon as it is open: it is part of
//! no mount table, and gone with the last process that uses it.

use crate::steps::step;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The environment of processes beside pods. The program's allocator (mimalloc) otherwise reserves address space whose
/// tables take 170 kB, several times what such a process allocates.
pub const ENVIRONMENT: [(&str, &str); 1] = [("MIMALLOC_ARENA_RESERVE", "0")];

/// See the module.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
    name: OsString,
}

impl Program {
    /// Opens a program, with a mount point of that name for a moment.
    pub fn open(path: &Path, mount_point: &Path) -> io::Result<Self> {
        let name = std::fs::canonicalize(path)?.into_os_string();
        // that of an agent that was killed here, or of an earlier version; its monitors go on with theirs
        let _ = unmount(mount_point, UnmountFlags::DETACH);
        step("mount the program", mount_point);
        std::fs::File::create(mount_point)?;
        mount_bind(path, mount_point)?;
        step("unmount the program", mount_point);
        let opened =
            mount_remount(mount_point, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID, c"")
                .and_then(|()| open(mount_point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        unmount(mount_point, UnmountFlags::DETACH)?;
        step("remove the mount point of the program", mount_point);
        std::fs::remove_file(mount_point)?;
        Ok(Program { file: opened?, name })
    }

    /// Its path, for this process and for a new one before it executes it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Its path on this machine, which lists of processes show.
    pub fn name(&self) -> &OsString {
        &self.name
    }
}
