//! Removing pods that somebody else owns: what is said of them first, and the removal.
//!
//! What always holds: it is this pod that is meant, never one that took its name.

use client::retry_on_conflict::beside;
use client::{Failure, unless};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

/// Says something in a pod's status, in a writer's name. Whether the pod is still there.
pub async fn say(client: &Client, pod: &Pod, writer: &str, status: Value) -> Result<bool, Failure> {
    let patch = Patch::Apply(json!({
        "apiVersion": Pod::api_version(&()),
        "kind": Pod::kind(&()),
        "metadata": {"name": pod.name_any(), "uid": pod.uid()},
        "status": status,
    }));
    let params = PatchParams::apply(writer).force();
    let said = beside::<Pod>(client, pod).patch_status(&pod.name_any(), &params, &patch).await;
    match unless(404, said) {
        // another has its name by now
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(false),
        said => Ok(said?.is_some()),
    }
}

/// Removes a pod; with a grace period of its own where none is given.
pub async fn delete(client: &Client, pod: &Pod, grace_seconds: Option<u32>) -> Result<(), Failure> {
    let same = Preconditions { uid: pod.uid(), resource_version: None };
    let params = DeleteParams {
        preconditions: Some(same),
        grace_period_seconds: grace_seconds,
        ..DeleteParams::default()
    };
    match unless(404, beside::<Pod>(client, pod).delete(&pod.name_any(), &params).await) {
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}
