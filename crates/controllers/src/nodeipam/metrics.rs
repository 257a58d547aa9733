//! Metrics of CIDR ranges.

use super::cidrs::Cidrs;
use client::metrics::Metrics;
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, counts};

const NETWORK: &[&str] = &["clusterCIDR"];
const ALLOCATED: Descriptor =
    Descriptor::alpha("node_ipam_controller_cidrset_cidrs_allocations_total", "Ranges allocated to nodes.")
        .by(NETWORK);
const RELEASED: Descriptor =
    Descriptor::alpha("node_ipam_controller_cidrset_cidrs_releases_total", "Ranges that were released.")
        .by(NETWORK);
const USED: Descriptor =
    Descriptor::alpha("node_ipam_controller_cidrset_usage_cidrs", "Share of the ranges that are allocated.")
        .by(NETWORK);
const TRIES: Descriptor = Descriptor::alpha(
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "Ranges that were tried until one was free.",
)
.by(NETWORK)
.sizes(&counts::<5>(1, 5));

pub(super) struct CidrMetrics {
    allocated: Family<Counter>,
    released: Family<Counter>,
    tries: Family<Histogram>,
}

impl CidrMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        CidrMetrics {
            allocated: registry.family(ALLOCATED),
            released: registry.family(RELEASED),
            tries: registry.family(TRIES),
        }
    }

    pub fn allocated(&self, cidrs: &Cidrs, tried: u64) {
        let network = cidrs.pool.to_string();
        self.allocated.of(&[&network]).inc();
        self.tries.of(&[&network]).observe(tried);
    }

    pub fn released(&self, cidrs: &Cidrs) {
        self.released.of(&[&cidrs.pool.to_string()]).inc();
    }
}

/// Registers the gauge of usage. `each` visits the ranges of every network at each scrape.
pub(super) fn show_usage(metrics: &Metrics, each: impl Fn(&mut dyn FnMut(&Cidrs)) + Send + Sync + 'static) {
    metrics.registry().callback::<Gauge>(USED, move |out| {
        each(&mut |cidrs| out.add(&[&cidrs.pool.to_string()], cidrs.usage()));
    });
}
