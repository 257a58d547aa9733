//! Private files, written atomically.
//!
//! Invariants: a file that exists has all of its content, also after a crash; its mode is 0600 and its
//! directory, where made here, is 0700.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

pub use durable_file::{directory_of, sync_directory};

/// Makes the directory and those above it.
pub fn private_directory(path: &Path) -> io::Result<()> {
    durable_file::directory(path, 0o700)
}

/// Replaces the file at `path`, unless it has this content and mode already: a full disk takes nothing.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    durable_file::replace_if_changed(path, content, durable_file::PRIVATE)
}

/// The whole file as text, or `None` where there is none.
pub fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A lock on a directory, released when the process ends.
pub struct DirectoryLock {
    _file: File,
}

/// Locks a data directory, so that no second server writes to it.
pub fn lock_directory(directory: &Path) -> anyhow::Result<DirectoryLock> {
    let formatted = directory.display();
    let path: PathBuf = directory.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| {
        anyhow::anyhow!(
            "cannot write to the data directory {formatted}: {error}; choose another with --data-dir"
        )
    })?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(fs::TryLockError::WouldBlock) => anyhow::bail!(
            "the data directory {formatted} is in use by another pintle: stop that one, or choose another directory \
             with --data-dir"
        ),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_replaced_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, file) = (folder.path().join("a/b"), folder.path().join("a/b/c"));
        private_directory(&directory).unwrap();
        for content in ["one", "two"] {
            replace(&file, content.as_bytes()).unwrap();
            assert_eq!(read(&file).unwrap().as_deref(), Some(content));
        }
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(read(&directory.join("none")).unwrap(), None);
    }

    #[test]
    fn a_directory_is_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock_directory(folder.path()).unwrap();
        let refused = lock_directory(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("in use") && refused.contains("--data-dir"), "{refused}");
        drop(held);
        lock_directory(folder.path()).unwrap();
    }
}
