//! Copies the layers of an image into one directory: the root filesystem where overlayfs cannot be used.
//!
//! Slow and large, but without a mount. Deletions and opaque directories have the effect that they have in overlayfs.

use super::root_dir::{Place, child_names, file_type, make_directory, read_xattrs, remove_tree, set_xattr};
use super::unpack::OPAQUE;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat, linkat,
    makedev, mknodat, openat, readlinkat, statat, symlinkat, utimensat,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const DEPTH_LIMIT: usize = 1024;

/// Copies layers, the topmost first, into an empty directory.
pub fn flatten(layers: &[PathBuf], target: &Path) -> io::Result<()> {
    for layer in layers.iter().rev() {
        let mut copy = LayerCopy { linked: HashMap::new(), root: open_directory(CWD.as_fd(), target)? };
        let source = open_directory(CWD.as_fd(), layer)?;
        let root = copy.root.try_clone()?;
        copy_metadata(&source, b".", &statat(&source, ".", AtFlags::empty())?, &root, b".")?;
        copy.directory(&source, &root, 0)?;
    }
    Ok(())
}

/// Copies what is in a directory, and its owner and mode, to an empty one.
pub fn copy_directory(source: OwnedFd, target: &Path) -> io::Result<()> {
    let root = open_directory(CWD.as_fd(), target)?;
    let mut copy = LayerCopy { linked: HashMap::new(), root: root.try_clone()? };
    copy.directory(&source, &root, 0)?;
    copy_metadata(&source, b".", &statat(&source, ".", AtFlags::empty())?, &root, b".")
}

/// The copy of one layer.
struct LayerCopy {
    root: OwnedFd,
    /// Copied files with several names, by device and inode: the directory and the name of the copy.
    linked: HashMap<(u64, u64), Place>,
}

fn open_directory(parent: impl AsFd, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, path, flags, Mode::empty())?)
}

impl LayerCopy {
    fn directory(&mut self, source: &OwnedFd, target: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth > DEPTH_LIMIT {
            return Err(io::Error::other("a tree is too deep"));
        }
        for name in child_names(source)? {
            let stat = statat(source, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = file_type(&stat);
            if kind == FileType::CharacterDevice && stat.st_rdev == makedev(0, 0) {
                remove_tree(target.as_fd(), &name, 0)?;
                continue;
            }
            if kind != FileType::Directory {
                remove_tree(target.as_fd(), &name, 0)?;
                self.entry(source, target, &name, &stat)?;
                continue;
            }
            let child = open_directory(source, &*name)?;
            let place = Place { parent: target.try_clone()?, name: name.clone() };
            let present = place.stat()?.map(|it| file_type(&it));
            if present.is_some_and(|it| it != FileType::Directory) || is_opaque(&child)? {
                remove_tree(target.as_fd(), &name, 0)?;
            }
            make_directory(&place, 0o700)?;
            self.directory(&child, &open_directory(target, &*name)?, depth + 1)?;
            copy_metadata(source, &name, &stat, target, &name)?;
        }
        Ok(())
    }

    fn entry(&mut self, source: &OwnedFd, target: &OwnedFd, name: &[u8], stat: &Stat) -> io::Result<()> {
        let inode = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.linked.get(&inode) {
            linkat(&first.parent, &*first.name, target, name, AtFlags::empty())?;
            return Ok(());
        }
        match file_type(stat) {
            FileType::RegularFile => copy_file(source, target, name)?,
            FileType::Symlink => symlinkat(readlinkat(source, name, Vec::new())?, target, name)?,
            // a socket has no contents that could be used
            FileType::Socket => return Ok(()),
            kind => mknodat(target, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev)?,
        }
        copy_metadata(source, name, stat, target, name)?;
        if stat.st_nlink > 1 {
            self.linked.insert(inode, Place { parent: target.try_clone()?, name: name.to_vec() });
        }
        Ok(())
    }
}

fn is_opaque(directory: &OwnedFd) -> io::Result<bool> {
    let place = Place { parent: directory.try_clone()?, name: b".".to_vec() };
    Ok(read_xattrs(&place.proc_path())?.iter().any(|(name, value)| name == OPAQUE && value == b"y"))
}

fn copy_file(source: &OwnedFd, target: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = openat(source, name, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = openat(target, name, flags, Mode::from_raw_mode(0o600))?;
    io::copy(&mut std::fs::File::from(from), &mut std::fs::File::from(to))?;
    Ok(())
}

fn copy_metadata(source: &OwnedFd, from: &[u8], stat: &Stat, target: &OwnedFd, to: &[u8]) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(target, to, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if file_type(stat) != FileType::Symlink {
        chmodat(target, to, Mode::from_raw_mode(stat.st_mode & 0o7777), AtFlags::empty())?;
    }
    let original = Place { parent: source.try_clone()?, name: from.to_vec() };
    let copy = Place { parent: target.try_clone()?, name: to.to_vec() };
    for (name, value) in read_xattrs(&original.proc_path())? {
        if !name.starts_with(b"trusted.overlay.") {
            set_xattr(&copy.proc_path(), &name, &value)?;
        }
    }
    let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as i64 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(target, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
