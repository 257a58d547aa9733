//! NodeVolumeLimits, EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: how many volumes a node can attach.

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::{PersistentVolume, Volume};
use api::storage::v1::CSINode;
use names::labels::{
    AWS_EBS_DRIVER, AWS_EBS_PLUGIN, AZURE_DISK_DRIVER, AZURE_DISK_PLUGIN, BETA_INSTANCE_TYPE, CINDER_DRIVER,
    CINDER_PLUGIN, GCE_PD_DRIVER, GCE_PD_PLUGIN, INSTANCE_TYPE,
};

use crate::framework::profile::VolumeLimitsArgs;
use crate::framework::{FilterResult, Plugin, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::volumes::{check_owner, claim_class, is_migrated};
use crate::pod_info::PodInfo;
use crate::storage::Storage;

const EXCEEDED: &str = "node(s) exceed max volume count";
const CSI_LIMIT: &str = "attachable-volumes-csi-";

/// A sort of disk that a plugin in the tree serves.
struct Disk {
    in_tree: &'static str,
    driver: &'static str,
    limit: &'static str,
}

const EBS: Disk =
    Disk { in_tree: AWS_EBS_PLUGIN, driver: AWS_EBS_DRIVER, limit: "attachable-volumes-aws-ebs" };
const GCE: Disk = Disk { in_tree: GCE_PD_PLUGIN, driver: GCE_PD_DRIVER, limit: "attachable-volumes-gce-pd" };
const AZURE: Disk =
    Disk { in_tree: AZURE_DISK_PLUGIN, driver: AZURE_DISK_DRIVER, limit: "attachable-volumes-azure-disk" };
const CINDER: Disk =
    Disk { in_tree: CINDER_PLUGIN, driver: CINDER_DRIVER, limit: "attachable-volumes-cinder" };
const DISKS: [&Disk; 4] = [&EBS, &GCE, &AZURE, &CINDER];

impl Disk {
    fn of(plugin: Plugin) -> Option<&'static Disk> {
        match plugin {
            Plugin::EBSLimits => Some(&EBS),
            Plugin::GCEPDLimits => Some(&GCE),
            Plugin::AzureDiskLimits => Some(&AZURE),
            Plugin::CinderLimits => Some(&CINDER),
            _ => None,
        }
    }

    fn inline<'v>(&self, volume: &'v Volume) -> Option<&'v str> {
        match self.in_tree {
            AWS_EBS_PLUGIN => volume.aws_elastic_block_store.as_ref().map(|it| &*it.volume_id),
            GCE_PD_PLUGIN => volume.gce_persistent_disk.as_ref().map(|it| &*it.pd_name),
            AZURE_DISK_PLUGIN => volume.azure_disk.as_ref().map(|it| &*it.disk_name),
            _ => volume.cinder.as_ref().map(|it| &*it.volume_id),
        }
    }

    fn persistent<'v>(&self, volume: &'v PersistentVolume) -> Option<&'v str> {
        let spec = &volume.spec;
        match self.in_tree {
            AWS_EBS_PLUGIN => spec.aws_elastic_block_store.as_ref().map(|it| &*it.volume_id),
            GCE_PD_PLUGIN => spec.gce_persistent_disk.as_ref().map(|it| &*it.pd_name),
            AZURE_DISK_PLUGIN => spec.azure_disk.as_ref().map(|it| &*it.disk_name),
            _ => spec.cinder.as_ref().map(|it| &*it.volume_id),
        }
    }

    fn default_limit(&self, node: &NodeInfo) -> i64 {
        match self.in_tree {
            AWS_EBS_PLUGIN => {
                let labels = node.labels();
                let instance = labels.get(BETA_INSTANCE_TYPE).or_else(|| labels.get(INSTANCE_TYPE));
                let is_nitro = |kind: &String| {
                    ["c5", "m5", "r5"].iter().any(|prefix| kind.starts_with(prefix))
                        || kind.contains("t3")
                        || kind.contains("z1d")
                };
                if instance.is_some_and(is_nitro) { 25 } else { 39 }
            }
            CINDER_PLUGIN => 256,
            _ => 16,
        }
    }
}

/// The claims of a pod's volumes that exist. For the pod being scheduled, all must.
fn claims(
    pod: &PodInfo,
    storage: &Storage,
    is_new: bool,
    mut visit: impl FnMut(&api::core::v1::PersistentVolumeClaim),
) -> FilterResult {
    for mounted in pod.claims() {
        if mounted.name.is_empty() {
            return Err(Rejection::error("PersistentVolumeClaim had no name"));
        }
        let (namespace, name) = (pod.namespace(), &mounted.name);
        match storage.claims.get_api(&format!("{namespace}/{name}")) {
            None if is_new => {
                return Err(Rejection::error(format!(
                    "looking up PVC {namespace}/{name}: persistentvolumeclaim {name:?} not found"
                )));
            }
            None => {}
            Some(claim) => {
                if mounted.is_ephemeral {
                    check_owner(pod, claim).map_err(Rejection::error)?;
                }
                visit(claim);
            }
        }
    }
    Ok(())
}

/// The filter of the plugins for one sort of disk.
pub fn filter_disks(
    plugin: Plugin,
    args: &VolumeLimitsArgs,
    pod: &PodInfo,
    storage: &Storage,
    node: &NodeInfo,
) -> FilterResult {
    let Some(disk) = Disk::of(plugin).filter(|_| !pod.volumes.is_empty()) else { return Ok(()) };
    let wanted = disks_of(disk, pod, storage, true)?;
    let csi_node = storage.csi_nodes.get(node.name()).map(|it| &**it);
    if wanted.is_empty() || is_migrated(csi_node, disk.in_tree) {
        return Ok(());
    }
    let mut all = wanted;
    for other in &node.pods {
        all.extend(disks_of(disk, other, storage, false)?);
    }
    let limit = node.allocatable.scalar(disk.limit).or(args.max_disks);
    let limit = limit.unwrap_or_else(|| disk.default_limit(node));
    match all.len() as i64 > limit {
        true => Err(Rejection::unschedulable(EXCEEDED)),
        false => Ok(()),
    }
}

fn disks_of(
    disk: &Disk,
    pod: &PodInfo,
    storage: &Storage,
    is_new: bool,
) -> Result<BTreeSet<String>, Rejection> {
    let inline = pod.volumes.iter().filter_map(|volume| disk.inline(volume));
    let mut found: BTreeSet<String> = inline.map(str::to_owned).collect();
    claims(pod, storage, is_new, |claim| {
        match storage.volumes.get_api(&claim.spec.volume_name) {
            Some(volume) => found.extend(disk.persistent(volume).map(str::to_owned)),
            None => {
                let class = claim.spec.storage_class_name.as_ref().and_then(|name| storage.classes.get(name));
                if class.is_some_and(|class| class.provisioner == disk.in_tree) {
                    // it will be one more disk
                    found.insert(format!("{}/{}", claim.metadata.namespace, claim.metadata.name));
                }
            }
        }
    })?;
    Ok(found)
}

/// The filter of NodeVolumeLimits.
pub fn filter_csi(pod: &PodInfo, storage: &Storage, node: &NodeInfo) -> FilterResult {
    if pod.volumes.is_empty() {
        return Ok(());
    }
    let csi_node = storage.csi_nodes.get(node.name()).map(|it| &**it);
    let mut wanted = csi_volumes(pod, storage, csi_node, true)?;
    let limits = csi_limits(node, csi_node);
    if wanted.is_empty() || limits.is_empty() {
        return Ok(());
    }
    let mut attached = BTreeSet::new();
    for other in &node.pods {
        attached.extend(csi_volumes(other, storage, csi_node, false)?);
    }
    wanted.retain(|volume| !attached.contains(volume));
    let count = |volumes: &BTreeSet<(String, String)>, driver: &str| {
        volumes.iter().filter(|(one, _)| one == driver).count() as i64
    };
    for (driver, limit) in &limits {
        let more = count(&wanted, driver);
        if more > 0 && count(&attached, driver) + more > *limit {
            return Err(Rejection::unschedulable(EXCEEDED));
        }
    }
    Ok(())
}

/// Limits by driver.
fn csi_limits(node: &NodeInfo, csi_node: Option<&CSINode>) -> BTreeMap<String, i64> {
    let scalars = node.allocatable.scalars().iter();
    let named = scalars.filter_map(|(name, limit)| Some((name.strip_prefix(CSI_LIMIT)?.to_owned(), *limit)));
    let mut limits: BTreeMap<String, i64> = named.collect();
    for driver in csi_node.map_or(&[][..], |it| &it.spec.drivers) {
        if let Some(count) = driver.allocatable.as_ref().and_then(|it| it.count) {
            limits.insert(driver.name.clone(), count.into());
        }
    }
    limits
}

/// Driver and handle of each CSI volume of a pod; disks in the tree count where their plugin is migrated.
fn csi_volumes(
    pod: &PodInfo,
    storage: &Storage,
    csi_node: Option<&CSINode>,
    is_new: bool,
) -> Result<BTreeSet<(String, String)>, Rejection> {
    let mut found = BTreeSet::new();
    let migrated = || DISKS.iter().filter(|disk| is_migrated(csi_node, disk.in_tree));
    for volume in &pod.volumes {
        let disk = migrated().find_map(|disk| Some((disk.driver, disk.inline(volume)?)));
        found.extend(disk.map(|(driver, handle)| (driver.to_owned(), handle.to_owned())));
    }
    claims(pod, storage, is_new, |claim| {
        let provisioned = || {
            let class = storage.classes.get(claim_class(claim))?;
            let driver = match DISKS.iter().find(|disk| disk.in_tree == class.provisioner) {
                Some(disk) if is_migrated(csi_node, disk.in_tree) => disk.driver,
                Some(_) => return None,
                None => &class.provisioner,
            };
            let handle = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
            (!driver.is_empty()).then(|| (driver.to_owned(), handle))
        };
        let volume = match storage.volumes.get_api(&claim.spec.volume_name) {
            None => provisioned(),
            Some(volume) => match &volume.spec.csi {
                Some(csi) => Some((csi.driver.clone(), csi.volume_handle.clone())),
                None => migrated()
                    .find_map(|disk| Some((disk.driver.to_owned(), disk.persistent(volume)?.to_owned()))),
            },
        };
        found.extend(volume.filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty()));
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;
    use std::sync::Arc;

    fn node(allocatable: &str) -> NodeInfo {
        let json = format!(r#"{{"metadata":{{"name":"n"}},"status":{{"allocatable":{{{allocatable}}}}}}}"#);
        NodeInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()), 0)
    }

    #[test]
    fn a_limit_of_the_node_comes_before_that_of_the_environment() {
        let volumes: Vec<String> = (0..3)
            .map(|at| format!(r#"{{"name":"v{at}","awsElasticBlockStore":{{"volumeID":"d{at}"}}}}"#))
            .collect();
        let json = format!(r#"{{"spec":{{"volumes":[{}]}}}}"#, volumes.join(","));
        let pod = PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()));
        for (allocatable, max_disks, fits) in [
            ("", None, true),
            ("", Some(3), true),
            ("", Some(2), false),
            (r#""attachable-volumes-aws-ebs":"3""#, Some(2), true),
            (r#""attachable-volumes-aws-ebs":"2""#, Some(3), false),
        ] {
            let args = VolumeLimitsArgs { max_disks };
            let result =
                filter_disks(Plugin::EBSLimits, &args, &pod, &Storage::default(), &node(allocatable));
            assert_eq!(result.is_ok(), fits, "{allocatable} {max_disks:?}");
        }
    }
}
