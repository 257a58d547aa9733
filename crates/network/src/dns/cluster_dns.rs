//! The whole server of a node: joins informers, records, forwarder, sockets and announcement.

use super::announce::Announcer;
use super::forward::{Forwarder, Options as ForwardOptions};
use super::handler::Handler;
use super::lookup::Authority;
use super::peers::PeerChecks;
use super::server::{Listeners, bind};
use super::{AllowedSources, ClusterInformers, Metrics, PORT, Records};
use apimachinery::net::{Family, Network};
use client::{Client, Key};
use env::World;
use hickory_proto::rr::Name;
use metrics::Registry;
use names::Names;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The domain of the cluster.
    pub domain: String,
    /// The addresses at which it listens.
    pub addresses: Vec<SocketAddr>,
    /// The ranges of services and pods: reverse names within them are not forwarded.
    pub reverse_ranges: Vec<Network>,
    /// Ranges of clients besides pods and nodes.
    pub allowed_sources: Vec<Network>,
    pub forward: ForwardOptions,
    /// The name of the node, in the slice of this server.
    pub node_name: String,
    /// The addresses of the node, which are announced for a server that listens on all.
    pub node_addresses: Vec<IpAddr>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0:?} is no domain")]
    Domain(String),
    #[error("cannot listen on {}: {why}", addresses(.at))]
    Bind { at: Vec<SocketAddr>, why: io::Error },
}

fn addresses(at: &[SocketAddr]) -> String {
    at.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// See the module.
pub struct ClusterDns {
    client: Client,
    names: Names,
    node_name: String,
    node_addresses: Vec<IpAddr>,
    listeners: Listeners,
    records: Arc<Records>,
    sources: Arc<AllowedSources>,
    forwarder: Arc<Forwarder>,
    handler: Arc<Handler>,
    is_ready: Arc<AtomicBool>,
    peers: PeerChecks,
}

impl ClusterDns {
    /// Binds the sockets. Queries wait in them until [`ClusterDns::run`] has read the cluster's services.
    pub async fn bind(
        options: Options,
        client: &Client,
        names: &Names,
        registry: &Registry,
        world: &World,
    ) -> Result<Self, StartError> {
        let zone = zone(&options.domain).ok_or_else(|| StartError::Domain(options.domain.clone()))?;
        let service: Key = Announcer::service_key(names);
        let authority = Authority::new(zone.clone(), options.reverse_ranges, &service)
            .map_err(|_| StartError::Domain(options.domain.clone()))?;
        let listeners = bind(&options.addresses)
            .await
            .map_err(|why| StartError::Bind { at: options.addresses.clone(), why })?;
        let port = listeners.addresses().first().map_or(PORT, SocketAddr::port);
        let metrics = Metrics::new(registry, &options.domain, port);
        // seconds since the epoch, so that the number grows from start to start
        let serial = env::unix_seconds(world) as u32;
        let records = Arc::new(Records::new(&zone, serial));
        // this machine may ask before it is a node
        let own = listeners.addresses().iter().map(|it| Network::around(it.ip(), u8::MAX));
        let sources = options.allowed_sources.into_iter().chain(own).collect();
        let sources = Arc::new(AllowedSources::new(sources));
        let forwarder = Arc::new(Forwarder::new(options.forward, metrics.clone(), world));
        let handler = Handler::new(authority, records.clone(), sources.clone(), forwarder.clone(), metrics);
        Ok(ClusterDns {
            client: client.clone(),
            names: names.clone(),
            node_name: options.node_name,
            node_addresses: options.node_addresses,
            listeners,
            records,
            sources,
            forwarder,
            handler: Arc::new(handler),
            is_ready: Arc::default(),
            peers: PeerChecks::new(&zone, world),
        })
    }

    /// The addresses at which it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses().to_vec()
    }

    /// The addresses at which others reach it.
    pub fn announced_addresses(&self) -> Vec<SocketAddr> {
        let announced = |address: &SocketAddr| match address.ip().is_unspecified() {
            false => vec![*address],
            true => {
                let family = Family::of(&address.ip());
                let own = self.node_addresses.iter().filter(|it| Family::of(it) == family);
                own.map(|it| SocketAddr::new(*it, address.port())).collect()
            }
        };
        self.listeners.addresses().iter().flat_map(announced).collect()
    }

    /// Whether queries are answered.
    pub fn readiness(&self) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let is_ready = self.is_ready.clone();
        move || is_ready.load(Ordering::Acquire)
    }

    /// Serves for ever; announces itself if there is an announcer.
    pub async fn run(self, announcer: Option<&Announcer>) {
        let informers = ClusterInformers::start(&self.client, &self.records, &self.sources, &self.names);
        informers.synced().await;
        let addresses = self.announced_addresses();
        tracing::info!(
            addresses = self::addresses(self.listeners.addresses()),
            "cluster DNS answers queries"
        );
        self.is_ready.store(true, Ordering::Release);
        let announcing = async {
            match announcer {
                Some(announcer) => {
                    announcer.run(&self.node_name, &addresses, &self.sources, self.peers).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.listeners.serve(self.handler) => {}
            () = self.forwarder.run() => {}
            () = announcing => {}
        }
    }
}

/// A domain as a zone; `None` if it is no name, or the root.
fn zone(domain: &str) -> Option<Name> {
    let mut zone = Name::from_ascii(domain).ok().filter(|it| it.num_labels() > 0)?.to_lowercase();
    zone.set_fqdn(true);
    Some(zone)
}
