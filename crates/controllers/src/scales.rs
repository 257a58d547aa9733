//! The scale of objects of any kind that has one: how many replicas there should be.
//!
//! Where a kind is found is asked once and remembered.

use client::{Failure, unless};
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, discovery};
use parking_lot::Mutex;
use std::collections::HashMap;

/// See the module.
pub struct Scales {
    client: Client,
    known: Mutex<HashMap<GroupVersionKind, ScaleResource>>,
}

#[derive(Clone)]
struct ScaleResource {
    resource: ApiResource,
    has_scale: bool,
}

/// Something that has a scale, by its kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind)
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

    async fn known(&self, gvk: GroupVersionKind) -> Result<ScaleResource, Failure> {
        if let Some(known) = self.known.lock().get(&gvk) {
            return Ok(known.clone());
        }
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &gvk).await?;
        let has_scale = capabilities.subresources.iter().any(|(it, _)| it.plural == "scale");
        let known = ScaleResource { resource, has_scale };
        self.known.lock().insert(gvk, known.clone());
        Ok(known)
    }

    /// Where a kind is found. An error where there is no such kind.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<ApiResource, Failure> {
        Ok(self.known(gvk(api_version, kind)).await?.resource)
    }

    /// The scale of a target. An error where there is no such kind.
    pub async fn get(&self, target: &Target) -> Result<Lookup<Scale>, Failure> {
        let known = self.known(gvk(&target.api_version, &target.kind)).await?;
        if !known.has_scale {
            return Ok(Lookup::NoScale);
        }
        match unless(404, self.api(target, &known.resource).get_scale(&target.name).await)? {
            Some(scale) => Ok(Lookup::Found(scale)),
            None => {
                // the kind may be gone, or have lost its scale
                self.known.lock().remove(&gvk(&target.api_version, &target.kind));
                Ok(Lookup::Absent)
            }
        }
    }

    /// Writes a scale that was read before; it fails when somebody was faster.
    pub async fn replace(&self, target: &Target, scale: &Scale) -> Result<(), Failure> {
        let resource = self.resource(&target.api_version, &target.kind).await?;
        let body = serde_json::to_vec(scale).map_err(kube::Error::SerdeError)?;
        self.api(target, &resource).replace_scale(&target.name, &PostParams::default(), body).await?;
        Ok(())
    }

    fn api(&self, target: &Target, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &target.namespace, resource)
    }
}
