//! The file of the embedded engine.
//!
//! A [`Backend`] can reopen the file: after an I/O error the engine starts over from the contents of the disk.
//! [`Directory`] is the real one; tests use disks that fail, tear and lose writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

pub use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::StoreError;

/// A file that can be opened more than once, but never twice at a time.
pub trait Backend: Send + Sync + 'static {
    /// Its name in messages.
    fn path(&self) -> &Path;

    /// Opens the file, and creates it if it does not exist.
    fn open(&self) -> io::Result<OpenFile>;

    /// A fresh file now durably holds an empty store: from here on it must never be found empty.
    fn install(&self) -> io::Result<()>;

    /// Reserves exactly this much space on the file system of the file, in place of the previous reservation. After
    /// an error the reservation may be anything in between.
    fn set_aside(&self, bytes: u64) -> io::Result<()>;

    /// How much space is reserved.
    fn aside(&self) -> io::Result<u64>;
}

/// An open file.
pub struct OpenFile {
    pub storage: Box<dyn StorageBackend>,
    /// Whether it was created by this call.
    pub fresh: bool,
}

/// The data directory: `store.redb`, `lock`, which is held as long as this value lives, and `reserve`, which takes
/// the reserved space.
///
/// A fresh store is created under a temporary name and then renamed, so that an empty or truncated `store.redb` is
/// always damage and never mistaken for a new store.
pub struct Directory {
    dir: PathBuf,
    file: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates the directory if needed and takes its lock.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let failed = |what: &str, error: io::Error| {
            StoreError::Unavailable(format!("cannot {what} {}: {error}", dir.display()))
        };
        make_private_dir(dir).map_err(|error| failed("make the data directory", error))?;
        let lock = private_file().truncate(false).open(dir.join("lock"));
        let lock = lock.map_err(|error| failed("write to the data directory", error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir: dir.to_owned(), file: dir.join("store.redb"), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: dir.to_owned() }),
            Err(TryLockError::Error(error)) => Err(failed("lock the data directory", error)),
        }
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join("store.redb.new")
    }
}

impl Backend for Directory {
    fn path(&self) -> &Path {
        &self.file
    }

    fn open(&self) -> io::Result<OpenFile> {
        let fresh = !fs::exists(&self.file)?;
        let file = if fresh {
            private_file().truncate(true).open(self.unfinished())?
        } else {
            OpenOptions::new().read(true).write(true).open(&self.file)?
        };
        let storage = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(OpenFile { storage: Box::new(storage), fresh })
    }

    fn install(&self) -> io::Result<()> {
        fs::rename(self.unfinished(), &self.file)?;
        File::open(&self.dir)?.sync_all()
    }

    fn set_aside(&self, bytes: u64) -> io::Result<()> {
        let file = private_file().truncate(false).open(self.dir.join("reserve"))?;
        let len = file.metadata()?.len();
        if bytes > len { allocate(&file, len, bytes - len) } else { file.set_len(bytes) }
    }

    fn aside(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.dir.join("reserve"))?.len())
    }
}

/// Allocates space for a part of a file: a file that is merely extended is sparse.
fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        result => return Ok(result?),
    }
    let (mut file, mut left) = (file, bytes);
    file.seek(io::SeekFrom::Start(offset))?;
    let chunk = [b'r'; 64 << 10];
    while left > 0 {
        let part = left.min(chunk.len() as u64);
        file.write_all(&chunk[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Values contain the cluster's secrets: only the owner may read the directory.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
