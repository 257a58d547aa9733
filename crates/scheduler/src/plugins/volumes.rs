//! What the volume plugins share: the class of claims and volumes, claims of ephemeral volumes, in-tree plugins.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::storage::v1::CSINode;
use client::csi_translation::InTreePlugin;
use names::labels::{BETA_STORAGE_CLASS, MIGRATED_PLUGINS};

use crate::framework::Features;
use crate::pod_info::PodInfo;

pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

/// The class of a claim; an old annotation wins over the field.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    match claim.metadata.annotations.get(BETA_STORAGE_CLASS) {
        Some(class) => class,
        None => claim.spec.storage_class_name.as_deref().unwrap_or_default(),
    }
}

/// The class of a volume; an old annotation wins over the field.
pub fn volume_class(volume: &PersistentVolume) -> &str {
    match volume.metadata.annotations.get(BETA_STORAGE_CLASS) {
        Some(class) => class,
        None => &volume.spec.storage_class_name,
    }
}

/// The claim of an ephemeral volume must belong to its pod.
pub fn check_owner(pod: &PodInfo, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let owners = &claim.metadata.owner_references;
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if controller.is_some_and(|owner| owner.uid == pod.uid()) {
        return Ok(());
    }
    let (namespace, name) = (pod.namespace(), pod.name());
    Err(format!(
        "PVC {}/{} was not created for pod {namespace}/{name} (pod is not owner)",
        claim.metadata.namespace, claim.metadata.name
    ))
}

/// Whether limits of a CSI driver count the volumes of an in-tree plugin on a node. As with upstream, those of some plugins
/// never count, and those of Cinder on every node with a CSINode.
pub fn is_migrated(csi_node: Option<&CSINode>, plugin: InTreePlugin, features: Features) -> bool {
    match plugin {
        InTreePlugin::Cinder => csi_node.is_some(),
        _ => may_be_migrated(plugin, features) && lists_migrated(csi_node, plugin),
    }
}

/// Whether the scheduler regards a CSI driver as a replacement of an in-tree plugin.
pub fn may_be_migrated(plugin: InTreePlugin, features: Features) -> bool {
    match plugin {
        InTreePlugin::AwsEbs | InTreePlugin::AzureDisk | InTreePlugin::Cinder | InTreePlugin::GcePd => true,
        InTreePlugin::Portworx => features.csi_migration_portworx,
        InTreePlugin::Rbd => features.csi_migration_rbd,
        InTreePlugin::AzureFile | InTreePlugin::Vsphere => false,
    }
}

/// Whether a node lists an in-tree plugin among those whose volumes a CSI driver serves.
pub fn lists_migrated(csi_node: Option<&CSINode>, plugin: InTreePlugin) -> bool {
    let listed = csi_node.and_then(|it| it.metadata.annotations.get(MIGRATED_PLUGINS));
    listed.is_some_and(|plugins| plugins.split(',').any(|one| one == plugin.name()))
}
