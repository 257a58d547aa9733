//! The file of a snapshot: written beside its place, read back, and only then put there.

use crate::files;
use anyhow::Context as _;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use store::snapshot::{Reader, Summary};
use store::{SnapshotRecord, StoreError};

/// The bytes of records in a page.
const PAGE_BYTES: usize = 1 << 20;

/// Writes the bytes of a snapshot to a file, if they are whole.
pub async fn write(
    path: &Path,
    pieces: impl Stream<Item = anyhow::Result<Bytes>>,
) -> anyhow::Result<Summary> {
    let temporary = PathBuf::from(format!("{}.part", path.display()));
    let written = write_and_verify(&temporary, path, pieces).await;
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

async fn write_and_verify(
    temporary: &Path,
    path: &Path,
    pieces: impl Stream<Item = anyhow::Result<Bytes>>,
) -> anyhow::Result<Summary> {
    let failed = || format!("cannot write {}", temporary.display());
    // left behind by one that was interrupted
    let _ = fs::remove_file(temporary);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary);
    let mut file = BufWriter::with_capacity(1 << 20, file.with_context(failed)?);
    let mut pieces = pin!(pieces);
    while let Some(piece) = pieces.next().await {
        file.write_all(&piece?).with_context(failed)?;
    }
    let file = file.into_inner().map_err(|why| why.into_error()).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    let summary = verify(temporary)?;
    fs::rename(temporary, path).with_context(|| format!("cannot write {}", path.display()))?;
    files::sync_directory(files::directory_of(path))?;
    Ok(summary)
}

/// Reads a file to its end, and checks its digest.
pub fn verify(path: &Path) -> anyhow::Result<Summary> {
    let shown = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let reader = Reader::new(BufReader::with_capacity(1 << 20, file)).with_context(shown)?;
    reader.finish().with_context(shown)
}

/// The records of a file that was verified.
pub fn pages<R: Read>(
    reader: Reader<R>,
) -> impl Stream<Item = Result<Vec<SnapshotRecord>, StoreError>> + use<R> {
    stream::iter(Pages(Some(reader)))
}

struct Pages<R>(Option<Reader<R>>);

impl<R: Read> Iterator for Pages<R> {
    type Item = Result<Vec<SnapshotRecord>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.0.as_mut()?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while bytes < PAGE_BYTES {
            match reader.next_record() {
                Ok(Some(record)) => {
                    bytes += record.size();
                    page.push(record);
                }
                Ok(None) => {
                    self.0 = None;
                    break;
                }
                Err(why) => {
                    self.0 = None;
                    return Some(Err(StoreError::Unavailable(format!("the snapshot: {why}"))));
                }
            }
        }
        (!page.is_empty()).then_some(Ok(page))
    }
}

/// What a file contains, as a line.
pub fn describe(summary: &Summary) -> String {
    format!(
        "{} objects of revision {}, taken at {} ({} bytes, sha256 {})",
        summary.records,
        summary.revision,
        schema::time::format_time(summary.taken_at),
        summary.bytes,
        hex(&summary.digest)
    )
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
