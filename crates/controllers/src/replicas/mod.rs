//! The loops of replica sets and replication controllers, which keep a number of pods of one template.
//!
//! Always true: a set acts only when the informer has seen its own creations and deletions, so a stale cache never
//! causes too many pods. The status is written when there is nothing to do, or an action failed: a status with the
//! current `observedGeneration` counts no pods that are still to be deleted. Pods that are finished or being deleted are
//! ignored. A large set rests between two statuses ([`pace`]).

mod kinds;
mod pace;
mod plan;

pub use kinds::{ReplicaKind, Status};

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::state::is_active;
use crate::pods::template::pod_for;
use crate::pods::{Pods, rendered, slow_start};
use api::core::v1::Pod;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, retry_on_conflict, run};
use futures_util::future::join_all;
use metrics::{Descriptor, Histogram};
use pace::Pace;
use plan::{Plan, plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Also for replication controllers.
const AGES: Descriptor = Descriptor::alpha(
    "replicaset_controller_sorting_deletion_age_ratio",
    "The age of a ready pod that is deleted while others stay, divided by the age of the youngest ready pod.",
)
.in_thousandths(&[250, 500, 1000, 2000, 4000, 8000]);

struct Sets<K> {
    context: Context,
    sets: Informer<K>,
    /// Writes of the status.
    statuses: WriteTracker<K>,
    pods: Pods,
    pace: Arc<Pace>,
    ages: Histogram,
}

pub async fn run<K: ReplicaKind>(context: Context, workers: usize) {
    let queue = Queue::<Key>::new(&context.world);
    let context = context.of(context.client.clone(), K::COMPONENT);
    let (sets, pods) = (context.informer::<K>(), context.informer::<Pod>());
    if K::HAS_SIBLINGS {
        controller_ref::index(&sets);
    }
    let changed = queue.clone();
    sets.listen(move |change| changed.add(change.key()));
    let pace = Arc::<Pace>::default();
    // before the set is queued: a pod that ends is replaced at once
    pods.listen(pace.end_with_pods::<K>());
    controller_ref::follow(&pods, &sets, K::selector, &queue);
    sets.synced().await;
    pods.synced().await;
    let reconciler = Arc::new(Sets {
        statuses: WriteTracker::new(sets.clone()),
        pods: Pods::new(context.clone()),
        pace,
        ages: context.metrics.registry().one(AGES),
        context,
        sets,
    });
    run::run(reconciler, queue, workers).await;
}

impl<K: ReplicaKind> Reconcile for Sets<K> {
    type Key = Key;

    fn name(&self) -> &'static str {
        K::NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        if let Some(left) = self.rest_left(key) {
            return Ok(Action::Requeue(left));
        }
        self.pods.written().seen(key).await?;
        self.statuses.seen(key).await?;
        let began = self.context.world.elapsed();
        let Some(set) = self.sets.get(key) else {
            self.pace.end(key);
            return Ok(Action::AwaitChange);
        };
        self.pace.begin(key);
        let Some(selector) = set.selector() else { return Ok(Action::AwaitChange) };
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: is_active,
        };
        let pods = claims.claim(&*set, Some(&selector), |_| true).await?;
        let plan = if set.metadata().deletion_timestamp.is_none() {
            let settings = (&*self.context.names, &self.context.gates);
            plan(set.replicas(), &pods, || self.related(&set, &pods), settings, self.context.time())
        } else {
            Plan::Rest
        };
        if let Plan::Delete(deleted) = &plan
            && deleted.len() < pods.len()
        {
            let ratios = plan::age_ratios(&pods, deleted, self.context.time());
            ratios.iter().for_each(|it| self.ages.observe(it.saturating_mul(1000)));
        }
        let failed = match self.act(&set, plan).await {
            // continue when the informer has seen these writes
            Ok(true) => return Ok(Action::Requeue(Duration::ZERO)),
            Ok(false) => None,
            Err(why) => Some(why),
        };
        let next = self.write_status(&set, &pods, failed.as_ref()).await?;
        self.pace.rest(key, pods.len(), began, self.context.world.elapsed());
        failed.map_or(Ok(next), Err)
    }
}

impl<K: ReplicaKind> Sets<K> {
    /// The rest that is left for a set. It ends if the set has changed, or has not as many pods as it should have.
    fn rest_left(&self, key: &Key) -> Option<Duration> {
        let left = self.pace.left(key, self.context.world.elapsed())?;
        let is_settled = |set: &Arc<K>| {
            let count = controller_ref::controlled_count(self.pods.written().informer(), &**set);
            set.metadata().generation == set.status().observed_generation
                && usize::try_from(set.replicas()) == Ok(count)
        };
        if self.sets.get(key).as_ref().is_some_and(is_settled) {
            return Some(left);
        }
        self.pace.end(key);
        None
    }

    /// The pods of this set and of its siblings: pods should stay spread over the nodes.
    fn related(&self, set: &K, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let siblings = match controller_ref::controller_of(set) {
            Some(owner) if K::HAS_SIBLINGS => controller_ref::controlled_by_uid(&self.sets, &owner.uid),
            _ => Vec::new(),
        };
        let others = siblings.iter().filter(|it| it.uid() != set.uid());
        let theirs = others.flat_map(|it| controller_ref::controlled(self.pods.written().informer(), &**it));
        pods.iter().cloned().chain(theirs.filter(|pod| is_active(pod))).collect()
    }

    /// Executes a plan. Returns whether it created or deleted a pod.
    async fn act(&self, set: &K, plan: Plan) -> Result<bool, Failure> {
        match plan {
            Plan::Rest => Ok(false),
            Plan::Create(count) => {
                let Some(template) = set.template() else {
                    return Err(Failure::Other("there is no template".to_owned()));
                };
                let pod = rendered(&pod_for(set, template))?;
                let created = AtomicBool::new(false);
                let (_, failed) = slow_start(count, |_| async {
                    if self.pods.create(set, &pod).await?.is_some() {
                        created.store(true, Ordering::Relaxed);
                    }
                    Ok(())
                })
                .await;
                failed.map_or(Ok(created.into_inner()), Err)
            }
            Plan::Delete(pods) => {
                let deleted = join_all(pods.iter().map(|pod| self.pods.delete(set, pod))).await;
                match deleted.into_iter().find_map(Result::err) {
                    Some(why) => Err(Failure::Other(format!("unable to delete pods: {}", why.message()))),
                    None => Ok(true),
                }
            }
        }
    }

    /// Writes the status if it changed. Requeues the set for when the next pod becomes available.
    async fn write_status(
        &self,
        set: &K,
        pods: &[Arc<Pod>],
        failed: Option<&Failure>,
    ) -> Result<Action, Failure> {
        let (status, next) = plan::status(set, pods, failed, self.context.time());
        if status != set.status() {
            let written =
                retry_on_conflict::status(&self.context.client, set, |set| set.set_status(&status)).await?;
            written.iter().for_each(|it| self.statuses.wrote(&Key::of(set), it));
        }
        Ok(next)
    }
}
