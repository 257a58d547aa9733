//! NodeVolumeLimits, EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: how many volumes a node can attach.

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use api::storage::v1::CSINode;
use client::csi_translation::{InTreePlugin, translate, translate_inline};
use names::labels::{BETA_INSTANCE_TYPE, INSTANCE_TYPE};
use ring::digest;

use crate::framework::profile::VolumeLimitsArgs;
use crate::framework::{Features, FilterResult, Plugin, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::volumes::{check_owner, claim_class, is_migrated};
use crate::pod_info::PodInfo;
use crate::storage::Storage;

const EXCEEDED: &str = "node(s) exceed max volume count";
const CSI_LIMIT: &str = "attachable-volumes-csi-";

/// A sort of disk that a plugin in the tree serves.
struct Disk {
    in_tree: InTreePlugin,
    limit: &'static str,
}

const EBS: Disk = Disk { in_tree: InTreePlugin::AwsEbs, limit: "attachable-volumes-aws-ebs" };
const GCE: Disk = Disk { in_tree: InTreePlugin::GcePd, limit: "attachable-volumes-gce-pd" };
const AZURE: Disk = Disk { in_tree: InTreePlugin::AzureDisk, limit: "attachable-volumes-azure-disk" };
const CINDER: Disk = Disk { in_tree: InTreePlugin::Cinder, limit: "attachable-volumes-cinder" };

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
            InTreePlugin::AwsEbs => volume.aws_elastic_block_store.as_ref().map(|it| &*it.volume_id),
            InTreePlugin::GcePd => volume.gce_persistent_disk.as_ref().map(|it| &*it.pd_name),
            InTreePlugin::AzureDisk => volume.azure_disk.as_ref().map(|it| &*it.disk_name),
            _ => volume.cinder.as_ref().map(|it| &*it.volume_id),
        }
    }

    fn persistent<'v>(&self, volume: &'v PersistentVolume) -> Option<&'v str> {
        let spec = &volume.spec;
        match self.in_tree {
            InTreePlugin::AwsEbs => spec.aws_elastic_block_store.as_ref().map(|it| &*it.volume_id),
            InTreePlugin::GcePd => spec.gce_persistent_disk.as_ref().map(|it| &*it.pd_name),
            InTreePlugin::AzureDisk => spec.azure_disk.as_ref().map(|it| &*it.disk_name),
            _ => spec.cinder.as_ref().map(|it| &*it.volume_id),
        }
    }

    fn default_limit(&self, node: &NodeInfo) -> i64 {
        match self.in_tree {
            InTreePlugin::AwsEbs => {
                let labels = node.labels();
                let instance = labels.get(BETA_INSTANCE_TYPE).or_else(|| labels.get(INSTANCE_TYPE));
                let is_nitro = |kind: &String| {
                    ["c5", "m5", "r5"].iter().any(|prefix| kind.starts_with(prefix))
                        || kind.contains("t3")
                        || kind.contains("z1d")
                };
                if instance.is_some_and(is_nitro) { 25 } else { 39 }
            }
            InTreePlugin::Cinder => 256,
            _ => 16,
        }
    }
}

/// The claims of a pod's volumes that exist. For the pod being scheduled, all must.
fn claims(
    pod: &PodInfo,
    storage: &Storage,
    is_new: bool,
    mut visit: impl FnMut(&PersistentVolumeClaim),
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
    features: Features,
    pod: &PodInfo,
    storage: &Storage,
    node: &NodeInfo,
) -> FilterResult {
    let Some(disk) = Disk::of(plugin).filter(|_| !pod.volumes.is_empty()) else { return Ok(()) };
    let requested = disks_of(disk, pod, storage, true)?;
    let csi_node = storage.csi_nodes.get(node.name()).map(|it| &**it);
    if requested.is_empty() || is_migrated(csi_node, disk.in_tree, features) {
        return Ok(());
    }
    let mut all = requested;
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
                if class.is_some_and(|class| class.provisioner == disk.in_tree.name()) {
                    // it will be one more disk
                    found.insert(format!("{}/{}", claim.metadata.namespace, claim.metadata.name));
                }
            }
        }
    })?;
    Ok(found)
}

/// The filter of NodeVolumeLimits.
pub fn filter_csi(features: Features, pod: &PodInfo, storage: &Storage, node: &NodeInfo) -> FilterResult {
    if pod.volumes.is_empty() {
        return Ok(());
    }
    let node_volumes =
        NodeCsiVolumes { csi_node: storage.csi_nodes.get(node.name()).map(|it| &**it), storage, features };
    let mut requested = node_volumes.of(pod, true)?;
    if requested.is_empty() {
        return Ok(());
    }
    let limits = node_volumes.limits(node);
    if limits.is_empty() {
        return Ok(());
    }
    let mut attached = BTreeSet::new();
    for other in &node.pods {
        attached.extend(node_volumes.of(other, false)?);
    }
    requested.retain(|volume| !attached.contains(volume));
    let drivers: BTreeSet<&str> = requested.iter().map(|it| &*it.driver).collect();
    let count =
        |volumes: &BTreeSet<CsiVolume>, driver| volumes.iter().filter(|it| it.driver == driver).count();
    for driver in drivers {
        let all = count(&attached, driver) + count(&requested, driver);
        if limits.get(&limit_key(driver)).is_some_and(|limit| all as i64 > *limit) {
            return Err(Rejection::unschedulable(EXCEEDED));
        }
    }
    Ok(())
}

/// The longest name of a resource, and what stays of a driver's in one: the beginning, and digits of a hash.
const MAX_RESOURCE_NAME: usize = 63;
const DRIVER_PREFIX: usize = 23;
const HASH_DIGITS: usize = 16;

/// The name of the resource that limits the volumes of a driver.
fn limit_key(driver: &str) -> String {
    if CSI_LIMIT.len() + driver.len() < MAX_RESOURCE_NAME {
        return format!("{CSI_LIMIT}{driver}");
    }
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, driver.as_bytes());
    let digits: String = hash.as_ref().iter().take(HASH_DIGITS / 2).map(|it| format!("{it:02x}")).collect();
    format!("{CSI_LIMIT}{}{digits}", driver.get(..DRIVER_PREFIX).unwrap_or(driver))
}

/// A volume of a driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CsiVolume {
    driver: String,
    handle: String,
}

/// The volumes of CSI drivers of the pods of a node. Those of in-tree plugins count where a driver serves them: by the
/// handles that the driver has for them, so that a disk counts once in whatever form pods have it.
struct NodeCsiVolumes<'a> {
    csi_node: Option<&'a CSINode>,
    storage: &'a Storage,
    features: Features,
}

impl NodeCsiVolumes<'_> {
    fn is_migrated(&self, plugin: InTreePlugin) -> bool {
        is_migrated(self.csi_node, plugin, self.features)
    }

    /// Limits by the names of their resources.
    fn limits(&self, node: &NodeInfo) -> BTreeMap<String, i64> {
        let scalars = node.allocatable.scalars().iter().filter(|(name, _)| name.starts_with(CSI_LIMIT));
        let mut limits: BTreeMap<String, i64> = scalars.map(|(name, it)| (name.to_string(), *it)).collect();
        for driver in self.csi_node.map_or(&[][..], |it| &it.spec.drivers) {
            if let Some(count) = driver.allocatable.as_ref().and_then(|it| it.count) {
                limits.insert(limit_key(&driver.name), count.into());
            }
        }
        limits
    }

    fn of(&self, pod: &PodInfo, is_new: bool) -> Result<BTreeSet<CsiVolume>, Rejection> {
        let mut found = BTreeSet::new();
        for volume in &pod.volumes {
            found.extend(self.inline(pod, volume)?);
        }
        claims(pod, self.storage, is_new, |claim| {
            let volume = match self.storage.volumes.get_api(&claim.spec.volume_name) {
                None => self.provisioned(claim),
                Some(volume) => self.bound(volume),
            };
            found.extend(volume.filter(|it| !it.driver.is_empty() && !it.handle.is_empty()));
        })?;
        Ok(found)
    }

    fn inline(&self, pod: &PodInfo, volume: &Volume) -> Result<Option<CsiVolume>, Rejection> {
        let migrated = InTreePlugin::of_inline(volume).filter(|plugin| self.is_migrated(*plugin));
        let Some(translated) = migrated.and_then(|_| translate_inline(volume, pod.namespace())) else {
            return Ok(None);
        };
        let translated = translated.map_err(|why| {
            Rejection::error(format!("converting volume({}) from inline to csi: {why}", volume.name))
        })?;
        Ok(csi_source(&translated))
    }

    fn bound(&self, volume: &PersistentVolume) -> Option<CsiVolume> {
        match InTreePlugin::of(volume).filter(|_| volume.spec.csi.is_none()) {
            None => csi_source(volume),
            Some(plugin) if self.is_migrated(plugin) => csi_source(&translate(volume)?.ok()?),
            Some(_) => None,
        }
    }

    /// The volume that a claim will get.
    fn provisioned(&self, claim: &PersistentVolumeClaim) -> Option<CsiVolume> {
        let class = self.storage.classes.get(claim_class(claim))?;
        let in_tree = InTreePlugin::ALL.into_iter().find(|it| it.name() == class.provisioner);
        let driver = match in_tree {
            Some(plugin) if self.is_migrated(plugin) => plugin.driver(),
            Some(_) => return None,
            None => &class.provisioner,
        };
        let handle = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
        Some(CsiVolume { driver: driver.to_owned(), handle })
    }
}

fn csi_source(volume: &PersistentVolume) -> Option<CsiVolume> {
    let source = volume.spec.csi.as_ref()?;
    Some(CsiVolume { driver: source.driver.clone(), handle: source.volume_handle.clone() })
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
            let result = filter_disks(
                Plugin::EBSLimits,
                &args,
                FEATURES,
                &pod,
                &Storage::default(),
                &node(allocatable),
            );
            assert_eq!(result.is_ok(), fits, "{allocatable} {max_disks:?}");
        }
    }

    const FEATURES: Features = Features { csi_migration_rbd: false, ..Features::ALL };

    fn pod(volumes: &str) -> PodInfo {
        let json =
            format!(r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{{"volumes":[{volumes}]}}}}"#);
        PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()))
    }

    fn storage(csi_node: &str, volume: &str) -> Storage {
        let mut storage = Storage::default();
        let csi_node: CSINode = from_json(csi_node.as_bytes()).unwrap();
        storage.csi_nodes.insert("n".to_owned(), Arc::new(csi_node));
        storage.volumes.set(Arc::new(from_json(volume.as_bytes()).unwrap()));
        let claim = r#"{"metadata":{"name":"c","namespace":"ns"},"spec":{"volumeName":"v"}}"#;
        storage.claims.set(Arc::new(from_json(claim.as_bytes()).unwrap()));
        storage
    }

    #[test]
    fn a_disk_counts_once_in_whatever_form_pods_have_it() {
        let csi_node = r#"{"metadata":{"name":"n","annotations":
            {"storage.alpha.kubernetes.io/migrated-plugins":"kubernetes.io/aws-ebs"}},
            "spec":{"drivers":[{"name":"ebs.csi.aws.com","nodeID":"n","allocatable":{"count":1}}]}}"#;
        let volume =
            r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"ebs.csi.aws.com","volumeHandle":"vol-1"}}}"#;
        let storage = storage(csi_node, volume);
        let disk = |id: &str| format!(r#"{{"name":"d","awsElasticBlockStore":{{"volumeID":"{id}"}}}}"#);
        let claim = r#"{"name":"c","persistentVolumeClaim":{"claimName":"c"}}"#;
        let fits = |volumes: String| filter_csi(FEATURES, &pod(&volumes), &storage, &node("")).is_ok();
        assert!(fits(format!("{},{claim}", disk("aws:///vol-1"))));
        assert!(!fits(format!("{},{claim}", disk("aws:///vol-2"))));
    }

    #[test]
    fn plugins_count_where_the_node_and_the_gate_say_so() {
        let csi_node = r#"{"metadata":{"name":"n","annotations":
            {"storage.alpha.kubernetes.io/migrated-plugins":"kubernetes.io/rbd,kubernetes.io/vsphere-volume"}},
            "spec":{"drivers":[{"name":"rbd.csi.ceph.com","nodeID":"n","allocatable":{"count":0}},
                {"name":"csi.vsphere.vmware.com","nodeID":"n","allocatable":{"count":0}},
                {"name":"cinder.csi.openstack.org","nodeID":"n","allocatable":{"count":0}}]}}"#;
        let fits = |features: Features, source: &str| {
            let volume = format!(r#"{{"metadata":{{"name":"v"}},"spec":{{{source}}}}}"#);
            let pod = pod(r#"{"name":"c","persistentVolumeClaim":{"claimName":"c"}}"#);
            filter_csi(features, &pod, &storage(csi_node, &volume), &node("")).is_ok()
        };
        let rbd = r#""rbd":{"monitors":["m"],"image":"i","pool":"p"}"#;
        assert!(fits(FEATURES, rbd));
        assert!(!fits(Features { csi_migration_rbd: true, ..FEATURES }, rbd));
        // upstream never counts these, and always those
        assert!(fits(FEATURES, r#""vsphereVolume":{"volumePath":"x"}"#));
        assert!(!fits(FEATURES, r#""cinder":{"volumeID":"x"}"#));
    }

    #[test]
    fn long_names_of_drivers_are_hashed() {
        assert_eq!(limit_key("d.example.com"), "attachable-volumes-csi-d.example.com");
        let long = "a-driver-with-a-very-long-name.example.com";
        let key = limit_key(long);
        assert_eq!(key.len(), CSI_LIMIT.len() + DRIVER_PREFIX + HASH_DIGITS);
        assert!(key.starts_with("attachable-volumes-csi-a-driver-with-a-very-lo"), "{key}");
        let limited = node(&format!(r#""{key}":"0""#));
        let volume = format!(
            r#"{{"metadata":{{"name":"v"}},"spec":{{"csi":{{"driver":"{long}","volumeHandle":"h"}}}}}}"#
        );
        let storage = storage(r#"{"metadata":{"name":"n"}}"#, &volume);
        let pod = pod(r#"{"name":"c","persistentVolumeClaim":{"claimName":"c"}}"#);
        assert!(filter_csi(FEATURES, &pod, &storage, &limited).is_err());
    }
}
