//! Generic ephemeral volumes: for each a claim is made that belongs to its pod, and goes with it.
//!
//! What always holds: a claim that has the name already and belongs to somebody else is left alone, and so is the pod,
//! which cannot start; it is told why.

use crate::volumes::claims::{self, check_made_for, ephemeral_name};
use crate::{Context, controller_ref};
use client::events::EventType;
use client::retry_on_conflict::beside;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, is_terminating, run};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;
use metrics::{About, Counter};
use std::sync::Arc;

const MADE: About =
    About::alpha("ephemeral_volume_controller_create_total", "Claims that were asked for, for pods.");
const FAILED: About =
    About::alpha("ephemeral_volume_controller_create_failures_total", "Those of them that were refused.");

struct Ephemeral {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    made: Counter,
    failed: Counter,
}

pub async fn run(context: Context, workers: usize) {
    let context = context.of(context.client.clone(), "ephemeral_volume");
    let queue = Queue::<Key>::default();
    let (claims, pods) = (context.informer::<PersistentVolumeClaim>(), context.informer::<Pod>());
    claims::index(&pods);
    let news = queue.clone();
    pods.listen(move |change| {
        if !change.is_deletion() && wants(change.object()) {
            news.add(change.key());
        }
    });
    // one that was deleted too early is made again
    let (news, users) = (queue.clone(), pods.clone());
    claims.listen(move |change| {
        if change.is_deletion() {
            let users = claims::users(&users, &change.key());
            users.iter().filter(|pod| wants(pod)).for_each(|pod| news.add(Key::of(&**pod)));
        }
    });
    claims.synced().await;
    pods.synced().await;
    let registry = context.metrics.registry();
    let (made, failed) = (registry.one(MADE), registry.one(FAILED));
    run::run(Arc::new(Ephemeral { context, claims, pods, made, failed }), queue, workers).await;
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()).filter(|it| it.ephemeral.is_some())
}

/// Whether there may be claims to be made for a pod.
fn wants(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && volumes(pod).next().is_some()
}

/// The claim of an ephemeral volume; nothing where it is of another sort.
fn claim_for(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
    let given = template.metadata.unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(ephemeral_name(pod, volume)),
        namespace: pod.namespace(),
        labels: given.labels,
        annotations: given.annotations,
        owner_references: Some(vec![controller_ref::controller_reference(pod)]),
        ..ObjectMeta::default()
    };
    Some(PersistentVolumeClaim { metadata, spec: Some(template.spec), status: None })
}

impl Reconcile for Ephemeral {
    type Key = Key;

    fn name(&self) -> &'static str {
        "ephemeral-volume"
    }

    fn queue_name(&self) -> &'static str {
        "ephemeral_volume"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| wants(pod)) else { return Ok(Action::AwaitChange) };
        for volume in volumes(&pod) {
            match self.make(&pod, volume).await {
                Ok(()) => {}
                Err(Failure::Api(why)) if is_terminating(&why) => return Ok(Action::AwaitChange),
                Err(why) => {
                    let message = format!("ephemeral volume {}: {}", volume.name, why.message());
                    self.context.events.tell(&*pod, EventType::Warning, "FailedBinding", message);
                    return Err(why);
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl Ephemeral {
    async fn make(&self, pod: &Pod, volume: &Volume) -> Result<(), Failure> {
        let Some(claim) = claim_for(pod, volume) else { return Ok(()) };
        if let Some(there) = self.claims.get(&Key::of(&claim)) {
            return check_made_for(&there, pod).map_err(Failure::Other);
        }
        self.made.inc();
        let api = beside::<PersistentVolumeClaim>(&self.context.client, pod);
        match api.create(&PostParams::default(), &claim).await {
            Ok(_) => Ok(()),
            // seen late: whose it is shows when it is looked at
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                let there = api.get(&claim.name_any()).await?;
                check_made_for(&there, pod).map_err(Failure::Other)
            }
            Err(why) => {
                self.failed.inc();
                match why {
                    kube::Error::Api(mut answer) => {
                        answer.message = format!("create PVC {}: {}", claim.name_any(), answer.message);
                        Err(kube::Error::Api(answer).into())
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
    use serde_json::json;

    #[test]
    fn a_claim_is_made_from_its_template() {
        let template = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        });
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "plain", "emptyDir": {}},
                {"name": "v", "ephemeral": {"volumeClaimTemplate": template}},
            ]}
        });
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        let made: Vec<_> = volumes(&pod).filter_map(|volume| claim_for(&pod, volume)).collect();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true,
            "blockOwnerDeletion": true});
        let mut expected =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"]});
        expected["metadata"] = json!({"name": "p-v", "namespace": "ns", "labels": {"a": "b"},
            "annotations": {"c": "d"}, "ownerReferences": [owner]});
        assert_eq!(serde_json::to_value(&made).unwrap(), json!([expected]));
        assert!(wants(&pod));
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!wants(&pod));
    }
}
