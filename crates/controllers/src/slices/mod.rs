//! Endpoint slices of one owner: identity of endpoints and ports, and plans of writes.
//!
//! Invariant: the endpoints of a slice have one address family and the same ports; the family of a slice never changes.

pub mod metrics;

use crate::backends::{self, BY_LABEL};
use crate::{Context, controller_ref};
use api::Resource;
use api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use api::meta::v1::{DeleteOptions, ObjectMeta, OwnerReference};
use client::{Api, Change, Client, Failure, Informer, Key, Queue, WriteTracker, run, unless};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The label with the service of a slice.
pub fn service_label(names: &Names) -> String {
    names.well_known("service-name")
}

/// The label with the manager of a slice.
pub fn manager_label(names: &Names) -> String {
    names.well_known_under("endpointslice", "managed-by")
}

/// The service of a slice that this manager writes.
pub fn service_of(slice: &EndpointSlice, manager: &str, names: &Names) -> Option<Key> {
    let labels = &slice.metadata.labels;
    let is_managed = labels.get(&manager_label(names)).is_some_and(|it| it == manager);
    let service = labels.get(&service_label(names)).filter(|it| is_managed && !it.is_empty())?;
    Some(Key::new(slice.namespace(), service))
}

/// Options of a loop that writes slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// The limit of endpoints of a slice, or of addresses of a subset.
    pub most: usize,
    /// How long changes are batched.
    pub batch_period: Duration,
}

impl Options {
    pub fn with(most: usize) -> Self {
        Options { workers: run::WORKERS, most, batch_period: Duration::ZERO }
    }
}

/// The informer of slices, with an index by labels. Queues a service when a slice of it that this manager writes
/// changes.
pub fn follow(context: &Context, queue: &Queue<Key>, manager: String) -> Informer<EndpointSlice> {
    let slices = context.informer::<EndpointSlice>();
    slices.index(BY_LABEL, backends::by_label);
    let (changed, names) = (queue.clone(), context.names.clone());
    slices.listen(move |change| {
        if let Change::Updated { old, .. } = change {
            service_of(old, &manager, &names).into_iter().for_each(|key| changed.add(key));
        }
        service_of(change.object(), &manager, &names).into_iter().for_each(|key| changed.add(key));
    });
    slices
}

/// The slices of a service that this manager writes, by name; without terminating ones.
pub fn of_service(
    slices: &Informer<EndpointSlice>,
    service: &Key,
    manager: &str,
    names: &Names,
) -> Vec<Arc<EndpointSlice>> {
    let mut slices_of_service =
        backends::with_label(slices, &service.namespace, &service_label(names), &service.name);
    slices_of_service.retain(|it| {
        it.metadata.deletion_timestamp.is_none() && service_of(it, manager, names).as_ref() == Some(service)
    });
    slices_of_service.sort_by(|a, b| a.name().cmp(b.name()));
    slices_of_service
}

/// The identity of an endpoint: its addresses, its host name, and namespace and name of its target.
pub type EndpointIdentity = (Vec<String>, Option<String>, Option<(String, String)>);

pub fn identity(endpoint: &Endpoint) -> EndpointIdentity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let target = endpoint.target_ref.as_ref();
    (addresses, endpoint.hostname.clone(), target.map(|it| (it.namespace.clone(), it.name.clone())))
}

/// Whether two endpoints of one identity are equal, apart from hints.
pub fn unchanged(one: &Endpoint, other: &Endpoint) -> bool {
    let target = |it: &Endpoint| {
        let mut target = it.target_ref.clone();
        if let Some(target) = &mut target {
            target.resource_version.clear();
        }
        target
    };
    one.node_name == other.node_name
        && one.zone == other.zone
        && one.conditions == other.conditions
        && target(one) == target(other)
}

/// The identity of a list of ports, in whatever order.
pub type Ports = Vec<(String, Option<i32>, String, String)>;

pub fn ports(ports: &[EndpointPort]) -> Ports {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    let one = |it: &EndpointPort| {
        let protocol = backends::protocol(it.protocol.as_deref().unwrap_or_default()).to_owned();
        (text(&it.name), it.port, protocol, text(&it.app_protocol))
    };
    let mut all: Ports = ports.iter().map(one).collect();
    all.sort();
    all
}

/// The constant fields of the slices of an owner.
#[derive(Clone)]
pub struct Template {
    pub namespace: String,
    /// The prefix of names.
    pub prefix: String,
    pub owner: OwnerReference,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub address_type: String,
    pub ports: Vec<EndpointPort>,
}

impl Template {
    /// A slice without endpoints.
    pub fn slice(&self) -> EndpointSlice {
        EndpointSlice {
            metadata: ObjectMeta {
                generate_name: format!("{}-", self.prefix),
                namespace: self.namespace.clone(),
                labels: self.labels.clone(),
                annotations: self.annotations.clone(),
                owner_references: vec![self.owner.clone()],
                ..ObjectMeta::default()
            },
            address_type: self.address_type.clone(),
            ports: self.ports.clone(),
            ..EndpointSlice::default()
        }
    }
}

/// Writes to be made.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

impl Plan {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    pub fn add(&mut self, other: Plan) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }

    /// Turns pairs of a deletion and a creation into updates. Slices of an earlier owner of the same name are
    /// deleted, and the family of a slice does not change.
    pub fn recycle(&mut self, owner: &impl Resource) {
        let mut deleted = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            let fits = |new: &EndpointSlice| new.address_type == old.address_type;
            match self
                .create
                .iter()
                .rposition(fits)
                .filter(|_| controller_ref::is_controlled_by(&*old, owner))
            {
                Some(at) => {
                    let mut new = self.create.remove(at);
                    new.metadata.generate_name = old.metadata.generate_name.clone();
                    new.metadata.name = old.metadata.name.clone();
                    new.metadata.resource_version = old.metadata.resource_version.clone();
                    new.metadata.uid = old.metadata.uid.clone();
                    self.update.push(new);
                }
                None => deleted.push(old),
            }
        }
        self.delete = deleted;
    }

    /// Carries out the plan for an owner. Creates nothing for a terminating one.
    pub async fn carry_out(
        self,
        client: &Client,
        written: &WriteTracker<EndpointSlice>,
        key: &Key,
        is_terminating: bool,
    ) -> Result<(), Failure> {
        let api: Api<EndpointSlice> = Api::namespaced(client, &key.namespace);
        let failed = |what: &str, name: &str, why: client::Error| {
            let why = Failure::from(why);
            // the informer will show the new state, and the service is reconciled again
            if why.is(409) || why.is(404) {
                return why;
            }
            let name = if name.is_empty() { String::new() } else { format!("{name} ") };
            Failure::Other(format!(
                "failed to {what} {name}EndpointSlice for Service {key}: {}",
                why.message()
            ))
        };
        for slice in self.create.iter().filter(|_| !is_terminating) {
            match api.create(slice).await {
                Ok(created) => written.wrote(key, &created),
                Err(why) if client::is_terminating(&why) => return Ok(()),
                Err(why) => return Err(failed("create", "", why)),
            }
        }
        for slice in &self.update {
            match api.replace(slice).await {
                Ok(updated) => written.wrote(key, &updated),
                Err(why) => return Err(failed("update", slice.name(), why)),
            }
        }
        for slice in &self.delete {
            unless(404, api.delete(slice.name(), &DeleteOptions::default()).await)
                .map_err(|why| failed("delete", slice.name(), why))?;
            written.deleted(key, slice);
        }
        Ok(())
    }
}
