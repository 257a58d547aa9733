//! Chooses the dialer for an outgoing call by destination network.
//!
//! What always holds: what objects name as a service is in the cluster, be it a webhook or another API server. What an
//! operator or an object names by an address is beside this server: webhooks about callers, about what they may do, about
//! requests and about objects, and whoever collects traces. Providers of identity and judges of images are called
//! directly, as upstream does.

use env::World;
use metrics::Registry;
use outbound::{DialMetrics, Dialer};

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// To those beside this server.
    pub control_plane: Dialer,
    /// To what runs in the cluster.
    pub cluster: Dialer,
    /// To where objects are kept.
    pub etcd: Dialer,
}

impl Egress {
    /// Opens the ways that lead through proxies.
    pub(crate) fn begin(&self, registry: &Registry, world: &World) {
        let dials = DialMetrics::new(registry);
        for way in [&self.control_plane, &self.cluster, &self.etcd] {
            if let Dialer::Through(proxy) = way {
                proxy.begin(&dials, world);
            }
        }
    }
}
