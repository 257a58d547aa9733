//! Changes of objects, carried into the snapshot and the queue.
//!
//! Pods that have ended are not watched: the server's selection leaves them out, so that their end is a deletion here.

use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::apps::v1::{ReplicaSet, StatefulSet};
use api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use api::policy::v1::PodDisruptionBudget;
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use client::{Change, Informer, InformerFactory};

use super::inbox;
use crate::scheduler::Scheduler;
use crate::storage::{Store, key};

/// Pods that have not ended.
const ACTIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The informers of everything that scheduling reads.
pub(super) struct Informers {
    pub pods: Informer<Pod>,
    nodes: Informer<Node>,
    namespaces: Informer<Namespace>,
    volumes: Informer<PersistentVolume>,
    claims: Informer<PersistentVolumeClaim>,
    classes: Informer<StorageClass>,
    csi_nodes: Informer<CSINode>,
    csi_drivers: Informer<CSIDriver>,
    csi_capacities: Informer<CSIStorageCapacity>,
    services: Informer<Service>,
    replication_controllers: Informer<ReplicationController>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    budgets: Informer<PodDisruptionBudget>,
}

impl Informers {
    pub fn new(factory: &InformerFactory) -> Self {
        Informers {
            pods: factory.informer_of("", ACTIVE_PODS),
            nodes: factory.informer(),
            namespaces: factory.informer(),
            volumes: factory.informer(),
            claims: factory.informer(),
            classes: factory.informer(),
            csi_nodes: factory.informer(),
            csi_drivers: factory.informer(),
            csi_capacities: factory.informer(),
            services: factory.informer(),
            replication_controllers: factory.informer(),
            replica_sets: factory.informer(),
            stateful_sets: factory.informer(),
            budgets: factory.informer(),
        }
    }

    pub async fn synced(&self) {
        tokio::join!(
            self.pods.synced(),
            self.nodes.synced(),
            self.namespaces.synced(),
            self.volumes.synced(),
            self.claims.synced(),
            self.classes.synced(),
            self.csi_nodes.synced(),
            self.csi_drivers.synced(),
            self.csi_capacities.synced(),
            self.services.synced(),
            self.replication_controllers.synced(),
            self.replica_sets.synced(),
            self.stateful_sets.synced(),
            self.budgets.synced(),
        );
    }

    /// Carries the cached objects over, then every change. Pods come last: an attempt needs all the rest.
    pub fn listen(&self, driver: &Arc<impl Receiver>) {
        listen(&self.namespaces, driver, |scheduler, _, change| {
            let object = change.object();
            match change.is_deletion() {
                true => scheduler.snapshot.remove_namespace(object.name()),
                false => scheduler.snapshot.set_namespace(object.name(), object.metadata.labels.clone()),
            }
        });
        listen(&self.classes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => {
                scheduler.snapshot.storage.classes.remove(&key(&***object));
            }
            _ => scheduler.set_class(now, change.object().clone()),
        });
        listen(&self.csi_nodes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => {
                scheduler.snapshot.storage.csi_nodes.remove(&key(&***object));
            }
            _ => scheduler.set_csi_node(now, change.object().clone()),
        });
        listen(&self.csi_drivers, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => {
                scheduler.snapshot.storage.csi_drivers.remove(&key(&***object));
            }
            _ => scheduler.set_csi_driver(now, change.object().clone()),
        });
        listen(&self.csi_capacities, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => {
                scheduler.snapshot.storage.csi_capacities.remove(&key(&***object));
            }
            _ => scheduler.set_csi_capacity(now, change.object().clone()),
        });
        listen(&self.volumes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_volume(now, &key(&***object)),
            _ => scheduler.set_volume(now, change.object().clone()),
        });
        listen(&self.claims, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_claim(now, &key(&***object)),
            _ => scheduler.set_claim(now, change.object().clone()),
        });
        listen(&self.services, driver, |scheduler, _, change| {
            let (services, object) = (&mut scheduler.snapshot.workloads.services, change.object());
            match change.is_deletion() {
                true => services.remove(&key(&**object)),
                false => services.insert(key(&**object), object.clone()),
            };
        });
        listen(&self.replication_controllers, driver, |scheduler, _, change| {
            put(&mut scheduler.snapshot.workloads.replication_controllers, change);
        });
        listen(&self.replica_sets, driver, |scheduler, _, change| {
            put(&mut scheduler.snapshot.workloads.replica_sets, change);
        });
        listen(&self.stateful_sets, driver, |scheduler, _, change| {
            put(&mut scheduler.snapshot.workloads.stateful_sets, change);
        });
        listen(&self.budgets, driver, |scheduler, _, change| {
            put(&mut scheduler.snapshot.workloads.budgets, change);
        });
        listen(&self.nodes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_node(object.name()),
            _ => scheduler.set_node(now, change.object().clone()),
        });
        listen(&self.pods, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_pod(now, object.uid()),
            Change::Updated { old, new } if old.uid() != new.uid() => {
                scheduler.remove_pod(now, old.uid());
                scheduler.set_pod(now, Arc::clone(new));
            }
            _ => scheduler.set_pod(now, change.object().clone()),
        });
    }
}

/// The receiver of changes.
pub(super) trait Receiver: Send + Sync + 'static {
    /// Applies a change to the scheduler at the current time, after all that wait. Returns false if it is busy.
    fn try_apply(&self, change: impl FnOnce(&mut Scheduler, Duration)) -> bool;
    /// Applies a change when the scheduler is free.
    fn defer(&self, change: inbox::Change);
}

/// A change that outlives its event.
enum OwnedChange<K> {
    Added(Arc<K>),
    Updated { old: Arc<K>, new: Arc<K> },
    Deleted(Arc<K>),
}

impl<K> OwnedChange<K> {
    fn new(change: &Change<'_, K>) -> Self {
        match change {
            Change::Added(object) => OwnedChange::Added(Arc::clone(object)),
            Change::Updated { old, new } => {
                OwnedChange::Updated { old: Arc::clone(old), new: Arc::clone(new) }
            }
            Change::Deleted(object) => OwnedChange::Deleted(Arc::clone(object)),
        }
    }

    fn as_change(&self) -> Change<'_, K> {
        match self {
            OwnedChange::Added(object) => Change::Added(object),
            OwnedChange::Updated { old, new } => Change::Updated { old, new },
            OwnedChange::Deleted(object) => Change::Deleted(object),
        }
    }
}

/// Applies every change of an informer.
pub(super) fn listen<K: Resource>(
    informer: &Informer<K>,
    receiver: &Arc<impl Receiver>,
    handle: impl Fn(&mut Scheduler, Duration, &Change<'_, K>) + Send + Sync + 'static,
) {
    // a listener must not keep the receiver alive
    let (receiver, handle) = (Arc::downgrade(receiver), Arc::new(handle));
    informer.listen(move |change| {
        let Some(receiver) = receiver.upgrade() else { return };
        if !receiver.try_apply(|scheduler, now| handle(scheduler, now, change)) {
            let (handle, change) = (Arc::clone(&handle), OwnedChange::new(change));
            receiver.defer(Box::new(move |scheduler, now| handle(scheduler, now, &change.as_change())));
        }
    });
}

fn put<K: Resource>(store: &mut Store<K>, change: &Change<'_, K>) {
    let object = change.object();
    match change.is_deletion() {
        true => store.remove(&key(&**object)),
        false => store.insert(key(&**object), object.clone()),
    };
}
