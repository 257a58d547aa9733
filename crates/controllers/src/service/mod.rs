//! The service controller: gives services of type LoadBalancer the addresses of nodes.
//!
//! Nodes offer ports with an annotation, which the service proxy of the machine writes; see the module `load_balancer` of
//! the crate `network`. This loop is the only one that assigns them, so that servers that share a store do not each give
//! the addresses of their own machine. Upstream's controller of this name calls a cloud provider instead.
//!
//! Invariants: services with a class, and those with addresses that no node has, belong to other load balancers. While
//! no node at all is ready, addresses stay as they are.

mod assign;

use crate::{Context, nodes};
use api::core::v1::{Node, Service};
use api::discovery::v1::EndpointSlice;
use assign::{Assignment, Assignments, NodePorts, assign, current, ports};
use client::{Action, Api, Change, Failure, Informer, Key, Note, Patch, Queue, Reconcile, run};
use names::load_balancers::NODES;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

const LOAD_BALANCER: &str = "LoadBalancer";
/// Slices by the key of their service.
const BY_SERVICE: &str = "service/slices";

/// The one key of the queue: services compete for ports, so one decision is about all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AllServices;

impl fmt::Display for AllServices {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("all services")
    }
}

struct LoadBalancers {
    context: Context,
    services: Informer<Service>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    /// Services without addresses whose event is written.
    pending: Mutex<BTreeSet<Key>>,
}

pub async fn run(context: Context) {
    let balancers = LoadBalancers {
        services: context.informer(),
        nodes: context.informer(),
        slices: context.informer(),
        pending: Mutex::default(),
        context,
    };
    let queue = Queue::new(&balancers.context.world);
    balancers.listen(&queue);
    tokio::join!(balancers.services.synced(), balancers.nodes.synced(), balancers.slices.synced());
    queue.add(AllServices);
    run::run(Arc::new(balancers), queue, 1).await;
}

impl LoadBalancers {
    fn listen(&self, queue: &Queue<AllServices>) {
        let label = self.context.names.well_known("service-name");
        self.slices.index(BY_SERVICE, move |slice| {
            let service = slice.metadata.labels.get(&label);
            service.map(|name| Key::new(&slice.metadata.namespace, name).to_string()).into_iter().collect()
        });
        let changed = queue.clone();
        self.services.listen(move |_| changed.add(AllServices));
        let (changed, names) = (queue.clone(), self.context.names.clone());
        self.nodes.listen(move |change| {
            // most writes to a node are heartbeats
            let is_heartbeat = matches!(change, Change::Updated { old, new }
                if NodePorts::new(old, &names) == NodePorts::new(new, &names));
            if !is_heartbeat {
                changed.add(AllServices);
            }
        });
        let (changed, services) = (queue.clone(), self.services.clone());
        let label = self.context.names.well_known("service-name");
        self.slices.listen(move |change| {
            let metadata = &change.object().metadata;
            let name = metadata.labels.get(&label).map(String::as_str).unwrap_or_default();
            let service = services.get(&Key::new(&metadata.namespace, name));
            if service.is_some_and(|it| {
                it.spec.type_ == LOAD_BALANCER && it.spec.external_traffic_policy == "Local"
            }) {
                changed.add(AllServices);
            }
        });
    }

    /// The nodes with ready endpoints of a service.
    fn endpoint_nodes(&self, service: &Service) -> BTreeSet<String> {
        let slices = self.slices.by(BY_SERVICE, &Key::of(service).to_string());
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        endpoints
            .filter(|it| it.conditions.ready != Some(false))
            .filter_map(|it| it.node_name.clone())
            .collect()
    }

    fn assignments(&self, services: &[Arc<Service>]) -> Assignments {
        let mut all: Vec<NodePorts> =
            self.nodes.all().iter().map(|node| NodePorts::new(node, &self.context.names)).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        assign(services, &all, |service| self.endpoint_nodes(service))
    }

    async fn write(&self, service: &Service, assignment: &Assignment) -> Result<(), Failure> {
        let marked = service.metadata.annotations.get(NODES).map(String::as_str).unwrap_or_default();
        let mark = assignment.nodes.join(",");
        if current(service) == assignment.addresses && marked == mark {
            return Ok(());
        }
        let ingress: Vec<Value> =
            assignment.addresses.iter().map(|address| json!({"ip": address.to_string()})).collect();
        let patch = Patch::merge(json!({
            "metadata": {
                "resourceVersion": service.metadata.resource_version,
                "annotations": {NODES: (!mark.is_empty()).then_some(&mark)},
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        }));
        let services: Api<Service> = Api::beside(&self.context.client, service);
        match services.patch_status(&service.metadata.name, &patch).await {
            Ok(_) if assignment.addresses.is_empty() => Ok(()),
            Ok(_) => {
                let addresses: Vec<String> = assignment.addresses.iter().map(IpAddr::to_string).collect();
                let message = format!("Clients reach it at {}", addresses.join(", "));
                self.context.events.note(service, Note::normal("EnsuredLoadBalancer", message));
                Ok(())
            }
            // the change that caused it arrives
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Says why services have no address, once each.
    fn explain(&self, services: &BTreeMap<Key, &Arc<Service>>, assignments: &Assignments) {
        let without: BTreeSet<Key> = assignments
            .iter()
            .filter(|(_, it)| it.addresses.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        let mut pending = self.pending.lock();
        for key in without.difference(&pending) {
            let Some(service) = services.get(key) else { continue };
            let ports: Vec<String> =
                ports(service).map(|(number, protocol)| format!("{number}/{protocol}")).collect();
            let message = format!("No ready node has the ports free: {}", ports.join(", "));
            self.context.events.note(&***service, Note::warning("SyncLoadBalancerFailed", message));
        }
        *pending = without;
    }
}

impl Reconcile for LoadBalancers {
    type Key = AllServices;

    fn name(&self) -> &'static str {
        "service"
    }

    async fn reconcile(&self, _: &AllServices) -> Result<Action, Failure> {
        let services = self.services.all();
        let is_marked = |service: &Service| service.metadata.annotations.contains_key(NODES);
        let concerns = |service: &Service| service.spec.type_ == LOAD_BALANCER || is_marked(service);
        let is_any_ready = || self.nodes.all().iter().any(|node| nodes::ready(node) == Some("True"));
        if !services.iter().any(|service| concerns(service)) || !is_any_ready() {
            return Ok(Action::AwaitChange);
        }
        let assignments = self.assignments(&services);
        let by_key: BTreeMap<Key, &Arc<Service>> =
            services.iter().map(|service| (Key::of(&**service), service)).collect();
        for (key, assignment) in &assignments {
            if let Some(service) = by_key.get(key) {
                self.write(service, assignment).await?;
            }
        }
        // services that are no load balancers any more: the server has removed their addresses
        let released = services.iter().filter(|it| is_marked(it) && it.spec.type_ != LOAD_BALANCER);
        for service in released {
            self.write(service, &Assignment::default()).await?;
        }
        self.explain(&by_key, &assignments);
        Ok(Action::AwaitChange)
    }
}
