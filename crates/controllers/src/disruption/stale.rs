//! Pods that were said to be disrupted and are still there after a while: it is not said any more.

use super::status::DELETION;
use crate::Context;
use crate::pods::state;
use client::retry_on_conflict::beside;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const CONDITION: &str = "DisruptionTarget";
const WRITER: &str = "DisruptionController";

pub(super) struct Stale {
    context: Context,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

/// How long it may still be said of a pod; nothing where it is not, or the pod is going away or has ended.
fn left(pod: &Pod, now: SystemTime) -> Option<Duration> {
    if !state::is_active(pod) {
        return None;
    }
    let condition = state::condition(pod, CONDITION).filter(|it| it.status == "True")?;
    let since = SystemTime::from(condition.last_transition_time.as_ref()?.0);
    Some(DELETION.saturating_sub(now.duration_since(since).unwrap_or_default()))
}

impl Stale {
    /// Hears of such pods from now on.
    pub fn listen(context: &Context) -> Arc<Self> {
        let this = Stale { context: context.clone(), pods: context.informer(), queue: Queue::default() };
        let (news, world) = (this.queue.clone(), context.world.clone());
        this.pods.listen(move |change| {
            if !change.is_deletion()
                && let Some(left) = left(change.object(), world.now())
            {
                news.add_after(change.key(), left);
            }
        });
        Arc::new(this)
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, 1).await;
    }
}

impl Reconcile for Stale {
    type Key = Key;

    fn name(&self) -> &'static str {
        "disruption-stale"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(pod) = self.pods.get(key) else { return Ok(Action::AwaitChange) };
        match left(&pod, self.context.world.now()) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::Requeue(left)),
            Some(_) => {}
        }
        let condition =
            json!({"type": CONDITION, "status": "False", "lastTransitionTime": self.context.time()});
        // decided from this revision of the pod, and from no other
        let patch = Patch::Apply(json!({
            "apiVersion": Pod::api_version(&()),
            "kind": Pod::kind(&()),
            "metadata": {"name": key.name, "uid": pod.uid(), "resourceVersion": pod.resource_version()},
            "status": {"conditions": [condition]},
        }));
        let pods = beside::<Pod>(&self.context.client, &*pod);
        unless(404, pods.patch_status(&key.name, &PatchParams::apply(WRITER).force(), &patch).await)?;
        Ok(Action::AwaitChange)
    }
}
