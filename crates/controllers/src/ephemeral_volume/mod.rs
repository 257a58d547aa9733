//! Creates a claim for each generic ephemeral volume of a pod, with the pod as its owner.
//!
//! An existing claim of that name with another owner is not changed: the pod cannot start, and an event says why.

use crate::volumes::claims::{self, check_made_for, ephemeral_name};
use crate::{Context, controller_ref};
use api::Resource;
use api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use api::meta::v1::ObjectMeta;
use client::{Action, Api, EventType, Failure, Informer, Key, Queue, Reconcile, is_terminating, run};
use metrics::{Counter, Descriptor};
use std::sync::Arc;

const CREATED: Descriptor = Descriptor::alpha(
    "ephemeral_volume_controller_create_total",
    "Claims that were created for pods, or refused.",
);
const FAILED: Descriptor = Descriptor::alpha(
    "ephemeral_volume_controller_create_failures_total",
    "Claims for pods that were refused.",
);

struct EphemeralVolumes {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    created: Counter,
    failed: Counter,
}

pub async fn run(context: Context, workers: usize) {
    let context = context.of(context.client.clone(), "ephemeral_volume");
    let queue = Queue::<Key>::new(&context.world);
    let (claims, pods) = (context.informer::<PersistentVolumeClaim>(), context.informer::<Pod>());
    claims::index(&pods);
    let changed = queue.clone();
    pods.listen(move |change| {
        if !change.is_deletion() && may_need_claims(change.object()) {
            changed.add(change.key());
        }
    });
    // a claim that was deleted too early is created again
    let (changed, pod_cache) = (queue.clone(), pods.clone());
    claims.listen(move |change| {
        if change.is_deletion() {
            let users = claims::users(&pod_cache, &change.key());
            users.iter().filter(|pod| may_need_claims(pod)).for_each(|pod| changed.add(Key::of(&**pod)));
        }
    });
    claims.synced().await;
    pods.synced().await;
    let registry = context.metrics.registry();
    let (created, failed) = (registry.one(CREATED), registry.one(FAILED));
    run::run(Arc::new(EphemeralVolumes { context, claims, pods, created, failed }), queue, workers).await;
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.volumes.iter().filter(|it| it.ephemeral.is_some())
}

/// Whether claims may have to be created for a pod.
fn may_need_claims(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && volumes(pod).next().is_some()
}

/// The claim of a generic ephemeral volume.
fn claim_for(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
    let metadata = ObjectMeta {
        name: ephemeral_name(pod, volume),
        namespace: pod.namespace().to_owned(),
        labels: template.metadata.labels,
        annotations: template.metadata.annotations,
        owner_references: vec![controller_ref::controller_reference(pod)],
        ..ObjectMeta::default()
    };
    Some(PersistentVolumeClaim { metadata, spec: template.spec, ..PersistentVolumeClaim::default() })
}

impl Reconcile for EphemeralVolumes {
    type Key = Key;

    fn name(&self) -> &'static str {
        "ephemeral-volume"
    }

    fn queue_name(&self) -> &'static str {
        "ephemeral_volume"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| may_need_claims(pod)) else {
            return Ok(Action::AwaitChange);
        };
        for volume in volumes(&pod) {
            match self.ensure_claim(&pod, volume).await {
                Ok(()) => {}
                Err(Failure::Api(why)) if is_terminating(&why) => return Ok(Action::AwaitChange),
                Err(why) => {
                    let message = format!("ephemeral volume {}: {}", volume.name, why.message());
                    self.context.events.record(&*pod, EventType::Warning, "FailedBinding", message);
                    return Err(why);
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl EphemeralVolumes {
    async fn ensure_claim(&self, pod: &Pod, volume: &Volume) -> Result<(), Failure> {
        let Some(claim) = claim_for(pod, volume) else { return Ok(()) };
        if let Some(existing) = self.claims.get(&Key::of(&claim)) {
            return check_made_for(&existing, pod).map_err(Failure::Other);
        }
        self.created.inc();
        let claims: Api<PersistentVolumeClaim> = Api::beside(&self.context.client, pod);
        match claims.create(&claim).await {
            Ok(_) => Ok(()),
            // the informer does not have it yet
            Err(why) if why.is(409) => {
                let existing = claims.get(claim.name()).await?;
                check_made_for(&existing, pod).map_err(Failure::Other)
            }
            Err(why) => {
                self.failed.inc();
                match why {
                    client::Error::Api(mut status) => {
                        status.message = format!("create PVC {}: {}", claim.name(), status.message);
                        Err(client::Error::Api(status).into())
                    }
                    why => Err(why.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::Time;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_is_created_from_its_template() {
        let template = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        });
        let mut pod: Pod = object(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "plain", "emptyDir": {}},
                {"name": "v", "ephemeral": {"volumeClaimTemplate": template}},
            ]}
        }));
        let claims: Vec<_> = volumes(&pod).filter_map(|volume| claim_for(&pod, volume)).collect();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true,
            "blockOwnerDeletion": true});
        let metadata = json!({"name": "p-v", "namespace": "ns", "labels": {"a": "b"},
            "annotations": {"c": "d"}, "ownerReferences": [owner], "creationTimestamp": null});
        let written: Value = serde_json::from_slice(&api::to_json(&claims)).unwrap();
        assert_eq!(written, json!([{"metadata": metadata, "spec": template["spec"], "status": {}}]));
        assert!(may_need_claims(&pod));
        pod.metadata.deletion_timestamp = Some(Time(0));
        assert!(!may_need_claims(&pod));
    }
}
