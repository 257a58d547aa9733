//! Keeps volumes while they are bound to a claim, by a finalizer.

use crate::Context;
use crate::volumes::protection::{self, FinalizerChange, finalizer_change};
use api::core::v1::PersistentVolume;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run};
use std::sync::Arc;

struct Protection {
    context: Context,
    volumes: Informer<PersistentVolume>,
    finalizer: String,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let finalizer = context.names.well_known("pv-protection");
    let volumes = context.informer::<PersistentVolume>();
    let (changed, own) = (queue.clone(), finalizer.clone());
    volumes.listen(move |change| {
        if !change.is_deletion() && finalizer_change(&**change.object(), &own).is_some() {
            changed.add(change.key());
        }
    });
    volumes.synced().await;
    run::run(Arc::new(Protection { context, volumes, finalizer }), queue, 1).await;
}

impl Reconcile for Protection {
    type Key = Key;

    fn name(&self) -> &'static str {
        "pv-protection"
    }

    fn queue_name(&self) -> &'static str {
        "pvprotection"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Action::AwaitChange) };
        let Some(change) = finalizer_change(&*volume, &self.finalizer) else {
            return Ok(Action::AwaitChange);
        };
        if change == FinalizerChange::Add || volume.status.phase != "Bound" {
            let volumes = Api::all(&self.context.client);
            protection::apply(&volumes, &*volume, &self.finalizer, change).await?;
        }
        Ok(Action::AwaitChange)
    }
}
