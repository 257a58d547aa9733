//! Keeps records and sources up to date with the services, slices, namespaces and nodes of the API.
//!
//! The informers hold no objects: a handler takes the few fields that records need, and drops the rest.

use super::access::{AllowedSources, node_network};
use super::records::{Records, ServiceSource, SliceSource, service_of};
use api::Resource;
use api::core::v1::{Namespace, Node, Service};
use api::discovery::v1::EndpointSlice;
use client::{Client, Handler, InformerFactory, Key, SummaryInformer};
use names::Names;
use std::sync::Arc;

struct NamespaceHandler(Arc<Records>);

impl Handler<Namespace> for NamespaceHandler {
    type Summary = String;

    fn apply(&self, namespace: &Arc<Namespace>, old: Option<&String>) -> String {
        let name = namespace.name().to_owned();
        if old.is_none() {
            self.0.set_namespace(&name, true);
        }
        name
    }

    fn delete(&self, last: String) {
        self.0.set_namespace(&last, false);
    }
}

struct ServiceHandler(Arc<Records>);

impl Handler<Service> for ServiceHandler {
    type Summary = Key;

    fn apply(&self, service: &Arc<Service>, _: Option<&Key>) -> Key {
        let key = Key::of(&**service);
        self.0.set_service(&key, Some(ServiceSource::new(service)));
        key
    }

    fn delete(&self, last: Key) {
        self.0.set_service(&last, None);
    }
}

struct SliceHandler {
    records: Arc<Records>,
    /// The label with the service of a slice.
    label: String,
}

/// A slice, and the service that it belongs to.
#[derive(PartialEq, Eq)]
struct SliceOwner {
    service: Option<Key>,
    name: String,
}

impl SliceHandler {
    fn remove(&self, slice: &SliceOwner) {
        if let Some(service) = &slice.service {
            self.records.set_slice(service, &slice.name, None);
        }
    }
}

impl Handler<EndpointSlice> for SliceHandler {
    type Summary = SliceOwner;

    fn apply(&self, slice: &Arc<EndpointSlice>, old: Option<&SliceOwner>) -> SliceOwner {
        let owner = SliceOwner { service: service_of(slice, &self.label), name: slice.name().to_owned() };
        if let Some(old) = old.filter(|it| **it != owner) {
            self.remove(old);
        }
        if let Some(service) = &owner.service {
            self.records.set_slice(service, &owner.name, Some(SliceSource::new(slice)));
        }
        owner
    }

    fn delete(&self, last: SliceOwner) {
        self.remove(&last);
    }
}

struct NodeHandler(Arc<AllowedSources>);

impl Handler<Node> for NodeHandler {
    type Summary = String;

    fn apply(&self, node: &Arc<Node>, _: Option<&String>) -> String {
        let (name, network) = node_network(node);
        self.0.set_node(&name, Some(network));
        name
    }

    fn delete(&self, last: String) {
        self.0.set_node(&last, None);
    }
}

/// The informers; they end when it is dropped.
pub struct ClusterInformers {
    _factory: InformerFactory,
    namespaces: SummaryInformer<Namespace, NamespaceHandler>,
    services: SummaryInformer<Service, ServiceHandler>,
    slices: SummaryInformer<EndpointSlice, SliceHandler>,
    nodes: SummaryInformer<Node, NodeHandler>,
}

impl ClusterInformers {
    pub fn start(
        client: &Client,
        records: &Arc<Records>,
        sources: &Arc<AllowedSources>,
        names: &Names,
    ) -> Self {
        let factory = InformerFactory::new(client.clone());
        let slices = SliceHandler { records: records.clone(), label: names.well_known("service-name") };
        ClusterInformers {
            namespaces: factory.summaries("", NamespaceHandler(records.clone())),
            services: factory.summaries("", ServiceHandler(records.clone())),
            slices: factory.summaries("", slices),
            nodes: factory.summaries("", NodeHandler(sources.clone())),
            _factory: factory,
        }
    }

    /// Waits until all first lists are complete.
    pub async fn synced(&self) {
        self.namespaces.synced().await;
        self.services.synced().await;
        self.slices.synced().await;
        self.nodes.synced().await;
    }
}
