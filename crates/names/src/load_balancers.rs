//! Names of load balancers that are addresses of nodes.

/// On a node: the ports of load balancers that are free on it, such as `443/TCP,80/TCP`. Its service proxy writes it.
pub const PORTS: &str = "load-balancer.pintle.io/ports";
/// On a service: the nodes whose addresses it has. Addresses of services without it are those of another load balancer.
pub const NODES: &str = "load-balancer.pintle.io/nodes";
