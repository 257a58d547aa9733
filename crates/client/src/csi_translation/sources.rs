//! The CSI source of each plugin's source.

use super::md5::hex_digest;
use super::plugin::InTreePlugin;
use super::topology::{ZONE_SEPARATOR, translate_zone_and_region, translate_zones};
use api::core::v1::{
    AzureDiskVolumeSource, CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec,
    SecretReference, Volume, VsphereVirtualDiskVolumeSource,
};
use api::meta::v1::ObjectMeta;
use names::labels::{FAILURE_DOMAIN_ZONE, TOPOLOGY_ZONE};
use std::collections::{BTreeMap, BTreeSet};

const ONE_WRITER: &str = "ReadWriteOnce";
const MANY_READERS: &str = "ReadOnlyMany";
const MANY_WRITERS: &str = "ReadWriteMany";
/// The part of a handle that the driver finds out.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// The keys of topologies of drivers.
const AWS_ZONE: &str = "topology.ebs.csi.aws.com/zone";
const CINDER_ZONE: &str = "topology.cinder.csi.openstack.org/zone";
const GCE_ZONE: &str = "topology.gke.io/zone";
const VSPHERE_ZONE: &str = "topology.csi.vmware.com/zone";
const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";
/// The annotation of a volume with its handle.
const RBD_HANDLE: &str = "rbd.csi.ceph.com/volume-handle";
/// Where a secret is if nothing says so.
const DEFAULT_NAMESPACE: &str = "default";

/// A source whose attributes are added to.
type Source = CSIPersistentVolumeSource;

fn source(plugin: InTreePlugin, handle: &str, fs_type: &str, is_readonly: bool) -> Source {
    Source {
        driver: plugin.driver().to_owned(),
        volume_handle: handle.to_owned(),
        fs_type: fs_type.to_owned(),
        read_only: is_readonly,
        ..Source::default()
    }
}

fn with(mut source: Source, attributes: &[(&str, &str)]) -> Source {
    source.volume_attributes =
        attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    source
}

fn secret(name: &str, namespace: &str) -> Option<Box<SecretReference>> {
    let reference = SecretReference {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        ..SecretReference::default()
    };
    Some(Box::new(reference))
}

/// Translates a persistent volume of a plugin.
pub fn persistent(plugin: InTreePlugin, volume: &PersistentVolume) -> Result<PersistentVolume, String> {
    let mut volume = volume.clone();
    let source = match plugin {
        InTreePlugin::AwsEbs => {
            let it = volume.spec.aws_elastic_block_store.take().unwrap_or_default();
            let handle = ebs_handle(&it.volume_id)?;
            translate_zones(&mut volume, AWS_ZONE);
            let source = source(plugin, handle, &it.fs_type, it.read_only);
            with(source, &[("partition", &it.partition.to_string())])
        }
        InTreePlugin::AzureDisk => {
            let it = volume.spec.azure_disk.take().unwrap_or_default();
            azure_disk(plugin, &it, it.caching_mode.as_deref())?
        }
        InTreePlugin::AzureFile => azure_file(plugin, &mut volume)?,
        InTreePlugin::Cinder => {
            let it = volume.spec.cinder.take().unwrap_or_default();
            translate_zones(&mut volume, CINDER_ZONE);
            source(plugin, &it.volume_id, &it.fs_type, it.read_only)
        }
        InTreePlugin::GcePd => {
            let it = volume.spec.gce_persistent_disk.take().unwrap_or_default();
            let handle = gce_handle(&volume, &it.pd_name)?;
            translate_zones(&mut volume, GCE_ZONE);
            volume.spec.access_modes = gce_access_modes(&volume.spec.access_modes);
            let source = source(plugin, &handle, &it.fs_type, it.read_only);
            with(source, &[("partition", &gce_partition(it.partition))])
        }
        InTreePlugin::Portworx => {
            let it = volume.spec.portworx_volume.take().unwrap_or_default();
            source(plugin, &it.volume_id, &it.fs_type, false)
        }
        InTreePlugin::Rbd => rbd(plugin, &mut volume),
        InTreePlugin::Vsphere => {
            let it = volume.spec.vsphere_volume.take().unwrap_or_default();
            translate_zone_and_region(&mut volume, VSPHERE_ZONE, VSPHERE_REGION);
            vsphere(plugin, &it)
        }
    };
    volume.spec.csi = Some(Box::new(source));
    Ok(volume)
}

/// Translates a volume of a pod.
pub fn inline(plugin: InTreePlugin, volume: &Volume, namespace: &str) -> Result<PersistentVolume, String> {
    let by_access = |is_readonly| if is_readonly { MANY_READERS } else { ONE_WRITER };
    let named = |name: &str| format!("{}-{name}", plugin.driver());
    let (name, source, mode) = match plugin {
        InTreePlugin::AwsEbs => {
            let it = volume.aws_elastic_block_store.clone().unwrap_or_default();
            let handle = ebs_handle(&it.volume_id)?;
            let source = source(plugin, handle, &it.fs_type, it.read_only);
            (named(handle), with(source, &[("partition", &it.partition.to_string())]), ONE_WRITER)
        }
        InTreePlugin::AzureDisk => {
            let it = volume.azure_disk.clone().unwrap_or_default();
            let caching_mode = it.caching_mode.as_deref().filter(|it| !it.is_empty());
            (it.disk_uri.clone(), azure_disk(plugin, &it, caching_mode)?, ONE_WRITER)
        }
        InTreePlugin::AzureFile => {
            let it = volume.azure_file.clone().unwrap_or_default();
            let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
            let account = azure_account(&it.secret_name);
            let handle = format!("#{account}#{}#{}#{namespace}", it.share_name, volume.name);
            let mut source =
                with(source(plugin, &handle, "", it.read_only), &[("sharename", &it.share_name)]);
            source.node_stage_secret_ref = secret(&it.secret_name, namespace);
            (handle, source, MANY_WRITERS)
        }
        InTreePlugin::Cinder => {
            let it = volume.cinder.clone().unwrap_or_default();
            let source = source(plugin, &it.volume_id, &it.fs_type, it.read_only);
            (named(&it.volume_id), source, ONE_WRITER)
        }
        InTreePlugin::GcePd => {
            let it = volume.gce_persistent_disk.clone().unwrap_or_default();
            let handle = format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{}", it.pd_name);
            let source = source(plugin, &handle, &it.fs_type, it.read_only);
            let source = with(source, &[("partition", &gce_partition(it.partition))]);
            (named(&it.pd_name), source, by_access(it.read_only))
        }
        InTreePlugin::Portworx => {
            let it = volume.portworx_volume.clone().unwrap_or_default();
            let source = source(plugin, &it.volume_id, &it.fs_type, false);
            (named(&it.volume_id), source, by_access(it.read_only))
        }
        InTreePlugin::Rbd => {
            let it = volume.rbd.clone().unwrap_or_default();
            let pool = if it.pool.is_empty() { "rbd" } else { &*it.pool };
            let attributes = [
                ("clusterID", &*hex_digest(&it.monitors.join(","))),
                ("pool", pool),
                ("staticVolume", "true"),
                ("imageFeatures", "layering"),
            ];
            let mut source = with(source(plugin, &it.image, &it.fs_type, false), &attributes);
            let reference = match &it.secret_ref {
                Some(it) => secret(&it.name, namespace),
                None => Some(Box::default()),
            };
            (source.node_stage_secret_ref, source.controller_expand_secret_ref) =
                (reference.clone(), reference);
            (named(&it.image), source, by_access(it.read_only))
        }
        InTreePlugin::Vsphere => {
            let it = volume.vsphere_volume.clone().unwrap_or_default();
            (named(&it.volume_path), vsphere(plugin, &it), ONE_WRITER)
        }
    };
    Ok(PersistentVolume {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: PersistentVolumeSpec {
            csi: Some(Box::new(source)),
            access_modes: vec![mode.to_owned()],
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        },
        ..PersistentVolume::default()
    })
}

/// The volume of `aws://zone/vol-1`; a name without a scheme is one already.
fn ebs_handle(id: &str) -> Result<&str, String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id) };
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    if path.starts_with("vol-") && !path.contains('/') {
        return Ok(path);
    }
    Err(format!("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"))
}

fn azure_disk(
    plugin: InTreePlugin,
    disk: &AzureDiskVolumeSource,
    caching_mode: Option<&str>,
) -> Result<Source, String> {
    const MANAGED: &str = "Managed";
    if let Some(kind) = disk.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(format!("kind({kind}) is not supported in csi migration"));
    }
    let mut attributes = vec![("kind", MANAGED)];
    attributes.extend(caching_mode.map(|mode| ("cachingmode", mode)));
    attributes.extend(disk.fs_type.as_deref().map(|fs_type| ("fstype", fs_type)));
    let fs_type = disk.fs_type.as_deref().unwrap_or_default();
    Ok(with(source(plugin, &disk.disk_uri, fs_type, disk.read_only.unwrap_or(false)), &attributes))
}

fn azure_file(plugin: InTreePlugin, volume: &mut PersistentVolume) -> Result<Source, String> {
    let it = volume.spec.azure_file.take().unwrap_or_default();
    let claim = volume.spec.claim_ref.as_ref();
    let namespace = it.secret_namespace.clone().or_else(|| claim.map(|claim| claim.namespace.clone()));
    let namespace = namespace
        .filter(|namespace| !namespace.is_empty())
        .ok_or("could not find a secret namespace in PersistentVolumeSource or ClaimRef")?;
    let group = format!("{}-resource-group", plugin.name());
    let group = volume.metadata.annotations.get(&group).map_or("", String::as_str);
    let account = azure_account(&it.secret_name);
    let handle = format!("{group}#{account}#{}#{}#{namespace}", it.share_name, volume.metadata.name);
    let mut source = with(source(plugin, &handle, "", it.read_only), &[("sharename", &it.share_name)]);
    source.node_stage_secret_ref = secret(&it.secret_name, &namespace);
    Ok(source)
}

/// The account in `azure-storage-account-NAME-secret`; another secret has the name of its account.
fn azure_account(secret: &str) -> &str {
    let inside =
        secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
    inside.map(|(account, _)| account).filter(|account| !account.is_empty()).unwrap_or(secret)
}

fn gce_partition(partition: i32) -> String {
    if partition == 0 { String::new() } else { partition.to_string() }
}

fn gce_handle(volume: &PersistentVolume, disk: &str) -> Result<String, String> {
    let label = |name: &str| volume.metadata.labels.get(name).map_or("", String::as_str);
    let zones = Some(label(FAILURE_DOMAIN_ZONE)).filter(|it| !it.is_empty()).unwrap_or(label(TOPOLOGY_ZONE));
    let zones: Vec<&str> = zones.split(ZONE_SEPARATOR).collect();
    let place = match *zones {
        [""] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        _ => format!("regions/{}", gce_region(&zones)?),
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{disk}"))
}

/// The region of zones such as `us-central1-a`.
fn gce_region<'z>(zones: &[&'z str]) -> Result<&'z str, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let region = zone.rsplit_once('-').map(|(region, _)| region);
        let region = region.filter(|_| zone.matches('-').count() == 2).ok_or_else(|| {
            format!("failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}")
        })?;
        regions.insert(region);
    }
    match regions.pop_first() {
        Some(region) if regions.is_empty() => Ok(region),
        _ => Err("failed to get region from zones: multiple or no regions gotten from zones".to_owned()),
    }
}

/// The plugin took every disk for one with one writer or many readers; the driver refuses others.
fn gce_access_modes(modes: &[String]) -> Vec<String> {
    let has = |mode: &str| modes.iter().any(|it| it == mode);
    match modes {
        [] => Vec::new(),
        _ if has(MANY_READERS) && !has(ONE_WRITER) && !has(MANY_WRITERS) => vec![MANY_READERS.to_owned()],
        _ => vec![ONE_WRITER.to_owned()],
    }
}

fn rbd(plugin: InTreePlugin, volume: &mut PersistentVolume) -> Source {
    let it = volume.spec.rbd.take().unwrap_or_default();
    let annotation = |name: &str| volume.metadata.annotations.get(name).map_or("", String::as_str);
    let monitors = hex_digest(&it.monitors.join(","));
    let features = Some(annotation("imageFeatures")).filter(|it| !it.is_empty()).unwrap_or("layering");
    let mut attributes = BTreeMap::from([
        ("imageName", &*it.image),
        ("pool", &it.pool),
        ("imageFeatures", features),
        ("imageFormat", annotation("imageFormat")),
        ("journalPool", annotation("journalPool")),
        ("migration", "true"),
        ("tryOtherMounters", "true"),
    ]);
    let handle = match annotation(RBD_HANDLE) {
        "" => {
            attributes.insert("staticVolume", "true");
            attributes.insert("clusterID", &monitors);
            let pool: String = it.pool.bytes().map(|byte| format!("{byte:02x}")).collect();
            let image = it.image.strip_prefix("kubernetes-dynamic-pvc-").unwrap_or(&it.image);
            format!("mig_mons-{monitors}_image-{image}_{pool}")
        }
        handle => {
            attributes.insert("clusterID", annotation("clusterID"));
            handle.to_owned()
        }
    };
    let attributes: Vec<(&str, &str)> = attributes.into_iter().collect();
    let mut source = with(source(plugin, &handle, &it.fs_type, false), &attributes);
    (source.node_stage_secret_ref, source.controller_expand_secret_ref) =
        (it.secret_ref.clone(), it.secret_ref.clone());
    volume.spec.access_modes = vec![if it.read_only { MANY_READERS } else { ONE_WRITER }.to_owned()];
    source
}

fn vsphere(plugin: InTreePlugin, disk: &VsphereVirtualDiskVolumeSource) -> Source {
    let policy = &*disk.storage_policy_name;
    let attributes = [("storagepolicyname", policy)];
    let attributes = if policy.is_empty() { &[][..] } else { &attributes };
    with(source(plugin, &disk.volume_path, &disk.fs_type, false), attributes)
}
