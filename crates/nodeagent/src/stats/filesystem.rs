//! Space and inodes of filesystems.

use std::path::Path;

/// Space and inodes of a filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    pub available: u64,
    pub capacity: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// Space and inodes of the filesystem of a path.
pub fn filesystem(path: &Path) -> Option<FilesystemUsage> {
    let data = rustix::fs::statvfs(path).ok()?;
    Some(FilesystemUsage {
        available: data.f_bavail * data.f_frsize,
        capacity: data.f_blocks * data.f_frsize,
        inodes: data.f_files,
        inodes_free: data.f_ffree,
    })
}
