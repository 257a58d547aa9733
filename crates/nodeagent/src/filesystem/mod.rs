//! Changes of files and mounts on the node, one method per action.
//!
//! Volumes, cgroups, directories of pods and links to logs change the machine through [`Filesystem`] alone, so that a
//! test can end an agent after each action, or fill its disk. Reads go to the machine directly.

pub mod linux;
pub mod remove_tree;
#[cfg(test)]
pub mod testing;

pub use linux::LinuxFilesystem;

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// See the module.
pub trait Filesystem: Send + Sync + 'static {
    /// Makes a directory with a mode, less the mask of the process.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Like [`Filesystem::create_dir`], with the parents that are missing. A directory that exists is left as it is.
    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a directory in an open one.
    fn create_dir_at(&self, parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()>;
    /// Makes an empty file with a mode, less the mask of the process. One that exists is left as it is.
    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Writes a file in place.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Sets the mode of an open file or directory.
    fn set_mode_of(&self, file: BorrowedFd<'_>, mode: u32) -> io::Result<()>;
    /// Sets the user and the group of a file, directory or symbolic link.
    fn set_owner(&self, path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory in an open one with all below it. It follows no symbolic link; a mount below the directory is
    /// an error.
    fn remove_tree_at(&self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()>;
    /// Mounts an empty filesystem in memory; without a size it has the kernel's default.
    fn mount_tmpfs(&self, target: &Path, size: Option<u64>) -> io::Result<()>;
    /// Mounts a filesystem of huge pages.
    fn mount_hugetlbfs(&self, target: &Path, page_size: u64) -> io::Result<()>;
    /// Mounts the filesystem of a device.
    fn mount_device(&self, device: &Path, target: &Path, kind: &str, is_readonly: bool) -> io::Result<()>;
    /// Mounts a file or directory at another path.
    fn bind(&self, source: &Path, target: &Path, is_readonly: bool) -> io::Result<()>;
    /// Like [`Filesystem::bind`], for an open file or directory.
    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()>;
    /// Ends a mount; files that are open stay usable.
    fn unmount(&self, target: &Path) -> io::Result<()>;
    fn is_mount_point(&self, path: &Path) -> io::Result<bool>;
    /// The mount points at or below a directory, the deepest last.
    fn mount_points(&self, below: &Path) -> io::Result<Vec<PathBuf>>;
}

/// Ignores that a file is absent already.
pub fn unless_absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The mount points in the text of `/proc/self/mountinfo` that are at or below a directory, sorted.
pub fn parse_mount_points(text: &str, below: &Path) -> Vec<PathBuf> {
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(|it| PathBuf::from(unescape(it)));
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(below)).collect();
    points.sort();
    points
}

/// Replaces the escapes of white space in a mount table: `\040` is a space.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) => {
                out.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_read() {
        let text = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    30 22 0:5 / /a/pods/u/volumes/x\\040y rw,relatime shared:1 - tmpfs tmpfs rw\n\
                    31 22 0:5 / /a/pods/u rw - tmpfs tmpfs rw\n\
                    32 22 0:5 / /a/pods/uu rw - tmpfs tmpfs rw\n";
        let expected = ["/a/pods/u", "/a/pods/u/volumes/x y"].map(PathBuf::from);
        assert_eq!(parse_mount_points(text, Path::new("/a/pods/u")), expected);
    }
}
