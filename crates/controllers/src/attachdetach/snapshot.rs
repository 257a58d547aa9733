//! The snapshot of a node's volumes: those that its pods use, and those that are attached.

use super::attachable_volume::AttachableVolume;
use super::attacher::Attacher;
use super::csi::Volume;
use super::decide::{self, AttachmentState, DesiredVolume, NodeVolumes};
use super::{indexes, migration};
use crate::pods::placed;
use crate::volumes::claims;
use api::Resource;
use api::core::v1::{Node, PersistentVolume, PersistentVolumeSpec, Pod};
use api::storage::v1::VolumeAttachment;
use client::Key;
use client::flex_volume::FlexSource;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume that a pod uses.
struct UsedVolume {
    volume: AttachableVolume,
    /// The name of the PersistentVolume, or that in the pod.
    object: String,
    /// Whether it can be on one node only.
    is_exclusive: bool,
    /// The object that is made from a volume in the pod, for a CSI driver.
    inline: Option<Box<PersistentVolumeSpec>>,
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
    let attachment = |volume: &String| match Volume::parse(volume, names) {
        Some(parsed) => parsed.attachment(node.name()),
        None => volume.clone(),
    };
    decide::Node {
        volumes_attached: status.volumes_attached.iter().map(|it| it.name.clone()).collect(),
        in_use: status.volumes_in_use.iter().map(attachment).collect(),
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

/// Whether a pod has the volume of a claim read-only.
fn is_readonly(pod: &Pod, volume: &str) -> bool {
    let named = pod.spec.volumes.iter().find(|it| it.name == volume);
    named.and_then(|it| it.persistent_volume_claim.as_ref()).is_some_and(|it| it.read_only)
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
        match node.as_deref() {
            Some(node) => self.flex.adopt(node),
            None => self.flex.forget(name),
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
            .map(|(key, it): (&String, &DesiredVolume)| (key.clone(), it.volume.unique_name(names)))
            .collect();
        for attachment in self.attachments.informer().by(indexes::BY_NODE, name) {
            let key = attachment.name().to_owned();
            if let Some(volume) = self.volume_of(&attachment).filter(|it| it.attachment(name) == key) {
                unique_names.entry(key.clone()).or_insert_with(|| volume.name(names));
            }
            attachments.insert(key, read_attachment(&attachment));
        }
        let of_programs = desired.iter().filter_map(|(key, it)| match &it.volume {
            AttachableVolume::Flex(source) => Some((key.clone(), source.clone())),
            AttachableVolume::Csi(_) => None,
        });
        for (volume, state) in self.flex.states(name, &of_programs.collect()) {
            unique_names.insert(volume.clone(), volume.clone());
            attachments.insert(volume, state);
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
        let UsedVolume { volume, object, is_exclusive, inline } = used;
        let nodes = match &volume {
            AttachableVolume::Flex(source) => self.flex.nodes_of(&source.unique_name()),
            AttachableVolume::Csi(volume) => {
                let name = if inline.is_some() { indexes::disk_name(volume) } else { object.clone() };
                let attachments = self.attachments.informer().by(indexes::BY_VOLUME, &name);
                attachments.iter().map(|it| it.spec.node_name.clone()).collect()
            }
        };
        let elsewhere = nodes.into_iter().filter(|it| it != node).collect();
        DesiredVolume { volume, exclusive: is_exclusive, elsewhere, object, inline }
    }

    /// The volumes of a pod that must be attached: bound ones, and those in the pod itself.
    fn volumes_of(&self, pod: &Pod) -> Vec<UsedVolume> {
        let node = &pod.spec.node_name;
        let bound = claims::used_by(pod).filter_map(|used| {
            let claim = self.claims.get(&Key::new(pod.namespace(), &used.claim))?;
            if used.ephemeral && claims::check_made_for(&claim, pod).is_err() {
                return None;
            }
            if claim.status.phase != "Bound" {
                return None;
            }
            let object = self.volumes.get(&Key::new("", &claim.spec.volume_name))?;
            if object.spec.claim_ref.as_ref().is_none_or(|it| it.uid != claim.uid()) {
                return None;
            }
            if let Some(source) = &object.spec.flex_volume {
                let flex = FlexSource::persistent(object.name(), source, is_readonly(pod, used.volume));
                return self.flex_volume(node, flex, is_exclusive(&object));
            }
            self.csi_volume(&*self.for_driver_on(node, object)?, false)
        });
        let inline = self.inline_volumes(pod).into_iter().filter_map(|object| self.csi_volume(&object, true));
        let of_programs = pod.spec.volumes.iter().filter_map(|volume| {
            let source = volume.flex_volume.as_ref()?;
            self.flex_volume(node, FlexSource::inline(&volume.name, source), false)
        });
        bound.chain(inline).chain(of_programs).collect()
    }

    fn flex_volume(&self, node: &str, source: FlexSource, is_exclusive: bool) -> Option<UsedVolume> {
        let object = source.name.clone();
        let is_attached = self.flex.attaches(node, &source.driver);
        let volume = AttachableVolume::Flex(source);
        is_attached.then_some(UsedVolume { volume, object, is_exclusive, inline: None })
    }

    fn csi_volume(&self, object: &PersistentVolume, is_inline: bool) -> Option<UsedVolume> {
        let volume = Volume::of(object).filter(|volume| self.must_be_attached(volume))?;
        Some(UsedVolume {
            volume: AttachableVolume::Csi(volume),
            object: object.name().to_owned(),
            is_exclusive: is_exclusive(object),
            inline: is_inline.then(|| Box::new(object.spec.clone())),
        })
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
        assert_eq!(read.in_use.iter().collect::<Vec<_>>(), [&volume.attachment("n"), "kubernetes.io/nfs/x"]);
        assert_eq!((read.ready, read.out_of_service, read.volumes_attached.len()), (false, true, 1));
    }

    #[test]
    fn volumes_for_one_node() {
        let of = |modes: &[&str]| is_exclusive(&object(json!({"spec": {"accessModes": modes}})));
        assert!(of(&["ReadWriteOnce"]) && of(&["ReadWriteOncePod"]));
        assert!(!of(&["ReadWriteOnce", "ReadOnlyMany"]) && !of(&["ReadWriteMany"]) && !of(&[]));
    }
}
