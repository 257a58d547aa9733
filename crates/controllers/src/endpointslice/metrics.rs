//! Metrics of the endpoint slice controller.

use crate::slices::metrics::{self, Changes, Writes};
use ::metrics::{Counter, Descriptor, Family, Histogram, counts};
use api::discovery::v1::EndpointSlice;
use client::Informer;
use client::metrics::Metrics;
use names::Names;
use std::sync::Arc;

const ADDED: Descriptor = Descriptor::alpha(
    "endpoint_slice_controller_endpoints_added_per_sync",
    "Endpoints added by a reconciliation of a service.",
)
.sizes(&counts::<15>(2, 2));
const REMOVED: Descriptor = Descriptor {
    name: "endpoint_slice_controller_endpoints_removed_per_sync",
    help: "Endpoints removed by a reconciliation of a service.",
    ..ADDED
};
const CHANGED: Descriptor = Descriptor::alpha(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Slices written by a reconciliation of a service.",
)
.by(&["topology"])
.in_thousandths(&[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000]);
const CHANGES: Descriptor =
    Descriptor::alpha("endpoint_slice_controller_changes", "Writes of slices.").by(&["operation"]);
const SYNCS: Descriptor =
    Descriptor::alpha("endpoint_slice_controller_syncs", "Reconciliations of services.").by(&["result"]);
const SLICES: Descriptor =
    Descriptor::alpha("endpoint_slice_controller_num_endpoint_slices", "Existing slices.");
const DESIRED: Descriptor =
    Descriptor::alpha("endpoint_slice_controller_desired_endpoint_slices", "Slices if all were full.");
const ENDPOINTS: Descriptor =
    Descriptor::alpha("endpoint_slice_controller_endpoints_desired", "Endpoints in all slices.");

pub(super) struct SliceMetrics {
    added: Histogram,
    removed: Histogram,
    changed: Family<Histogram>,
    changes: Changes,
    syncs: Family<Counter>,
}

impl SliceMetrics {
    pub fn new(
        metrics: &Metrics,
        slices: &Informer<EndpointSlice>,
        owner: (&str, &Arc<Names>, usize),
    ) -> Self {
        let registry = metrics.registry();
        metrics::show(metrics, [SLICES, DESIRED, ENDPOINTS], slices, owner);
        SliceMetrics {
            added: registry.one(ADDED),
            removed: registry.one(REMOVED),
            changed: registry.family(CHANGED),
            changes: Changes::new(metrics, CHANGES),
            syncs: registry.family(SYNCS),
        }
    }

    pub fn synced(&self, writes: &Writes, hinted: bool, success: bool) {
        self.syncs.of(&[if success { "success" } else { "error" }]).inc();
        if !success {
            return;
        }
        self.added.observe(writes.added as u64);
        self.removed.observe(writes.removed as u64);
        let topology = if hinted { "Auto" } else { "Disabled" };
        self.changed.of(&[topology]).observe(1000 * writes.changes.iter().sum::<usize>() as u64);
        self.changes.count(writes);
    }
}
