//! Where objects go: a new embedded store, or an etcd.

use super::progress::Progress;
use crate::data_dir::store_directory;
use crate::files;
use anyhow::Context as _;
use env::World;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use store::{Expect, Revision, Snapshot, SnapshotRecord, Store as _, StoreError, Write};
use tokio::runtime::Handle;

/// Writes to an etcd that are in flight at once.
const WRITES: usize = 64;
/// How values that are encrypted at rest begin.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Makes the store of a data directory. Returns the number of objects.
pub async fn write_to_directory(
    directory: &Path,
    newest: Revision,
    snapshot: Snapshot,
    world: &World,
) -> anyhow::Result<u64> {
    files::private_directory(directory)
        .with_context(|| format!("cannot create the data directory {}", directory.display()))?;
    let _lock = files::lock_directory(directory)?;
    let (store, world) = (store_directory(directory), world.clone());
    anyhow::ensure!(
        !store.join("store.redb").exists(),
        "{} exists: move it away first",
        store.join("store.redb").display()
    );
    let handle = Handle::current();
    let copy = move || {
        let mut progress = Progress::new("Restored", "objects", &world);
        let mut pages = snapshot.pages;
        let mut page = Vec::new().into_iter();
        let mut records = std::iter::from_fn(|| {
            loop {
                if let Some(record) = page.next() {
                    progress.add(1);
                    return Some(Ok::<SnapshotRecord, anyhow::Error>(record));
                }
                match handle.block_on(pages.next())? {
                    Ok(next) => page = next.into_iter(),
                    Err(why) => return Some(Err(why.into())),
                }
            }
        });
        store::embedded::restore(&store, newest, &mut records, &world)
    };
    tokio::task::spawn_blocking(copy).await?
}

/// Writes all objects to an etcd that has no others. Returns their number.
pub async fn write_to_etcd(
    options: store_etcd::Options,
    snapshot: Snapshot,
    world: &World,
) -> anyhow::Result<u64> {
    let is_renamed = options.renames().is_some();
    let (etcd, present) = store_etcd::open(options, world.clone()).await?;
    let present: HashMap<_, _> = present.into_iter().map(|it| (it.key, it.value)).collect();
    let etcd = Arc::new(etcd);
    etcd.start(Box::new(|_| ()))?;
    let mut progress = Progress::new("Written", "objects", world);
    let mut count = 0;
    let records = snapshot.pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten();
    let writes = records.map(|record: Result<SnapshotRecord, StoreError>| {
        let (etcd, present) = (etcd.clone(), &present);
        async move {
            let record = record?;
            anyhow::ensure!(
                !is_renamed || !record.value.starts_with(ENCRYPTED),
                "{} is encrypted, which binds its value to its key: use the prefix /registry",
                record.key
            );
            match present.get(&record.key) {
                Some(value) if value.as_ref() == Some(&record.value) => return Ok(()),
                Some(_) => anyhow::bail!("the etcd has another {}: empty it first", record.key),
                None => {}
            }
            let mut write = Write::put(record.key, Expect::Absent, record.value);
            if let Some(at) = record.expires_at {
                write = write.expiring(at);
            }
            etcd.write(write).await?;
            Ok(())
        }
    });
    let mut writes = std::pin::pin!(writes.buffer_unordered(WRITES));
    while let Some(written) = writes.next().await {
        written?;
        count += 1;
        progress.add(1);
    }
    etcd.close().await;
    Ok(count)
}
