//! Where the embedded engine's file comes from.
//!
//! A [`Backend`] can open the file again and again: after an I/O error the engine starts over from what is
//! on disk. [`Directory`] is the real one; tests bring disks that fail, tear and forget.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::BackendError;
pub use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::StoreError;
use crate::reserve::{Reserve, is_full};

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

/// What the engine and the storage it handed to redb still share.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The length of the file.
    pub bytes: AtomicU64,
    /// A sync failed: what the system shows of the file may not be what is on disk.
    pub sync_failed: AtomicBool,
    /// No write reaches the file any more, so that a damaged file is left as it was found.
    pub frozen: AtomicBool,
}

/// A storage that is watched.
pub(crate) struct Watched {
    pub storage: Box<dyn StorageBackend>,
    pub watch: Arc<Watch>,
    pub reserve: Arc<Reserve>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.storage.fmt(f)
    }
}

impl Watched {
    fn thaw(&self) -> io::Result<()> {
        if self.watch.frozen.load(Ordering::Acquire) {
            return Err(io::Error::other("the file is damaged and left alone"));
        }
        Ok(())
    }

    /// Tries again with what is set aside while there is no space.
    fn with_reserve(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match write() {
                Err(error) if is_full(&error) && self.reserve.draw() => {}
                result => return result,
            }
        }
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        let len = self.storage.len()?;
        self.watch.bytes.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.thaw()?;
        self.with_reserve(|| self.storage.set_len(len))?;
        self.watch.bytes.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.thaw()?;
        self.storage.sync_data().inspect_err(|_| self.watch.sync_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.thaw()?;
        self.with_reserve(|| self.storage.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.storage.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.query_lock_range(start, end)
    }
}

/// Writes every page of the file again and syncs it.
///
/// After a failed sync the system may show pages that it has neither written nor still means to write. Once
/// written again they are either on disk or the sync fails again; what it shows can then be believed. Pages
/// of zeros are passed over: they may be holes, and filling holes takes space.
pub(crate) fn write_again(storage: &dyn StorageBackend) -> io::Result<()> {
    const CHUNK: u64 = 64 << 10;
    let len = storage.len()?;
    let mut chunk = vec![0; CHUNK as usize];
    let mut offset = 0;
    while offset < len {
        let part = &mut chunk[..CHUNK.min(len - offset) as usize];
        storage.read(offset, part)?;
        if part.iter().any(|byte| *byte != 0) {
            storage.write(offset, part)?;
        }
        offset += CHUNK;
    }
    storage.sync_data()
}
