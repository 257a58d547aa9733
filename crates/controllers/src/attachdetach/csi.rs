//! What volumes of drivers are called: by agents, and where they are attached.

use k8s_openapi::api::core::v1::PersistentVolume;
use names::Names;
use ring::digest;
use std::fmt::Write as _;

/// A volume of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Volume {
    pub driver: String,
    pub handle: String,
}

impl Volume {
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let source = volume.spec.as_ref()?.csi.as_ref()?;
        Some(Volume { driver: source.driver.clone(), handle: source.volume_handle.clone() })
    }

    /// What agents call it.
    pub fn name(&self, names: &Names) -> String {
        format!("{}/{}^{}", names.well_known("csi"), self.driver, self.handle)
    }

    /// The other way round; nothing for volumes of another sort.
    pub fn named(name: &str, names: &Names) -> Option<Self> {
        let rest = name.strip_prefix(&names.well_known("csi"))?.strip_prefix('/')?;
        let (driver, handle) = rest.split_once('^')?;
        Some(Volume { driver: driver.to_owned(), handle: handle.to_owned() })
    }

    /// The name of its attachment to a node.
    pub fn attachment(&self, node: &str) -> String {
        let text = [&*self.handle, &*self.driver, node].concat();
        let mut name = "csi-".to_owned();
        for byte in digest::digest(&digest::SHA256, text.as_bytes()).as_ref() {
            // writing to a text cannot fail
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

/// Whether an attachment has such a name; others were made by others.
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
        assert_eq!(Volume::named(&volume.name(&names), &names), Some(volume));
        assert_eq!(Volume::named("kubernetes.io/nfs/x", &names), None);
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
