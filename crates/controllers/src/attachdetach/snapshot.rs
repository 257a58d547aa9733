//! The snapshot of a node's volumes: those that its pods use, and those that are attached.

use super::attacher::Attacher;
use super::csi::Volume;
use super::decide::{self, AttachmentState, DesiredVolume, NodeVolumes};
use super::{indexes, migration};
use crate::pods::placed;
use crate::volumes::claims;
use api::Resource;
use api::core::v1::{Node, PersistentVolume, Pod};
use api::storage::v1::VolumeAttachment;
use client::Key;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume that a pod uses.
struct UsedVolume {
    volume: Volume,
    object: Arc<PersistentVolume>,
    /// Whether it is in the pod itself, and the object is made from it.
    is_inline: bool,
}

/// See the module.
pub struct Snapshot {
    pub volumes: NodeVolumes,
    /// The pods that use a volume, by attachment.
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
}

impl Snapshot {
    pub fn pods(&self, name: &str) -> &[Arc<Pod>] {
        self.pods.get(name).map_or(&[], Vec::as_slice)
    }

    /// The name of the PersistentVolume of an attachment.
    pub fn object(&self, name: &str) -> &str {
        self.volumes.desired.get(name).map_or("", |it| &it.object)
    }

    /// The volumes to attach that can be on one node only.
    pub fn exclusive(&self) -> impl Iterator<Item = &str> {
        let missing =
            self.volumes.desired.iter().filter(|(name, _)| !self.volumes.attachments.contains_key(*name));
        missing.filter(|(_, it)| it.exclusive).map(|(_, it)| &*it.object)
    }
}

/// Reads the state of a node.
pub fn read_node(node: &Node, names: &Names) -> decide::Node {
    let status = &node.status;
    let out_of_service = names.well_known_under("node", "out-of-service");
    let attachment = |volume: &String| Some(Volume::parse(volume, names)?.attachment(node.name()));
    decide::Node {
        volumes_attached: status.volumes_attached.iter().map(|it| it.name.clone()).collect(),
        in_use: status.volumes_in_use.iter().filter_map(attachment).collect(),
        ready: status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"),
        out_of_service: node.spec.taints.iter().any(|it| it.key == out_of_service),
    }
}

fn is_annotated(node: &Node, name: &str) -> bool {
    node.metadata.annotations.get(name).is_some_and(|it| it == "true")
}

/// Whether the controller attaches the volumes of a node, and not its kubelet.
pub fn is_attach_managed(node: &Node, names: &Names) -> bool {
    is_annotated(node, &names.well_known_under("volumes", "controller-managed-attach-detach"))
}

/// Whether volumes of finished pods stay attached to a node.
fn keeps_finished(node: &Node, names: &Names) -> bool {
    is_annotated(node, &names.well_known_under("volumes", "keep-terminated-pod-volumes"))
}

/// Whether a volume can be on one node only.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = &volume.spec.access_modes;
    !modes.is_empty() && !modes.iter().any(|it| it == "ReadWriteMany" || it == "ReadOnlyMany")
}

fn read_attachment(attachment: &VolumeAttachment) -> AttachmentState {
    AttachmentState {
        attached: attachment.status.attached,
        error: attachment.status.attach_error.as_ref().map(|it| it.message.clone()),
        is_terminating: attachment.metadata.deletion_timestamp.is_some(),
    }
}

impl Attacher {
    /// `None` if the controller does not manage the node.
    pub(super) fn snapshot(&self, name: &str) -> Option<Snapshot> {
        let names = &self.context.names;
        let node = self.nodes.informer().get(&Key::new("", name));
        if node.as_deref().is_some_and(|it| !is_attach_managed(it, names)) {
            return None;
        }
        let keeps_finished = node.as_deref().is_some_and(|it| keeps_finished(it, names));
        let (mut desired, mut pods) = (BTreeMap::new(), BTreeMap::<String, Vec<Arc<Pod>>>::new());
        for pod in placed::on(&self.pods, name) {
            if claims::has_released_volumes(&pod) && !keeps_finished {
                continue;
            }
            for used in self.volumes_of(&pod) {
                let attachment = used.volume.attachment(name);
                pods.entry(attachment.clone()).or_default().push(pod.clone());
                desired.entry(attachment).or_insert_with(|| self.desired_volume(name, used));
            }
        }
        let mut attachments = BTreeMap::new();
        let mut unique_names: BTreeMap<String, String> = desired
            .iter()
            .map(|(key, it): (&String, &DesiredVolume)| (key.clone(), it.volume.name(names)))
            .collect();
        for attachment in self.attachments.informer().by(indexes::BY_NODE, name) {
            let key = attachment.name().to_owned();
            if let Some(volume) = self.volume_of(&attachment).filter(|it| it.attachment(name) == key) {
                unique_names.entry(key.clone()).or_insert_with(|| volume.name(names));
            }
            attachments.insert(key, read_attachment(&attachment));
        }
        let mut read = node.as_deref().map(|it| read_node(it, names));
        if let Some(node) = &mut read {
            node.out_of_service &= self.context.gates.out_of_service;
            // the names of volumes whose object is gone
            for volume in &node.volumes_attached {
                if let Some(parsed) = Volume::parse(volume, names) {
                    unique_names.entry(parsed.attachment(name)).or_insert_with(|| volume.clone());
                }
            }
        }
        let now = self.context.world.elapsed();
        let waiting_since = self.waiting_since.lock();
        let waited = attachments.keys().filter_map(|key| {
            let since = waiting_since.get(&(name.to_owned(), key.clone()))?;
            Some((key.clone(), now.saturating_sub(*since)))
        });
        let waited = waited.collect();
        let volumes = NodeVolumes { node: read, desired, attachments, names: unique_names, waited };
        Some(Snapshot { volumes, pods })
    }

    fn desired_volume(&self, node: &str, used: UsedVolume) -> DesiredVolume {
        let UsedVolume { volume, object, is_inline } = used;
        let name = if is_inline { indexes::disk_name(&volume) } else { object.name().to_owned() };
        let attachments = self.attachments.informer().by(indexes::BY_VOLUME, &name);
        let elsewhere = attachments.iter().map(|it| it.spec.node_name.clone()).filter(|it| it != node);
        DesiredVolume {
            volume,
            exclusive: is_exclusive(&object),
            elsewhere: elsewhere.collect(),
            object: object.name().to_owned(),
            inline: is_inline.then(|| Box::new(object.spec.clone())),
        }
    }

    /// The volumes of a pod that must be attached: bound ones, and those of in-tree plugins in the pod itself.
    fn volumes_of(&self, pod: &Pod) -> Vec<UsedVolume> {
        let bound = claims::used_by(pod).filter_map(|used| {
            let claim = self.claims.get(&Key::new(pod.namespace(), &used.claim))?;
            if used.ephemeral && claims::check_made_for(&claim, pod).is_err() {
                return None;
            }
            if claim.status.phase != "Bound" {
                return None;
            }
            let object = self.volumes.get(&Key::new("", &claim.spec.volume_name))?;
            let is_bound = object.spec.claim_ref.as_ref().is_some_and(|it| it.uid == claim.uid());
            self.for_driver_on(&pod.spec.node_name, object).filter(|_| is_bound).map(|object| (object, false))
        });
        let inline = self.inline_volumes(pod).into_iter().map(|object| (object, true));
        let used = bound.chain(inline).filter_map(|(object, is_inline)| {
            let volume = Volume::of(&object).filter(|volume| self.must_be_attached(volume))?;
            Some(UsedVolume { volume, object, is_inline })
        });
        used.collect()
    }

    /// Whether a driver requires attachment; the default is yes.
    fn must_be_attached(&self, volume: &Volume) -> bool {
        let driver = self.drivers.get(&Key::new("", &volume.driver));
        driver.is_none_or(|it| it.spec.attach_required != Some(false))
    }

    fn volume_of(&self, attachment: &VolumeAttachment) -> Option<Volume> {
        let Some(name) = attachment.spec.source.persistent_volume_name.as_deref() else {
            return Volume::inline(attachment);
        };
        Volume::of(&*migration::for_driver(self.volumes.get(&Key::new("", name))?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn nodes_are_read() {
        let names = Names::kubernetes();
        let node: Node = object(json!({
            "metadata": {"name": "n", "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "volumes.kubernetes.io/keep-terminated-pod-volumes": "false",
            }},
            "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "volumesInUse": ["kubernetes.io/csi/b^a", "kubernetes.io/nfs/x"],
                "volumesAttached": [{"name": "kubernetes.io/csi/b^a", "devicePath": ""}],
            }
        }));
        assert!(is_attach_managed(&node, &names) && !keeps_finished(&node, &names));
        let read = read_node(&node, &names);
        let volume = Volume { driver: "b".to_owned(), handle: "a".to_owned() };
        assert_eq!(read.in_use.iter().collect::<Vec<_>>(), [&volume.attachment("n")]);
        assert_eq!((read.ready, read.out_of_service, read.volumes_attached.len()), (false, true, 1));
    }

    #[test]
    fn volumes_for_one_node() {
        let of = |modes: &[&str]| is_exclusive(&object(json!({"spec": {"accessModes": modes}})));
        assert!(of(&["ReadWriteOnce"]) && of(&["ReadWriteOncePod"]));
        assert!(!of(&["ReadWriteOnce", "ReadOnlyMany"]) && !of(&["ReadWriteMany"]) && !of(&[]));
    }
}
