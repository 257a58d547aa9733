//! Scale subresources of objects of any kind.
//!
//! Where the objects of a kind are is found by discovery once, and cached until an object is not found.

use api::Value;
use api::autoscaling::v1::Scale;
use api::meta::v1::APIResourceList;
use client::discovery::Resource;
use client::{Api, Client, Failure, unless};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
pub struct Scales {
    client: Client,
    /// By `apiVersion` and kind.
    known: Mutex<HashMap<(String, String), ScaleResource>>,
}

#[derive(Clone)]
struct ScaleResource {
    resource: Arc<Resource>,
    has_scale: bool,
}

/// An object that may have a scale, by its kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// The result of reading a scale.
pub enum Lookup<T> {
    Found(T),
    /// No object of that name.
    Absent,
    /// The kind has no scale.
    NoScale,
}

impl Scales {
    pub fn new(client: Client) -> Self {
        Scales { client, known: Mutex::default() }
    }

    async fn known(&self, api_version: &str, kind: &str) -> Result<ScaleResource, Failure> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().get(&key) {
            return Ok(known.clone());
        }
        let resources = client::discovery::resources_of(&self.client, api_version).await?;
        let known = scale_resource(&resources, api_version, kind).ok_or_else(|| {
            Failure::Other(format!("no matches for kind {kind:?} in version {api_version:?}"))
        })?;
        self.known.lock().insert(key, known.clone());
        Ok(known)
    }

    /// The resource of a kind. An error if there is no such kind.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<Arc<Resource>, Failure> {
        Ok(self.known(api_version, kind).await?.resource)
    }

    /// The scale of a target. An error if there is no such kind.
    pub async fn get(&self, target: &Target) -> Result<Lookup<Scale>, Failure> {
        let known = self.known(&target.api_version, &target.kind).await?;
        if !known.has_scale {
            return Ok(Lookup::NoScale);
        }
        let scale = self.api(target, &known.resource).get_subresource(&target.name, "scale").await;
        match unless(404, scale)? {
            Some(scale) => Ok(Lookup::Found(scale)),
            None => {
                // the kind may be gone, or have lost its scale
                self.known.lock().remove(&(target.api_version.clone(), target.kind.clone()));
                Ok(Lookup::Absent)
            }
        }
    }

    /// Writes a scale that was read before. A conflict if the object has changed since.
    pub async fn replace(&self, target: &Target, scale: &Scale) -> Result<(), Failure> {
        let resource = self.resource(&target.api_version, &target.kind).await?;
        self.api(target, &resource).replace_subresource::<_, Scale>(&target.name, "scale", scale).await?;
        Ok(())
    }

    fn api(&self, target: &Target, resource: &Resource) -> Api<Value> {
        Api::at(&self.client, resource.path(&target.namespace))
    }
}

/// The resource of a kind in the list of a group and version.
fn scale_resource(list: &APIResourceList, api_version: &str, kind: &str) -> Option<ScaleResource> {
    let found = list.resources.iter().find(|it| it.kind == kind && !it.name.contains('/'))?;
    let scale = format!("{}/scale", found.name);
    let has_scale = list.resources.iter().any(|it| it.name == scale);
    let resource = Arc::new(Resource::new(found, api_version));
    Some(ScaleResource { resource, has_scale })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn kinds_with_a_scale_are_distinguished() {
        let list = object::<APIResourceList>(json!({"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true},
            {"name": "daemonsets", "kind": "DaemonSet", "namespaced": true}]}));
        let found = |kind: &str| {
            let found = scale_resource(&list, "apps/v1", kind)?;
            Some((found.resource.path("ns"), found.has_scale))
        };
        assert_eq!(found("Deployment"), Some(("/apis/apps/v1/namespaces/ns/deployments".to_owned(), true)));
        assert_eq!(found("DaemonSet"), Some(("/apis/apps/v1/namespaces/ns/daemonsets".to_owned(), false)));
        assert_eq!(found("Scale"), None);
    }
}
