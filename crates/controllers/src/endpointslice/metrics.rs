//! What is counted about endpoint slices.

use crate::slices::metrics::{self, Changes, Writes};
use ::metrics::{About, Counter, Family, Histogram, counts};
use client::Informer;
use client::metrics::Metrics;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use names::Names;
use std::sync::Arc;

const ADDED: About = About::alpha(
    "endpoint_slice_controller_endpoints_added_per_sync",
    "Endpoints that came with a look at a service.",
)
.sizes(&counts::<15>(2, 2));
const REMOVED: About = About {
    name: "endpoint_slice_controller_endpoints_removed_per_sync",
    help: "Endpoints that went with a look at a service.",
    ..ADDED
};
const CHANGED: About = About::alpha(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Slices that were written with a look at a service.",
)
.by(&["topology"])
.in_thousandths(&[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000]);
const CHANGES: About =
    About::alpha("endpoint_slice_controller_changes", "Writes of slices.").by(&["operation"]);
const LOOKS: About = About::alpha("endpoint_slice_controller_syncs", "Looks at services.").by(&["result"]);
const SLICES: About = About::alpha("endpoint_slice_controller_num_endpoint_slices", "Slices that there are.");
const DESIRED: About = About::alpha(
    "endpoint_slice_controller_desired_endpoint_slices",
    "Slices that there would be if all were as full as they may be.",
);
const ENDPOINTS: About =
    About::alpha("endpoint_slice_controller_endpoints_desired", "Endpoints that there are.");

pub(super) struct SliceMetrics {
    added: Histogram,
    removed: Histogram,
    changed: Family<Histogram>,
    changes: Changes,
    looks: Family<Counter>,
}

impl SliceMetrics {
    pub fn new(
        metrics: &Metrics,
        slices: &Informer<EndpointSlice>,
        whose: (&str, &Arc<Names>, usize),
    ) -> Self {
        let registry = metrics.registry();
        metrics::show(metrics, [SLICES, DESIRED, ENDPOINTS], slices, whose);
        SliceMetrics {
            added: registry.one(ADDED),
            removed: registry.one(REMOVED),
            changed: registry.family(CHANGED),
            changes: Changes::new(metrics, CHANGES),
            looks: registry.family(LOOKS),
        }
    }

    pub fn looked(&self, writes: &Writes, hinted: bool, well: bool) {
        self.looks.of(&[if well { "success" } else { "error" }]).inc();
        if !well {
            return;
        }
        self.added.observe(writes.added as u64);
        self.removed.observe(writes.removed as u64);
        let topology = if hinted { "Auto" } else { "Disabled" };
        self.changed.of(&[topology]).observe(1000 * writes.changes.iter().sum::<usize>() as u64);
        self.changes.count(writes);
    }
}
