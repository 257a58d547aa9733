//! How claims come to volumes.

use crate::flags::any_duration;
use clap::{ArgAction, Args};
use controllers::registry::Options;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How claims come to volumes")]
pub struct Storage {
    /// How often claims that wait for a volume are looked at again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub pvclaimbinder_sync_period: Duration,

    /// Ask the provisioners of classes to make volumes for claims
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub enable_dynamic_provisioning: bool,

    /// How many pods get claims for their ephemeral volumes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_ephemeralvolume_syncs: u16,
}

impl Storage {
    /// Puts what was said in the place of what is usual.
    pub fn onto(&self, options: &mut Options) {
        options.persistent_volumes.sync_period = self.pvclaimbinder_sync_period;
        options.persistent_volumes.provisioning = self.enable_dynamic_provisioning;
        options.ephemeral_volume_workers = self.concurrent_ephemeralvolume_syncs.into();
    }
}
