//! The storage that redb writes to: the backend's file, guarded against full and failing disks.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

use crate::read_ahead::ReadAhead;
use crate::reserve::{Reserve, is_full};

/// State that the engine shares with the storage that it gave to redb.
#[derive(Debug, Default)]
pub(crate) struct StorageState {
    /// The length of the file.
    pub bytes: AtomicU64,
    /// A sync failed: the page cache may differ from the disk.
    pub sync_failed: AtomicBool,
    /// No write reaches the file any more, so that a damaged file stays as it was found.
    pub frozen: AtomicBool,
    pub read_ahead: ReadAhead,
}

/// A storage that tracks its length and failed syncs, can be frozen, and uses the reserve when the disk is full.
pub(crate) struct GuardedStorage {
    pub storage: Box<dyn StorageBackend>,
    pub state: Arc<StorageState>,
    pub reserve: Arc<Reserve>,
}

impl fmt::Debug for GuardedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.storage.fmt(f)
    }
}

impl GuardedStorage {
    fn check_frozen(&self) -> io::Result<()> {
        if self.state.frozen.load(Ordering::Acquire) {
            return Err(io::Error::other("the file is damaged and is not written to"));
        }
        Ok(())
    }

    /// Retries with the reserved space while the disk is full.
    fn with_reserve(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match write() {
                Err(error) if is_full(&error) && self.reserve.draw() => {}
                result => return result,
            }
        }
    }
}

impl StorageBackend for GuardedStorage {
    fn len(&self) -> io::Result<u64> {
        let len = self.storage.len()?;
        self.state.bytes.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.state.read_ahead.read(&*self.storage, self.state.bytes.load(Ordering::Relaxed), offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_frozen()?;
        let set = self.with_reserve(|| self.storage.set_len(len));
        if set.is_ok() {
            self.state.bytes.store(len, Ordering::Relaxed);
        }
        self.state.read_ahead.written();
        set
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_frozen()?;
        self.storage.sync_data().inspect_err(|_| self.state.sync_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_frozen()?;
        let written = self.with_reserve(|| self.storage.write(offset, data));
        // also one that failed may have changed something
        self.state.read_ahead.written();
        written
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
/// After a failed sync the page cache may hold pages that the kernel has neither written nor will write. Once
/// rewritten they are either on disk or the sync fails again, so the page cache can be trusted afterwards. Pages of
/// zeros are skipped: they may be holes, and filling holes takes space.
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
