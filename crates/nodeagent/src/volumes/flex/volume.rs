//! A volume of a pod, and the options that its program gets with it.

use crate::objects::ObjectSource;
use crate::volumes::claims::BoundVolume;
use crate::volumes::growth::Growth;
use crate::volumes::ownership::ChangePolicy;
use crate::volumes::payload::fs_group;
use api::Resource;
use api::core::v1::{FlexPersistentVolumeSource, FlexVolumeSource, PersistentVolume, Pod};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::flex_volume::{FlexSource, option};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct FlexVolume {
    /// The name in the pod.
    pub name: String,
    pub source: FlexSource,
    /// The group of the pod, and when files are given to it.
    pub group: Option<(u32, ChangePolicy)>,
    /// The growth of a persistent volume that is due.
    pub growth: Option<Growth>,
    /// The persistent volume, if there is one. It may grow while it is mounted.
    pub persistent: Option<Box<PersistentVolume>>,
    /// Namespace and name.
    secret: Option<(String, String)>,
    /// Options about the pod.
    pod_options: BTreeMap<String, String>,
}

impl FlexVolume {
    /// A volume in a pod.
    pub fn inline(pod: &Pod, name: &str, source: &FlexVolumeSource) -> Self {
        let secret = source.secret_ref.as_ref().map(|it| (pod.metadata.namespace.clone(), it.name.clone()));
        FlexVolume::new(pod, name, FlexSource::inline(name, source), secret)
    }

    /// A persistent volume behind a claim.
    pub fn bound(pod: &Pod, name: &str, source: &FlexPersistentVolumeSource, bound: &BoundVolume) -> Self {
        let secret = source.secret_ref.as_ref().map(|it| {
            let namespace = if it.namespace.is_empty() { &pod.metadata.namespace } else { &it.namespace };
            (namespace.clone(), it.name.clone())
        });
        let persistent = FlexSource::persistent(bound.volume.name(), source, bound.is_readonly);
        let growth = Growth::of(&bound.volume, &bound.claim);
        FlexVolume {
            growth,
            persistent: Some(Box::new(bound.volume.clone())),
            ..FlexVolume::new(pod, name, persistent, secret)
        }
    }

    fn new(pod: &Pod, name: &str, source: FlexSource, secret: Option<(String, String)>) -> Self {
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
            source,
            group,
            growth: None,
            persistent: None,
            secret,
            pod_options,
        }
    }

    /// Where it is mounted, in the directory of volumes of its pod.
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.source.driver.replace('/', "~")).join(&self.source.name)
    }

    /// The options for a mount as JSON.
    pub async fn options(&self, objects: &dyn ObjectSource) -> Result<String, String> {
        let mut options = self.pod_options.clone();
        if let Some((namespace, name)) = &self.secret {
            let failed = |why: &str| format!("couldn't get secret {namespace}/{name} err: {why}");
            let secret = objects.secret(namespace, name).await.map_err(|why| failed(&why.to_string()))?;
            // a program gets only secrets that are meant for it
            let driver = &self.source.driver;
            if secret.type_ != *driver {
                return Err(failed(&format!("cannot get secret of type {driver}")));
            }
            for (key, value) in &secret.data {
                options.insert(option(&format!("secret/{key}")), STANDARD.encode(&value.0));
            }
        }
        self.source.options(options)
    }
}
