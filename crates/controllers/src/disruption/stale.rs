//! Resets stale disruption conditions: a pod that still runs some time after `DisruptionTarget` was set loses it.

use super::status::DELETION_TIMEOUT;
use crate::Context;
use crate::pods::state;
use api::Resource;
use api::core::v1::Pod;
use client::{Action, Api, Failure, Informer, Key, Patch, Queue, Reconcile, run, unless};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const CONDITION: &str = "DisruptionTarget";
const FIELD_MANAGER: &str = "DisruptionController";

pub(super) struct StaleConditions {
    context: Context,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

/// The time until the condition is stale; `None` if it is not set, or the pod is being deleted or has ended.
fn left(pod: &Pod, now: SystemTime) -> Option<Duration> {
    if !state::is_active(pod) {
        return None;
    }
    let condition = state::condition(pod, CONDITION).filter(|it| it.status == "True")?;
    let since = SystemTime::from(condition.last_transition_time?);
    Some(DELETION_TIMEOUT.saturating_sub(now.duration_since(since).unwrap_or_default()))
}

impl StaleConditions {
    /// Queues pods with the condition from now on.
    pub fn listen(context: &Context) -> Arc<Self> {
        let stale = StaleConditions {
            context: context.clone(),
            pods: context.informer(),
            queue: Queue::new(&context.world),
        };
        let (changed, world) = (stale.queue.clone(), context.world.clone());
        stale.pods.listen(move |change| {
            if !change.is_deletion()
                && let Some(left) = left(change.object(), world.now())
            {
                changed.add_after(change.key(), left);
            }
        });
        Arc::new(stale)
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, 1).await;
    }
}

impl Reconcile for StaleConditions {
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
        let condition = json!({"type": CONDITION, "status": "False", "lastTransitionTime": self.context.time().to_string()});
        // the resource version binds the patch to the state that it was decided from
        let body = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": key.name, "uid": pod.uid(), "resourceVersion": pod.resource_version()},
            "status": {"conditions": [condition]},
        });
        let body = body.to_string().into_bytes();
        let patch = Patch::Apply { manager: FIELD_MANAGER.to_owned(), force: true, body };
        let pods = Api::<Pod>::beside(&self.context.client, &*pod);
        unless(404, pods.patch_status(&key.name, &patch).await)?;
        Ok(Action::AwaitChange)
    }
}
