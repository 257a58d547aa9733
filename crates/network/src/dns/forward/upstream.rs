//! The servers that queries are forwarded to.

use arc_swap::ArcSwap;
use env::World;
use hickory_proto::rr::Name;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A server.
pub struct Upstream {
    address: SocketAddr,
    /// The address as a label of metrics.
    label: String,
    /// A name that no other server has heard of.
    probe_name: Name,
    was_probed: AtomicBool,
    is_loop: AtomicBool,
}

impl Upstream {
    pub fn new(address: SocketAddr, world: &World) -> Self {
        let label = || format!("{:016x}", env::random_u64(world));
        let probe_name = Name::from_ascii(format!("{}.{}.", label(), label())).unwrap_or_default();
        Upstream {
            address,
            label: address.to_string(),
            probe_name,
            was_probed: AtomicBool::default(),
            is_loop: AtomicBool::default(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn probe_name(&self) -> &Name {
        &self.probe_name
    }

    /// Whether its first probe is due; true once.
    pub fn needs_probe(&self) -> bool {
        !self.was_probed.swap(true, Ordering::Relaxed)
    }

    /// Takes a name that came back to this server: whether it is the probe of this upstream, which is a loop then.
    pub fn take_probe(&self, name: &Name) -> bool {
        let is_probe = *name == self.probe_name;
        if is_probe {
            self.is_loop.store(true, Ordering::Relaxed);
        }
        is_probe
    }

    pub fn is_loop(&self) -> bool {
        self.is_loop.load(Ordering::Relaxed)
    }
}

/// The servers for a domain. One that answered is tried first.
pub struct UpstreamSet {
    upstreams: ArcSwap<Vec<Arc<Upstream>>>,
    preferred: AtomicUsize,
}

impl UpstreamSet {
    pub fn new(upstreams: Vec<Upstream>) -> Self {
        let upstreams = upstreams.into_iter().map(Arc::new).collect();
        UpstreamSet { upstreams: ArcSwap::from_pointee(upstreams), preferred: AtomicUsize::new(0) }
    }

    pub fn all(&self) -> Vec<Arc<Upstream>> {
        self.upstreams.load().to_vec()
    }

    /// The servers without loops, with their positions, in the order of attempts.
    pub fn in_order(&self) -> Vec<(usize, Arc<Upstream>)> {
        let mut all: Vec<_> = self.all().into_iter().enumerate().collect();
        if !all.is_empty() {
            let first = self.preferred.load(Ordering::Relaxed) % all.len();
            all.rotate_left(first);
        }
        all.retain(|(_, it)| !it.is_loop());
        all
    }

    pub fn prefer(&self, position: usize) {
        self.preferred.store(position, Ordering::Relaxed);
    }

    /// Uses these servers from now on; those that stay keep their state.
    pub fn replace(&self, servers: &[SocketAddr], world: &World) {
        let current = self.upstreams.load();
        if current.iter().map(|it| it.address).eq(servers.iter().copied()) {
            return;
        }
        let upstream = |address: &SocketAddr| {
            let known = current.iter().find(|it| it.address == *address).cloned();
            known.unwrap_or_else(|| Arc::new(Upstream::new(*address, world)))
        };
        self.upstreams.store(Arc::new(servers.iter().map(upstream).collect()));
        self.preferred.store(0, Ordering::Relaxed);
    }
}
