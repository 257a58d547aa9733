//! What is counted about nodes and their zones.

use super::zones::Count;
use client::metrics::Metrics;
use metrics::{About, Counter, Family, Gauge, Histogram, seconds};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ZONE: &[&str] = &["zone"];
const HEALTH: About =
    About::alpha("node_collector_zone_health", "What part of the nodes of a zone is ready, in hundredths.")
        .by(ZONE);
const SIZE: About = About::alpha("node_collector_zone_size", "Nodes of a zone.").by(ZONE);
const DARK: About =
    About::alpha("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.").by(ZONE);
const EMPTIED: About =
    About::stable("node_collector_evictions_total", "Nodes that were begun to be emptied.").by(ZONE);
const ONE: About = About::alpha(
    "node_collector_update_node_health_duration_seconds",
    "How long it took to look at a node, on average over all of them.",
)
.seconds(&seconds([0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384]));
const ALL: About = About::alpha(
    "node_collector_update_all_nodes_health_duration_seconds",
    "How long it took to look at all nodes.",
)
.seconds(&seconds([0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84]));

pub(super) struct ZoneMetrics {
    counts: Arc<Mutex<BTreeMap<String, Count>>>,
    emptied: Family<Counter>,
    one: Histogram,
    all: Histogram,
}

impl ZoneMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let (registry, counts) = (metrics.registry(), Arc::<Mutex<BTreeMap<String, Count>>>::default());
        let ask = |about: About, value: fn(&Count) -> f64| {
            let counts = counts.clone();
            registry.ask::<Gauge>(about, move |out| {
                for (zone, count) in &*counts.lock() {
                    out.add(&[zone], value(count));
                }
            });
        };
        ask(HEALTH, Count::health);
        ask(SIZE, |it| it.all() as f64);
        ask(DARK, |it| it.dark as f64);
        ZoneMetrics {
            counts,
            emptied: registry.family(EMPTIED),
            one: registry.one(ONE),
            all: registry.one(ALL),
        }
    }

    /// All nodes have been looked at.
    pub fn looked(&self, counts: BTreeMap<String, Count>, nodes: usize, took: Duration) {
        for zone in counts.keys() {
            self.emptied.of(&[zone]);
        }
        *self.counts.lock() = counts;
        self.all.took(took);
        if let Ok(nodes) = u32::try_from(nodes)
            && nodes > 0
        {
            self.one.observe_often((took / nodes).as_nanos() as u64, nodes.into());
        }
    }

    pub fn emptied(&self, zone: &str) {
        self.emptied.of(&[zone]).inc();
    }
}
