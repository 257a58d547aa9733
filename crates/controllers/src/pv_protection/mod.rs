//! Volumes that are bound to a claim are not deleted: a finalizer stays on them until they are not.

use crate::Context;
use crate::volumes::protection::{self, Due, due};
use crate::volumes::volume_phase;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::Api;
use std::sync::Arc;

struct Protection {
    context: Context,
    volumes: Informer<PersistentVolume>,
    finalizer: String,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let finalizer = context.names.well_known("pv-protection");
    let volumes = context.informer::<PersistentVolume>();
    let (news, own) = (queue.clone(), finalizer.clone());
    volumes.listen(move |change| {
        if !change.is_deletion() && due(&**change.object(), &own).is_some() {
            news.add(change.key());
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
        let Some(due) = due(&*volume, &self.finalizer) else { return Ok(Action::AwaitChange) };
        if due == Due::On || volume_phase(&volume) != "Bound" {
            let api = Api::all(self.context.client.clone());
            protection::settle(&api, &*volume, &self.finalizer, due).await?;
        }
        Ok(Action::AwaitChange)
    }
}
