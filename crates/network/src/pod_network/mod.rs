//! Addresses of pods: the CNI plugin of this program, and the routes between nodes.
//!
//! A pod's link is routed, not bridged (decision 021): one end of a veth pair is in the pod, with one address of each
//! family and a default route; the other end is on the node, with a route for each address. Neighbour entries are
//! static at both ends, so no packet waits for an address to be resolved.
//!
//! ```text
//! pod  10.244.0.7/32 eth0 ── veth3f2a… node  10.244.0.7 dev veth3f2a…
//!      default via 169.254.1.1              10.244.1.0/24 via 192.168.0.2 dev eth0       a node on the same link
//!                                           10.244.2.0/24 via 10.244.2.0 dev pintle-vxlan  a node behind a router
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`cni`] | the plugin: one short process for each call of the container runtime |
//! | [`attachments`] | the record of attached pods and their addresses, shared by those processes |
//! | [`host_ports`] | ports of the node that lead to pods |
//! | [`node`] | the part that runs as long as the node: CNI configuration, routes to other nodes, masquerade |
//! | [`netlink`], [`namespace`], [`sysctl`] | the kernel |

pub mod attachments;
pub mod cni;
mod derived;
pub mod host_ports;
pub mod namespace;
pub mod netlink;
pub mod node;
mod sysctl;
