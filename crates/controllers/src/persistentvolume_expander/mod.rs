//! Expands the volumes of claims that request more storage than they have.
//!
//! Volumes of FlexVolume drivers grow here ([`flex`]). No in-tree plugin expands volumes: for all others the controller
//! records an event, and annotates claims of a migrated plugin with the CSI driver that is to resize the volume.

mod flex;

use crate::Context;
use crate::volumes::{self, AnnotationKeys, migrated};
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::{Quantity, Resource};
use client::flex_volume::{FlexDrivers, FlexSource};
use client::{Action, Api, Change, EventType, Failure, Informer, Key, Patch, Queue, Reconcile, run, unless};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

const WAITING: &str = "Ignoring the PVC: didn't find a plugin capable of expanding the volume; \
                       waiting for an external controller to process this PVC.";
/// A program of a driver may take minutes.
const WORKERS: usize = 10;

struct Expander {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    keys: AnnotationKeys,
    /// The programs of FlexVolume drivers on this machine.
    programs: Option<FlexDrivers>,
}

/// `flex_directory` has the programs of FlexVolume drivers.
pub async fn run(context: Context, flex_directory: Option<PathBuf>) {
    let context = context.of(context.client.clone(), "volume_expand");
    let queue = Queue::<Key>::new(&context.world);
    let claims = context.informer::<PersistentVolumeClaim>();
    let volumes = context.informer::<PersistentVolume>();
    let changed = queue.clone();
    claims.listen(move |change| {
        let may_grow = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => {
                volumes::requested(new) > volumes::requested(old) || capacity(new) > capacity(old)
            }
            Change::Deleted(_) => false,
        };
        if may_grow && is_bound(change.object()) {
            changed.add(change.key());
        }
    });
    claims.synced().await;
    volumes.synced().await;
    let keys = AnnotationKeys::new(&context.names);
    let programs = flex_directory.map(|it| FlexDrivers::new(&it));
    run::run(Arc::new(Expander { context, claims, volumes, keys, programs }), queue, WORKERS).await;
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    volumes::size(&claim.status.capacity)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.phase == "Bound"
}

/// Whether a claim is bound, and requests more than it has.
fn is_growing(claim: &PersistentVolumeClaim) -> bool {
    is_bound(claim) && capacity(claim).is_none_or(|capacity| volumes::requested(claim) > *capacity)
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
        let Some(claim) = self.claims.get(key).filter(|it| is_bound(it)) else {
            return Ok(Action::AwaitChange);
        };
        let volume = self.volumes.get(&Key::new("", &claim.spec.volume_name));
        // a volume whose file system has grown keeps the mark of it until then
        let is_marked =
            |it: &Arc<PersistentVolume>| it.metadata.annotations.contains_key(&self.keys.previous_size);
        if !is_growing(&claim) && !volume.as_ref().is_some_and(is_marked) {
            return Ok(Action::AwaitChange);
        }
        let Some(volume) = volume else {
            return Err(Failure::Other(format!("the volume of claim {key} does not exist")));
        };
        if volume.spec.claim_ref.as_ref().is_none_or(|it| it.uid != claim.uid()) {
            return Err(Failure::Other(format!(
                "persistent Volume is not bound to PVC being updated : {key}"
            )));
        }
        if let Some(source) = &volume.spec.flex_volume {
            let source = FlexSource::persistent(volume.name(), source, false);
            return self.expand_flex(&claim, &volume, &source).await;
        }
        if !is_growing(&claim) {
            return Ok(Action::AwaitChange);
        }
        let plugin = migrated::plugin_of(&volume).map(|plugin| self.context.names.well_known(plugin));
        let driver = plugin.as_deref().and_then(|plugin| migrated::driver(plugin, &self.context.names));
        let (Some(plugin), Some(driver)) = (plugin, driver) else {
            self.context.events.record(&*claim, EventType::Warning, "ExternalExpanding", WAITING);
            return Ok(Action::AwaitChange);
        };
        let message =
            format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
        self.context.events.record(&*claim, EventType::Normal, "ExternalExpanding", message);
        if claim.metadata.annotations.get(&self.keys.resizer).is_none_or(|it| it != driver) {
            let metadata = json!({"uid": claim.uid(), "annotations": {&self.keys.resizer: driver}});
            let claims: Api<PersistentVolumeClaim> = Api::beside(&self.context.client, &*claim);
            let patch = Patch::merge(json!({ "metadata": metadata }));
            unless(404, claims.patch_status(&key.name, &patch).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn claims_that_grow() {
        let of = |phase: &str, requested: &str, capacity: &str| {
            is_growing(&object(json!({
                "spec": {"resources": {"requests": {"storage": requested}}},
                "status": {"phase": phase, "capacity": {"storage": capacity}}
            })))
        };
        assert!(of("Bound", "2Gi", "1Gi"));
        assert!(!of("Bound", "1Gi", "1Gi") && !of("Bound", "1Gi", "2Gi") && !of("Pending", "2Gi", "1Gi"));
    }
}
