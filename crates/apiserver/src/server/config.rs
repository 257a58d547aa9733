//! Configuration of a server.

use super::encryption_at_rest;
use super::open_store::StoreChoice;
use crate::admission;
use crate::aggregation;
use crate::audit;
use crate::authentication;
use crate::authorization;
use crate::filters::cors;
use crate::flowcontrol;
use crate::node_proxy;
use crate::options::deployment::Deployment;
use crate::options::gates::Gates;
use crate::options::{limits, observability};
use crate::outgoing::egress::Egress;
use crate::serve::ListenConfig;
use env::World;
use names::Names;
use std::net::IpAddr;
use std::time::Duration;

/// The configuration of a server.
pub struct Config {
    pub store: StoreChoice,
    /// Encryption at rest.
    pub encryption: Option<encryption_at_rest::Options>,
    pub listen: ListenConfig,
    pub world: World,
    pub names: Names,
    /// Lifetime of events.
    pub event_ttl: Duration,
    /// Objects of a collection that are deleted in parallel.
    pub delete_workers: usize,
    pub authentication: authentication::Options,
    pub authorization: authorization::Options,
    pub admission: admission::Options,
    pub fairness: flowcontrol::Options,
    pub audit: audit::Options,
    /// The kinds that are served.
    pub serving: kinds::Serving,
    /// Limits on requests, history, start and shutdown.
    pub limits: limits::Options,
    /// History that caches keep for watches and paged lists.
    pub cache: cache::Options,
    /// Options of the built-in kinds.
    pub kinds: kinds::Options,
    /// Address of this server in the endpoints of the `kubernetes` Service. Without one there is no such
    /// Service.
    pub advertise_address: Option<IpAddr>,
    pub advertise: AdvertiseOptions,
    /// Dialers of outgoing calls.
    pub egress: Egress,
    /// Options of the aggregation layer.
    pub aggregation: aggregation::Options,
    /// Options of connections to node agents.
    pub node_proxy: node_proxy::Options,
    pub gates: Gates,
    pub cors: cors::Options,
    /// Metrics, tracing, verbosity, profiling.
    pub observability: observability::Options,
    /// Callbacks and facts of the surrounding process.
    pub deployment: Deployment,
}

/// How the server is advertised to clients and pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiseOptions {
    /// External host name, with or without a port; the address of the listener by default.
    pub name: Option<String>,
    /// Node port of the `kubernetes` Service; 0 is none.
    pub node_port: u16,
    /// Whether the server maintains the endpoints of the `kubernetes` Service.
    pub reconcile_endpoints: bool,
    /// Host name, which names the identity lease. Without one there is no lease.
    pub hostname: Option<String>,
}

impl Default for AdvertiseOptions {
    fn default() -> Self {
        AdvertiseOptions { name: None, node_port: 0, reconcile_endpoints: true, hostname: None }
    }
}
