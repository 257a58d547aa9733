//! The sockets in a directory and the directories below it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const DIRECTORY_MODE: u32 = 0o755;
/// The deepest directory that is read, and the most directories: each takes a watch.
const MAX_DEPTH: usize = 8;
const MAX_DIRECTORIES: usize = 256;

/// The identity of a socket: another one at the same path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketId {
    device: u64,
    inode: u64,
    made: Option<SystemTime>,
}

/// What a directory contains.
#[derive(Debug, Default, PartialEq)]
pub struct Scan {
    pub sockets: BTreeMap<PathBuf, SocketId>,
    pub directories: BTreeSet<PathBuf>,
}

/// Makes the directory.
pub fn create(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Reads a directory. What cannot be read, and names that begin with a dot, are left out.
pub fn scan(root: &Path) -> Scan {
    let mut found = Scan::default();
    let mut pending = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        if depth > MAX_DEPTH || found.directories.len() >= MAX_DIRECTORIES {
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        found.directories.insert(directory);
        for entry in entries.flatten() {
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(data) = entry.metadata() else { continue };
            if is_hidden {
                continue;
            } else if data.is_dir() {
                pending.push((entry.path(), depth + 1));
            } else if data.file_type().is_socket() {
                // an inode may be used again at once
                let id = SocketId { device: data.dev(), inode: data.ino(), made: data.created().ok() };
                found.sockets.insert(entry.path(), id);
            }
        }
    }
    found
}
