//! The in-tree plugins that CSI drivers replaced.

use api::core::v1::{PersistentVolume, Volume};
use names::labels;

/// An in-tree plugin that a CSI driver replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InTreePlugin {
    AwsEbs,
    AzureDisk,
    AzureFile,
    Cinder,
    GcePd,
    Portworx,
    Rbd,
    Vsphere,
}

use InTreePlugin::{AwsEbs, AzureDisk, AzureFile, Cinder, GcePd, Portworx, Rbd, Vsphere};

impl InTreePlugin {
    pub const ALL: [InTreePlugin; 8] = [AwsEbs, AzureDisk, AzureFile, Cinder, GcePd, Portworx, Rbd, Vsphere];

    /// The name of the plugin, with its domain.
    pub fn name(self) -> &'static str {
        match self {
            AwsEbs => labels::AWS_EBS_PLUGIN,
            AzureDisk => labels::AZURE_DISK_PLUGIN,
            AzureFile => labels::AZURE_FILE_PLUGIN,
            Cinder => labels::CINDER_PLUGIN,
            GcePd => labels::GCE_PD_PLUGIN,
            Portworx => labels::PORTWORX_PLUGIN,
            Rbd => labels::RBD_PLUGIN,
            Vsphere => labels::VSPHERE_PLUGIN,
        }
    }

    /// The driver that replaced it.
    pub fn driver(self) -> &'static str {
        match self {
            AwsEbs => labels::AWS_EBS_DRIVER,
            AzureDisk => labels::AZURE_DISK_DRIVER,
            AzureFile => labels::AZURE_FILE_DRIVER,
            Cinder => labels::CINDER_DRIVER,
            GcePd => labels::GCE_PD_DRIVER,
            Portworx => labels::PORTWORX_DRIVER,
            Rbd => labels::RBD_DRIVER,
            Vsphere => labels::VSPHERE_DRIVER,
        }
    }

    /// The feature gate of the migration, if it can be turned off.
    pub fn gate(self) -> Option<&'static str> {
        match self {
            AwsEbs => Some("CSIMigrationAWS"),
            AzureDisk => Some("CSIMigrationAzureDisk"),
            AzureFile => Some("CSIMigrationAzureFile"),
            Cinder => None,
            GcePd => Some("CSIMigrationGCE"),
            Portworx => Some("CSIMigrationPortworx"),
            Rbd => Some("CSIMigrationRBD"),
            Vsphere => Some("CSIMigrationvSphere"),
        }
    }

    /// The plugin of a persistent volume.
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let spec = &volume.spec;
        let found = [
            (spec.aws_elastic_block_store.is_some(), AwsEbs),
            (spec.azure_disk.is_some(), AzureDisk),
            (spec.azure_file.is_some(), AzureFile),
            (spec.cinder.is_some(), Cinder),
            (spec.gce_persistent_disk.is_some(), GcePd),
            (spec.portworx_volume.is_some(), Portworx),
            (spec.rbd.is_some(), Rbd),
            (spec.vsphere_volume.is_some(), Vsphere),
        ];
        found.into_iter().find(|(is_set, _)| *is_set).map(|(_, plugin)| plugin)
    }

    /// The plugin of a volume of a pod.
    pub fn of_inline(volume: &Volume) -> Option<Self> {
        let found = [
            (volume.aws_elastic_block_store.is_some(), AwsEbs),
            (volume.azure_disk.is_some(), AzureDisk),
            (volume.azure_file.is_some(), AzureFile),
            (volume.cinder.is_some(), Cinder),
            (volume.gce_persistent_disk.is_some(), GcePd),
            (volume.portworx_volume.is_some(), Portworx),
            (volume.rbd.is_some(), Rbd),
            (volume.vsphere_volume.is_some(), Vsphere),
        ];
        found.into_iter().find(|(is_set, _)| *is_set).map(|(_, plugin)| plugin)
    }
}
