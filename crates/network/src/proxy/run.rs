//! The running proxy: follows services, endpoint slices and its node, and writes the rules.
//!
//! Changes are queued by the informers and taken by one sync at a time, which runs on a thread for blocking work. What
//! arrives during a sync is taken by the next one, at once. A failed sync is repeated after a pause.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::core::v1::{Node, Service};
use api::discovery::v1::EndpointSlice;
use client::informer::Handler;
use client::{Client, InformerFactory};
use env::World;
use names::Names;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::health::ProxyHealth;
use super::health_check::HealthCheckServers;
use super::metrics::Metrics;
use super::proxy_events::ProxyEvents;
use super::proxy_writer::ProxyWriter;
use super::rules::{LocalSource, RuleOptions};
use super::state::{ProxyState, ServiceKey};
use crate::netfilter::{Error, Family, Prefix};

/// The pause after a failed sync.
const RETRY: Duration = Duration::from_secs(1);

/// How the proxy recognizes traffic of pods on its node.
#[derive(Debug, Clone, PartialEq)]
pub enum DetectLocal {
    None,
    /// Pods of the cluster have addresses in these networks.
    ClusterNetworks(Vec<Prefix>),
    /// Pods of the node have addresses in `spec.podCIDRs` of the node.
    NodeNetworks,
    Interface(String),
    InterfacePrefix(String),
}

/// Settings of a proxy.
#[derive(Clone)]
pub struct Options {
    pub names: Names,
    pub node_name: String,
    pub families: Vec<Family>,
    pub has_masquerade_all: bool,
    pub masquerade_mark: u32,
    pub detect_local: DetectLocal,
    pub node_port_networks: Vec<Prefix>,
    pub has_localhost_node_ports: bool,
    pub has_terminating_fallback: bool,
    /// How often the proxy looks whether another program changed packet filters.
    pub sync_period: Duration,
    pub metrics: Metrics,
    pub health: Arc<ProxyHealth>,
}

impl Options {
    fn rule_options(&self, node_networks: &[Prefix]) -> Vec<RuleOptions> {
        let of_family = |networks: &[Prefix], family| {
            networks
                .iter()
                .copied()
                .filter(|network| Family::of(network.first()) == family)
                .collect::<Vec<_>>()
        };
        let first = |networks: &[Prefix], family| of_family(networks, family).first().copied();
        let options = |family: &Family| RuleOptions {
            has_masquerade_all: self.has_masquerade_all,
            masquerade_mark: self.masquerade_mark,
            local_source: match &self.detect_local {
                DetectLocal::None => None,
                DetectLocal::ClusterNetworks(networks) => first(networks, *family).map(LocalSource::Network),
                DetectLocal::NodeNetworks => first(node_networks, *family).map(LocalSource::Network),
                DetectLocal::Interface(name) => Some(LocalSource::Interface(name.clone())),
                DetectLocal::InterfacePrefix(prefix) => Some(LocalSource::InterfacePrefix(prefix.clone())),
            },
            node_port_networks: of_family(&self.node_port_networks, *family),
            has_localhost_node_ports: self.has_localhost_node_ports,
            has_terminating_fallback: self.has_terminating_fallback,
            ..RuleOptions::new(*family)
        };
        self.families.iter().map(options).collect()
    }
}

/// A change of an object.
enum Event {
    Service(ServiceKey, Option<Arc<Service>>),
    Slice { slice: Arc<EndpointSlice>, is_deleted: bool, triggered: Option<SystemTime> },
    Node(NodeInfo),
}

/// The properties of the node that rules depend on.
#[derive(Debug, Clone, Default, PartialEq)]
struct NodeInfo {
    zone: Option<String>,
    addresses: Vec<IpAddr>,
    networks: Vec<Prefix>,
}

impl NodeInfo {
    fn read(node: &Node, names: &Names) -> Self {
        let zone = node.metadata.labels.get(&names.well_known_under("topology", "zone")).cloned();
        let is_address = |kind: &str| matches!(kind, "InternalIP" | "ExternalIP");
        let addresses = node.status.addresses.iter().filter(|address| is_address(&address.type_));
        let networks = node.spec.pod_cidrs.iter().filter_map(|network| network.parse().ok());
        Self {
            zone,
            addresses: addresses.filter_map(|address| address.address.parse().ok()).collect(),
            networks: networks.collect(),
        }
    }
}

/// The changes that no sync has taken.
struct EventQueue {
    events: Mutex<Vec<Event>>,
    changed: Notify,
    names: Names,
    world: World,
    metrics: Metrics,
    health: Arc<ProxyHealth>,
}

impl EventQueue {
    fn push(&self, event: Event) {
        match event {
            Event::Service(..) => self.metrics.queue_service_change(self.world.now()),
            Event::Slice { .. } => self.metrics.queue_endpoint_change(self.world.now()),
            Event::Node(_) => (),
        }
        self.health.queue_update();
        self.events.lock().push(event);
        self.changed.notify_one();
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }

    /// When the change happened that an endpoint slice was written for.
    fn trigger_time(&self, slice: &EndpointSlice) -> Option<SystemTime> {
        let name = self.names.well_known_under("endpoints", "last-change-trigger-time");
        let micros = schema::time::to_unix_micros(slice.metadata.annotations.get(&name)?)?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).ok()?))
    }
}

struct Services(Arc<EventQueue>);

impl Handler<Service> for Services {
    type Summary = ServiceKey;

    fn apply(&self, object: &Arc<Service>, old: Option<&ServiceKey>) -> ServiceKey {
        let metadata = &object.metadata;
        let key = old.cloned().unwrap_or_else(|| format!("{}/{}", metadata.namespace, metadata.name).into());
        self.0.push(Event::Service(key.clone(), Some(object.clone())));
        key
    }

    fn delete(&self, last: ServiceKey) {
        self.0.push(Event::Service(last, None));
    }
}

struct Slices(Arc<EventQueue>);

impl Slices {
    fn push(&self, slice: Arc<EndpointSlice>, is_deleted: bool) {
        let triggered = self.0.trigger_time(&slice);
        self.0.push(Event::Slice { slice, is_deleted, triggered });
    }
}

/// The slice without its endpoints, by which its deletion is handled.
impl Handler<EndpointSlice> for Slices {
    type Summary = EndpointSlice;

    fn apply(&self, object: &Arc<EndpointSlice>, old: Option<&EndpointSlice>) -> EndpointSlice {
        let mut summary = EndpointSlice::default();
        summary.metadata.namespace.clone_from(&object.metadata.namespace);
        summary.metadata.name.clone_from(&object.metadata.name);
        summary.metadata.labels.clone_from(&object.metadata.labels);
        // the label says which service it belongs to
        if let Some(old) = old.filter(|old| old.metadata.labels != object.metadata.labels) {
            self.push(Arc::new(old.clone()), true);
        }
        self.push(object.clone(), false);
        summary
    }

    fn delete(&self, last: EndpointSlice) {
        self.push(Arc::new(last), true);
    }
}

/// The part of the proxy that a sync uses.
struct Core {
    state: ProxyState,
    writer: ProxyWriter,
    node_addresses: Vec<IpAddr>,
    /// Times of changes that are not written yet.
    triggered: Vec<SystemTime>,
    queue: Arc<EventQueue>,
}

impl Core {
    /// Takes the queued changes and writes their rules.
    fn sync(&mut self, world: &World) -> Result<(), Error> {
        let start = world.elapsed();
        let events = self.queue.take();
        let count = |is_kind: fn(&Event) -> bool| events.iter().filter(|event| is_kind(event)).count();
        let services = count(|event| matches!(event, Event::Service(..)));
        let slices = count(|event| matches!(event, Event::Slice { .. }));
        self.queue.metrics.take_changes(services, slices);
        events.into_iter().for_each(|event| self.apply(event));
        let changes = self.state.sync();
        let kind = self.writer.write(&self.state, &changes)?;
        let now = world.now();
        let without_local = self.state.without_local_endpoints();
        let elapsed = world.elapsed().saturating_sub(start);
        self.queue.metrics.observe_sync(kind, elapsed, now, without_local);
        for time in self.triggered.drain(..) {
            self.queue.metrics.observe_programming(now.duration_since(time).unwrap_or_default());
        }
        tracing::debug!(services, slices, changes = changes.batch.changes.len(), ?elapsed, "wrote the rules");
        Ok(())
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Service(key, service) => _ = self.state.set_service(&key, service.as_deref()),
            Event::Slice { slice, is_deleted, triggered } => {
                if self.state.set_slice(&slice, is_deleted) {
                    self.triggered.extend(triggered);
                }
            }
            Event::Node(node) => {
                self.node_addresses.clone_from(&node.addresses);
                self.state.set_node(node.zone, node.addresses);
            }
        }
    }
}

/// Runs the proxy; it ends with an error that repeating does not cure.
pub async fn run(client: Client, world: World, options: Options) -> Result<(), Error> {
    let queue = Arc::new(EventQueue {
        events: Mutex::default(),
        changed: Notify::new(),
        names: options.names.clone(),
        world: world.clone(),
        metrics: options.metrics.clone(),
        health: options.health.clone(),
    });
    let writer = ProxyWriter::open()?;
    let events = ProxyEvents::new(client.clone(), world.clone(), &options.names, &options.node_name);
    events.record_start();
    let factory = InformerFactory::new(client);
    let node = follow_node(&factory, &options, &queue).await;
    let services = factory.summaries("", Services(queue.clone()));
    let slices = factory.summaries("", Slices(queue.clone()));
    tokio::join!(services.synced(), slices.synced());
    let state =
        ProxyState::new(options.names.clone(), &options.node_name, options.rule_options(&node.networks));
    let mut core =
        Core { state, writer, node_addresses: Vec::new(), triggered: Vec::new(), queue: queue.clone() };
    let mut servers = HealthCheckServers::new(options.node_port_networks.clone());
    tracing::info!(node = options.node_name, "the service proxy has its objects");
    // times of changes before the start say nothing about this process
    let mut is_first = true;
    loop {
        let for_sync = world.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = core.sync(&for_sync);
            if is_first {
                core.triggered.clear();
            }
            (core, result)
        });
        let result = match task.await {
            Ok((returned, result)) => {
                core = returned;
                result
            }
            // the runtime ends
            Err(_) => return Ok(()),
        };
        let pause = match result {
            Ok(()) => {
                is_first = false;
                options.health.set_updated();
                let checks = core.state.health_checks();
                for (service, error) in servers.sync(&checks, &core.node_addresses).await {
                    tracing::error!(%service, %error, "cannot open the health check node port");
                    let port = checks.get(&service).map_or(0, |check| check.port);
                    events.record_health_check_failure(&service, port, &error.to_string());
                }
                options.sync_period
            }
            Err(error) => {
                tracing::error!(%error, "cannot write the rules of services");
                options.metrics.count_failure();
                core.writer.request_full_sync();
                env::sleep(&world, RETRY).await;
                continue;
            }
        };
        tokio::select! {
            () = queue.changed.notified() => (),
            () = env::sleep(&world, pause) => core.writer.check_foreign_changes(),
        }
    }
}

/// Follows the proxy's node. If its networks are needed, it waits for them.
async fn follow_node(factory: &InformerFactory, options: &Options, queue: &Arc<EventQueue>) -> NodeInfo {
    let nodes = factory.informer_of::<Node>("", &format!("metadata.name={}", options.node_name));
    let (names, changes) = (options.names.clone(), queue.clone());
    let arrived = Arc::new(Notify::new());
    let notify = arrived.clone();
    let last = Mutex::new(None);
    nodes.listen(move |change| {
        let info = match change.is_deletion() {
            true => NodeInfo::default(),
            false => NodeInfo::read(change.object(), &names),
        };
        // most writes to a node are about its conditions
        let mut last = last.lock();
        if last.as_ref() != Some(&info) {
            changes.push(Event::Node(info.clone()));
            *last = Some(info);
        }
        notify.notify_one();
    });
    nodes.synced().await;
    loop {
        let node = nodes.all().into_iter().next();
        let info = node.map(|node| NodeInfo::read(&node, &options.names)).unwrap_or_default();
        if options.detect_local != DetectLocal::NodeNetworks || !info.networks.is_empty() {
            return info;
        }
        tracing::info!(node = options.node_name, "waiting for the node's pod networks");
        arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::configuration::{Configuration, Flags};

    /// How pods are recognized in each family, by the flags and the networks of the node.
    fn local_sources(arguments: &str) -> [Option<LocalSource>; 2] {
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let flags = Flags::parse(&arguments).unwrap();
        let names = Names::kubernetes();
        let configuration = Configuration::load(&flags, None, &names).unwrap();
        let world: World = env::Seeded::new(0, 1);
        let options = Options {
            names,
            node_name: "node-1".to_owned(),
            families: vec![Family::Ipv4, Family::Ipv6],
            has_masquerade_all: false,
            masquerade_mark: 1 << 14,
            detect_local: configuration.detect_local(),
            node_port_networks: Vec::new(),
            has_localhost_node_ports: true,
            has_terminating_fallback: true,
            sync_period: Duration::from_secs(30),
            metrics: Metrics::new(&metrics::Registry::default()),
            health: Arc::new(ProxyHealth::new(world, Duration::from_secs(60))),
        };
        let node = ["10.1.2.0/24", "fd01:0:0:2::/64"].map(|network| network.parse().unwrap());
        let rules = options.rule_options(&node);
        let [ipv4, ipv6] = &rules[..] else { panic!("{}", rules.len()) };
        [ipv4.local_source.clone(), ipv6.local_source.clone()]
    }

    #[test]
    fn pods_are_recognized_in_every_mode() {
        let network = |text: &str| Some(LocalSource::Network(text.parse().unwrap()));
        let interface = |name: &str| Some(LocalSource::Interface(name.to_owned()));
        let prefix = |name: &str| Some(LocalSource::InterfacePrefix(name.to_owned()));
        for (arguments, expected) in [
            ("", [None, None]),
            ("--cluster-cidr 10.1.0.0/16", [network("10.1.0.0/16"), None]),
            (
                "--cluster-cidr 10.1.0.0/16,fd01::/48 --detect-local-mode ClusterCIDR",
                [network("10.1.0.0/16"), network("fd01::/48")],
            ),
            ("--detect-local-mode NodeCIDR", [network("10.1.2.0/24"), network("fd01:0:0:2::/64")]),
            (
                "--detect-local-mode BridgeInterface --pod-bridge-interface cni0",
                [interface("cni0"), interface("cni0")],
            ),
            (
                "--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth",
                [prefix("veth"), prefix("veth")],
            ),
        ] {
            assert_eq!(local_sources(arguments), expected, "{arguments}");
        }
    }
}
