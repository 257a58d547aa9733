//! What is counted about mirrored endpoints.

use super::mirror::SkippedAddresses;
use crate::slices::metrics::{self, Changes, Writes};
use ::metrics::{About, Histogram, counts};
use client::Informer;
use client::metrics::Metrics;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use names::Names;
use std::sync::Arc;
use std::time::Duration;

const ADDED: About = About::alpha(
    "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
    "Endpoints that came with a look at mirrored ones.",
)
.sizes(&counts::<15>(2, 2));
const UPDATED: About = About {
    name: "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
    help: "Endpoints that changed with a look at mirrored ones.",
    ..ADDED
};
const REMOVED: About = About {
    name: "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
    help: "Endpoints that went with a look at mirrored ones.",
    ..ADDED
};
const SKIPPED: About = About {
    name: "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    help: "Addresses that were not mirrored, as they are none or too many, with a look at them.",
    ..ADDED
};
const TOOK: About = About::alpha(
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "How long looks at endpoints took, in seconds.",
)
.seconds(&counts::<15>(1_000_000, 2));
const CHANGES: About =
    About::alpha("endpoint_slice_mirroring_controller_changes", "Writes of slices.").by(&["operation"]);
const SLICES: About =
    About::alpha("endpoint_slice_mirroring_controller_num_endpoint_slices", "Slices that there are.");
const DESIRED: About = About::alpha(
    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
    "Slices that there would be if all were as full as they may be.",
);
const ENDPOINTS: About =
    About::alpha("endpoint_slice_mirroring_controller_endpoints_desired", "Endpoints that there are.");

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
        whose: (&str, &Arc<Names>, usize),
    ) -> Self {
        let registry = metrics.registry();
        metrics::show(metrics, [SLICES, DESIRED, ENDPOINTS], slices, whose);
        MirrorMetrics {
            added: registry.one(ADDED),
            updated: registry.one(UPDATED),
            removed: registry.one(REMOVED),
            skipped: registry.one(SKIPPED),
            took: registry.one(TOOK),
            changes: Changes::new(metrics, CHANGES),
        }
    }

    /// It is known what is to be written.
    pub fn planned(&self, writes: &Writes, skipped: &SkippedAddresses) {
        self.skipped.observe((skipped.invalid + skipped.too_many) as u64);
        self.added.observe(writes.added as u64);
        self.updated.observe(writes.updated as u64);
        self.removed.observe(writes.removed as u64);
    }

    /// It was written.
    pub fn wrote(&self, writes: &Writes) {
        self.changes.count(writes);
    }

    pub fn looked(&self, took: Duration) {
        self.took.took(took);
    }
}
