//! Endpoint slices of one owner: what they hold, and how they are changed with few writes.
//!
//! What always holds: a slice has endpoints of one address family, all with the same ports; its family never changes.

pub mod metrics;

use crate::backends::{self, BY_LABEL};
use crate::{Context, controller_ref};
use client::{Change, Failure, Informer, Key, Queue, WriteTracker, run, unless};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The label that says for which service a slice is.
pub fn service_label(names: &Names) -> String {
    names.well_known("service-name")
}

/// The label that says who keeps a slice.
pub fn manager_label(names: &Names) -> String {
    names.well_known_under("endpointslice", "managed-by")
}

/// The service of a slice, if this one keeps it.
pub fn service_of(slice: &EndpointSlice, manager: &str, names: &Names) -> Option<Key> {
    let labels = slice.labels();
    let kept = labels.get(&manager_label(names)).is_some_and(|it| it == manager);
    let service = labels.get(&service_label(names)).filter(|it| kept && !it.is_empty())?;
    Some(Key::new(slice.namespace().unwrap_or_default(), service))
}

/// What an operator says about a loop that keeps slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How much is put together at the most: endpoints of a slice, or addresses of a subset.
    pub most: usize,
    /// How long is waited for more changes.
    pub batch_period: Duration,
}

impl Options {
    pub fn with(most: usize) -> Self {
        Options { workers: run::WORKERS, most, batch_period: Duration::ZERO }
    }
}

/// The slices, found by their labels. A service is looked at when one that this manager keeps for it changes.
pub fn follow(context: &Context, queue: &Queue<Key>, manager: String) -> Informer<EndpointSlice> {
    let slices = context.informer::<EndpointSlice>();
    slices.index(BY_LABEL, backends::by_label);
    let (news, names) = (queue.clone(), context.names.clone());
    slices.listen(move |change| {
        if let Change::Updated { old, .. } = change {
            service_of(old, &manager, &names).into_iter().for_each(|key| news.add(key));
        }
        service_of(change.object(), &manager, &names).into_iter().for_each(|key| news.add(key));
    });
    slices
}

/// The slices of a service that this one keeps, in the order of their names; not those that are on their way out.
pub fn of_service(
    slices: &Informer<EndpointSlice>,
    service: &Key,
    manager: &str,
    names: &Names,
) -> Vec<Arc<EndpointSlice>> {
    let mut found = backends::with_label(slices, &service.namespace, &service_label(names), &service.name);
    found.retain(|it| {
        it.metadata.deletion_timestamp.is_none() && service_of(it, manager, names).as_ref() == Some(service)
    });
    found.sort_by_key(|it| it.name_any());
    found
}

/// The identity of an endpoint: its addresses and its target.
pub type EndpointIdentity = (Vec<String>, Option<String>, Option<String>, Option<String>);

pub fn identity(endpoint: &Endpoint) -> EndpointIdentity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let target = endpoint.target_ref.as_ref();
    (
        addresses,
        endpoint.hostname.clone(),
        target.and_then(|it| it.namespace.clone()),
        target.and_then(|it| it.name.clone()),
    )
}

/// Whether nothing that can change has changed; hints are looked at elsewhere.
pub fn unchanged(one: &Endpoint, other: &Endpoint) -> bool {
    let target = |it: &Endpoint| {
        let mut target = it.target_ref.clone();
        if let Some(target) = &mut target {
            target.resource_version = None;
        }
        target
    };
    one.node_name == other.node_name
        && one.zone == other.zone
        && one.conditions == other.conditions
        && target(one) == target(other)
}

/// What makes two lists of ports the same, in whatever order.
pub type Ports = Vec<(String, Option<i32>, String, String)>;

pub fn ports(ports: &[EndpointPort]) -> Ports {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    let one = |it: &EndpointPort| {
        let protocol = backends::protocol(it.protocol.as_deref()).to_owned();
        (text(&it.name), it.port, protocol, text(&it.app_protocol))
    };
    let mut all: Ports = ports.iter().map(one).collect();
    all.sort();
    all
}

/// Who has a slice, for what, and under which labels.
#[derive(Clone)]
pub struct Template {
    pub namespace: String,
    /// What its name begins with.
    pub prefix: String,
    pub owner: OwnerReference,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub address_type: String,
    pub ports: Vec<EndpointPort>,
}

impl Template {
    /// A slice with nothing in it yet.
    pub fn slice(&self) -> EndpointSlice {
        EndpointSlice {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", self.prefix)),
                namespace: Some(self.namespace.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(self.annotations.clone()).filter(|it| !it.is_empty()),
                owner_references: Some(vec![self.owner.clone()]),
                ..ObjectMeta::default()
            },
            address_type: self.address_type.clone(),
            endpoints: Vec::new(),
            ports: Some(self.ports.clone()),
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

    /// What would go and what would be made become updates. What belongs to another owner of the same name is left to
    /// go, and a family never changes.
    pub fn recycle(&mut self, owner: &impl Resource) {
        let mut going = Vec::new();
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
                None => going.push(old),
            }
        }
        self.delete = going;
    }

    /// Makes the writes for an owner. Nothing is made for one that goes.
    pub async fn carry_out(
        self,
        client: &Client,
        written: &WriteTracker<EndpointSlice>,
        key: &Key,
        going: bool,
    ) -> Result<(), Failure> {
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &key.namespace);
        let failed = |what: &str, name: &str, why: kube::Error| {
            let why = Failure::from(why);
            // who was faster is seen soon, and it is looked at again
            if why.is(409) || why.is(404) {
                return why;
            }
            let name = if name.is_empty() { String::new() } else { format!("{name} ") };
            Failure::Other(format!(
                "failed to {what} {name}EndpointSlice for Service {key}: {}",
                why.message()
            ))
        };
        for slice in self.create.iter().filter(|_| !going) {
            match api.create(&PostParams::default(), slice).await {
                Ok(made) => written.wrote(key, &made),
                Err(why) if client::is_terminating(&why) => return Ok(()),
                Err(why) => return Err(failed("create", "", why)),
            }
        }
        for slice in &self.update {
            let name = slice.name_any();
            match api.replace(&name, &PostParams::default(), slice).await {
                Ok(now) => written.wrote(key, &now),
                Err(why) => return Err(failed("update", &name, why)),
            }
        }
        for slice in &self.delete {
            let name = slice.name_any();
            unless(404, api.delete(&name, &DeleteParams::default()).await)
                .map_err(|why| failed("delete", &name, why))?;
            written.deleted(key, slice);
        }
        Ok(())
    }
}
