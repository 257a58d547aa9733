//! Snapshots: what was written is read, a changed file is refused, and no file is read beyond its end.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use store::snapshot::{Encoder, Reader, SnapshotError};
use store::{Revision, SnapshotRecord};

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    if choice % 2 == 0 {
        // with a digest, or no mutation would get far
        let _ = read(&[rest, &Sha256::digest(rest)].concat());
        return;
    }
    let (changes, content) = rest.split_at(rest.len().min(4));
    let records: Vec<SnapshotRecord> = content.split(|byte| *byte == 0).enumerate().map(record).collect();
    let (mut encoder, head) = Encoder::new(Revision(records.len() as u64), 1_700_000_000);
    let page = encoder.page(&records);
    let whole = [head, page, encoder.finish()].concat();
    assert!(read(&whole).expect("own snapshot") == records);
    let changed = fuzz::mutated(&whole, changes);
    assert_eq!(read(&changed).is_ok(), changed == whole);
});

fn read(bytes: &[u8]) -> Result<Vec<SnapshotRecord>, SnapshotError> {
    let (mut records, mut reader) = (Vec::new(), Reader::new(bytes)?);
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    reader.finish().map(|_| records)
}

fn record((at, content): (usize, &[u8])) -> SnapshotRecord {
    SnapshotRecord {
        revision: Revision(at as u64 + 1),
        key: format!("/registry/{at}").into(),
        value: Bytes::copy_from_slice(content),
        at: at as i64,
        expires_at: (content.len() % 2 == 0).then_some(7),
    }
}
