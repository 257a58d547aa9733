//! Chooses the dialer for an outgoing call by destination network.
//!
//! Invariants: a destination named as a Service is in the cluster network, be it a webhook or an API server.
//! A destination named by a URL is in the control-plane network: webhooks for authentication, authorization,
//! audit and admission, and trace collectors. OIDC providers and image policy webhooks are dialed directly,
//! as upstream does.

use env::World;
use metrics::Registry;
use outbound::{DialMetrics, Dialer};

/// The dialers by network.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// For the control-plane network.
    pub control_plane: Dialer,
    /// For the cluster network.
    pub cluster: Dialer,
    /// For etcd.
    pub etcd: Dialer,
}

impl Egress {
    /// Starts the dialers that go through proxies.
    pub(crate) fn begin(&self, registry: &Registry, world: &World) {
        let dials = DialMetrics::new(registry);
        for dialer in [&self.control_plane, &self.cluster, &self.etcd] {
            if let Dialer::Through(proxy) = dialer {
                proxy.begin(&dials, world);
            }
        }
    }
}
