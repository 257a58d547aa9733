//! A volume of a pod as its objects describe it.

use super::mount_error::{MountError, Operation};
use super::service::Capabilities;
use crate::volumes::growth::Growth;
use api::core::v1::{CSIVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, SecretReference};
use grpc::csi::VolumeCapability;
use grpc::csi::volume_capability::access_mode::Mode;
use grpc::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const READ_WRITE_ONCE: &str = "ReadWriteOnce";
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// A volume by its driver and the driver's name of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId {
    pub driver: String,
    pub handle: String,
}

impl VolumeId {
    /// Its name in the status of nodes. `plugin` is the name of the plugin of CSI volumes.
    pub fn unique_name(&self, plugin: &str) -> String {
        format!("{plugin}/{}^{}", self.driver, self.handle)
    }

    /// The name of its attachment to a node.
    pub fn attachment(&self, node: &str) -> String {
        format!("csi-{}", digest(&[&*self.handle, &*self.driver, node].concat()))
    }
}

/// The digest of a text as hexadecimal digits.
pub fn digest(text: &str) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // writing to a string cannot fail
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Where a volume comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum CsiSource {
    /// A persistent volume, and the claim that it is bound to.
    Persistent(Box<PersistentVolume>, Box<PersistentVolumeClaim>),
    /// The pod itself: the volume begins and ends with it.
    Inline(Box<CSIVolumeSource>),
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiVolume {
    /// The name in the pod.
    pub name: String,
    /// The name of the persistent volume, or the one in the pod. It is the name in messages and directories.
    pub spec_name: String,
    pub id: VolumeId,
    pub source: CsiSource,
    pub is_readonly: bool,
}

impl CsiVolume {
    /// The volume behind a claim; `None` if it is not one of a CSI driver.
    pub fn bound(
        name: &str,
        volume: PersistentVolume,
        claim: PersistentVolumeClaim,
        is_readonly: bool,
    ) -> Option<Self> {
        let source = volume.spec.csi.as_ref()?;
        Some(CsiVolume {
            name: name.to_owned(),
            spec_name: volume.metadata.name.clone(),
            id: VolumeId { driver: source.driver.clone(), handle: source.volume_handle.clone() },
            source: CsiSource::Persistent(Box::new(volume), Box::new(claim)),
            is_readonly,
        })
    }

    /// A volume of an in-tree plugin in a pod, as the driver of the plugin gets it: it exists without the pod, and has no
    /// claim.
    pub fn migrated(name: &str, volume: PersistentVolume) -> Option<Self> {
        // names of disks may have the form of paths
        let spec_name = volume.metadata.name.replace('/', "~");
        let bound = CsiVolume::bound(name, volume, PersistentVolumeClaim::default(), false)?;
        let is_file_name = !spec_name.bytes().all(|byte| byte == b'.');
        is_file_name.then_some(CsiVolume { spec_name, ..bound })
    }

    pub fn inline(pod: &Pod, name: &str, source: &CSIVolumeSource) -> Self {
        let handle = format!("csi-{}", digest(&[&*pod.metadata.uid, name].concat()));
        CsiVolume {
            name: name.to_owned(),
            spec_name: name.to_owned(),
            id: VolumeId { driver: source.driver.clone(), handle },
            source: CsiSource::Inline(Box::new(source.clone())),
            is_readonly: source.read_only.unwrap_or(false),
        }
    }

    pub fn persistent(&self) -> Option<(&PersistentVolume, &PersistentVolumeClaim)> {
        match &self.source {
            CsiSource::Persistent(volume, claim) => Some((volume, claim)),
            CsiSource::Inline(_) => None,
        }
    }

    /// Whether `ReadWriteOncePod` is the only access mode: of several, the one that a pod means is not known.
    pub fn is_for_one_pod(&self) -> bool {
        self.persistent().is_some_and(|(it, _)| it.spec.access_modes == [READ_WRITE_ONCE_POD])
    }

    pub fn is_block(&self) -> bool {
        self.persistent().is_some_and(|(it, _)| it.spec.volume_mode.as_deref() == Some("Block"))
    }

    pub fn lifecycle_mode(&self) -> &'static str {
        if self.persistent().is_some() { "Persistent" } else { "Ephemeral" }
    }

    pub fn fs_type(&self) -> &str {
        match &self.source {
            CsiSource::Persistent(volume, _) => {
                volume.spec.csi.as_ref().map(|it| &*it.fs_type).unwrap_or_default()
            }
            CsiSource::Inline(source) => source.fs_type.as_deref().unwrap_or_default(),
        }
    }

    pub fn attributes(&self) -> BTreeMap<String, String> {
        match &self.source {
            CsiSource::Persistent(volume, _) => {
                volume.spec.csi.as_ref().map(|it| it.volume_attributes.clone()).unwrap_or_default()
            }
            CsiSource::Inline(source) => source.volume_attributes.clone(),
        }
    }

    pub fn stage_secret(&self) -> Option<SecretReference> {
        self.persistent()?.0.spec.csi.as_ref()?.node_stage_secret_ref.as_deref().cloned()
    }

    pub fn expand_secret(&self) -> Option<SecretReference> {
        self.persistent()?.0.spec.csi.as_ref()?.node_expand_secret_ref.as_deref().cloned()
    }

    /// A secret of an inline volume is in the namespace of the pod.
    pub fn publish_secret(&self, namespace: &str) -> Option<SecretReference> {
        match &self.source {
            CsiSource::Persistent(volume, _) => {
                volume.spec.csi.as_ref()?.node_publish_secret_ref.as_deref().cloned()
            }
            CsiSource::Inline(source) => source.node_publish_secret_ref.as_ref().map(|it| SecretReference {
                name: it.name.clone(),
                namespace: namespace.to_owned(),
                ..SecretReference::default()
            }),
        }
    }

    pub fn access_modes(&self) -> &[String] {
        self.persistent().map(|(it, _)| &*it.spec.access_modes).unwrap_or_default()
    }

    /// What the driver has to provide. Drivers get the first access mode alone.
    pub fn capability(&self, capabilities: Capabilities, group: Option<u32>) -> VolumeCapability {
        let mode = self.access_modes().first().map_or(READ_WRITE_ONCE, String::as_str);
        let mode = match (mode, capabilities.has_single_writer) {
            (READ_WRITE_ONCE, true) => Mode::SingleNodeMultiWriter,
            ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
            (READ_WRITE_ONCE | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
            ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
            ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
            _ => Mode::Unknown,
        };
        let access_type = match self.is_block() {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: self.fs_type().to_owned(),
                mount_flags: self
                    .persistent()
                    .map(|(it, _)| it.spec.mount_options.clone())
                    .unwrap_or_default(),
                volume_mount_group: group.map(|it| it.to_string()).unwrap_or_default(),
            }),
        };
        VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }
    }

    /// Whether the agent gives the files of the volume to the pod's group, by the policy of the driver.
    pub fn takes_group(&self, policy: &str) -> bool {
        match policy {
            "None" => false,
            _ if self.is_readonly => false,
            "File" => true,
            _ if self.fs_type().is_empty() => false,
            _ => self.persistent().is_none() || self.access_modes().iter().any(|it| it == READ_WRITE_ONCE),
        }
    }

    /// The growth that is due.
    pub fn growth(&self) -> Option<Growth> {
        self.persistent().and_then(|(volume, claim)| Growth::of(volume, claim))
    }

    /// The failure of an operation on the volume.
    pub fn failed(&self, operation: Operation, why: impl std::fmt::Display) -> MountError {
        MountError::failed(operation, self.is_block(), &self.spec_name, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    fn volume(spec: &str) -> CsiVolume {
        let volume = format!(
            r#"{{"metadata":{{"name":"pv"}},"spec":{{"csi":{{"driver":"d","volumeHandle":"h"{spec}}}}}"#
        );
        CsiVolume::bound("v", object(&volume), PersistentVolumeClaim::default(), false).unwrap()
    }

    #[test]
    fn access_modes_are_translated() {
        let mode = |modes: &str, has_single_writer| {
            let volume = volume(&format!(r#"}},"accessModes":[{modes}]"#));
            let capabilities = Capabilities { has_single_writer, ..Capabilities::default() };
            volume.capability(capabilities, None).access_mode.unwrap().mode()
        };
        assert_eq!(mode(r#""ReadWriteOnce""#, false), Mode::SingleNodeWriter);
        assert_eq!(mode(r#""ReadWriteOnce""#, true), Mode::SingleNodeMultiWriter);
        assert_eq!(mode(r#""ReadWriteOncePod""#, false), Mode::SingleNodeWriter);
        assert_eq!(mode(r#""ReadWriteOncePod""#, true), Mode::SingleNodeSingleWriter);
        assert_eq!(mode(r#""ReadOnlyMany","ReadWriteOnce""#, true), Mode::MultiNodeReaderOnly);
        assert_eq!(mode(r#""ReadWriteMany""#, false), Mode::MultiNodeMultiWriter);
        assert_eq!(mode("", false), Mode::SingleNodeWriter);
    }

    #[test]
    fn the_group_of_a_pod_depends_on_the_policy_of_the_driver() {
        let with = |spec: &str| volume(spec);
        let once = with(r#","fsType":"ext4"},"accessModes":["ReadWriteOnce"]"#);
        let many = with(r#","fsType":"ext4"},"accessModes":["ReadWriteMany"]"#);
        let typeless = with(r#"},"accessModes":["ReadWriteOnce"]"#);
        let policies = ["None", "File", "ReadWriteOnceWithFSType"];
        let takes = |volume: &CsiVolume| policies.map(|policy| volume.takes_group(policy));
        assert_eq!(takes(&once), [false, true, true]);
        assert_eq!(takes(&many), [false, true, false]);
        assert_eq!(takes(&typeless), [false, true, false]);
        assert_eq!(takes(&CsiVolume { is_readonly: true, ..once }), [false; 3]);
        let pod: Pod = object(r#"{"metadata":{"uid":"u"}}"#);
        let inline = CsiVolume::inline(&pod, "v", &object(r#"{"driver":"d","fsType":"xfs"}"#));
        assert_eq!(takes(&inline), [false, true, true]);
    }

    #[test]
    fn names_of_volumes() {
        // sha256("abc"), the published test vector
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let id = VolumeId { driver: "b".to_owned(), handle: "a".to_owned() };
        assert_eq!(id.attachment("c"), format!("csi-{hash}"));
        assert_eq!(id.unique_name("kubernetes.io/csi"), "kubernetes.io/csi/b^a");
        let pod: Pod = object(r#"{"metadata":{"uid":"ab"}}"#);
        let inline = CsiVolume::inline(&pod, "c", &object(r#"{"driver":"d"}"#));
        assert_eq!(inline.id.handle, format!("csi-{hash}"));
    }
}
