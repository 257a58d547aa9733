//! The file: every change as a row by revision, leases, and a few numbers, in three tables of redb.
//!
//! ```text
//! rows     revision, number of the change → key and value; a deletion has the key alone
//! leases   id → seconds to live
//! meta     name → number: see `Meta`
//! ```
//!
//! A store in memory is the same on a memory backend. Rows are the messages that etcd stores, so that hashes and
//! snapshots are functions of them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use grpc::Message;
use grpc::etcd::KeyValue;
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use redb::backends::InMemoryBackend;
use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use store::{Backend, Directory, OpenFile, quiet};

use crate::error::Error;
use crate::index::Revision;
use crate::selection::Rows;

pub type RowKey = (i64, u32);
pub const ROWS: TableDefinition<'static, RowKey, &[u8]> = TableDefinition::new("rows");
pub const LEASES: TableDefinition<'static, i64, i64> = TableDefinition::new("leases");
pub const META: TableDefinition<'static, &str, i64> = TableDefinition::new("meta");

/// The layout of the tables.
const FORMAT: i64 = 1;
/// Values are not cached elsewhere, and lists read many of them.
const CACHE_BYTES: usize = 32 << 20;

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Memory,
    Directory {
        path: PathBuf,
        /// Without syncs a crash of the machine may damage the file.
        sync: bool,
    },
}

/// The numbers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub cluster_id: u64,
    pub member_id: u64,
    pub revision: i64,
    /// -1 before the first compaction.
    pub compacted: i64,
    /// How many requests to write have been applied.
    pub applied: u64,
    /// A bit for each type of alarm that is raised.
    pub alarms: u32,
}

impl Meta {
    /// The name and number of each row.
    pub fn rows(&self) -> [(&'static str, i64); 7] {
        [
            ("format", FORMAT),
            ("cluster_id", self.cluster_id.cast_signed()),
            ("member_id", self.member_id.cast_signed()),
            ("revision", self.revision),
            ("compacted", self.compacted),
            ("applied", self.applied.cast_signed()),
            ("alarms", i64::from(self.alarms)),
        ]
    }

    fn read(table: &ReadOnlyTable<&'static str, i64>) -> Result<Self, OpenError> {
        let number = |name: &str| {
            let row = table.get(name).map_err(OpenError::damaged)?;
            row.map(|row| row.value()).ok_or_else(|| OpenError::Damaged(format!("{name} is missing")))
        };
        match number("format")? {
            FORMAT => {}
            other => return Err(OpenError::Format(other)),
        }
        Ok(Self {
            cluster_id: number("cluster_id")?.cast_unsigned(),
            member_id: number("member_id")?.cast_unsigned(),
            revision: number("revision")?,
            compacted: number("compacted")?,
            applied: number("applied")?.cast_unsigned(),
            alarms: u32::try_from(number("alarms")?).map_err(OpenError::damaged)?,
        })
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Store(#[from] store::StoreError),
    #[error("cannot open it: {0}")]
    Io(#[from] io::Error),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(i64),
    #[error(
        "{} is the data of an etcd, which this server does not read: give it another directory, and copy the keys with \
         pintle snapshot or etcdctl make-mirror",
        .0.display()
    )]
    Etcd(PathBuf),
}

impl OpenError {
    fn damaged(why: impl fmt::Display) -> Self {
        Self::Damaged(why.to_string())
    }
}

/// The contents of a file, row by row.
pub trait Loader {
    fn row(&mut self, at: Revision, kv: KeyValue) -> Result<(), String>;
    fn lease(&mut self, id: i64, ttl: i64);
}

/// See the module.
pub struct Database {
    /// Reads and writes share it; a compaction of the file excludes them. `None` after it was closed.
    file: RwLock<Option<OpenDatabase>>,
    size: Arc<AtomicU64>,
    directory: Option<PathBuf>,
}

/// The file, and the lock of its directory, which is dropped after it.
struct OpenDatabase {
    redb: redb::Database,
    _directory: Option<Directory>,
}

impl Database {
    /// Opens the file, or creates it with these numbers, and reads all of it.
    pub fn open(
        location: &Location,
        fresh: Meta,
        loader: &mut dyn Loader,
    ) -> Result<(Self, Meta), OpenError> {
        let size = Arc::new(AtomicU64::new(0));
        let directory = match location {
            Location::Memory => None,
            Location::Directory { path, .. } => {
                let of_etcd = path.join("member");
                if of_etcd.exists() {
                    return Err(OpenError::Etcd(of_etcd));
                }
                Some(Directory::open(path)?)
            }
        };
        let OpenFile { storage, fresh: is_fresh } = match &directory {
            None => OpenFile { storage: Box::new(InMemoryBackend::new()), fresh: true },
            Some(directory) => directory.open()?,
        };
        let sync = matches!(location, Location::Directory { sync: true, .. });
        let storage = SizedStorage { storage, sync, size: size.clone() };
        let opened = quiet::call(|| open_redb(storage, is_fresh, fresh, loader));
        let (redb, meta) = opened.unwrap_or_else(|panic| Err(OpenError::damaged(quiet::message(&*panic))))?;
        if let (true, Some(directory)) = (is_fresh, &directory) {
            directory.install()?;
        }
        let path = directory.as_ref().and_then(|it| it.path().parent()).map(Path::to_owned);
        let file = RwLock::new(Some(OpenDatabase { redb, _directory: directory }));
        Ok((Self { file, size, directory: path }, meta))
    }

    /// Closes the file and releases its directory once the reads that go on have ended.
    pub fn close(&self) {
        let file = self.file.write().take();
        if let Err(panic) = quiet::call(|| drop(file)) {
            tracing::warn!(panic = quiet::message(&*panic), "closing the store's file failed");
        }
    }

    fn open_file(&self) -> Result<MappedRwLockReadGuard<'_, redb::Database>, Error> {
        let open = RwLockReadGuard::try_map(self.file.read(), |file| file.as_ref().map(|it| &it.redb));
        open.map_err(|_| Error::Stopped)
    }

    /// The size of the file.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The size without free pages, as of the last transaction.
    pub fn size_in_use(&self) -> Result<u64, Error> {
        let redb = self.open_file()?;
        let transaction = redb.begin_write().map_err(redb::Error::from)?;
        let stats = transaction.stats().map_err(redb::Error::from)?;
        transaction.abort().map_err(redb::Error::from)?;
        Ok(stats.allocated_pages() * stats.page_size() as u64)
    }

    /// Where temporary files may be made; `None` in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Begins a read of the rows that are durable now.
    pub fn read(&self) -> Result<RowReader<'_>, Error> {
        let redb = self.open_file()?;
        let transaction = redb.begin_read().map_err(redb::Error::from)?;
        let rows = transaction.open_table(ROWS).map_err(redb::Error::from)?;
        Ok(RowReader { rows, transaction, _redb: redb })
    }

    /// Runs a write; it is committed, and durable on return, if `change` returns true.
    pub fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let redb = self.open_file()?;
        let transaction = redb.begin_write().map_err(redb::Error::from)?;
        if change(&transaction)? {
            transaction.commit().map_err(redb::Error::from)?;
        } else {
            transaction.abort().map_err(redb::Error::from)?;
        }
        Ok(())
    }

    /// Moves pages into free space and shortens the file. Reads and writes wait for it.
    pub fn defragment(&self) -> Result<(), Error> {
        let mut file = self.file.write();
        let open = file.as_mut().ok_or(Error::Stopped)?;
        open.redb.compact().map(drop).map_err(|error| redb::Error::from(error).into())
    }
}

fn open_redb(
    storage: SizedStorage,
    is_fresh: bool,
    fresh: Meta,
    loader: &mut dyn Loader,
) -> Result<(redb::Database, Meta), OpenError> {
    if !is_fresh && storage.len()? == 0 {
        return Err(OpenError::damaged("the file is empty"));
    }
    let repaired = Arc::new(AtomicBool::new(false));
    let seen = repaired.clone();
    let mut redb = redb::Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |_| seen.store(true, Ordering::Relaxed))
        .create_with_backend(storage)
        .map_err(OpenError::damaged)?;
    if is_fresh {
        create_tables(&redb, fresh).map_err(OpenError::damaged)?;
        return Ok((redb, fresh));
    }
    let meta = load(&redb, loader)?;
    // after an unclean end redb has verified its pages itself
    if !repaired.load(Ordering::Relaxed) && !redb.check_integrity().map_err(OpenError::damaged)? {
        tracing::warn!("the free list of the store's file was damaged and rebuilt");
    }
    Ok((redb, meta))
}

fn create_tables(redb: &redb::Database, meta: Meta) -> Result<(), redb::Error> {
    let transaction = redb.begin_write()?;
    transaction.open_table(ROWS)?;
    transaction.open_table(LEASES)?;
    write_meta(&transaction, meta)?;
    transaction.commit()?;
    Ok(())
}

/// Sets the numbers in a transaction.
pub fn write_meta(transaction: &redb::WriteTransaction, meta: Meta) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(META)?;
    for (name, number) in meta.rows() {
        table.insert(name, number)?;
    }
    Ok(())
}

fn load(redb: &redb::Database, loader: &mut dyn Loader) -> Result<Meta, OpenError> {
    let transaction = redb.begin_read().map_err(OpenError::damaged)?;
    let meta = Meta::read(&transaction.open_table(META).map_err(OpenError::damaged)?)?;
    let leases = transaction.open_table(LEASES).map_err(OpenError::damaged)?;
    for lease in leases.iter().map_err(OpenError::damaged)? {
        let (id, ttl) = lease.map_err(OpenError::damaged)?;
        loader.lease(id.value(), ttl.value());
    }
    let rows = transaction.open_table(ROWS).map_err(OpenError::damaged)?;
    for row in rows.iter().map_err(OpenError::damaged)? {
        let (at, row) = row.map_err(OpenError::damaged)?;
        let (main, sub) = at.value();
        if main > meta.revision {
            return Err(OpenError::damaged(format!(
                "revision {main} is beyond the newest, {}",
                meta.revision
            )));
        }
        let kv = KeyValue::decode(row.value()).map_err(OpenError::damaged)?;
        loader.row(Revision { main, sub }, kv).map_err(OpenError::Damaged)?;
    }
    Ok(meta)
}

/// A read of rows; it sees what was durable when it began.
pub struct RowReader<'a> {
    rows: ReadOnlyTable<RowKey, &'static [u8]>,
    transaction: redb::ReadTransaction,
    _redb: MappedRwLockReadGuard<'a, redb::Database>,
}

impl Rows for RowReader<'_> {
    fn row(&self, at: Revision) -> Result<KeyValue, Error> {
        decode_row(self.rows.get((at.main, at.sub)), at)
    }
}

impl RowReader<'_> {
    /// Visits the rows of these revisions, both included, in order, until `visit` returns false.
    pub fn visit(
        &self,
        (first, last): (i64, i64),
        visit: &mut dyn FnMut(Revision, &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        if first > last {
            return Ok(());
        }
        let rows = self.rows.range((first, 0)..=(last, u32::MAX)).map_err(redb::Error::from)?;
        for row in rows {
            let (at, row) = row.map_err(redb::Error::from)?;
            let (main, sub) = at.value();
            if !visit(Revision { main, sub }, row.value())? {
                break;
            }
        }
        Ok(())
    }

    /// All leases: id and seconds to live.
    pub fn leases(&self) -> Result<Vec<(i64, i64)>, Error> {
        let read = || -> Result<_, redb::Error> {
            let table = self.transaction.open_table(LEASES)?;
            let mut leases = Vec::new();
            for lease in table.iter()? {
                let (id, ttl) = lease?;
                leases.push((id.value(), ttl.value()));
            }
            Ok(leases)
        };
        Ok(read()?)
    }

    /// The numbers of the store at the time of the read.
    pub fn meta(&self) -> Result<Meta, Error> {
        let table = self.transaction.open_table(META).map_err(redb::Error::from)?;
        Meta::read(&table).map_err(|error| Error::Storage(error.to_string()))
    }
}

/// Decodes the result of a lookup by revision.
pub fn decode_row<G: AsRow>(
    row: Result<Option<G>, redb::StorageError>,
    at: Revision,
) -> Result<KeyValue, Error> {
    let row = row.map_err(redb::Error::from)?;
    let row =
        row.ok_or_else(|| Error::Storage(format!("revision {} is missing in the store's file", at.main)))?;
    KeyValue::decode(row.bytes()).map_err(|error| Error::Storage(format!("revision {}: {error}", at.main)))
}

/// The bytes of a row that was found.
pub trait AsRow {
    fn bytes(&self) -> &[u8];
}

impl AsRow for redb::AccessGuard<'_, &'static [u8]> {
    fn bytes(&self) -> &[u8] {
        self.value()
    }
}

/// A storage that tracks its length, and may leave out syncs.
struct SizedStorage {
    storage: Box<dyn StorageBackend>,
    sync: bool,
    size: Arc<AtomicU64>,
}

impl fmt::Debug for SizedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.storage.fmt(f)
    }
}

impl StorageBackend for SizedStorage {
    fn len(&self) -> io::Result<u64> {
        let len = self.storage.len()?;
        self.size.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.set_len(len)?;
        self.size.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.sync { self.storage.sync_data() } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.storage.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.storage.close()
    }
}
