//! Metrics of the endpoint slice mirroring controller.

use super::mirror::SkippedAddresses;
use crate::slices::metrics::{self, Changes, Writes};
use ::metrics::{Descriptor, Histogram, counts};
use api::discovery::v1::EndpointSlice;
use client::Informer;
use client::metrics::Metrics;
use names::Names;
use std::sync::Arc;
use std::time::Duration;

const ADDED: Descriptor = Descriptor::alpha(
    "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
    "Endpoints added by a reconciliation.",
)
.sizes(&counts::<15>(2, 2));
const UPDATED: Descriptor = Descriptor {
    name: "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
    help: "Endpoints updated by a reconciliation.",
    ..ADDED
};
const REMOVED: Descriptor = Descriptor {
    name: "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
    help: "Endpoints removed by a reconciliation.",
    ..ADDED
};
const SKIPPED: Descriptor = Descriptor {
    name: "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    help: "Addresses that a reconciliation skipped, because they are invalid or too many.",
    ..ADDED
};
const TOOK: Descriptor = Descriptor::alpha(
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "Duration of reconciliations, in seconds.",
)
.seconds(&counts::<15>(1_000_000, 2));
const CHANGES: Descriptor =
    Descriptor::alpha("endpoint_slice_mirroring_controller_changes", "Writes of slices.").by(&["operation"]);
const SLICES: Descriptor =
    Descriptor::alpha("endpoint_slice_mirroring_controller_num_endpoint_slices", "Existing slices.");
const DESIRED: Descriptor = Descriptor::alpha(
    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
    "Slices if all were full.",
);
const ENDPOINTS: Descriptor =
    Descriptor::alpha("endpoint_slice_mirroring_controller_endpoints_desired", "Endpoints in all slices.");

pub(super) struct MirrorMetrics {
    added: Histogram,
    updated: Histogram,
    removed: Histogram,
    skipped: Histogram,
    took: Histogram,
    changes: Changes,
}

impl MirrorMetrics {
    pub fn new(
        metrics: &Metrics,
        slices: &Informer<EndpointSlice>,
        owner: (&str, &Arc<Names>, usize),
    ) -> Self {
        let registry = metrics.registry();
        metrics::show(metrics, [SLICES, DESIRED, ENDPOINTS], slices, owner);
        MirrorMetrics {
            added: registry.one(ADDED),
            updated: registry.one(UPDATED),
            removed: registry.one(REMOVED),
            skipped: registry.one(SKIPPED),
            took: registry.one(TOOK),
            changes: Changes::new(metrics, CHANGES),
        }
    }

    /// Records the planned writes.
    pub fn planned(&self, writes: &Writes, skipped: &SkippedAddresses) {
        self.skipped.observe((skipped.invalid + skipped.too_many) as u64);
        self.added.observe(writes.added as u64);
        self.updated.observe(writes.updated as u64);
        self.removed.observe(writes.removed as u64);
    }

    /// Records the completed writes.
    pub fn wrote(&self, writes: &Writes) {
        self.changes.count(writes);
    }

    pub fn synced(&self, took: Duration) {
        self.took.took(took);
    }
}
