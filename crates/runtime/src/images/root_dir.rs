//! A directory that no path can leave: every lookup is an `openat2` with `RESOLVE_IN_ROOT`.
//!
//! Links are followed as in a chroot: an absolute one begins at the directory, `..` stays in it. The last component of a
//! path is never followed here; it is used with the descriptor of its parent.

use crate::steps::step;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Deeper trees are refused when they are removed or copied.
const DEPTH_LIMIT: usize = 1024;

/// See the module.
pub struct RootDir {
    directory: OwnedFd,
}

/// The place of an entry: the directory and the name in it.
pub struct Place {
    pub parent: OwnedFd,
    pub name: Vec<u8>,
}

impl RootDir {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(RootDir { directory: openat(CWD, path, DIRECTORY, Mode::empty())? })
    }

    /// A directory that is open.
    pub fn of(directory: OwnedFd) -> Self {
        RootDir { directory }
    }

    /// Opens a path inside; all links are followed inside.
    pub fn open_inside(&self, path: &[u8], flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            // the kernel gives up if a rename elsewhere could have mattered
            match openat2(&self.directory, path, flags | OFlags::CLOEXEC, mode, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Opens a directory inside.
    pub fn directory(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        self.open_inside(path, DIRECTORY, Mode::empty())
    }

    /// The place of an entry whose directory exists.
    pub fn place(&self, components: &[&[u8]]) -> rustix::io::Result<Place> {
        let (name, parents) = components.split_last().ok_or(Errno::INVAL)?;
        Ok(Place { parent: self.directory(&parents.join(&b'/'))?, name: name.to_vec() })
    }
}

impl Place {
    /// The entry at a path, without following a link.
    pub fn stat(&self) -> rustix::io::Result<Option<Stat>> {
        match statat(&self.parent, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// A path for calls without a form for descriptors; it does not follow a link at its end.
    pub fn proc_path(&self) -> PathBuf {
        descriptor_path(&self.parent).join(OsStr::from_bytes(&self.name))
    }

    /// Removes the entry at a path, with everything below it.
    pub fn remove(&self) -> io::Result<()> {
        remove_tree(self.parent.as_fd(), &self.name, 0)
    }
}

/// The path of an open descriptor in this process.
pub fn descriptor_path(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Removes a tree without following links.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &[u8], depth: usize) -> io::Result<()> {
    step("remove", OsStr::from_bytes(name));
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(why) => return Err(why.into()),
    }
    if depth > DEPTH_LIMIT {
        return Err(io::Error::other("a tree is too deep"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty())?;
    for child in child_names(&directory)? {
        remove_tree(directory.as_fd(), &child, depth + 1)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// The names in a directory that is open for reading.
pub fn child_names(directory: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Makes a directory, if there is none.
pub fn make_directory(place: &Place, mode: u32) -> rustix::io::Result<()> {
    match mkdirat(&place.parent, &*place.name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

pub fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Bytes and files of a tree, each hard-linked file once.
pub fn tree_usage(path: &Path) -> io::Result<(u64, u64)> {
    let mut seen = std::collections::HashSet::new();
    let mut usage = (0, 0);
    let directory = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    add_usage(&directory, &mut seen, &mut usage, 0)?;
    Ok(usage)
}

fn add_usage(
    directory: &OwnedFd,
    seen: &mut std::collections::HashSet<u64>,
    usage: &mut (u64, u64),
    depth: usize,
) -> io::Result<()> {
    for name in child_names(directory)? {
        let stat = match statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // removed since
            Err(Errno::NOENT) => continue,
            Err(why) => return Err(why.into()),
        };
        if stat.st_nlink > 1 && file_type(&stat) != FileType::Directory && !seen.insert(stat.st_ino) {
            continue;
        }
        usage.0 += stat.st_blocks as u64 * 512;
        usage.1 += 1;
        if file_type(&stat) == FileType::Directory && depth < DEPTH_LIMIT {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(directory, &*name, flags, Mode::empty()) {
                Ok(child) => add_usage(&child, seen, usage, depth + 1)?,
                Err(Errno::NOENT) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
    Ok(())
}

/// The extended attributes of a path, without following a link at its end.
pub fn read_xattrs(path: &Path) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 * 1024];
    let count = match llistxattr(path, &mut names[..]) {
        Ok(count) => count,
        Err(Errno::NOTSUP) => 0,
        Err(why) => return Err(why),
    };
    let mut found = Vec::new();
    for name in names[..count].split(|it| *it == 0).filter(|it| !it.is_empty()) {
        let mut value = vec![0; 64 * 1024];
        let size = lgetxattr(path, name, &mut value[..])?;
        found.push((name.to_vec(), value[..size].to_vec()));
    }
    Ok(found)
}

/// Sets an extended attribute; filesystems without support keep the file without it.
pub fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    match lsetxattr(path, name, value, XattrFlags::empty()) {
        Err(Errno::NOTSUP) => Ok(()),
        other => other,
    }
}
