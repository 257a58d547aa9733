//! Opens the store, behind encryption at rest, and the caches over it.

use super::build_id;
use super::encryption_at_rest;
use super::error::StartError;
use super::open_store::{self, StoreChoice};
use encryption::{ConfigReloader, Keyring};
use env::World;
use metrics::Registry;
use names::Names;
use rest::Storage;
use std::sync::Arc;
use std::time::Duration;

/// The keys of encryption at rest.
pub(super) struct OpenKeys {
    pub keyring: Option<Arc<Keyring>>,
    /// Reloads the keyring when its configuration file changes.
    pub reload: Option<ConfigReloader>,
}

/// Opens the store and recovers its objects. `retention` bounds the history of store and caches.
pub(super) async fn open_storage(
    choice: StoreChoice,
    encryption: Option<encryption_at_rest::Options>,
    cache: cache::Options,
    retention: Duration,
    (names, world, registry): (&Names, &World, &Registry),
) -> Result<(Storage, OpenKeys), StartError> {
    let rename = choice.renames();
    let keyring =
        encryption.as_ref().and_then(|it| encryption_at_rest::keyring(it, names, world, registry, rename));
    let opened = open_store::open(choice, retention, world).await?;
    let (store, recovered) = encryption_at_rest::over(opened, keyring.clone(), names, world).await?;
    // the caches need no history that the store has dropped
    let cache = cache::Options { retention, ..cache };
    let storage = Storage::new(store, recovered, cache, world.clone())?;
    Ok((
        storage.of_build(build_id::own(names)),
        OpenKeys { keyring, reload: encryption.and_then(|it| it.reload) },
    ))
}
