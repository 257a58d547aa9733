//! The expected number of pods: the sum of the scales of their owners.

use crate::Context;
use crate::controller_ref::{controller_key, controller_of};
use crate::scales::{Lookup, Scales, Target};
use api::Resource;
use api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use api::core::v1::{Pod, ReplicationController};
use api::meta::v1::OwnerReference;
use client::{Failure, Informer, Key};
use std::collections::HashMap;
use std::sync::Arc;

/// Informers of the built-in owners, and the scales of other kinds.
pub(super) struct Owners {
    replica_sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    replication_controllers: Informer<ReplicationController>,
    stateful_sets: Informer<StatefulSet>,
    scales: Scales,
}

/// The expected number of pods.
pub(super) struct ExpectedPods {
    pub count: i32,
    /// Whether some pods have no controller.
    pub unmanaged: bool,
}

/// The uid of an owner of pods, and its number of replicas.
type OwnerScale = (String, i32);

fn scale_of(owner: &impl Resource, replicas: Option<i32>) -> OwnerScale {
    (owner.uid().to_owned(), replicas.unwrap_or(1))
}

impl Owners {
    pub fn new(context: &Context, scales: Scales) -> Self {
        Owners {
            replica_sets: context.informer(),
            deployments: context.informer(),
            replication_controllers: context.informer(),
            stateful_sets: context.informer(),
            scales,
        }
    }

    pub async fn synced(&self) {
        self.replica_sets.synced().await;
        self.deployments.synced().await;
        self.replication_controllers.synced().await;
        self.stateful_sets.synced().await;
    }

    /// The sum of the scales of the owners of pods, each owner once.
    pub async fn expected(&self, pods: &[Arc<Pod>]) -> Result<ExpectedPods, Failure> {
        let mut unmanaged = false;
        // by the uid of the controller of the pod, which may itself have a controller
        let mut seen: HashMap<String, OwnerScale> = HashMap::new();
        for pod in pods {
            let Some(controller) = controller_of(&**pod) else {
                unmanaged = true;
                continue;
            };
            if seen.contains_key(&controller.uid) {
                continue;
            }
            let Some(scale) = self.owner(pod, controller).await? else {
                return Err(Failure::Other(format!("found no controllers for pod {:?}", pod.name())));
            };
            seen.insert(controller.uid.clone(), scale);
        }
        let owners: HashMap<String, i32> = seen.into_values().collect();
        let count = owners.values().fold(0i32, |sum, replicas| sum.saturating_add(*replicas));
        Ok(ExpectedPods { count, unmanaged })
    }

    /// The scale of the topmost controller of a pod; `None` if it is gone.
    async fn owner(&self, pod: &Pod, controller: &OwnerReference) -> Result<Option<OwnerScale>, Failure> {
        if let Some(set) = owner_in(&self.replica_sets, pod) {
            return Ok(Some(match owner_in(&self.deployments, &*set) {
                Some(deployment) => scale_of(&*deployment, deployment.spec.replicas),
                None => scale_of(&*set, set.spec.replicas),
            }));
        }
        if let Some(owner) = owner_in(&self.replication_controllers, pod) {
            return Ok(Some(scale_of(&*owner, owner.spec.replicas)));
        }
        if let Some(owner) = owner_in(&self.stateful_sets, pod) {
            return Ok(Some(scale_of(&*owner, owner.spec.replicas)));
        }
        let target = Target {
            api_version: controller.api_version.clone(),
            kind: controller.kind.clone(),
            namespace: pod.namespace().to_owned(),
            name: controller.name.clone(),
        };
        match self.scales.get(&target).await? {
            Lookup::Found(scale) if scale.metadata.uid == controller.uid => {
                Ok(Some((scale.metadata.uid, scale.spec.replicas)))
            }
            Lookup::Found(_) | Lookup::Absent => Ok(None),
            Lookup::NoScale => {
                let why = format!(
                    "{}/{} does not implement the scale subresource",
                    target.api_version, target.kind
                );
                Err(Failure::Other(why))
            }
        }
    }
}

/// The controller of an object, if the informer has it with the same uid.
fn owner_in<O: Resource>(owners: &Informer<O>, object: &impl Resource) -> Option<Arc<O>> {
    let key: Key = controller_key::<O>(object)?;
    let uid = &controller_of(object)?.uid;
    owners.get(&key).filter(|owner| owner.uid() == uid)
}
