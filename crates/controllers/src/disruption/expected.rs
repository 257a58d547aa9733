//! How many pods the owners of pods ask for.

use crate::Context;
use crate::controller_ref::{controller_key, controller_of};
use crate::scales::{Lookup, Scales, Target};
use client::informer::Watchable;
use client::{Failure, Informer, Key};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use std::collections::HashMap;
use std::sync::Arc;

/// The kinds whose scale is known without asking, and the way to ask about others.
pub(super) struct Owners {
    replica_sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    replication_controllers: Informer<ReplicationController>,
    stateful_sets: Informer<StatefulSet>,
    scales: Scales,
}

pub(super) struct Expected {
    pub pods: i32,
    /// Whether there are pods that nobody controls.
    pub unmanaged: bool,
}

/// The uid of an owner of pods, and its number of replicas.
type OwnerScale = Option<(String, i32)>;

fn asks<K: Resource>(owner: &K, replicas: Option<i32>) -> OwnerScale {
    Some((owner.meta().uid.clone()?, replicas.unwrap_or(1)))
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

    /// How many pods the owners of these ask for, each owner once.
    pub async fn expected(&self, pods: &[Arc<Pod>]) -> Result<Expected, Failure> {
        let mut unmanaged = false;
        // by the uid of who controls the pod, which may itself be controlled
        let mut seen: HashMap<String, OwnerScale> = HashMap::new();
        for pod in pods {
            let Some(controller) = controller_of(&**pod) else {
                unmanaged = true;
                continue;
            };
            if seen.contains_key(&controller.uid) {
                continue;
            }
            let asks = self.owner(pod, controller).await?;
            if asks.is_none() {
                return Err(Failure::Other(format!("found no controllers for pod {:?}", pod.name_any())));
            }
            seen.insert(controller.uid.clone(), asks);
        }
        let owners: HashMap<String, i32> = seen.into_values().flatten().collect();
        let pods = owners.values().fold(0i32, |sum, replicas| sum.saturating_add(*replicas));
        Ok(Expected { pods, unmanaged })
    }

    async fn owner(&self, pod: &Pod, controller: &OwnerReference) -> Result<OwnerScale, Failure> {
        if let Some(set) = mine(&self.replica_sets, pod) {
            return Ok(match mine(&self.deployments, &*set) {
                Some(deployment) => asks(&*deployment, deployment.spec.as_ref().and_then(|it| it.replicas)),
                None => asks(&*set, set.spec.as_ref().and_then(|it| it.replicas)),
            });
        }
        if let Some(owner) = mine(&self.replication_controllers, pod) {
            return Ok(asks(&*owner, owner.spec.as_ref().and_then(|it| it.replicas)));
        }
        if let Some(owner) = mine(&self.stateful_sets, pod) {
            return Ok(asks(&*owner, owner.spec.as_ref().and_then(|it| it.replicas)));
        }
        let target = Target {
            api_version: controller.api_version.clone(),
            kind: controller.kind.clone(),
            namespace: pod.namespace().unwrap_or_default(),
            name: controller.name.clone(),
        };
        match self.scales.get(&target).await? {
            Lookup::Found(scale) if scale.metadata.uid.as_ref() == Some(&controller.uid) => {
                Ok(asks(&scale, Some(scale.spec.as_ref().and_then(|it| it.replicas).unwrap_or(0))))
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

/// Who controls an object, if it is one of these and still the same.
fn mine<O: Watchable + Resource<DynamicType = ()>>(
    owners: &Informer<O>,
    object: &impl ResourceExt,
) -> Option<Arc<O>> {
    let key: Key = controller_key::<O>(object)?;
    let uid = &controller_of(object)?.uid;
    owners.get(&key).filter(|owner| owner.meta().uid.as_ref() == Some(uid))
}
