//! Removes a directory tree whose content is not trusted: pods wrote it.
//!
//! Invariants: every step opens one name in an open directory, follows no symbolic link and enters no mount, so nothing
//! outside of the tree changes, whatever happens to it meanwhile. The number of open files is bounded: directories that
//! are nested more deeply are moved to the top of the tree, and removed from there.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// The levels that are open at a time.
const DEPTH: usize = 32;
/// How often a directory is read again that others fill while it is emptied.
const PASSES: usize = 64;

/// Opens a directory in an open one. It is an error if the name is a symbolic link or a mount point.
pub fn open_dir_at(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(parent, name, flags, Mode::empty(), resolve).map_err(|error| match error {
        Errno::XDEV => io::Error::other("a file system is mounted in it"),
        error => error.into(),
    })
}

/// See the module. A directory that is absent is an error of the kind `NotFound`.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let root = open_dir_at(parent, name)?;
    let name = CString::new(name.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut removal = Removal { root: root.as_fd(), moved: 0 };
    removal.remove_dir(parent, &name, root.as_fd(), 0)
}

struct Removal<'r> {
    root: BorrowedFd<'r>,
    /// The number of directories that were moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Empties a directory that is open, and removes it.
    fn remove_dir(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        directory: BorrowedFd<'_>,
        depth: usize,
    ) -> io::Result<()> {
        let mut passes = 0;
        loop {
            let moved = self.moved;
            self.empty(directory, depth)?;
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // directories were moved to it, or it is filled meanwhile
                Err(Errno::NOTEMPTY | Errno::EXIST) if self.moved > moved || passes < PASSES => {
                    passes += usize::from(self.moved == moved);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn empty(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => self.remove_child(directory, name, depth + 1)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn remove_child(&mut self, directory: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        if depth >= DEPTH {
            return self.move_to_top(directory, name);
        }
        match open_dir_at(directory, name) {
            Ok(child) => self.remove_dir(directory, name, child.as_fd(), depth),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn move_to_top(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let top = format!(".removed-{}", self.moved);
            match renameat_with(directory, name, self.root, &top, RenameFlags::NOREPLACE) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // a pod chose this name, too
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::{Filesystem, LinuxFilesystem};
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn remove(folder: &Path, name: &str) -> io::Result<()> {
        remove_tree(File::open(folder).unwrap().as_fd(), OsStr::new(name))
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        symlink(outside.join("precious"), tree.join("file-link")).unwrap();
        symlink("/nowhere", tree.join("dangling")).unwrap();
        symlink(&tree, folder.path().join("to-tree")).unwrap();
        assert!(remove(folder.path(), "to-tree").is_err(), "the tree itself may be no link");
        remove(folder.path(), "tree").unwrap();
        assert!(!tree.exists() && outside.join("precious").exists());
        assert_eq!(remove(folder.path(), "tree").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(remove(folder.path(), "..").is_err());
        assert!(remove(&tree.with_file_name("outside"), "../outside").is_err());
        assert!(outside.join("precious").exists());
    }

    #[test]
    fn deep_trees_need_few_open_files() {
        let folder = tempfile::tempdir().unwrap();
        // the path is longer than the kernel takes
        let mut at: OwnedFd = File::open(folder.path()).unwrap().into();
        for level in 0..400 {
            let name = if level == 0 { "tree".to_owned() } else { format!("directory-{:020}", level % 7) };
            rustix::fs::mkdirat(&at, &*name, Mode::from_raw_mode(0o700)).unwrap();
            at = open_dir_at(at.as_fd(), &*name).unwrap();
        }
        // a name that the removal uses itself
        fs::create_dir_all(folder.path().join("tree/.removed-1/x")).unwrap();
        remove(folder.path(), "tree").unwrap();
        assert!(!folder.path().join("tree").exists());
    }

    /// Needs the privilege to mount.
    #[test]
    fn mounts_are_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, other) = (folder.path().join("tree"), folder.path().join("other"));
        fs::create_dir_all(tree.join("mounted")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("precious"), "x").unwrap();
        if let Err(error) = LinuxFilesystem.bind(&other, &tree.join("mounted"), false) {
            return testdata::skip(&format!("filesystems cannot be mounted: {error}"));
        }
        let refused = remove(folder.path(), "tree");
        let is_kept = other.join("precious").exists();
        LinuxFilesystem.unmount(&tree.join("mounted")).unwrap();
        assert_eq!(refused.unwrap_err().to_string(), "a file system is mounted in it");
        assert!(is_kept);
        remove(folder.path(), "tree").unwrap();
        assert!(other.join("precious").exists() && !tree.exists());
    }
}
