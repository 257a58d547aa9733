//! Removal of the tracking finalizer from pods.

use super::view::TrackingNames;
use crate::Context;
use api::Resource;
use api::core::v1::Pod;
use client::{Api, Failure, Patch, unless};
use serde_json::json;

/// Removes the finalizer from a pod. Returns `None` if the pod is gone.
pub(super) async fn release(
    context: &Context,
    tracking: &TrackingNames,
    pod: &Pod,
) -> Result<Option<Pod>, Failure> {
    let metadata = json!({"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [tracking.finalizer]});
    let patch = Patch::strategic(json!({ "metadata": metadata }));
    let pods = Api::<Pod>::beside(&context.client, pod);
    match unless(404, pods.patch(pod.name(), &patch).await) {
        // another pod has the name by now
        Err(why) if why.is(409) || why.is(422) => Ok(None),
        answer => Ok(answer?),
    }
}
