//! Deletion of pods by a loop that does not own them: a status first, then the deletion.
//!
//! Always true: a request names the pod's uid, and so never affects another pod of the same name.

use api::core::v1::Pod;
use api::meta::v1::DeleteOptions;
use api::{Kinded, Resource};
use client::{Api, Client, Failure, Patch, unless};
use serde_json::{Value, json};

/// Applies fields of a pod's status for a field manager. Returns whether the pod still exists.
pub async fn say(client: &Client, pod: &Pod, writer: &str, status: Value) -> Result<bool, Failure> {
    let body = json!({
        "apiVersion": Pod::api_version(),
        "kind": Pod::kind().name,
        "metadata": {"name": pod.name(), "uid": pod.uid()},
        "status": status,
    });
    let patch = Patch::Apply { manager: writer.to_owned(), force: true, body: body.to_string().into_bytes() };
    let applied = Api::<Pod>::beside(client, pod).patch_status(pod.name(), &patch).await;
    match unless(404, applied) {
        // another pod has the name now
        Err(why) if why.is_conflict() => Ok(false),
        applied => Ok(applied?.is_some()),
    }
}

/// The options that delete a pod only if it has this uid.
pub(super) fn options(pod: &Pod) -> DeleteOptions {
    DeleteOptions { preconditions: Some(client::of_uid(pod.uid()).into()), ..DeleteOptions::default() }
}

/// Deletes a pod, with the pod's own grace period if none is given.
pub async fn delete(client: &Client, pod: &Pod, grace_seconds: Option<u32>) -> Result<(), Failure> {
    let options = DeleteOptions { grace_period_seconds: grace_seconds.map(i64::from), ..options(pod) };
    match unless(404, Api::<Pod>::beside(client, pod).delete(pod.name(), &options).await) {
        Err(why) if why.is_conflict() => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}
