//! Metrics of nodes and zones.

use super::zones::Count;
use client::metrics::Metrics;
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, seconds};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ZONE: &[&str] = &["zone"];
const HEALTH: Descriptor =
    Descriptor::alpha("node_collector_zone_health", "Percentage of the nodes of a zone that are ready.")
        .by(ZONE);
const SIZE: Descriptor = Descriptor::alpha("node_collector_zone_size", "Nodes of a zone.").by(ZONE);
const NOT_READY: Descriptor =
    Descriptor::alpha("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.")
        .by(ZONE);
const EVICTIONS: Descriptor =
    Descriptor::stable("node_collector_evictions_total", "Nodes whose pods were evicted.").by(ZONE);
const ONE: Descriptor = Descriptor::alpha(
    "node_collector_update_node_health_duration_seconds",
    "Duration of the check of a node, averaged over all nodes.",
)
.seconds(&seconds([0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384]));
const ALL: Descriptor = Descriptor::alpha(
    "node_collector_update_all_nodes_health_duration_seconds",
    "Duration of the check of all nodes.",
)
.seconds(&seconds([0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84]));

pub(super) struct ZoneMetrics {
    counts: Arc<Mutex<BTreeMap<String, Count>>>,
    evictions: Family<Counter>,
    one: Histogram,
    all: Histogram,
}

impl ZoneMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let (registry, counts) = (metrics.registry(), Arc::<Mutex<BTreeMap<String, Count>>>::default());
        let show = |about: Descriptor, value: fn(&Count) -> f64| {
            let counts = counts.clone();
            registry.callback::<Gauge>(about, move |out| {
                for (zone, count) in &*counts.lock() {
                    out.add(&[zone], value(count));
                }
            });
        };
        show(HEALTH, Count::health);
        show(SIZE, |it| it.all() as f64);
        show(NOT_READY, |it| it.not_ready as f64);
        ZoneMetrics {
            counts,
            evictions: registry.family(EVICTIONS),
            one: registry.one(ONE),
            all: registry.one(ALL),
        }
    }

    /// Records a check of all nodes.
    pub fn checked(&self, counts: BTreeMap<String, Count>, nodes: usize, took: Duration) {
        for zone in counts.keys() {
            self.evictions.of(&[zone]);
        }
        *self.counts.lock() = counts;
        self.all.took(took);
        if let Ok(nodes) = u32::try_from(nodes)
            && nodes > 0
        {
            self.one.observe_often((took / nodes).as_nanos() as u64, nodes.into());
        }
    }

    pub fn evicted(&self, zone: &str) {
        self.evictions.of(&[zone]).inc();
    }
}
