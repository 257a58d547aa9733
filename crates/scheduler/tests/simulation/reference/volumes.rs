//! VolumeRestrictions, EBSLimits, GCEPDLimits, NodeVolumeLimits, VolumeBinding and VolumeZone.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Volume};

use super::filters::{Verdict, resolvable, unresolvable};
use super::selectors::term_matches;
use super::spread::ZONE;
use super::view::View;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The keys of the claims that a pod mounts.
pub fn claim_keys(pod: &Pod) -> Vec<String> {
    let claims = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{}/{}", pod.metadata.namespace, claim.claim_name)).collect()
}

fn not_found(key: &str) -> String {
    let name = key.split_once('/').unwrap().1;
    format!("persistentvolumeclaim {name:?} not found")
}

/// A claim of mode `ReadWriteOncePod` is used by one pod only.
pub fn check_exclusive_claims(view: &View, pod: &Pod) -> Result<(), String> {
    for key in claim_keys(pod) {
        let claim = view.claims.get(&key).ok_or_else(|| not_found(&key))?;
        let is_exclusive = claim.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod");
        if is_exclusive && view.placed().any(|(other, _)| claim_keys(other).contains(&key)) {
            let why = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
            return Err(why.to_owned());
        }
    }
    Ok(())
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.metadata.annotations.contains_key(BIND_COMPLETED)
}

fn class_of(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.storage_class_name.as_deref().unwrap_or_default()
}

fn waits_for_consumer(view: &View, claim: &PersistentVolumeClaim) -> bool {
    let class = view.classes.get(class_of(claim));
    let waits =
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    waits && claim.spec.volume_name.is_empty()
}

/// All claims exist, and are bound or wait for their first consumer.
pub fn check_claims(view: &View, pod: &Pod) -> Result<(), String> {
    for key in claim_keys(pod) {
        let claim = view.claims.get(&key).ok_or_else(|| not_found(&key))?;
        let name = &claim.metadata.name;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
    }
    let keys = claim_keys(pod);
    let mut claims = keys.iter().filter_map(|key| view.claim(key));
    match claims.all(|claim| is_bound(claim) || waits_for_consumer(view, claim)) {
        true => Ok(()),
        false => Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
    }
}

fn is_same_disk(one: &Volume, other: &Volume) -> bool {
    let gce = one.gce_persistent_disk.as_ref().zip(other.gce_persistent_disk.as_ref());
    let ebs = one.aws_elastic_block_store.as_ref().zip(other.aws_elastic_block_store.as_ref());
    gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !(a.read_only && b.read_only))
        || ebs.is_some_and(|(a, b)| a.volume_id == b.volume_id)
}

/// A disk is not mounted by two pods of a node.
pub fn disk_conflicts(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let others: Vec<&Volume> =
        view.pods_on(&node.metadata.name).flat_map(|other| &other.spec.volumes).collect();
    let is_taken = |volume: &Volume| others.iter().any(|other| is_same_disk(volume, other));
    match pod.spec.volumes.iter().any(is_taken) {
        true => resolvable("node(s) had no available disk"),
        false => Verdict::Fits,
    }
}

#[derive(Clone, Copy)]
pub enum Disk {
    Ebs,
    Gce,
}

impl Disk {
    fn of(self, pod: &Pod) -> BTreeSet<&str> {
        let volumes = pod.spec.volumes.iter();
        match self {
            Disk::Ebs => {
                volumes.filter_map(|it| Some(&*it.aws_elastic_block_store.as_ref()?.volume_id)).collect()
            }
            Disk::Gce => volumes.filter_map(|it| Some(&*it.gce_persistent_disk.as_ref()?.pd_name)).collect(),
        }
    }

    fn limit(self, node: &Node) -> i64 {
        let (name, default) = match self {
            Disk::Ebs => ("attachable-volumes-aws-ebs", 39),
            Disk::Gce => ("attachable-volumes-gce-pd", 16),
        };
        node.status.allocatable.get(name).map_or(default, |limit| limit.whole())
    }
}

/// No more disks than a node can attach.
pub fn disk_limits(view: &View, pod: &Pod, node: &Node, disk: Disk) -> Verdict {
    let mut disks = disk.of(pod);
    if disks.is_empty() {
        return Verdict::Fits;
    }
    for other in view.pods_on(&node.metadata.name) {
        disks.extend(disk.of(other));
    }
    match disks.len() as i64 > disk.limit(node) {
        true => resolvable("node(s) exceed max volume count"),
        false => Verdict::Fits,
    }
}

/// Driver and handle of each volume of a pod's claims; a claim without a volume will have one of its class.
fn csi_volumes(view: &View, pod: &Pod) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for claim in claim_keys(pod).iter().filter_map(|key| view.claims.get(key)) {
        let name = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
        match view.volumes.get(&claim.spec.volume_name) {
            Some(volume) => {
                found.extend(
                    volume.spec.csi.as_ref().map(|csi| (csi.driver.clone(), csi.volume_handle.clone())),
                );
            }
            None => {
                let class = view.classes.get(class_of(claim));
                found.extend(class.map(|it| (it.provisioner.clone(), format!("{}/{}", name.0, name.1))));
            }
        }
    }
    found
}

/// No more volumes of a driver than a node can attach.
pub fn csi_limits(view: &View, pod: &Pod, node: &Node) -> Verdict {
    const PREFIX: &str = "attachable-volumes-csi-";
    let wanted = csi_volumes(view, pod);
    let attached: BTreeSet<_> =
        view.pods_on(&node.metadata.name).flat_map(|other| csi_volumes(view, other)).collect();
    for driver in wanted.difference(&attached).map(|(driver, _)| driver) {
        let of_node = node.status.allocatable.get(&format!("{PREFIX}{driver}")).map(|limit| limit.whole());
        let csi_node = view.csi_nodes.get(&node.metadata.name);
        let of_driver = csi_node.and_then(|it| it.spec.drivers.iter().find(|one| one.name == *driver));
        let of_driver = of_driver.and_then(|it| it.allocatable.as_ref()?.count).map(i64::from);
        let all = wanted.union(&attached).filter(|(one, _)| one == driver).count() as i64;
        if of_driver.or(of_node).is_some_and(|limit| all > limit) {
            return resolvable("node(s) exceed max volume count");
        }
    }
    Verdict::Fits
}

fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    affinity.is_none_or(|it| it.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

fn size(list: &std::collections::BTreeMap<String, api::Quantity>) -> i64 {
    list.get("storage").map_or(0, |quantity| quantity.whole())
}

fn names_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
    })
}

/// The volumes that a claim may be bound to, the smallest first.
fn candidates<'v>(view: &'v View, claim: &PersistentVolumeClaim) -> Vec<&'v Arc<PersistentVolume>> {
    let fits = |volume: &&Arc<PersistentVolume>| {
        volume.spec.storage_class_name == class_of(claim)
            && size(&volume.spec.capacity) >= size(&claim.spec.resources.requests)
    };
    let is_free = |volume: &Arc<PersistentVolume>| {
        let offers = |mode: &String| volume.spec.access_modes.contains(mode);
        volume.spec.claim_ref.is_none()
            && volume.status.phase == "Available"
            && claim.spec.access_modes.iter().all(offers)
    };
    let fitting: Vec<_> = view.all_volumes().filter(fits).collect();
    let reserved: Vec<_> = fitting.iter().copied().filter(|volume| names_claim(volume, claim)).collect();
    let mut found = match reserved.is_empty() {
        true => fitting.into_iter().filter(|volume| is_free(volume)).collect(),
        false => reserved,
    };
    found.sort_by_key(|volume| (size(&volume.spec.capacity), volume.metadata.name.clone()));
    found
}

/// The volumes of a pod's claims on a node; a claim without one is provisioned.
pub fn find(view: &View, pod: &Pod, node: &Node) -> Result<BTreeSet<(String, Option<String>)>, Verdict> {
    let keys = claim_keys(pod);
    let claims: Vec<_> = keys.iter().filter_map(|key| view.claim(key)).collect();
    let mut reasons = Vec::new();
    for claim in claims.iter().filter(|claim| is_bound(claim)) {
        let name = &claim.spec.volume_name;
        match view.assumed_volumes.get(name).or_else(|| view.volumes.get(name)) {
            None => reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
            Some(volume) if !is_reachable(volume, node) => {
                reasons.push("node(s) had volume node affinity conflict");
            }
            Some(_) => continue,
        }
        break;
    }
    let mut waiting: Vec<_> = claims.iter().filter(|claim| !is_bound(claim)).collect();
    waiting.sort_by_key(|claim| size(&claim.spec.resources.requests));
    let mut chosen: BTreeSet<(String, Option<String>)> = BTreeSet::new();
    let mut is_impossible = false;
    for claim in waiting {
        let selected = claim.metadata.annotations.get(SELECTED_NODE);
        is_impossible |= selected.is_some_and(|selected| *selected != node.metadata.name);
        let is_taken = |name: &String| chosen.iter().any(|(_, volume)| volume.as_ref() == Some(name));
        let volume = candidates(view, claim)
            .into_iter()
            .filter(|_| selected.is_none())
            .find(|volume| !is_taken(&volume.metadata.name) && is_reachable(volume, node));
        let class = view.classes.get(class_of(claim)).unwrap();
        is_impossible |= volume.is_none() && class.provisioner == "kubernetes.io/no-provisioner";
        chosen.insert((claim.metadata.name.clone(), volume.map(|volume| volume.metadata.name.clone())));
    }
    if is_impossible {
        reasons.push("node(s) didn't find available persistent volumes to bind");
    }
    match reasons.is_empty() {
        true => Ok(chosen),
        false => Err(Verdict::Rejected {
            reasons: reasons.into_iter().map(str::to_owned).collect(),
            is_resolvable: false,
        }),
    }
}

/// A volume with a zone is used in its zone.
pub fn zone(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let Some(zone) = node.metadata.labels.get(ZONE) else { return Verdict::Fits };
    let keys = claim_keys(pod);
    let names = keys.iter().filter_map(|key| view.claims.get(key)).map(|claim| &claim.spec.volume_name);
    let mut volumes = names.filter_map(|name| view.volumes.get(name));
    match volumes.any(|volume| volume.metadata.labels.get(ZONE).is_some_and(|its| its != zone)) {
        true => unresolvable("node(s) had no available volume zone"),
        false => Verdict::Fits,
    }
}
