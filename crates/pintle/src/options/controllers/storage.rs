//! Options of the volume controllers.

use crate::flags::any_duration;
use clap::{ArgAction, Args};
use controllers::registry::Options;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Volumes and claims")]
pub struct Storage {
    /// How often pending claims are synced again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub pvclaimbinder_sync_period: Duration,

    /// Provision volumes for claims by the provisioners of storage classes
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub enable_dynamic_provisioning: bool,

    /// How many pods' ephemeral volume claims are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_ephemeralvolume_syncs: u16,

    /// The folder with the programs of FlexVolume drivers, which attach volumes to nodes and expand them
    #[arg(long, value_name = "DIR", default_value = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")]
    pub flex_volume_plugin_dir: PathBuf,

    /// How often FlexVolume drivers must confirm that volumes are attached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "1m0s")]
    pub attach_detach_reconcile_sync_period: Duration,

    /// Never ask FlexVolume drivers whether volumes are attached still
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub disable_attach_detach_reconcile_sync: bool,
}

impl Storage {
    /// Applies the flags to the defaults.
    pub fn apply_to(&self, options: &mut Options) {
        options.persistent_volumes.sync_period = self.pvclaimbinder_sync_period;
        options.persistent_volumes.provisioning = self.enable_dynamic_provisioning;
        options.attach_detach.flex_directory = (!self.flex_volume_plugin_dir.as_os_str().is_empty())
            .then(|| self.flex_volume_plugin_dir.clone());
        options.attach_detach.verify_period =
            (!self.disable_attach_detach_reconcile_sync).then_some(self.attach_detach_reconcile_sync_period);
        options.ephemeral_volume_workers = self.concurrent_ephemeralvolume_syncs.into();
    }
}
