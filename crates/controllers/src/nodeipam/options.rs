//! Options of node IPAM.

use super::cidrs::Pool;
use apimachinery::net::Network;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The pools from which each node gets one range; without any the loop does nothing.
    pub pools: Vec<Pool>,
    /// Networks of service addresses, which nodes must not get.
    pub services: Vec<Network>,
}
