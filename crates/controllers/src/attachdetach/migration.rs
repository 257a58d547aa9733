//! Volumes of in-tree plugins, which are attached by the CSI drivers that replaced them.
//!
//! Upstream's and our node agents list in the annotation of the CSINode for which plugins the node relies on drivers.
//! Volumes of other plugins are not attached: there is no code of providers here.

use super::attacher::Attacher;
use super::metrics::OperationVolume;
use api::core::v1::{PersistentVolume, Pod, Volume};
use api::storage::v1::{CSINode, VolumeAttachment};
use client::Key;
use client::csi_translation::{InTreePlugin, translate, translate_inline};
use names::labels::MIGRATED_PLUGINS;
use std::sync::Arc;

/// Whether a node relies on the driver of a plugin.
fn is_migrated(csi_node: Option<&CSINode>, plugin: InTreePlugin) -> bool {
    let listed = csi_node.and_then(|it| it.metadata.annotations.get(MIGRATED_PLUGINS));
    listed.is_some_and(|plugins| plugins.split(',').any(|it| it == plugin.name()))
}

/// Whether a pod has volumes of its own that a driver may attach.
pub fn has_inline(pod: &Pod) -> bool {
    let is_attached =
        |volume: &Volume| volume.flex_volume.is_some() || InTreePlugin::of_inline(volume).is_some();
    pod.spec.volumes.iter().any(is_attached)
}

/// A persistent volume as its driver gets it; `None` for one of an in-tree plugin that has no such form.
pub fn for_driver(volume: Arc<PersistentVolume>) -> Option<Arc<PersistentVolume>> {
    match translate(&volume) {
        None => Some(volume),
        Some(Ok(translated)) => Some(Arc::new(translated)),
        Some(Err(why)) => {
            tracing::warn!(volume = volume.metadata.name, %why, "an in-tree volume has no form for its driver");
            None
        }
    }
}

impl Attacher {
    fn is_migrated(&self, node: &str, plugin: InTreePlugin) -> bool {
        is_migrated(self.csi_nodes.get(&Key::new("", node)).as_deref(), plugin)
    }

    /// A persistent volume as its driver on a node gets it; `None` if the node does not rely on the driver.
    pub(super) fn for_driver_on(
        &self,
        node: &str,
        volume: Arc<PersistentVolume>,
    ) -> Option<Arc<PersistentVolume>> {
        let is_served = InTreePlugin::of(&volume).is_none_or(|plugin| self.is_migrated(node, plugin));
        if is_served { for_driver(volume) } else { None }
    }

    /// The volume of an attachment, for metrics.
    pub(super) fn operation_volume<'a>(&self, attachment: &'a VolumeAttachment) -> OperationVolume<'a> {
        let is_migrated = match &attachment.spec.source.persistent_volume_name {
            Some(name) => {
                let volume = self.volumes.get(&Key::new("", name));
                volume.is_some_and(|it| InTreePlugin::of(&it).is_some())
            }
            None => true,
        };
        OperationVolume { driver: &attachment.spec.attacher, is_migrated }
    }

    /// The volumes in a pod that drivers attach, as persistent volumes.
    pub(super) fn inline_volumes(&self, pod: &Pod) -> Vec<Arc<PersistentVolume>> {
        let migrated = pod.spec.volumes.iter().filter(|volume| {
            InTreePlugin::of_inline(volume)
                .is_some_and(|plugin| self.is_migrated(&pod.spec.node_name, plugin))
        });
        let translated = migrated.filter_map(|volume| {
            translate_inline(volume, &pod.metadata.namespace)?
                .inspect_err(|why| {
                    let (namespace, pod) = (&pod.metadata.namespace, &pod.metadata.name);
                    tracing::warn!(namespace, pod, volume = volume.name, %why, "an in-tree volume has no form for its driver");
                })
                .ok()
        });
        translated.map(Arc::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn nodes_list_the_plugins_whose_drivers_they_rely_on() {
        let annotations = json!({MIGRATED_PLUGINS: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"});
        let node: CSINode = object(json!({"metadata": {"name": "n", "annotations": annotations}}));
        assert!(is_migrated(Some(&node), InTreePlugin::GcePd));
        assert!(!is_migrated(Some(&node), InTreePlugin::Rbd));
        assert!(!is_migrated(None, InTreePlugin::GcePd));
    }

    #[test]
    fn volumes_without_a_form_for_their_driver_are_left_out() {
        let disk = |id: &str| {
            Arc::new(object(json!({"spec": {"awsElasticBlockStore": {"volumeID": id}}})))
                as Arc<PersistentVolume>
        };
        let translated = for_driver(disk("aws:///vol-1")).unwrap();
        assert_eq!(translated.spec.csi.as_ref().unwrap().volume_handle, "vol-1");
        assert_eq!(for_driver(disk("aws:///x")), None);
    }
}
