//! A snapshot: the store as the file of an etcd, which etcd's own tools restore.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;

use bytes::Bytes;
use grpc::Message;
use grpc::etcd::{AlarmMember, AlarmType, SnapshotResponse, StoredLease};
use sha2::{Digest, Sha256};

use crate::bolt::BoltWriter;
use crate::database::{Meta, RowReader};
use crate::error::Error;
use crate::index::Revision;
use crate::shared::{Shared, TERM, decode_change};
use crate::stored_form::revision_key;

/// The bytes of one response.
const CHUNK: usize = 32 << 10;

/// A file that can be written and read back.
trait ReadWrite: Read + Write + Seek + Send {}
impl<T: Read + Write + Seek + Send> ReadWrite for T {}

/// A snapshot that has been made, and is sent in parts.
pub struct Snapshot {
    file: Box<dyn ReadWrite>,
    remaining: u64,
    hash: Option<Sha256>,
}

impl Snapshot {
    /// Makes the file: in the data directory, where it has no name, or in memory.
    pub fn new(shared: &Shared) -> Result<Self, Error> {
        let mut file: Box<dyn ReadWrite> = match shared.database.directory() {
            Some(directory) => Box::new(unnamed_file(directory).map_err(failure)?),
            None => Box::new(Cursor::new(Vec::new())),
        };
        let rows = shared.database.read()?;
        write(&rows, BufWriter::with_capacity(1 << 20, &mut file))?;
        drop(rows);
        let remaining = file.seek(SeekFrom::End(0)).map_err(failure)?;
        file.seek(SeekFrom::Start(0)).map_err(failure)?;
        Ok(Self { file, remaining, hash: Some(Sha256::new()) })
    }

    /// The next part; the last one is the hash of all others.
    pub fn next_part(&mut self) -> Result<Option<SnapshotResponse>, Error> {
        let Some(hash) = &mut self.hash else { return Ok(None) };
        if self.remaining == 0 {
            let sum = self.hash.take().map(|hash| hash.finalize().to_vec()).unwrap_or_default();
            return Ok(Some(SnapshotResponse { blob: Bytes::from(sum), ..Default::default() }));
        }
        let mut part = vec![0; CHUNK.min(usize::try_from(self.remaining).unwrap_or(CHUNK))];
        self.file.read_exact(&mut part).map_err(failure)?;
        hash.update(&part);
        self.remaining -= part.len() as u64;
        let remaining_bytes = self.remaining;
        Ok(Some(SnapshotResponse { remaining_bytes, blob: Bytes::from(part), ..Default::default() }))
    }
}

fn failure(error: io::Error) -> Error {
    // what a snapshot lacks says nothing about the store's own file
    Error::Snapshot(error.to_string())
}

fn unnamed_file(directory: &Path) -> io::Result<fs::File> {
    let path = directory.join("snapshot.tmp");
    // left over from a process that was killed
    let _ = fs::remove_file(&path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn write(rows: &RowReader<'_>, out: impl Write + Seek) -> Result<(), Error> {
    let meta = rows.meta()?;
    let mut file = BoltWriter::new(out).map_err(failure)?;
    let mut alarms = file.bucket("alarm");
    for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
        if meta.alarms & (1 << alarm as u32) != 0 {
            let member = AlarmMember { member_id: meta.member_id, alarm: alarm.into() };
            alarms.put(&member.encode_to_vec(), &[]).map_err(failure)?;
        }
    }
    alarms.finish().map_err(failure)?;
    for empty in ["auth", "authRoles", "authUsers", "cluster"] {
        file.bucket(empty).finish().map_err(failure)?;
    }
    let mut keys = file.bucket("key");
    rows.visit((0, i64::MAX), &mut |at, row| {
        let is_deletion = decode_change(at, row)?.version == 0;
        keys.put(&revision_key(at, is_deletion), row).map_err(failure)?;
        Ok(true)
    })?;
    keys.finish().map_err(failure)?;
    let mut leases = file.bucket("lease");
    let mut stored = rows.leases()?;
    // the bytes of negative ids come last
    stored.sort_by_key(|(id, _)| id.cast_unsigned());
    for (id, ttl) in stored {
        leases.put(&id.to_be_bytes(), &StoredLease { id, ttl }.encode_to_vec()).map_err(failure)?;
    }
    leases.finish().map_err(failure)?;
    for empty in ["members", "members_removed"] {
        file.bucket(empty).finish().map_err(failure)?;
    }
    let mut numbers = file.bucket("meta");
    for (name, bytes) in meta_rows(&meta) {
        numbers.put(name.as_bytes(), &bytes).map_err(failure)?;
    }
    numbers.finish().map_err(failure)?;
    file.finish().map_err(failure)?;
    Ok(())
}

/// The numbers of an etcd, in the order of their names.
fn meta_rows(meta: &Meta) -> Vec<(&'static str, Vec<u8>)> {
    let mut rows = vec![("consistent_index", meta.applied.to_be_bytes().to_vec())];
    if meta.compacted > 0 {
        let compacted = revision_key(Revision { main: meta.compacted, sub: 0 }, false);
        rows.push(("finishedCompactRev", compacted.clone()));
        rows.push(("scheduledCompactRev", compacted));
    }
    rows.push(("term", TERM.to_be_bytes().to_vec()));
    rows
}
