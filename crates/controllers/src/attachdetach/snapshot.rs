//! A snapshot of a node's volumes: those that its pods use, and those that are attached.

use super::attacher::Attacher;
use super::csi::Volume;
use super::decide::{self, AttachmentState, DesiredVolume, NodeVolumes};
use super::indexes;
use crate::pods::placed;
use crate::volumes::{self, claims};
use client::Key;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
pub struct Snapshot {
    pub seen: NodeVolumes,
    /// The pods that want a volume, by attachment.
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
}

impl Snapshot {
    pub fn pods(&self, name: &str) -> &[Arc<Pod>] {
        self.pods.get(name).map_or(&[], Vec::as_slice)
    }

    /// What the volume of an attachment is called.
    pub fn object(&self, name: &str) -> &str {
        self.seen.wanted.get(name).map_or("", |it| &it.object)
    }

    /// The volumes that can be at one node only, and are not here yet.
    pub fn exclusive(&self) -> impl Iterator<Item = &str> {
        let missing = self.seen.wanted.iter().filter(|(name, _)| !self.seen.there.contains_key(*name));
        missing.filter(|(_, it)| it.exclusive).map(|(_, it)| &*it.object)
    }
}

/// What a node says about itself.
pub fn read_node(node: &Node, names: &Names) -> decide::Node {
    let status = node.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let in_use = status.and_then(|it| it.volumes_in_use.as_deref()).unwrap_or_default();
    let told = status.and_then(|it| it.volumes_attached.as_deref()).unwrap_or_default();
    let out_of_service = names.well_known_under("node", "out-of-service");
    let name = node.name_any();
    decide::Node {
        told: told.iter().map(|it| it.name.clone()).collect(),
        in_use: in_use.iter().filter_map(|it| Some(Volume::named(it, names)?.attachment(&name))).collect(),
        ready: conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"),
        out_of_service: node
            .spec
            .iter()
            .flat_map(|it| it.taints.iter().flatten())
            .any(|it| it.key == out_of_service),
    }
}

fn is_annotated(node: &Node, name: &str) -> bool {
    node.annotations().get(name).is_some_and(|it| it == "true")
}

/// Whether its agent leaves attaching to the cluster.
pub fn is_looked_after(node: &Node, names: &Names) -> bool {
    is_annotated(node, &names.well_known_under("volumes", "controller-managed-attach-detach"))
}

/// Whether volumes of pods that have ended stay at a node.
fn keeps_ended(node: &Node, names: &Names) -> bool {
    is_annotated(node, &names.well_known_under("volumes", "keep-terminated-pod-volumes"))
}

/// Whether a volume can be at one node only.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|it| it.access_modes.as_deref()).unwrap_or_default();
    !modes.is_empty() && !modes.iter().any(|it| it == "ReadWriteMany" || it == "ReadOnlyMany")
}

fn read_attachment(attachment: &VolumeAttachment) -> AttachmentState {
    let status = attachment.status.as_ref();
    let error = status.and_then(|it| it.attach_error.as_ref());
    AttachmentState {
        attached: status.is_some_and(|it| it.attached),
        error: error.map(|it| it.message.clone().unwrap_or_default()),
        leaving: attachment.metadata.deletion_timestamp.is_some(),
    }
}

impl Attacher {
    /// Nothing where nobody is to look after the node.
    pub(super) fn snapshot(&self, name: &str) -> Option<Snapshot> {
        let names = &self.context.names;
        let node = self.nodes.informer().get(&Key::new("", name));
        if node.as_deref().is_some_and(|it| !is_looked_after(it, names)) {
            return None;
        }
        let keeps_ended = node.as_deref().is_some_and(|it| keeps_ended(it, names));
        let (mut wanted, mut pods) = (BTreeMap::new(), BTreeMap::<String, Vec<Arc<Pod>>>::new());
        for pod in placed::on(&self.pods, name) {
            if claims::is_done(&pod) && !keeps_ended {
                continue;
            }
            for (volume, object) in self.volumes_of(&pod) {
                let attachment = volume.attachment(name);
                pods.entry(attachment.clone()).or_default().push(pod.clone());
                wanted.entry(attachment).or_insert_with(|| self.wanted(name, volume, &object));
            }
        }
        let mut there = BTreeMap::new();
        let mut called: BTreeMap<String, String> = wanted
            .iter()
            .map(|(key, it): (&String, &DesiredVolume)| (key.clone(), it.volume.name(names)))
            .collect();
        for attachment in self.attachments.informer().by(indexes::BY_NODE, name) {
            let key = attachment.name_any();
            if let Some(volume) = self.volume_of(&attachment).filter(|it| it.attachment(name) == key) {
                called.entry(key.clone()).or_insert_with(|| volume.name(names));
            }
            there.insert(key, read_attachment(&attachment));
        }
        let mut read = node.as_deref().map(|it| read_node(it, names));
        if let Some(node) = &mut read {
            node.out_of_service &= self.context.gates.out_of_service;
            // what the node was told tells what things are called whose object is gone
            for volume in &node.told {
                if let Some(parsed) = Volume::named(volume, names) {
                    called.entry(parsed.attachment(name)).or_insert_with(|| volume.clone());
                }
            }
        }
        let now = self.context.world.elapsed();
        let since = self.since.lock();
        let waited = there.keys().filter_map(|key| {
            let since = since.get(&(name.to_owned(), key.clone()))?;
            Some((key.clone(), now.saturating_sub(*since)))
        });
        let waited = waited.collect();
        Some(Snapshot { seen: NodeVolumes { node: read, wanted, there, names: called, waited }, pods })
    }

    fn wanted(&self, node: &str, volume: Volume, object: &PersistentVolume) -> DesiredVolume {
        let name = object.name_any();
        let attachments = self.attachments.informer().by(indexes::BY_VOLUME, &name);
        let elsewhere = attachments.iter().map(|it| it.spec.node_name.clone()).filter(|it| it != node);
        DesiredVolume {
            volume,
            exclusive: is_exclusive(object),
            elsewhere: elsewhere.collect(),
            object: name,
        }
    }

    /// The volumes of a pod that must be attached, as far as it has them.
    fn volumes_of(&self, pod: &Pod) -> Vec<(Volume, Arc<PersistentVolume>)> {
        let namespace = pod.namespace().unwrap_or_default();
        let found = claims::of(pod).filter_map(|used| {
            let claim = self.claims.get(&Key::new(&namespace, &used.claim))?;
            if used.ephemeral && claims::check_made_for(&claim, pod).is_err() {
                return None;
            }
            if volumes::claim_phase(&claim) != "Bound" {
                return None;
            }
            let object = self.volumes.get(&Key::new("", volumes::volume_name(&claim)))?;
            let holder = object.spec.as_ref()?.claim_ref.as_ref()?;
            let volume = Volume::of(&object).filter(|_| holder.uid == claim.metadata.uid)?;
            self.must_be_attached(&volume).then_some((volume, object))
        });
        found.collect()
    }

    /// Whether a driver attaches volumes before they are used; one that does not say does.
    fn must_be_attached(&self, volume: &Volume) -> bool {
        let driver = self.drivers.get(&Key::new("", &volume.driver));
        driver.is_none_or(|it| it.spec.attach_required != Some(false))
    }

    fn volume_of(&self, attachment: &VolumeAttachment) -> Option<Volume> {
        let name = attachment.spec.source.persistent_volume_name.as_deref()?;
        Volume::of(&*self.volumes.get(&Key::new("", name))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_node_says() {
        let names = Names::kubernetes();
        let node = json!({
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
        });
        let node: Node = serde_json::from_value(node).unwrap();
        assert!(is_looked_after(&node, &names) && !keeps_ended(&node, &names));
        let read = read_node(&node, &names);
        let volume = Volume { driver: "b".to_owned(), handle: "a".to_owned() };
        assert_eq!(read.in_use.iter().collect::<Vec<_>>(), [&volume.attachment("n")]);
        assert_eq!((read.ready, read.out_of_service, read.told.len()), (false, true, 1));
    }

    #[test]
    fn volumes_for_one_node() {
        let of = |modes: &[&str]| {
            let spec = json!({"spec": {"accessModes": modes}});
            is_exclusive(&serde_json::from_value(spec).unwrap())
        };
        assert!(of(&["ReadWriteOnce"]) && of(&["ReadWriteOncePod"]));
        assert!(!of(&["ReadWriteOnce", "ReadOnlyMany"]) && !of(&["ReadWriteMany"]) && !of(&[]));
    }
}
