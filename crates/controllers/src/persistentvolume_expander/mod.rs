//! Claims that ask for more than they have: no plugin of the manager makes volumes larger, so that is said, and where a
//! driver has taken over from a plugin it is named as the one who is to do it.

use crate::Context;
use crate::volumes::{self, AnnotationKeys, migrated};
use client::events::EventType;
use client::retry_on_conflict::beside;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use schema::quantity::Quantity;
use serde_json::json;
use std::sync::Arc;

const WAITING: &str = "didn't find a plugin capable of expanding the volume; \
                       waiting for an external controller to process this PVC";

struct Expander {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    marks: AnnotationKeys,
}

pub async fn run(context: Context) {
    let context = context.of(context.client.clone(), "volume_expand");
    let queue = Queue::<Key>::default();
    let claims = context.informer::<PersistentVolumeClaim>();
    let volumes = context.informer::<PersistentVolume>();
    let news = queue.clone();
    claims.listen(move |change| {
        let is_news = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => {
                volumes::asked(new) > volumes::asked(old) || capacity(new) > capacity(old)
            }
            Change::Deleted(_) => false,
        };
        if is_news && is_growing(change.object()) {
            news.add(change.key());
        }
    });
    claims.synced().await;
    volumes.synced().await;
    let marks = AnnotationKeys::new(&context.names);
    run::run(Arc::new(Expander { context, claims, volumes, marks }), queue, 1).await;
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    volumes::size(claim.status.as_ref().and_then(|it| it.capacity.as_ref()))
}

/// Whether a claim is bound, and asks for more than it has.
fn is_growing(claim: &PersistentVolumeClaim) -> bool {
    volumes::claim_phase(claim) == "Bound"
        && capacity(claim).is_none_or(|capacity| volumes::asked(claim) > capacity)
}

impl Reconcile for Expander {
    type Key = Key;

    fn name(&self) -> &'static str {
        "persistentvolume-expander"
    }

    fn queue_name(&self) -> &'static str {
        "volume_expand"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(claim) = self.claims.get(key).filter(|it| is_growing(it)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(volume) = self.volumes.get(&Key::new("", volumes::volume_name(&claim))) else {
            return Err(Failure::Other(format!("the volume of {key} is not there")));
        };
        let bound_to = volume.spec.as_ref().and_then(|it| it.claim_ref.as_ref());
        if bound_to.is_none_or(|it| it.uid != claim.metadata.uid) {
            return Err(Failure::Other(format!(
                "persistent Volume is not bound to PVC being updated : {key}"
            )));
        }
        let plugin = migrated::plugin_of(&volume).map(|plugin| self.context.names.well_known(plugin));
        let driver = plugin.as_deref().and_then(|plugin| migrated::driver(plugin, &self.context.names));
        let (Some(plugin), Some(driver)) = (plugin, driver) else {
            self.context.events.tell(&*claim, EventType::Normal, "ExternalExpanding", WAITING);
            return Ok(Action::AwaitChange);
        };
        let message =
            format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
        self.context.events.tell(&*claim, EventType::Normal, "ExternalExpanding", message);
        if claim.annotations().get(&self.marks.resizer).is_none_or(|it| it != driver) {
            let metadata = json!({"uid": claim.uid(), "annotations": {&self.marks.resizer: driver}});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let api = beside::<PersistentVolumeClaim>(&self.context.client, &*claim);
            unless(404, api.patch_status(&key.name, &PatchParams::default(), &patch).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_grow() {
        let of = |phase: &str, asked: &str, has: &str| {
            let claim = json!({
                "spec": {"resources": {"requests": {"storage": asked}}},
                "status": {"phase": phase, "capacity": {"storage": has}}
            });
            is_growing(&serde_json::from_value(claim).unwrap())
        };
        assert!(of("Bound", "2Gi", "1Gi"));
        assert!(!of("Bound", "1Gi", "1Gi") && !of("Bound", "1Gi", "2Gi") && !of("Pending", "2Gi", "1Gi"));
    }
}
