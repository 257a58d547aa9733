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
use crate::options::deployment::Deployment;
use crate::options::gates::Gates;
use crate::options::{limits, observability};
use crate::outgoing::egress::Egress;
use crate::serve::Listen;
use env::World;
use names::Names;
use std::net::IpAddr;
use std::time::Duration;

/// See the module.
pub struct Config {
    pub store: StoreChoice,
    /// Encryption at rest.
    pub sealing: Option<encryption_at_rest::Options>,
    pub listen: Listen,
    pub world: World,
    pub names: Names,
    /// Lifetime of events.
    pub event_ttl: Duration,
    /// Objects of a collection that are deleted in parallel.
    pub delete_workers: usize,
    pub identity: authentication::Options,
    pub permission: authorization::Options,
    pub admission: admission::Options,
    pub fairness: flowcontrol::Options,
    pub audit: audit::Options,
    /// Which kinds are served.
    pub serving: kinds::Serving,
    /// Limits on requests, history, start and shutdown.
    pub limits: limits::Options,
    /// History that caches keep for watches and paged lists.
    pub cache: cache::Options,
    /// Options of the built-in kinds.
    pub kinds: kinds::Options,
    /// Address for pods, behind the `kubernetes` Service. Without one there is no such Service.
    pub reached_at: Option<IpAddr>,
    pub found: Found,
    /// Dialers of outgoing calls.
    pub egress: Egress,
    /// Options of the aggregation layer.
    pub aggregation: aggregation::Options,
    pub gates: Gates,
    pub browsers: cors::Options,
    /// Metrics, tracing, verbosity, profiling.
    pub observe: observability::Options,
    /// Callbacks and facts of the surrounding process.
    pub deployment: Deployment,
}

/// How clients and pods find the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// External host name, with or without a port; the address of the listener by default.
    pub name: Option<String>,
    /// Node port of the `kubernetes` Service; 0 is none.
    pub node_port: u16,
    /// Whether the server maintains the endpoints of the `kubernetes` Service.
    pub keeps_addresses: bool,
    /// Host name, which names the identity lease. Without one there is no lease.
    pub machine: Option<String>,
}

impl Default for Found {
    fn default() -> Self {
        Found { name: None, node_port: 0, keeps_addresses: true, machine: None }
    }
}
