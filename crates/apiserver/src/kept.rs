//! Where objects are kept, and how that is opened.

use ambient::World;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Recovered, Store, StoreError};

/// Where objects are kept.
pub enum StoreChoice {
    /// Nowhere: all is gone with the process.
    Memory,
    /// In a file below this directory.
    Directory(PathBuf),
    /// In an etcd, which others may use as well.
    Etcd(Box<etcd::Options>),
    /// In a store that was opened elsewhere and is empty.
    Opened(Arc<dyn Store>),
}

/// Opens a store that keeps what was replaced for so long, and gives what is in it.
pub(crate) async fn open(
    choice: StoreChoice,
    retention: Duration,
    world: &World,
) -> Result<(Arc<dyn Store>, Vec<Recovered>), StoreError> {
    let options = store::Options { retention, ..store::Options::default() };
    match choice {
        StoreChoice::Memory => Ok((Arc::new(store::memory::open(&options, world.clone())), Vec::new())),
        StoreChoice::Directory(directory) => {
            let mut recovered = Vec::new();
            let engine = store::embedded::open(&directory, &options, world.clone(), &mut |record| {
                recovered.push(record)
            })?;
            Ok((Arc::new(engine), recovered))
        }
        StoreChoice::Etcd(options) => {
            let (etcd, recovered) = etcd::open(*options, world.clone()).await?;
            Ok((Arc::new(etcd), recovered))
        }
        StoreChoice::Opened(store) => Ok((store, Vec::new())),
    }
}
