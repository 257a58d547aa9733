//! A snapshot: the values of all keys at one revision, and the file that keeps them.
//!
//! ```text
//! file:    magic 8 | format 1 | revision 8 | taken_at 8 | entries | 0 4 | count 8 | SHA-256 of all before it 32
//! entry:   length 4 | revision 8 | record (see `record`)
//! ```
//!
//! Integers are little-endian. Entries are in no particular order. A file that was cut off or changed does not
//! have the right digest, and is refused as a whole.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use sha2::{Digest, Sha256};

use crate::record::{Record, StoredValue, record_len};
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Revision, StoreError};

const MAGIC: &[u8; 8] = b"pintle\x00\xf5";
const FORMAT: u8 = 1;
const HEADER: usize = 8 + 1 + 8 + 8;
/// No entry is longer.
const MAX_ENTRY: usize = 64 + MAX_KEY_BYTES + MAX_VALUE_BYTES;

/// Pages of the records of a snapshot, in any order.
pub type Pages = Pin<Box<dyn Stream<Item = Result<Vec<SnapshotRecord>, StoreError>> + Send>>;

/// The state of a store at one revision.
pub struct Snapshot {
    pub revision: Revision,
    pub pages: Pages,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The revision of the key's last write.
    pub revision: Revision,
    pub key: Arc<str>,
    pub value: Bytes,
    /// When it was written, in Unix seconds.
    pub at: i64,
    pub expires_at: Option<i64>,
}

impl SnapshotRecord {
    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            revision: self.revision,
            key: &self.key,
            value: Some(StoredValue::Plain(&self.value)),
            previous: None,
            at: self.at,
            expires_at: self.expires_at,
            encoded_by: None,
            summary: b"",
        }
    }

    /// The bytes that it takes in a file.
    pub fn size(&self) -> usize {
        4 + 8 + record_len(&self.key, Some(StoredValue::Plain(&self.value)), None, b"")
    }
}

/// What a snapshot file says about itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub revision: Revision,
    /// When it was taken, in Unix seconds.
    pub taken_at: i64,
    pub records: u64,
    /// The bytes of the file.
    pub bytes: u64,
    pub digest: [u8; 32],
}

/// Why a snapshot file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("it is not a snapshot")]
    Foreign,
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(u8),
    #[error("it is incomplete or damaged: {0}")]
    Damaged(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Makes the bytes of a file, piece by piece.
pub struct Encoder {
    digest: Sha256,
    records: u64,
    scratch: Vec<u8>,
}

impl Encoder {
    /// An encoder, and the first bytes.
    pub fn new(revision: Revision, taken_at: i64) -> (Self, Bytes) {
        let mut header = BytesMut::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&[FORMAT]);
        header.extend_from_slice(&revision.0.to_le_bytes());
        header.extend_from_slice(&taken_at.to_le_bytes());
        let mut encoder = Self { digest: Sha256::new(), records: 0, scratch: Vec::new() };
        encoder.digest.update(&header);
        (encoder, header.freeze())
    }

    /// The bytes of a page.
    pub fn page(&mut self, records: &[SnapshotRecord]) -> Bytes {
        let mut out = BytesMut::with_capacity(records.iter().map(SnapshotRecord::size).sum());
        for record in records {
            record.record().encode(&mut self.scratch);
            out.extend_from_slice(&((self.scratch.len() + 8) as u32).to_le_bytes());
            out.extend_from_slice(&record.revision.0.to_le_bytes());
            out.extend_from_slice(&self.scratch);
        }
        self.records += records.len() as u64;
        self.digest.update(&out);
        out.freeze()
    }

    /// The last bytes.
    pub fn finish(mut self) -> Bytes {
        let mut end = BytesMut::with_capacity(4 + 8 + 32);
        end.extend_from_slice(&0_u32.to_le_bytes());
        end.extend_from_slice(&self.records.to_le_bytes());
        self.digest.update(&end);
        end.extend_from_slice(&self.digest.finalize());
        end.freeze()
    }
}

/// Reads a file record by record. The records are valid only if [`Reader::finish`] then succeeds.
pub struct Reader<R> {
    source: R,
    digest: Sha256,
    summary: Summary,
    ended: bool,
}

impl<R: Read> Reader<R> {
    pub fn new(source: R) -> Result<Self, SnapshotError> {
        let summary = Summary { revision: Revision(0), taken_at: 0, records: 0, bytes: 0, digest: [0; 32] };
        let mut reader = Self { source, digest: Sha256::new(), summary, ended: false };
        let magic: [u8; 8] = reader.take().map_err(|_| SnapshotError::Foreign)?;
        if &magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let [format] = reader.take()?;
        if format != FORMAT {
            return Err(SnapshotError::Format(format));
        }
        reader.summary.revision = Revision(u64::from_le_bytes(reader.take()?));
        reader.summary.taken_at = i64::from_le_bytes(reader.take()?);
        Ok(reader)
    }

    /// The revision of the snapshot.
    pub fn revision(&self) -> Revision {
        self.summary.revision
    }

    /// The next record; `None` at the end.
    pub fn next_record(&mut self) -> Result<Option<SnapshotRecord>, SnapshotError> {
        if self.ended {
            return Ok(None);
        }
        let length = u32::from_le_bytes(self.take()?) as usize;
        if length == 0 {
            self.ended = true;
            return Ok(None);
        }
        if !(8..=MAX_ENTRY).contains(&length) {
            return Err(SnapshotError::Damaged(format!("an entry of {length} bytes")));
        }
        let revision = Revision(u64::from_le_bytes(self.take()?));
        let mut bytes = vec![0; length - 8];
        self.fill(&mut bytes)?;
        let record = Record::decode(revision, &bytes).map_err(SnapshotError::Damaged)?;
        let Some(value) = record.value else {
            return Err(SnapshotError::Damaged(format!("revision {revision} is a deletion")));
        };
        if revision > self.summary.revision {
            return Err(SnapshotError::Damaged(format!(
                "revision {revision} is after that of the snapshot, {}",
                self.summary.revision
            )));
        }
        let value = value.to_vec(0).map_err(SnapshotError::Damaged)?;
        self.summary.records += 1;
        Ok(Some(SnapshotRecord {
            revision,
            key: record.key.into(),
            value: value.into(),
            at: record.at,
            expires_at: record.expires_at,
        }))
    }

    /// Verifies that the file is whole, reading what is left of it.
    pub fn finish(mut self) -> Result<Summary, SnapshotError> {
        while self.next_record()?.is_some() {}
        let records = u64::from_le_bytes(self.take()?);
        if records != self.summary.records {
            return Err(SnapshotError::Damaged(format!(
                "it holds {} records where {records} were written",
                self.summary.records
            )));
        }
        let digest: [u8; 32] = self.digest.clone().finalize().into();
        let mut written = [0; 32];
        self.source.read_exact(&mut written).map_err(cut_off)?;
        if written != digest {
            return Err(SnapshotError::Damaged("its bytes do not match its digest".to_owned()));
        }
        if self.source.read(&mut [0])? != 0 {
            return Err(SnapshotError::Damaged("there is more after its end".to_owned()));
        }
        Ok(Summary { digest, bytes: self.summary.bytes + 32, ..self.summary })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        self.source.read_exact(bytes).map_err(cut_off)?;
        self.digest.update(&*bytes);
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn cut_off(error: io::Error) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Damaged("it is cut off".to_owned()),
        _ => SnapshotError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<SnapshotRecord> {
        let record = |revision, key: &str, value: &'static [u8], expires_at| SnapshotRecord {
            revision: Revision(revision),
            key: key.into(),
            value: Bytes::from_static(value),
            at: 1_700_000_000,
            expires_at,
        };
        vec![record(2, "/a", b"x", None), record(7, "/b", b"", Some(1_700_003_600))]
    }

    fn file() -> Vec<u8> {
        let (mut encoder, header) = Encoder::new(Revision(9), 1_700_000_001);
        let records = records();
        let pages = [encoder.page(&records[..1]), encoder.page(&records[1..])].concat();
        [header, pages.into(), encoder.finish()].concat()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<SnapshotRecord>, Summary), SnapshotError> {
        let mut reader = Reader::new(bytes)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok((records, reader.finish()?))
    }

    #[test]
    fn a_file_reads_back() {
        let file = file();
        let (read, summary) = read(&file).unwrap();
        assert_eq!(read, records());
        assert_eq!((summary.revision, summary.taken_at, summary.records), (Revision(9), 1_700_000_001, 2));
        assert_eq!(summary.bytes, file.len() as u64);
        assert_eq!(Reader::new(&*file).unwrap().finish().unwrap(), summary, "without looking at the records");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let file = file();
        for end in 0..file.len() {
            assert!(read(&file[..end]).is_err(), "cut at {end}");
        }
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        assert!(read(&[&*file, b"x"].concat()).unwrap_err().to_string().contains("more after its end"));
        assert!(matches!(read(b"SQLite format 3\0"), Err(SnapshotError::Foreign)));
        let mut newer = file;
        newer[8] = FORMAT + 1;
        assert!(matches!(read(&newer), Err(SnapshotError::Format(2))));
    }
}
