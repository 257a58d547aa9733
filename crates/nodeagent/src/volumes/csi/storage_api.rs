//! Objects of the API about storage.
//!
//! [`StorageApi`] is what volumes need; [`ApiStorage`] reads and writes it over the API. A test hands in its own.

use crate::objects::{ObjectError, ObjectRead};
use api::core::v1::{Node, PersistentVolumeClaim};
use api::storage::v1::{CSIDriver, VolumeAttachment};
use api::{Quantity, Resource};
use client::{Api, Client, Informer, Key, Note, Patch, Recorder, claim_expansion};
use env::World;
use futures_util::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// How long a read waits for the first list of drivers.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
pub trait StorageApi: Send + Sync + 'static {
    /// A driver's object, if it has one.
    fn driver<'a>(&'a self, name: &'a str) -> ObjectRead<'a, Option<Arc<CSIDriver>>>;
    fn attachment<'a>(&'a self, name: &'a str) -> ObjectRead<'a, VolumeAttachment>;
    /// The node as it was seen last.
    fn node(&self) -> Option<Arc<Node>>;
    /// Writes that the volume of a claim has grown.
    fn finish_expansion<'a>(
        &'a self,
        claim: &'a PersistentVolumeClaim,
        size: &'a Quantity,
    ) -> ObjectRead<'a, ()>;
    /// Records an event about a claim.
    fn record(&self, claim: &PersistentVolumeClaim, note: Note);
}

/// See the module.
pub struct ApiStorage {
    pub client: Client,
    pub world: World,
    pub node_name: String,
    pub drivers: Informer<CSIDriver>,
    /// The informer of this one node.
    pub node: Informer<Node>,
    pub events: Arc<Recorder>,
}

impl StorageApi for ApiStorage {
    fn driver<'a>(&'a self, name: &'a str) -> ObjectRead<'a, Option<Arc<CSIDriver>>> {
        async move {
            match env::timeout(&self.world, SYNC_TIMEOUT, self.drivers.synced()).await {
                Ok(_) => Ok(self.drivers.get(&Key::new("", name))),
                Err(_) => Err(ObjectError::Other(
                    "CSIDriver lister: timed out waiting for caches to sync".to_owned(),
                )),
            }
        }
        .boxed()
    }

    fn attachment<'a>(&'a self, name: &'a str) -> ObjectRead<'a, VolumeAttachment> {
        async move { Ok(Api::all(&self.client).get(name).await?) }.boxed()
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get(&Key::new("", &self.node_name))
    }

    fn finish_expansion<'a>(
        &'a self,
        claim: &'a PersistentVolumeClaim,
        size: &'a Quantity,
    ) -> ObjectRead<'a, ()> {
        async move {
            let claims: Api<PersistentVolumeClaim> = Api::beside(&self.client, claim);
            let patch = Patch::merge(claim_expansion::finished(claim, size));
            Ok(claims.patch_status(claim.name(), &patch).await.map(drop)?)
        }
        .boxed()
    }

    fn record(&self, claim: &PersistentVolumeClaim, note: Note) {
        self.events.note(claim, note);
    }
}
