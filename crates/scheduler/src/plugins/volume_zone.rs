//! VolumeZone: keeps pods off nodes outside the zone or region of their volumes.

use names::labels::{
    FAILURE_DOMAIN_REGION, FAILURE_DOMAIN_ZONE, STORAGE_CLASS_KIND, TOPOLOGY_REGION, TOPOLOGY_ZONE,
};

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::volumes::{WAIT_FOR_FIRST_CONSUMER, claim_class};
use crate::pod_info::PodInfo;
use crate::storage::Storage;

const LABELS: [&str; 4] = [FAILURE_DOMAIN_ZONE, FAILURE_DOMAIN_REGION, TOPOLOGY_ZONE, TOPOLOGY_REGION];

pub fn filter(pod: &PodInfo, storage: &Storage, node: &NodeInfo) -> FilterResult {
    if pod.volumes.is_empty() || !LABELS.iter().any(|label| node.labels().contains_key(*label)) {
        return Ok(());
    }
    for volume in &pod.volumes {
        if let Some(source) = &volume.persistent_volume_claim {
            check_claim(pod, &source.claim_name, storage, node)?;
        }
    }
    Ok(())
}

fn check_claim(pod: &PodInfo, name: &str, storage: &Storage, node: &NodeInfo) -> FilterResult {
    if name.is_empty() {
        return Err(Rejection::unresolvable("PersistentVolumeClaim had no name"));
    }
    let Some(claim) = storage.claims.get_api(&format!("{}/{name}", pod.namespace())) else {
        return Err(Rejection::unresolvable_with(format!("persistentvolumeclaim {name:?} not found")));
    };
    let volume_name = &claim.spec.volume_name;
    if volume_name.is_empty() {
        return check_unbound(claim_class(claim), storage);
    }
    let Some(volume) = storage.volumes.get_api(volume_name) else {
        return Err(Rejection::unresolvable_with(format!("persistentvolume {volume_name:?} not found")));
    };
    for (key, zones) in volume.metadata.labels.iter().filter(|(key, _)| LABELS.contains(&&***key)) {
        let zone = node.labels().get(key).map_or("", String::as_str);
        // a list of zones with an empty member is not understood, and so does not bind
        let listed: Vec<&str> = zones.split("__").map(str::trim).collect();
        if !listed.contains(&"") && !listed.contains(&zone) {
            return Err(Rejection::unresolvable("node(s) had no available volume zone"));
        }
    }
    Ok(())
}

fn check_unbound(class_name: &str, storage: &Storage) -> FilterResult {
    if class_name.is_empty() {
        return Err(Rejection::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
    }
    let Some(class) = storage.classes.get(class_name) else {
        let message = format!("{STORAGE_CLASS_KIND} {class_name:?} not found");
        return Err(Rejection::unresolvable_with(message));
    };
    match class.volume_binding_mode.as_deref() {
        None => Err(Rejection::unresolvable_with(format!(
            "VolumeBindingMode not set for StorageClass {class_name:?}"
        ))),
        Some(WAIT_FOR_FIRST_CONSUMER) => Ok(()),
        Some(_) => Err(Rejection::unresolvable("PersistentVolume had no name")),
    }
}
