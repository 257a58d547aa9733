//! In-tree volume plugins that are migrated to CSI drivers.

use api::core::v1::PersistentVolume;
use client::csi_translation::InTreePlugin;
use names::Names;

/// Whether the driver of a plugin replaces it in every cluster; the others have feature gates that are off.
fn is_replaced(plugin: InTreePlugin) -> bool {
    !matches!(plugin, InTreePlugin::Portworx | InTreePlugin::Rbd)
}

fn name_without_domain(plugin: InTreePlugin) -> &'static str {
    plugin.name().rsplit('/').next().unwrap_or_default()
}

/// The CSI driver that replaces a plugin; the name includes the domain.
pub fn driver(plugin: &str, names: &Names) -> Option<&'static str> {
    let name = plugin.strip_prefix(&*names.well_known_domain)?.strip_prefix('/')?;
    let mut replaced = InTreePlugin::ALL.into_iter().filter(|it| is_replaced(*it));
    replaced.find(|it| name_without_domain(*it) == name).map(InTreePlugin::driver)
}

/// The migrated plugin of a volume, without its domain.
pub fn plugin_of(volume: &PersistentVolume) -> Option<&'static str> {
    InTreePlugin::of(volume).filter(|it| is_replaced(*it)).map(name_without_domain)
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
