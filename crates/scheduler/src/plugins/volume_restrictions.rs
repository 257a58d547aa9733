//! VolumeRestrictions: disks that cannot be mounted twice, and claims of access mode `ReadWriteOncePod`.

use api::core::v1::Volume;

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

pub fn pre_filter(pod: &PodInfo, snapshot: &Snapshot) -> FilterResult {
    for volume in &pod.volumes {
        let Some(source) = &volume.persistent_volume_claim else { continue };
        let key = format!("{}/{}", pod.namespace(), source.claim_name);
        let Some(claim) = snapshot.storage.claims.get_api(&key) else {
            let name = &source.claim_name;
            return Err(Rejection::unresolvable_with(format!("persistentvolumeclaim {name:?} not found")));
        };
        let is_exclusive = claim.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod");
        if is_exclusive && snapshot.mounts_claim(&key) {
            return Err(Rejection::unresolvable(
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
            ));
        }
    }
    Ok(())
}

pub fn filter(pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    for volume in &pod.volumes {
        let is_disk = volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.rbd.is_some()
            || volume.iscsi.is_some();
        if !is_disk {
            continue;
        }
        let others = node.pods.iter().flat_map(|pod| &pod.volumes);
        if others.into_iter().any(|other| conflicts(volume, other)) {
            return Err(Rejection::unschedulable("node(s) had no available disk"));
        }
    }
    Ok(())
}

fn conflicts(one: &Volume, other: &Volume) -> bool {
    let gce = one.gce_persistent_disk.as_ref().zip(other.gce_persistent_disk.as_ref());
    let ebs = one.aws_elastic_block_store.as_ref().zip(other.aws_elastic_block_store.as_ref());
    let iscsi = one.iscsi.as_ref().zip(other.iscsi.as_ref());
    let rbd = one.rbd.as_ref().zip(other.rbd.as_ref());
    gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !(a.read_only && b.read_only))
        || ebs.is_some_and(|(a, b)| a.volume_id == b.volume_id)
        || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !(a.read_only && b.read_only))
        || rbd.is_some_and(|(a, b)| {
            let overlap = a.monitors.iter().any(|monitor| b.monitors.contains(monitor));
            overlap && a.pool == b.pool && a.image == b.image && !(a.read_only && b.read_only)
        })
}
