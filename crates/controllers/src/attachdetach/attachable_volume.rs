//! A volume that is attached to nodes: by a CSI driver or by a program.

use super::csi::Volume;
use client::flex_volume::FlexSource;
use names::Names;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachableVolume {
    Csi(Volume),
    Flex(FlexSource),
}

impl AttachableVolume {
    /// Its unique name in the status of nodes.
    pub fn unique_name(&self, names: &Names) -> String {
        match self {
            AttachableVolume::Csi(volume) => volume.name(names),
            AttachableVolume::Flex(source) => source.unique_name(),
        }
    }

    /// The key of its attachment to a node: the name of a VolumeAttachment, or the volume's unique name.
    pub fn attachment(&self, node: &str) -> String {
        match self {
            AttachableVolume::Csi(volume) => volume.attachment(node),
            AttachableVolume::Flex(source) => source.unique_name(),
        }
    }

    /// The name of its plugin in metrics.
    pub fn plugin(&self, names: &Names) -> String {
        match self {
            AttachableVolume::Csi(volume) => format!("{}:{}", names.well_known("csi"), volume.driver),
            AttachableVolume::Flex(source) => source.driver.clone(),
        }
    }
}
