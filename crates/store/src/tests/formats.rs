//! The format of the file: format 1 stays as it is, a newer one is refused with a sentence and left unchanged.

use super::{Running, world};
use crate::record::{FORMAT, Meta, Record};
use crate::{Expect, Options, Revision, StoreError, Write, embedded};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::Path;
use std::sync::Arc;

const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

fn open(directory: &Path) -> Result<Running, StoreError> {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store = embedded::open(directory, &Options::default(), world, &mut |record| recovered.push(record))?;
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every earlier commit has written this format: a change of these bytes needs another number, and a reader of this one.
#[test]
fn format_1_is_these_bytes() {
    assert_eq!(FORMAT, 1);
    let record = Record {
        revision: Revision(7),
        key: "/registry/a",
        value: Some(b"{}"),
        previous: Some(Revision(3)),
        at: 1_700_000_000,
        expires_at: Some(1_700_000_060),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(
        hex(&bytes),
        concat!(
            "010600f15365000000003cf153650000000003000000000000000b002f72656769737472792f617b",
            "7d5542a462"
        )
    );
    let mut meta = Meta { oldest: 3, newest: 9, ..Meta::new([7; 16]) };
    meta.add(9);
    assert_eq!(
        hex(&meta.encode()),
        concat!(
            "01070707070707070707070707070707070300000000000000090000000000000001000000000000",
            "00646070befe52afae63fe7db8"
        )
    );
}
