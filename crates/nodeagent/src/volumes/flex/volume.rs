//! A volume of a pod as its objects describe it, and the options that its program gets.

use crate::objects::ObjectSource;
use crate::volumes::ownership::ChangePolicy;
use crate::volumes::payload::fs_group;
use api::core::v1::{FlexPersistentVolumeSource, FlexVolumeSource, Pod};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use names::labels::NATIVE_RESOURCE_PREFIX;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of an option that is not the volume's own.
fn option(name: &str) -> String {
    format!("{NATIVE_RESOURCE_PREFIX}{name}")
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct FlexVolume {
    /// The name in the pod.
    pub name: String,
    /// The name of the persistent volume, or the one in the pod.
    pub spec_name: String,
    pub driver: String,
    pub is_readonly: bool,
    /// The group of the pod, and when files are given to it.
    pub group: Option<(u32, ChangePolicy)>,
    fs_type: String,
    options: BTreeMap<String, String>,
    /// Namespace and name.
    secret: Option<(String, String)>,
    /// Options about the pod.
    pod_options: BTreeMap<String, String>,
}

impl FlexVolume {
    /// A volume in a pod.
    pub fn inline(pod: &Pod, name: &str, source: &FlexVolumeSource) -> Self {
        let secret = source.secret_ref.as_ref().map(|it| (pod.metadata.namespace.clone(), it.name.clone()));
        FlexVolume {
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone(),
            is_readonly: source.read_only,
            options: source.options.clone(),
            secret,
            ..FlexVolume::of_pod(pod, name, name)
        }
    }

    /// A persistent volume behind a claim.
    pub fn bound(
        pod: &Pod,
        name: &str,
        spec_name: &str,
        source: &FlexPersistentVolumeSource,
        is_readonly: bool,
    ) -> Self {
        let secret = source.secret_ref.as_ref().map(|it| {
            let namespace = if it.namespace.is_empty() { &pod.metadata.namespace } else { &it.namespace };
            (namespace.clone(), it.name.clone())
        });
        FlexVolume {
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone(),
            is_readonly,
            options: source.options.clone(),
            secret,
            ..FlexVolume::of_pod(pod, name, spec_name)
        }
    }

    fn of_pod(pod: &Pod, name: &str, spec_name: &str) -> Self {
        let group = fs_group(pod).map(|group| (group, ChangePolicy::of(pod)));
        let meta = &pod.metadata;
        let mut pod_options = BTreeMap::from([
            (option("pod.name"), meta.name.clone()),
            (option("pod.namespace"), meta.namespace.clone()),
            (option("pod.uid"), meta.uid.clone()),
            (option("serviceAccount.name"), pod.spec.service_account_name.clone()),
        ]);
        if let Some((group, _)) = group {
            pod_options.insert(option("mounterArgs.FsGroup"), group.to_string());
        }
        FlexVolume {
            name: name.to_owned(),
            spec_name: spec_name.to_owned(),
            driver: String::new(),
            is_readonly: false,
            group,
            fs_type: String::new(),
            options: BTreeMap::new(),
            secret: None,
            pod_options,
        }
    }

    /// Where it is mounted, in the directory of volumes of its pod.
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.driver.replace('/', "~")).join(&self.spec_name)
    }

    /// The options as JSON. Those of the volume itself come before all others.
    pub async fn options(&self, objects: &dyn ObjectSource) -> Result<String, String> {
        let mut options = self.pod_options.clone();
        options.insert(option("fsType"), self.fs_type.clone());
        options.insert(option("readwrite"), if self.is_readonly { "ro" } else { "rw" }.to_owned());
        options.insert(option("pvOrVolumeName"), self.spec_name.clone());
        if let Some((namespace, name)) = &self.secret {
            let failed = |why: &str| format!("couldn't get secret {namespace}/{name} err: {why}");
            let secret = objects.secret(namespace, name).await.map_err(|why| failed(&why.to_string()))?;
            // a program gets only secrets that are meant for it
            if secret.type_ != self.driver {
                return Err(failed(&format!("cannot get secret of type {}", self.driver)));
            }
            for (key, value) in &secret.data {
                options.insert(option(&format!("secret/{key}")), STANDARD.encode(&value.0));
            }
        }
        options.extend(self.options.clone());
        serde_json::to_string(&options).map_err(|why| why.to_string())
    }
}
