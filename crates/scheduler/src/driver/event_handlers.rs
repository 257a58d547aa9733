//! Changes of objects other than pods, carried into the snapshot and the queue.

use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::apps::v1::{ReplicaSet, StatefulSet};
use api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service,
};
use api::policy::v1::PodDisruptionBudget;
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use client::{Change, Informer, InformerFactory};

use crate::scheduler::Scheduler;
use crate::storage::{Store, key};

/// The informers of everything that scheduling reads besides pods.
pub(super) struct Informers {
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

    /// Carries the cached objects over, then every change.
    pub fn listen(&self, driver: &Arc<impl Receiver>) {
        listen(&self.namespaces, driver, |scheduler, _, change| {
            let object = change.object();
            match change.is_deletion() {
                true => scheduler.snapshot.remove_namespace(object.name()),
                false => scheduler.snapshot.set_namespace(object.name(), object.metadata.labels.clone()),
            }
        });
        listen(&self.classes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_class(&key(&***object)),
            _ => scheduler.set_class(now, change.object().clone()),
        });
        listen(&self.csi_nodes, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_csi_node(now, &key(&***object)),
            _ => scheduler.set_csi_node(now, change.object().clone()),
        });
        listen(&self.csi_drivers, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_csi_driver(now, &key(&***object)),
            _ => scheduler.set_csi_driver(now, change.object().clone()),
        });
        listen(&self.csi_capacities, driver, |scheduler, now, change| match change {
            Change::Deleted(object) => scheduler.remove_csi_capacity(now, &key(&***object)),
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
    }
}

/// The receiver of changes.
pub(super) trait Receiver: Send + Sync + 'static {
    /// Applies a change to the scheduler after all that wait: at once, or when it is free.
    fn apply(&self, change: impl FnOnce(&mut Scheduler, Duration) + Send + 'static);
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
        let (handle, change) = (Arc::clone(&handle), OwnedChange::new(change));
        receiver.apply(move |scheduler, now| handle(scheduler, now, &change.as_change()));
    });
}

fn put<K: Resource>(store: &mut Store<K>, change: &Change<'_, K>) {
    let object = change.object();
    match change.is_deletion() {
        true => store.remove(&key(&**object)),
        false => store.insert(key(&**object), object.clone()),
    };
}
