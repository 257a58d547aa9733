//! The objects besides nodes and pods that plugins read: storage, workloads that own pods, budgets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Resource;
use api::apps::v1::{ReplicaSet, StatefulSet};
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, ReplicationController, Service};
use api::policy::v1::PodDisruptionBudget;
use api::resource::v1alpha1::{PodScheduling, ResourceClaim, ResourceClass};
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};

/// Objects by name, or by `namespace/name`.
pub type Store<T> = HashMap<String, Arc<T>>;

#[derive(Debug, Default)]
pub struct Storage {
    pub resources: ResourceStore,
    pub volumes: AssumeStore<PersistentVolume>,
    pub claims: AssumeStore<PersistentVolumeClaim>,
    pub classes: Store<StorageClass>,
    pub csi_nodes: Store<CSINode>,
    pub csi_drivers: Store<CSIDriver>,
    pub csi_capacities: Store<CSIStorageCapacity>,
}

/// Objects by name that may have an assumed version: one that the scheduler decided on and is about to write.
#[derive(Debug)]
pub struct AssumeStore<T> {
    entries: HashMap<String, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    /// The version of the server.
    api: Arc<T>,
    assumed: Option<Arc<T>>,
}

impl<T> Default for AssumeStore<T> {
    fn default() -> Self {
        AssumeStore { entries: HashMap::new() }
    }
}

impl<T: Resource> AssumeStore<T> {
    /// Takes an object of the server; an assumed version stays until a newer one comes.
    pub fn set(&mut self, object: Arc<T>) {
        let key = key(&*object);
        match self.entries.get_mut(&key) {
            Some(entry) if version(&*object) <= version(&*entry.api) && entry.assumed.is_some() => {}
            _ => {
                self.entries.insert(key, Entry { api: object, assumed: None });
            }
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    pub fn assume(&mut self, object: Arc<T>) {
        if let Some(entry) = self.entries.get_mut(&key(&*object)) {
            entry.assumed = Some(object);
        }
    }

    /// Takes back an assumed version.
    pub fn restore(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.assumed = None;
        }
    }

    /// The assumed version, or that of the server.
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.entries.get(key).map(|entry| entry.assumed.as_ref().unwrap_or(&entry.api))
    }

    /// The version of the server.
    pub fn get_api(&self, key: &str) -> Option<&Arc<T>> {
        self.entries.get(key).map(|entry| &entry.api)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.values().map(|entry| entry.assumed.as_ref().unwrap_or(&entry.api))
    }
}

/// `namespace/name`, or the name of an object of the cluster.
pub fn key(object: &impl Resource) -> String {
    match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    }
}

fn version(object: &impl Resource) -> u64 {
    object.resource_version().parse().unwrap_or(0)
}

/// The objects of dynamic resources.
#[derive(Debug, Default)]
pub struct ResourceStore {
    pub claims: Store<ResourceClaim>,
    pub classes: Store<ResourceClass>,
    /// By the pod that they belong to.
    pub schedulings: Store<PodScheduling>,
}

#[derive(Debug, Default)]
pub struct Workloads {
    /// In the order of their namespaces.
    pub services: BTreeMap<String, Arc<Service>>,
    pub replication_controllers: Store<ReplicationController>,
    pub replica_sets: Store<ReplicaSet>,
    pub stateful_sets: Store<StatefulSet>,
    pub budgets: Store<PodDisruptionBudget>,
}

impl Workloads {
    pub fn services_of(&self, namespace: &str) -> impl Iterator<Item = &Service> {
        let first = format!("{namespace}/");
        let later = self.services.range(first.clone()..);
        later.take_while(move |(key, _)| key.starts_with(&first)).map(|(_, service)| &**service)
    }
}
