//! Settings of an operator that change the behaviour of built-in kinds.

use crate::core::service;
use apimachinery::net::Network;
use schema::table::Release;

/// The release of the API that the tables describe.
pub const RELEASE: Release = Release { major: 1, minor: 26 };

/// Settings of an operator for the built-in kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers may run as if they were the host.
    pub allow_privileged: bool,
    pub services: ServiceOptions,
    /// The garbage collector does not run: dependents of deleted objects stay.
    pub uncollected: bool,
}

/// The ranges that services take addresses and ports from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceOptions {
    /// The network of services without an address family.
    pub network: Network,
    /// One of the other family, where services may have both.
    pub second_network: Option<Network>,
    pub node_ports: service::PortRange,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            network: Network::DEFAULT,
            second_network: None,
            node_ports: service::PortRange::DEFAULT,
        }
    }
}
