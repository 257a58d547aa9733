//! The format of the file: formats 1 to 3 stay as they are, a newer one is refused with a sentence and left unchanged.

use super::{Running, world};
use crate::record::{FORMAT, Meta, Record, StoredValue};
use crate::{BuildId, Expect, Options, Revision, StoreError, Write, embedded};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

fn open(directory: &Path) -> Result<Running, StoreError> {
    open_with(directory, &Options::default())
}

fn open_with(directory: &Path, options: &Options) -> Result<Running, StoreError> {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store = embedded::open(directory, options, world, &mut |record| recovered.push(record))?;
    Ok(Running::new(simulated, Arc::new(store), recovered))
}

/// Writes another format number into the meta row, with a right checksum.
fn set_format(directory: &Path, format: u8) {
    let database = Database::open(directory.join("store.redb")).unwrap();
    let mut row = {
        let read = database.begin_read().unwrap();
        read.open_table(META).unwrap().get("store").unwrap().unwrap().value().to_vec()
    };
    row[0] = format;
    let body = row.len() - 4;
    let checksum = crc32fast::hash(&row[..body]).to_le_bytes();
    row[body..].copy_from_slice(&checksum);
    let write = database.begin_write().unwrap();
    write.open_table(META).unwrap().insert("store", &*row).unwrap();
    write.commit().unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let run = open(directory.path()).unwrap();
    run.store.write(Write::put("/registry/a".to_owned(), Expect::Any, b"{}".to_vec())).await.unwrap();
    run.store.close().await;
    drop(run);
    set_format(directory.path(), FORMAT + 1);
    for _ in 0..2 {
        let Err(error) = open(directory.path()) else { panic!("the newer format was opened") };
        let sentence = format!("the store has format {}, and this version reads format {FORMAT}", FORMAT + 1);
        assert!(error.to_string().ends_with(&sentence), "{error}");
    }
    // the version that wrote it finds everything
    set_format(directory.path(), FORMAT);
    let run = open(directory.path()).unwrap();
    assert_eq!(run.recovered.len(), 1);
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn record<'a>(value: StoredValue<'a>, encoded_by: Option<BuildId>) -> Record<'a> {
    Record {
        revision: Revision(7),
        key: "/registry/a",
        value: Some(value),
        previous: Some(Revision(3)),
        at: 1_700_000_000,
        expires_at: Some(1_700_000_060),
        encoded_by,
        summary: b"",
    }
}

fn meta() -> Meta {
    let mut meta = Meta { oldest: 3, newest: 9, ..Meta::new([7; 16]) };
    meta.add(9);
    meta
}

/// Every commit before format 2 has written this format: it is read for ever.
#[test]
fn format_1_is_these_bytes() {
    let plain = record(StoredValue::Plain(b"{}"), None);
    let pinned = bytes(concat!(
        "010600f15365000000003cf153650000000003000000000000000b002f72656769737472792f617b",
        "7d5542a462"
    ));
    assert_eq!(Record::decode(Revision(7), &pinned), Ok(plain));
    let mut encoded = Vec::new();
    plain.encode(&mut encoded);
    assert_eq!(encoded, pinned, "records that need no more are still written so");
    let pinned = bytes(concat!(
        "01070707070707070707070707070707070300000000000000090000000000000001000000000000",
        "00646070befe52afae63fe7db8"
    ));
    assert_eq!(Meta::decode(&pinned), Ok(meta()));
}

/// It is read for ever, and still written for values without a summary.
#[test]
fn format_2_is_these_bytes() {
    let build = NonZeroU64::new(0x0102_0304_0506_0708).map(BuildId);
    for (value, encoded_by, pinned) in [
        (
            StoredValue::Plain(b"{}"),
            build,
            "020600f15365000000003cf153650000000003000000000000000b0008070605040302012f72656769737472792f617b7d35439610",
        ),
        (
            StoredValue::Packed(b"\x02\0\0\0\x20{}"),
            None,
            "020e00f15365000000003cf153650000000003000000000000000b0000000000000000002f72656769737472792f6102000000207b7d2e20bf4b",
        ),
    ] {
        let record = record(value, encoded_by);
        assert_eq!(Record::decode(Revision(7), &bytes(pinned)), Ok(record));
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(encoded, bytes(pinned));
        assert_eq!(record.recovered(true).unwrap().value.unwrap(), "{}");
    }
    let pinned = "0207070707070707070707070707070707030000000000000009000000000000000100000000000000646070befe52afae1789e4f2";
    assert_eq!(Meta::decode(&bytes(pinned)), Ok(meta()));
}

/// A change of these bytes needs another number, and a reader of this one.
#[test]
fn format_3_is_these_bytes() {
    assert_eq!(FORMAT, 3);
    let build = NonZeroU64::new(0x0102_0304_0506_0708).map(BuildId);
    for (value, pinned) in [
        (
            StoredValue::Plain(b"{}"),
            "030600f15365000000003cf153650000000003000000000000000b00080706050403020103002f72656769737472792f6173756d7b7d87e306ff",
        ),
        (
            StoredValue::Packed(b"\x02\0\0\0\x20{}"),
            "030e00f15365000000003cf153650000000003000000000000000b00080706050403020103002f72656769737472792f6173756d02000000207b7d69e252b9",
        ),
    ] {
        let record = Record { summary: b"sum", ..record(value, build) };
        assert_eq!(Record::decode(Revision(7), &bytes(pinned)), Ok(record));
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(encoded, bytes(pinned));
        assert_eq!(record.recovered(false).unwrap().value.unwrap(), "{}");
    }
    let pinned = "0307070707070707070707070707070707030000000000000009000000000000000100000000000000646070befe52afae04a6bc7d";
    assert_eq!(meta().encode(), bytes(pinned));
}

#[tokio::test]
async fn stores_of_formats_1_and_2_are_opened_and_go_on_in_format_3() {
    goes_on_from(1).await;
    goes_on_from(2).await;
}

async fn goes_on_from(format: u8) {
    let directory = tempfile::tempdir().unwrap();
    let value = |n: u8| format!("{{\"n\":{n}{}}}", " ".repeat(3000)).into_bytes();
    let run = open(directory.path()).unwrap();
    for n in 0..4 {
        run.store.write(Write::put(format!("/registry/{n}"), Expect::Any, value(n))).await.unwrap();
    }
    run.store.close().await;
    drop(run);
    // without summaries, compression and builds, only the number in the meta row differs from what earlier versions wrote
    set_format(directory.path(), format);
    let options = Options { compress_from: 1024, leave_packed: true, ..Options::default() };
    let run = open_with(directory.path(), &options).unwrap();
    assert_eq!(run.recovered.len(), 4);
    let mut write = Write::put("/registry/4".to_owned(), Expect::Any, value(4));
    write.encoded_by = NonZeroU64::new(5).map(BuildId);
    write.summary = "summary".into();
    run.store.write(write).await.unwrap();
    run.store.close().await;
    drop(run);
    for packed in [false, true] {
        let options = Options { leave_packed: packed, ..options.clone() };
        let mut run = open_with(directory.path(), &options).unwrap();
        assert_eq!(run.recovered.len(), 5);
        for (n, record) in (0..).zip(&mut run.recovered) {
            let own = record.encoded_by.as_ref().map(|it| (&*it.summary, it.is_packed));
            assert_eq!(own, (n == 4).then_some((&b"summary"[..], packed)));
            record.unpack().unwrap();
            assert_eq!(record.value.as_deref(), Some(&*value(n)));
        }
        run.store.close().await;
    }
}
