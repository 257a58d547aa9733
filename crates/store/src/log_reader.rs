//! Snapshots of the embedded engine: reads the log of one redb transaction while the committer writes on.
//!
//! An open transaction keeps the pages that it sees, so the file grows by all that is written meanwhile. So readers are
//! registered with the log, which ends those that are not read from, and all of them when the file is reopened or
//! compacted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use env::World;
use futures_core::Stream;
use parking_lot::Mutex;
use redb::ReadOnlyTable;

use crate::quiet;
use crate::record::{Meta, Record};
use crate::{Revision, SnapshotRecord, StoreError};

/// A page ends after this many bytes.
const PAGE_BYTES: usize = 256 << 10;
/// A reader that takes no page for so long is ended.
const STALL: Duration = Duration::from_secs(60);

/// The values of all keys in a log, page by page.
pub(crate) struct LogReader {
    log: ReadOnlyTable<u64, &'static [u8]>,
    path: PathBuf,
    /// The revision of the next record to look at.
    next: u64,
    newest: u64,
    /// Revisions that a later one replaced.
    replaced: HashSet<u64>,
}

impl LogReader {
    /// Reads the history, to know which of the records are no longer current.
    pub(crate) fn new(
        log: ReadOnlyTable<u64, &'static [u8]>,
        meta: &Meta,
        path: &Path,
    ) -> Result<Self, StoreError> {
        let mut reader =
            Self { log, path: path.to_owned(), next: 0, newest: meta.newest, replaced: HashSet::new() };
        let mut replaced = HashSet::new();
        reader.scan(meta.oldest.saturating_add(1), |record| {
            replaced.extend(record.previous.map(|it| it.0));
            Ok(true)
        })?;
        reader.replaced = replaced;
        Ok(reader)
    }

    /// Calls back with the records from a revision on, until it returns false. Returns the revision after the last.
    fn scan(
        &self,
        from: u64,
        mut take: impl FnMut(&Record<'_>) -> Result<bool, String>,
    ) -> Result<u64, StoreError> {
        let corrupt = |what: String| StoreError::Corrupt { path: self.path.clone(), what };
        let unavailable =
            |error: redb::StorageError| StoreError::Unavailable(format!("{}: {error}", self.path.display()));
        for entry in self.log.range(from..).map_err(unavailable)? {
            let (revision, bytes) = entry.map_err(unavailable)?;
            let revision = revision.value();
            let record = Record::decode(Revision(revision), bytes.value()).map_err(corrupt)?;
            if !take(&record).map_err(corrupt)? {
                return Ok(revision + 1);
            }
        }
        Ok(self.newest + 1)
    }

    /// The next page; `None` after the last.
    fn page(&mut self) -> Result<Option<Vec<SnapshotRecord>>, StoreError> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        self.next = self.scan(self.next, |record| {
            if let Some(value) = record.value
                && !self.replaced.contains(&record.revision.0)
            {
                page.push(SnapshotRecord {
                    revision: record.revision,
                    key: record.key.into(),
                    value: value.to_vec(0)?.into(),
                    at: record.at,
                    expires_at: record.expires_at,
                });
            }
            bytes += record.size() as usize;
            Ok(bytes < PAGE_BYTES)
        })?;
        Ok((!page.is_empty() || self.next <= self.newest).then_some(page))
    }
}

/// A reader while it is open, and when it was last read from.
struct Slot {
    reader: LogReader,
    since: Duration,
}

type SharedSlot = Mutex<Option<Slot>>;

/// The open readers of a log.
pub(crate) struct OpenReaders {
    slots: Vec<Weak<SharedSlot>>,
    world: World,
}

impl OpenReaders {
    pub(crate) fn new(world: World) -> Self {
        Self { slots: Vec::new(), world }
    }

    /// Registers a reader; it is closed when the returned pages are dropped.
    pub(crate) fn add(&mut self, reader: LogReader) -> ReaderPages {
        self.slots.retain(|it| it.strong_count() > 0);
        let slot = Slot { reader, since: self.world.elapsed() };
        let slot = Arc::new(Mutex::new(Some(slot)));
        self.slots.push(Arc::downgrade(&slot));
        ReaderPages { slot, world: self.world.clone(), ended: false }
    }

    /// Ends the readers that are not read from.
    pub(crate) fn drop_stalled(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let now = self.world.elapsed();
        self.end(|slot| now.saturating_sub(slot.since) > STALL);
    }

    /// Ends all readers.
    pub(crate) fn drop_all(&mut self) {
        self.end(|_| true);
    }

    fn end(&mut self, is_over: impl Fn(&Slot) -> bool) {
        self.slots.retain(|weak| {
            let Some(shared) = weak.upgrade() else { return false };
            let mut slot = shared.lock();
            if slot.as_ref().is_some_and(&is_over) {
                *slot = None;
            }
            slot.is_some()
        });
    }
}

/// The pages of a registered reader.
pub(crate) struct ReaderPages {
    slot: Arc<SharedSlot>,
    world: World,
    ended: bool,
}

impl Stream for ReaderPages {
    type Item = Result<Vec<SnapshotRecord>, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let shared = self.slot.clone();
        let mut slot = shared.lock();
        let page = match &mut *slot {
            None => Err(StoreError::Unavailable(
                "the snapshot was not read in time, or its file was reopened: take another".to_owned(),
            )),
            Some(slot) => {
                slot.since = self.world.elapsed();
                // redb may panic on damage
                quiet::call(|| slot.reader.page()).unwrap_or_else(|panic| {
                    let what = format!("reading it failed: {}", quiet::message(&*panic));
                    Err(StoreError::Corrupt { path: slot.reader.path.clone(), what })
                })
            }
        };
        if !matches!(page, Ok(Some(_))) {
            *slot = None;
            self.ended = true;
        }
        Poll::Ready(page.transpose())
    }
}
