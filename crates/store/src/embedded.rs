//! The durable engine: the log in two tables of one redb file.
//!
//! ```text
//! log    revision → record      every record once; see `record`
//! meta   "store"  → meta row    rewritten in the same transaction as every batch
//! ```
//!
//! There is no table by key: that index is in memory, rebuilt by one scan of the log at opening. A batch is one
//! redb transaction with one sync (redb's one-phase commit; its checksums distinguish a torn commit from a complete
//! one). redb does not continue after an I/O error, so the file is then reopened.
//!
//! Opening a file gives exactly the committed records, or an error that names the file. redb does not promise to
//! survive a damaged file without panicking, so it is read behind `catch_unwind`. One limit is inherent: if the
//! process was killed in the midst of writes *and* the pages of its very last batch are damaged afterwards, that is
//! indistinguishable from an incomplete batch, and the log ends before it.
//!
//! ```text
//! last commit          next opening                     before the first write
//! of a batch           redb walks the whole file        nothing
//! at rest, at the end  loads which pages are free       redb walks the whole file, beside the reader of the records
//! ```
//!
//! So redb commits once more when a large file comes to rest, with the list of its free pages.

use std::cell::Cell;
use std::io;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::World;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::backend::{Backend, Directory, OpenFile};
use crate::guarded_storage::{GuardedStorage, StorageState, write_again};
use crate::log::{Batch, Log};
use crate::log_reader::{LogReader, OpenReaders};
use crate::quiet;
use crate::record::{FORMAT, Meta, MetaError};
use crate::recover::Recovery;
use crate::reserve::{self, Reserve};
use crate::scan::{self, ScanError};
use crate::state::State;
use crate::{Engine, Options, RecoveredRecord, Revision, Snapshot, SnapshotRecord, StoreError};

pub(crate) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
const META_ROW: &str = "store";
/// A walk over a smaller file takes no time that matters.
const REST_FROM: u64 = if cfg!(test) { 1 } else { 32 << 20 };
/// The bytes of records in one transaction of a restore.
const RESTORE_BATCH: usize = 8 << 20;

/// Opens the store in a data directory, and creates both if they do not exist. `visit` receives every record of the
/// log, in revision order. After an error its records are not valid.
pub fn open(
    dir: &Path,
    options: &Options,
    world: World,
    visit: &mut dyn FnMut(RecoveredRecord),
) -> Result<Engine, StoreError> {
    open_on(Box::new(Directory::open(dir)?), options, world, visit)
}

/// The same on any backend.
pub fn open_on(
    backend: Box<dyn Backend>,
    options: &Options,
    world: World,
    visit: &mut dyn FnMut(RecoveredRecord),
) -> Result<Engine, StoreError> {
    let mut log = RedbLog::new(backend.into(), options, &world);
    let mut id = [0; 16];
    world.fill(&mut id);
    let mut state = log.recover(id, visit)?;
    state.compress_from = options.compress_from;
    if !log.reserve.fill() {
        tracing::warn!(path = %log.backend.path().display(), "the disk is full");
    }
    Ok(Engine::new(Box::new(log), state, options, world))
}

/// Creates the store of a data directory that has none, with the values of a snapshot. Its revisions continue after
/// `newest`, and there is no history before it. The store exists only once all records are in it.
pub fn restore<E: From<StoreError>>(
    dir: &Path,
    newest: Revision,
    records: &mut dyn Iterator<Item = Result<SnapshotRecord, E>>,
    world: &World,
) -> Result<u64, E> {
    let backend = Directory::open(dir)?;
    let mut log = RedbLog::new(Arc::new(backend), &Options::default(), world);
    let mut id = [0; 16];
    world.fill(&mut id);
    let meta = Meta { oldest: newest.0, newest: newest.0, ..Meta::new(id) };
    log.restore(meta, records)
}

struct RedbLog {
    /// `None` after a failure, until the file is reopened. Dropped before the backend, which holds the lock.
    database: Option<Database>,
    backend: Arc<dyn Backend>,
    state: Arc<StorageState>,
    reserve: Arc<Reserve>,
    cache_bytes: usize,
    /// See [`Options::leave_packed`].
    leave_packed: bool,
    /// The buffer for encoding a record.
    scratch: Vec<u8>,
    /// Bytes of records removed since the file was compacted, less those added.
    unused: u64,
    /// Snapshots that are being read.
    readers: OpenReaders,
    /// The free pages that redb trusts have not been compared with those in use.
    unverified: bool,
    /// The last commit has the list of the free pages.
    rests: bool,
    /// Why the file is not written to any more.
    damage: Option<StoreError>,
}

impl RedbLog {
    fn new(backend: Arc<dyn Backend>, options: &Options, world: &World) -> Self {
        Self {
            reserve: Arc::new(Reserve::new(backend.clone(), options.reserve_bytes)),
            backend,
            database: None,
            state: Arc::default(),
            cache_bytes: options.cache_bytes,
            leave_packed: options.leave_packed,
            scratch: Vec::new(),
            // the amount of free pages in an existing file is unknown: one attempt to compact is worthwhile
            unused: u64::MAX,
            readers: OpenReaders::new(world.clone()),
            unverified: false,
            rests: false,
            damage: None,
        }
    }

    /// Fills a new file and installs it. Returns the number of records.
    fn restore<E: From<StoreError>>(
        &mut self,
        mut meta: Meta,
        records: &mut dyn Iterator<Item = Result<SnapshotRecord, E>>,
    ) -> Result<u64, E> {
        if !self.connect()?.fresh {
            let path = self.backend.path().display();
            return Err(StoreError::Unavailable(format!("{path} exists: remove it first")).into());
        }
        let mut repeated = Vec::new();
        loop {
            let (mut page, mut bytes) = (Vec::new(), 0);
            while bytes < RESTORE_BATCH {
                let Some(record) = records.next().transpose()? else { break };
                bytes += record.size();
                page.push(record);
            }
            let inserted = quiet::call(|| self.insert(&page, &mut meta, &mut repeated));
            self.outcome(inserted)?;
            if bytes < RESTORE_BATCH {
                break;
            }
        }
        // an etcd may write several keys at one revision
        for record in &mut repeated {
            meta.newest += 1;
            meta.oldest += 1;
            record.revision = Revision(meta.newest);
        }
        let inserted = quiet::call(|| self.insert(&repeated, &mut meta, &mut Vec::new()));
        self.outcome(inserted)?;
        // reads it back as a start does
        let fresh = self.scan(&mut |_| ())?;
        self.let_go();
        self.backend.install().map_err(|error| self.explain_io(&error))?;
        Ok(fresh.live_keys() as u64)
    }

    /// Opens the file and reads all of it.
    fn recover(&mut self, id: [u8; 16], visit: &mut dyn FnMut(RecoveredRecord)) -> Result<State, StoreError> {
        // a panic of the visitor is not the file's fault
        let visiting = Cell::new(false);
        let mut visit = |recovered: RecoveredRecord| {
            visiting.set(true);
            quiet::call_back(|| visit(recovered));
            visiting.set(false);
        };
        self.state.read_ahead.begin();
        let result = quiet::call(|| self.open_and_read(id, &mut visit));
        self.state.read_ahead.end();
        let result = match result {
            Err(panic) if visiting.get() => {
                self.let_go();
                resume_unwind(panic)
            }
            Err(panic) => Err(self.corrupt(format!("reading it failed: {}", quiet::message(&*panic)))),
            Ok(result) => result,
        };
        if result.is_err() {
            // keep the damaged file as it is for repair: closing must not write
            self.state.frozen.store(true, Ordering::Release);
            self.let_go();
        }
        result
    }

    fn open_and_read(
        &mut self,
        id: [u8; 16],
        visit: &mut dyn FnMut(RecoveredRecord),
    ) -> Result<State, StoreError> {
        let ConnectOutcome { fresh, repaired } = self.connect()?;
        if fresh {
            let meta = Meta::new(id);
            let empty = Batch { changes: &[], details: &[], trims: &[], meta: &meta };
            self.write(&empty).map_err(|error| self.explain(error))?;
            self.backend.install().map_err(|error| self.explain_io(&error))?;
            return Ok(State::new(meta));
        }
        (self.unverified, self.rests) = (!repaired, !repaired);
        self.scan(visit)
    }

    /// Opens the file; after a failed sync only once it has been rewritten.
    fn connect(&mut self) -> Result<ConnectOutcome, StoreError> {
        self.let_go();
        let OpenFile { storage, fresh } = self.backend.open().map_err(|error| self.explain_io(&error))?;
        if self.state.sync_failed.load(Ordering::Acquire) {
            write_again(&*storage).map_err(|error| self.explain_io(&error))?;
            self.state.sync_failed.store(false, Ordering::Release);
        }
        let len = storage.len().map_err(|error| self.explain_io(&error))?;
        if !fresh && len == 0 {
            return Err(self.corrupt("it is empty".to_owned()));
        }
        self.state.bytes.store(len, Ordering::Relaxed);
        let repaired = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = repaired.clone();
        let database = Database::builder()
            .set_cache_size(self.cache_bytes)
            .set_repair_callback(move |_| seen.store(true, Ordering::Relaxed))
            .create_with_backend(GuardedStorage {
                storage,
                state: self.state.clone(),
                reserve: self.reserve.clone(),
            });
        self.database = Some(database.map_err(|error| self.explain(error))?);
        Ok(ConnectOutcome { fresh, repaired: repaired.load(Ordering::Relaxed) })
    }

    fn scan(&self, visit: &mut dyn FnMut(RecoveredRecord)) -> Result<State, StoreError> {
        let mut recovery = Recovery::new(self.meta()?).map_err(|what| self.corrupt(what))?;
        let read = self.database()?.begin_read().map_err(|error| self.explain(error))?;
        let log = read.open_table(LOG).map_err(|error| self.explain(error))?;
        let scanned = scan::scan(&log, self.leave_packed, &mut |(mut record, bytes)| {
            recovery.take(&mut record, bytes).map_err(ScanError::Corrupt)?;
            visit(record);
            Ok(())
        });
        scanned.map_err(|error| match error {
            ScanError::Engine(error) => self.explain(error),
            ScanError::Corrupt(what) => self.corrupt(what),
        })?;
        recovery.finish().map_err(|what| self.corrupt(what))
    }

    /// Verifies redb's own pages. In the midst of writes redb has done so itself; at rest and after a clean end it trusts
    /// them, and a damaged free list would make it overwrite records.
    fn check_pages(&mut self) -> Result<(), StoreError> {
        let Some(database) = &mut self.database else { return Ok(()) };
        let sound = database.check_integrity().map_err(|error| self.explain(error))?;
        if !sound {
            tracing::warn!(path = %self.backend.path().display(), "the file's free list was damaged and rebuilt");
        }
        Ok(())
    }

    fn meta(&self) -> Result<Meta, StoreError> {
        let read = self.database()?.begin_read().map_err(|error| self.explain(error))?;
        let table = read.open_table(META).map_err(|error| self.explain(error))?;
        let row = table.get(META_ROW).map_err(|error| self.explain(error))?;
        let row = row.ok_or_else(|| self.corrupt("its meta row is missing".to_owned()))?;
        Meta::decode(row.value()).map_err(|error| match error {
            MetaError::Damaged => self.corrupt("its meta row does not match its checksum".to_owned()),
            MetaError::Format(found) => {
                StoreError::Format { path: self.backend.path().to_owned(), found, supported: FORMAT }
            }
        })
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or_else(|| StoreError::Unavailable("its file is not open".to_owned()))
    }

    /// One transaction, durable on return.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Err(redb::Error::DatabaseClosed) };
        self.readers.drop_stalled();
        let transaction = database.begin_write()?;
        let (mut removed, mut appended) = (0, 0);
        {
            let mut log = transaction.open_table(LOG)?;
            for revision in batch.trims {
                let Some(record) = log.remove(revision)? else {
                    return Err(redb::Error::Corrupted(format!("revision {revision} is missing")));
                };
                removed += record.value().len() as u64;
            }
            // appending never replaces an entry: a revision is written once
            let mut end = log.upper_bound_mut(Bound::<u64>::Unbounded)?;
            for record in batch.records() {
                record.encode(&mut self.scratch);
                appended += self.scratch.len() as u64;
                end.insert_before(record.revision.0, self.scratch.as_slice()).map_err(
                    |error| match error {
                        redb::CursorError::Storage(error) => redb::Error::from(error),
                        other => redb::Error::Corrupted(format!("revision {}: {other}", record.revision)),
                    },
                )?;
            }
            end.close()?;
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_ROW, batch.meta.encode().as_slice())?;
        }
        transaction.commit()?;
        self.rests = false;
        self.unused = self.unused.saturating_add(removed).saturating_sub(appended);
        // do not keep the buffer of a huge value
        self.scratch.shrink_to(256 << 10);
        Ok(())
    }

    /// Adds records of any order in one transaction; those whose revision is taken are returned in `repeated`.
    fn insert(
        &mut self,
        page: &[SnapshotRecord],
        meta: &mut Meta,
        repeated: &mut Vec<SnapshotRecord>,
    ) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Err(redb::Error::DatabaseClosed) };
        let transaction = database.begin_write()?;
        {
            let mut log = transaction.open_table(LOG)?;
            for record in page {
                if log.get(record.revision.0)?.is_some() {
                    repeated.push(record.clone());
                    continue;
                }
                record.record().encode(&mut self.scratch);
                log.insert(record.revision.0, self.scratch.as_slice())?;
                meta.add(record.revision.0);
            }
            transaction.open_table(META)?.insert(META_ROW, meta.encode().as_slice())?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Compacts the file: moves pages into free space and truncates the file.
    fn compact(&mut self) -> Result<(), StoreError> {
        let before = self.file_bytes();
        let compacted = quiet::call(|| match &mut self.database {
            Some(database) => database.compact().map(drop).map_err(redb::Error::from),
            None => Err(redb::Error::DatabaseClosed),
        });
        self.rests = false;
        self.outcome(compacted)?;
        self.unused = 0;
        tracing::info!(before, after = self.file_bytes(), "the store's file was compacted");
        Ok(())
    }

    /// Converts the result of a write to the file.
    fn outcome(&self, written: std::thread::Result<Result<(), redb::Error>>) -> Result<(), StoreError> {
        match written {
            Ok(result) => result.map_err(|error| self.explain(error)).inspect_err(|error| {
                if matches!(error, StoreError::Full { .. }) {
                    // needed by the writes that free space after this
                    self.reserve.draw();
                }
            }),
            Err(panic) => {
                let path = self.backend.path().display();
                Err(StoreError::Unavailable(format!("writing {path} failed: {}", quiet::message(&*panic))))
            }
        }
    }

    /// Drops the database. redb may panic on damage, also while closing.
    fn let_go(&mut self) {
        // a reader holds the file open
        self.readers.drop_all();
        let database = self.database.take();
        if let Err(panic) = quiet::call(|| drop(database)) {
            tracing::warn!(panic = quiet::message(&*panic), "closing the store's file failed");
        }
    }

    fn corrupt(&self, what: String) -> StoreError {
        StoreError::Corrupt { path: self.backend.path().to_owned(), what }
    }

    fn explain(&self, error: impl Into<redb::Error>) -> StoreError {
        match error.into() {
            redb::Error::Io(error) => self.explain_io(&error),
            redb::Error::DatabaseAlreadyOpen => StoreError::Locked { path: self.backend.path().to_owned() },
            redb::Error::Corrupted(what) => self.corrupt(what),
            other @ (redb::Error::PreviousIo
            | redb::Error::DatabaseClosed
            | redb::Error::LockPoisoned(_)
            | redb::Error::ValueTooLarge(_)) => {
                StoreError::Unavailable(format!("{}: {other}", self.backend.path().display()))
            }
            // missing tables, or of other types or formats: not the file that was written
            other => self.corrupt(other.to_string()),
        }
    }

    fn explain_io(&self, error: &io::Error) -> StoreError {
        let path = self.backend.path();
        match error.kind() {
            _ if reserve::is_full(error) => self.full_error(),
            // redb only reads where its own pages point
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                self.corrupt(format!("it is cut short or misleading: {error}"))
            }
            _ => StoreError::Unavailable(format!("I/O error on {}: {error}", path.display())),
        }
    }
}

struct ConnectOutcome {
    fresh: bool,
    /// The file had not been closed cleanly, and redb has verified all of it.
    repaired: bool,
}

impl Log for RedbLog {
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let written = quiet::call(|| self.write(batch));
        self.outcome(written)
    }

    fn verify(&mut self) -> Result<(), StoreError> {
        if !self.unverified {
            return Ok(());
        }
        self.state.read_ahead.begin();
        let checked = quiet::call(|| self.check_pages());
        self.state.read_ahead.end();
        let checked = checked.unwrap_or_else(|panic| {
            Err(self.corrupt(format!("verifying it failed: {}", quiet::message(&*panic))))
        });
        match &checked {
            Ok(()) => self.unverified = false,
            Err(error @ StoreError::Corrupt { .. }) => {
                // keep the damaged file as it is for repair: closing must not write
                self.state.frozen.store(true, Ordering::Release);
                self.let_go();
                self.damage = Some(error.clone());
            }
            Err(_) => {}
        }
        checked
    }

    fn rest(&mut self) -> Result<bool, StoreError> {
        if self.rests || self.file_bytes() < REST_FROM || self.is_full() {
            return Ok(false);
        }
        let written = quiet::call(|| {
            let Some(database) = &self.database else { return Err(redb::Error::DatabaseClosed) };
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            Ok(transaction.commit()?)
        });
        self.outcome(written)?;
        self.rests = true;
        Ok(true)
    }

    fn reopen(&mut self) -> Result<Meta, StoreError> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone());
        }
        self.state.read_ahead.begin();
        let reopened = quiet::call(|| {
            let ConnectOutcome { repaired, .. } = self.connect()?;
            self.rests = false;
            self.unverified &= !repaired;
            self.verify()?;
            self.meta()
        });
        self.state.read_ahead.end();
        reopened.unwrap_or_else(|panic| {
            Err(self.corrupt(format!("reading it failed: {}", quiet::message(&*panic))))
        })
    }

    fn is_full(&self) -> bool {
        self.reserve.is_full()
    }

    fn is_low(&self) -> bool {
        self.reserve.is_low()
    }

    fn make_room(&mut self) -> Result<bool, StoreError> {
        if self.reserve.fill() {
            return Ok(true);
        }
        // compaction takes time in proportion to the file: only if it frees enough
        if self.unused < self.reserve.missing().max(1) {
            return Ok(false);
        }
        // pages of a snapshot cannot be moved
        self.readers.drop_all();
        self.compact()?;
        Ok(self.reserve.fill())
    }

    fn full_error(&self) -> StoreError {
        let path = self.backend.path();
        StoreError::Full { path: path.parent().unwrap_or(path).to_owned() }
    }

    fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        let opened = quiet::call(|| {
            let meta = self.meta()?;
            let read = self.database()?.begin_read().map_err(|error| self.explain(error))?;
            let log = read.open_table(LOG).map_err(|error| self.explain(error))?;
            LogReader::new(log, &meta, self.backend.path()).map(|reader| (meta, reader))
        });
        let opened = opened.unwrap_or_else(|panic| {
            Err(self.corrupt(format!("reading it failed: {}", quiet::message(&*panic))))
        });
        let (meta, reader) = opened?;
        Ok(Snapshot { revision: Revision(meta.newest), pages: Box::pin(self.readers.add(reader)) })
    }

    fn file_bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }

    fn close(&mut self) {
        // closing writes, too
        if let Err(error) = self.verify() {
            tracing::error!(%error, "the store's file is not closed cleanly");
        }
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::faults::Disk;
    use crate::{Expect, Store, Write};
    use env::Simulated;
    use std::time::Duration;

    /// Whether redb repairs the file of a process that is killed now.
    fn is_repaired(disk: &Disk) -> bool {
        let world: World = Simulated::new(1_700_000_000, 1);
        let killed = Disk::holding(disk.bytes());
        RedbLog::new(Arc::new(killed), &Options::default(), &world).connect().unwrap().repaired
    }

    #[tokio::test]
    async fn a_store_that_is_killed_at_rest_is_opened_without_a_repair() {
        let (disk, world) = (Disk::new(), Simulated::new(1_700_000_000, 1));
        let store = open_on(Box::new(disk.clone()), &Options::default(), world.clone(), &mut |_| ()).unwrap();
        store.start(Box::new(|_| ())).unwrap();
        for n in 0..3 {
            store.write(Write::put(format!("/{n}"), Expect::Absent, vec![n; 9000])).await.unwrap();
            assert!(is_repaired(&disk), "in the midst of writes");
            world.advance(Duration::from_secs(2));
            store.tick().await;
            assert!(!is_repaired(&disk), "at rest");
            let bytes = disk.bytes();
            world.advance(Duration::from_secs(2));
            store.tick().await;
            assert!(disk.bytes() == bytes, "it comes to rest once");
        }
    }
}
