//! Where the embedded engine's file comes from.
//!
//! A [`Backend`] can open the file again and again: after an I/O error the engine starts over from what is
//! on disk. [`Directory`] is the real one; tests bring disks that fail, tear and forget.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

pub use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::StoreError;

/// A file that can be opened more than once, though never twice at a time.
pub trait Backend: Send + Sync + 'static {
    /// What people call it, for messages.
    fn path(&self) -> &Path;

    /// Opens the file, making a fresh one if there is none.
    fn open(&self) -> io::Result<Opened>;

    /// A fresh file now durably holds an empty store: from here on it must never be found empty.
    fn install(&self) -> io::Result<()>;

    /// Sets aside exactly this much space on the file system of the file, in place of what was set aside before. After
    /// an error it may be anything in between.
    fn set_aside(&self, bytes: u64) -> io::Result<()>;

    /// How much is set aside.
    fn aside(&self) -> io::Result<u64>;
}

/// An open file.
pub struct Opened {
    pub storage: Box<dyn StorageBackend>,
    /// Whether it was made just now.
    pub fresh: bool,
}

/// The data directory: `store.redb`, `lock`, which is held as long as this lives, and `reserve`, whose space is set
/// aside.
///
/// A fresh store is built beside its place and then renamed, so that a `store.redb` that is empty or cut
/// short is always damage and never taken for a new store.
pub struct Directory {
    dir: PathBuf,
    file: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if needed and takes its lock.
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

    fn open(&self) -> io::Result<Opened> {
        let fresh = !fs::exists(&self.file)?;
        let file = if fresh {
            private_file().truncate(true).open(self.unfinished())?
        } else {
            OpenOptions::new().read(true).write(true).open(&self.file)?
        };
        let storage = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Opened { storage: Box::new(storage), fresh })
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

/// Gives a part of a file space of its own: what is merely made longer takes none.
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

/// Values are as secret as the cluster's secrets: nobody else may read them.
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
