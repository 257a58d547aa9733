//! CSI volumes: their unique names on nodes, and the names of their attachments.

use api::core::v1::PersistentVolume;
use api::storage::v1::VolumeAttachment;
use names::Names;
use ring::digest;
use std::fmt::Write as _;

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Volume {
    pub driver: String,
    pub handle: String,
}

impl Volume {
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let source = volume.spec.csi.as_ref()?;
        Some(Volume { driver: source.driver.clone(), handle: source.volume_handle.clone() })
    }

    /// The volume of an attachment whose volume is in a pod.
    pub fn inline(attachment: &VolumeAttachment) -> Option<Self> {
        let source = attachment.spec.source.inline_volume_spec.as_ref()?.csi.as_ref()?;
        Some(Volume { driver: source.driver.clone(), handle: source.volume_handle.clone() })
    }

    /// Its unique name in the status of nodes.
    pub fn name(&self, names: &Names) -> String {
        format!("{}/{}^{}", names.well_known("csi"), self.driver, self.handle)
    }

    /// Parses a unique name; `None` for volumes of other plugins.
    pub fn parse(name: &str, names: &Names) -> Option<Self> {
        let rest = name.strip_prefix(&names.well_known("csi"))?.strip_prefix('/')?;
        let (driver, handle) = rest.split_once('^')?;
        Some(Volume { driver: driver.to_owned(), handle: handle.to_owned() })
    }

    /// The name of its attachment to a node.
    pub fn attachment(&self, node: &str) -> String {
        let text = [&*self.handle, &*self.driver, node].concat();
        let mut name = "csi-".to_owned();
        for byte in digest::digest(&digest::SHA256, text.as_bytes()).as_ref() {
            // writing to a string cannot fail
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

/// Whether an attachment has a name of this form; others are not managed here.
pub fn is_attachment(name: &str) -> bool {
    name.strip_prefix("csi-")
        .is_some_and(|rest| rest.len() == 64 && rest.bytes().all(|it| it.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes() {
        let names = Names::kubernetes();
        let volume = Volume { driver: "d.example.com".to_owned(), handle: "h^1".to_owned() };
        assert_eq!(volume.name(&names), "kubernetes.io/csi/d.example.com^h^1");
        assert_eq!(Volume::parse(&volume.name(&names), &names), Some(volume));
        assert_eq!(Volume::parse("kubernetes.io/nfs/x", &names), None);
    }

    #[test]
    fn names_of_attachments() {
        // sha256("abc"), the published test vector
        let volume = Volume { driver: "b".to_owned(), handle: "a".to_owned() };
        let name = volume.attachment("c");
        assert_eq!(name, "csi-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_attachment(&name) && !is_attachment("csi-ba78") && !is_attachment("mine"));
    }
}
