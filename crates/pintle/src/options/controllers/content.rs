//! Options of the namespace, garbage collector, quota and endpoint controllers.

use crate::flags::any_duration;
use clap::Args;
use controllers::registry::Options;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Namespaces, garbage collection, quotas and endpoints")]
pub struct Content {
    /// How many namespaces are emptied at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub concurrent_namespace_syncs: u16,

    /// How often terminating namespaces are synced again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub namespace_sync_period: Duration,

    /// How many objects are collected at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub concurrent_gc_syncs: u16,

    /// How many quotas are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_resource_quota_syncs: u16,

    /// How often quota usage is recalculated
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub resource_quota_sync_period: Duration,

    /// How many services' endpoints are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_endpoint_syncs: u16,

    /// How long pod changes are batched before endpoints are written
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub endpoint_updates_batch_period: Duration,

    /// How many services' endpoint slices are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_service_endpoint_syncs: u16,

    /// The maximum number of endpoints in a slice
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub max_endpoints_per_slice: u16,

    /// How long pod changes are batched before endpoint slices are written
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub endpointslice_updates_batch_period: Duration,

    /// How many endpoints are mirrored to slices at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub mirroring_concurrent_service_endpoint_syncs: u16,

    /// The maximum number of mirrored addresses of a subset
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub mirroring_max_endpoints_per_subset: u16,

    /// How long endpoint changes are batched before they are mirrored
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub mirroring_endpointslice_updates_batch_period: Duration,
}

impl Content {
    /// Applies the flags to the defaults.
    pub fn apply_to(&self, options: &mut Options) {
        options.namespaces.workers = self.concurrent_namespace_syncs.into();
        options.namespaces.sync_period = self.namespace_sync_period;
        options.garbage_collector.workers = self.concurrent_gc_syncs.into();
        options.resource_quotas.workers = self.concurrent_resource_quota_syncs.into();
        options.resource_quotas.sync_period = self.resource_quota_sync_period;
        options.endpoints.workers = self.concurrent_endpoint_syncs.into();
        options.endpoints.batch_period = self.endpoint_updates_batch_period;
        options.endpoint_slices.workers = self.concurrent_service_endpoint_syncs.into();
        options.endpoint_slices.most = self.max_endpoints_per_slice.into();
        options.endpoint_slices.batch_period = self.endpointslice_updates_batch_period;
        let mirroring = &mut options.endpoint_slice_mirroring;
        mirroring.workers = self.mirroring_concurrent_service_endpoint_syncs.into();
        mirroring.most = self.mirroring_max_endpoints_per_subset.into();
        mirroring.batch_period = self.mirroring_endpointslice_updates_batch_period;
    }
}
