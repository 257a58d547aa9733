//! A volume as its object describes it, and the options that its program gets.

use api::core::v1::{FlexPersistentVolumeSource, FlexVolumeSource};
use names::labels::NATIVE_RESOURCE_PREFIX;
use std::collections::BTreeMap;

/// The name of an option that is not the volume's own.
pub fn option(name: &str) -> String {
    format!("{NATIVE_RESOURCE_PREFIX}{name}")
}

/// Driver and name of a volume from its unique name.
pub fn split_unique_name(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('/').filter(|(driver, name)| !driver.is_empty() && !name.is_empty())
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlexSource {
    /// The name of the persistent volume, or that in the pod.
    pub name: String,
    pub driver: String,
    pub fs_type: String,
    pub is_readonly: bool,
    options: BTreeMap<String, String>,
}

impl FlexSource {
    /// A volume in a pod.
    pub fn inline(name: &str, source: &FlexVolumeSource) -> Self {
        FlexSource {
            name: name.to_owned(),
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone(),
            is_readonly: source.read_only,
            options: source.options.clone(),
        }
    }

    /// A persistent volume; `is_readonly` is for the claim of a pod.
    pub fn persistent(name: &str, source: &FlexPersistentVolumeSource, is_readonly: bool) -> Self {
        FlexSource {
            name: name.to_owned(),
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone(),
            is_readonly,
            options: source.options.clone(),
        }
    }

    /// Its unique name in the status of nodes.
    pub fn unique_name(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }

    /// The options as JSON, with those of a pod. Those of the volume itself come before all others.
    pub fn options(&self, of_pod: BTreeMap<String, String>) -> Result<String, String> {
        let mut options = of_pod;
        options.insert(option("fsType"), self.fs_type.clone());
        options.insert(option("readwrite"), if self.is_readonly { "ro" } else { "rw" }.to_owned());
        options.insert(option("pvOrVolumeName"), self.name.clone());
        options.extend(self.options.clone());
        serde_json::to_string(&options).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_hold_driver_and_volume() {
        let source =
            FlexSource::inline("v", &FlexVolumeSource { driver: "a/b".into(), ..Default::default() });
        assert_eq!(source.unique_name(), "a/b/v");
        assert_eq!(split_unique_name("a/b/v"), Some(("a/b", "v")));
        assert_eq!(split_unique_name("v"), None);
    }
}
