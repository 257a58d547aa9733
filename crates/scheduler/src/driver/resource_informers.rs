//! Informers of dynamic resources.

use std::sync::Arc;

use api::resource::v1alpha1::{PodScheduling, ResourceClaim, ResourceClass};
use client::{Change, Informer, InformerFactory};

use super::event_handlers::{Receiver, listen};
use crate::storage::key;

/// The informers of dynamic resources. Their API is served only if the gate is on.
pub(super) struct ResourceInformers {
    claims: Informer<ResourceClaim>,
    classes: Informer<ResourceClass>,
    schedulings: Informer<PodScheduling>,
}

impl ResourceInformers {
    pub fn new(factory: &InformerFactory) -> Self {
        ResourceInformers {
            claims: factory.informer(),
            classes: factory.informer(),
            schedulings: factory.informer(),
        }
    }

    pub async fn synced(&self) {
        tokio::join!(self.claims.synced(), self.classes.synced(), self.schedulings.synced());
    }

    /// Carries the cached objects over, then every change.
    pub fn listen(&self, driver: &Arc<impl Receiver>) {
        listen(&self.classes, driver, |scheduler, _, change| {
            let (classes, class) = (&mut scheduler.snapshot.storage.resources.classes, change.object());
            match change.is_deletion() {
                true => classes.remove(&key(&**class)),
                false => classes.insert(key(&**class), Arc::clone(class)),
            };
        });
        listen(&self.claims, driver, |scheduler, now, change| match change {
            Change::Deleted(claim) => {
                scheduler.snapshot.storage.resources.claims.remove(&key(&***claim));
            }
            _ => scheduler.set_resource_claim(now, Arc::clone(change.object())),
        });
        listen(&self.schedulings, driver, |scheduler, now, change| match change {
            Change::Deleted(scheduling) => {
                scheduler.snapshot.storage.resources.schedulings.remove(&key(&***scheduling));
            }
            _ => scheduler.set_pod_scheduling(now, Arc::clone(change.object())),
        });
    }
}
