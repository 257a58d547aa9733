//! Removal of the tracking finalizer from pods.

use super::view::TrackingNames;
use crate::Context;
use client::retry_on_conflict::beside;
use client::{Failure, unless};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// Removes the finalizer from a pod. Returns `None` if the pod is gone.
pub(super) async fn release(
    context: &Context,
    marks: &TrackingNames,
    pod: &Pod,
) -> Result<Option<Pod>, Failure> {
    let metadata = json!({"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [marks.finalizer]});
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    let pods = beside::<Pod>(&context.client, pod);
    match unless(404, pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await) {
        // another has its name by now
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 422 => Ok(None),
        answer => Ok(answer?),
    }
}
