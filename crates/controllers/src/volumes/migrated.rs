//! In-tree volume plugins that are migrated to CSI drivers.

use api::core::v1::PersistentVolume;
use names::Names;

/// Each plugin's name below the well-known domain, and the CSI driver that replaces it.
const MIGRATED: &[(&str, &str)] = &[
    ("aws-ebs", "ebs.csi.aws.com"),
    ("azure-disk", "disk.csi.azure.com"),
    ("azure-file", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gce-pd", "pd.csi.storage.gke.io"),
    ("vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The CSI driver that replaces a plugin; the name includes the domain.
pub fn driver(plugin: &str, names: &Names) -> Option<&'static str> {
    let name = plugin.strip_prefix(&*names.well_known_domain)?.strip_prefix('/')?;
    MIGRATED.iter().find(|(old, _)| *old == name).map(|(_, driver)| *driver)
}

/// The migrated plugin of a volume, without its domain.
pub fn plugin_of(volume: &PersistentVolume) -> Option<&'static str> {
    let spec = &volume.spec;
    let found = [
        (spec.aws_elastic_block_store.is_some(), "aws-ebs"),
        (spec.azure_disk.is_some(), "azure-disk"),
        (spec.azure_file.is_some(), "azure-file"),
        (spec.cinder.is_some(), "cinder"),
        (spec.gce_persistent_disk.is_some(), "gce-pd"),
        (spec.vsphere_volume.is_some(), "vsphere-volume"),
    ];
    found.into_iter().find(|(is, _)| *is).map(|(_, name)| name)
}

/// Whether a name is below the domain of in-tree plugins.
pub fn is_built_in(plugin: &str, names: &Names) -> bool {
    plugin.strip_prefix(&*names.well_known_domain).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_replace_plugins() {
        let names = Names::kubernetes();
        assert_eq!(driver("kubernetes.io/aws-ebs", &names), Some("ebs.csi.aws.com"));
        assert_eq!(driver("kubernetes.io/no-provisioner", &names), None);
        assert_eq!(driver("example.com/aws-ebs", &names), None);
        assert!(is_built_in("kubernetes.io/no-provisioner", &names));
        assert!(!is_built_in("kubernetes.io.example.com/x", &names) && !is_built_in("x", &names));
    }
}
