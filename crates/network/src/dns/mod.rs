//! Cluster DNS: answers for services and pods, and forwards the rest.
//!
//! ```text
//! services, slices, namespaces ─ informers ─► Records ── snapshot ─► lookup ─► Handler ─► sockets (UDP, TCP)
//! nodes ─────────────────────── informers ─► AllowedSources ──────────────────►   │
//! resolv.conf, stub domains ─────────────────────────────────────► Forwarder ◄────┘
//! ```
//!
//! The names are those of the Kubernetes DNS specification, version 1.1.0. Invariants: a lookup of a cluster name takes no
//! lock and waits for nothing; a change of a slice changes the records of its service only; a query from a source that
//! is neither a pod nor a node is refused; a query that cannot be resolved is answered with SERVFAIL, never with silence;
//! forwarded queries, connections and the cache are bounded.

mod access;
mod announce;
mod cluster_dns;
mod forward;
mod handler;
mod informers;
mod lookup;
mod metrics;
mod peers;
mod records;
mod reply;
mod server;

pub use access::AllowedSources;
pub use announce::{Announcer, SLICE_MANAGER, ServiceState};
pub use cluster_dns::{ClusterDns, Options, StartError};
pub use forward::{Forwarder, Options as ForwardOptions, StubDomain};
pub use handler::{Handler, Reply};
pub use informers::ClusterInformers;
pub use lookup::{Authority, LookupResult};
pub use metrics::Metrics;
pub use peers::PeerChecks;
pub use records::{Records, ServiceSource, SliceSource};
pub use reply::Transport;
pub use server::{Listeners, bind};

/// The version of the specification, in the TXT record `dns-version`.
pub const SPECIFICATION: &str = "1.1.0";
/// The TTL of records, in seconds, as kubeadm configures it.
pub const TTL: u32 = 30;
/// The default domain of a cluster.
pub const CLUSTER_DOMAIN: &str = "cluster.local";
/// The default port of the server. Clients use port 53 of the service.
pub const PORT: u16 = 10053;

#[cfg(test)]
mod tests;
