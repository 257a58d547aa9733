//! So many pods from one template: replica sets, and replication controllers, which are the same under another name.
//!
//! What always holds: a set decides from pods that it has seen, and only once it has seen all that it made and removed
//! before; so there are never more pods than asked for because it looked too early. Its status is written when it has
//! come to rest, or cannot go on: a status that has observed a generation counts no pods that this generation is yet to
//! lose. Pods that have ended or are going away are not its own any more.

mod kinds;
mod plan;

pub use kinds::{Replicated, Status};

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::state::is_active;
use crate::pods::template::pod_for;
use crate::pods::{Pods, slow_start};
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, retry_on_conflict, run};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use metrics::{About, Histogram};
use plan::{Plan, plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Replication controllers are counted with replica sets.
const AGES: About = About::alpha(
    "replicaset_controller_sorting_deletion_age_ratio",
    "How old ready pods are that are removed while others stay, as times the age of the youngest ready one.",
)
.in_thousandths(&[250, 500, 1000, 2000, 4000, 8000]);

struct Sets<K> {
    context: Context,
    sets: Informer<K>,
    /// The statuses that were written.
    statuses: WriteTracker<K>,
    pods: Pods,
    ages: Histogram,
}

pub async fn run<K: Replicated>(context: Context, workers: usize) {
    let queue = Queue::<Key>::default();
    let context = context.of(context.client.clone(), K::COMPONENT);
    let (sets, pods) = (context.informer::<K>(), context.informer::<Pod>());
    if K::HAS_SIBLINGS {
        controller_ref::index(&sets);
    }
    let news = queue.clone();
    sets.listen(move |change| news.add(change.key()));
    controller_ref::follow(&pods, &sets, K::selector, &queue);
    sets.synced().await;
    pods.synced().await;
    let this = Arc::new(Sets {
        statuses: WriteTracker::new(sets.clone()),
        pods: Pods::new(context.clone()),
        ages: context.metrics.registry().one(AGES),
        context,
        sets,
    });
    run::run(this, queue, workers).await;
}

impl<K: Replicated> Reconcile for Sets<K> {
    type Key = Key;

    fn name(&self) -> &'static str {
        K::NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.pods.written().seen(key).await?;
        self.statuses.seen(key).await?;
        let Some(set) = self.sets.get(key) else { return Ok(Action::AwaitChange) };
        let Some(selector) = set.selector() else { return Ok(Action::AwaitChange) };
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: is_active,
        };
        let pods = claims.claim(&*set, Some(&selector), |_| true).await?;
        let plan = if set.meta().deletion_timestamp.is_none() {
            let now = self.context.time().0;
            let settings = (&*self.context.names, &self.context.gates);
            plan(set.replicas(), &pods, || self.related(&set, &pods), settings, now)
        } else {
            Plan::Rest
        };
        if let Plan::Delete(going) = &plan
            && going.len() < pods.len()
        {
            let ratios = plan::age_ratios(&pods, going, self.context.time().0);
            ratios.iter().for_each(|it| self.ages.observe(it.saturating_mul(1000)));
        }
        let failed = match self.act(&set, plan).await {
            // it is looked at again when what it did is seen
            Ok(true) => return Ok(Action::Requeue(Duration::ZERO)),
            Ok(false) => None,
            Err(why) => Some(why),
        };
        let next = self.report(&set, &pods, failed.as_ref()).await?;
        failed.map_or(Ok(next), Err)
    }
}

impl<K: Replicated> Sets<K> {
    /// The pods of this set and of those that belong to the same owner: one likes to keep some on every node.
    fn related(&self, set: &K, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let siblings = match controller_ref::controller_of(set) {
            Some(owner) if K::HAS_SIBLINGS => controller_ref::controlled_by_uid(&self.sets, &owner.uid),
            _ => Vec::new(),
        };
        let others = siblings.iter().filter(|it| it.meta().uid != set.meta().uid);
        let theirs = others.flat_map(|it| controller_ref::controlled(self.pods.written().informer(), &**it));
        pods.iter().cloned().chain(theirs.filter(|pod| is_active(pod))).collect()
    }

    /// Whether something was made or removed, so that there is something to wait for.
    async fn act(&self, set: &K, plan: Plan) -> Result<bool, Failure> {
        match plan {
            Plan::Rest => Ok(false),
            Plan::Create(count) => {
                let Some(template) = set.template() else {
                    return Err(Failure::Other("there is no template".to_owned()));
                };
                let pod = pod_for(set, template);
                let made = AtomicBool::new(false);
                let (_, failed) = slow_start(count, |_| async {
                    if self.pods.create(set, &pod).await?.is_some() {
                        made.store(true, Ordering::Relaxed);
                    }
                    Ok(())
                })
                .await;
                failed.map_or(Ok(made.into_inner()), Err)
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

    /// Writes the status, if it is another than before, and says when a pod will count as available next.
    async fn report(&self, set: &K, pods: &[Arc<Pod>], failed: Option<&Failure>) -> Result<Action, Failure> {
        let (status, next) = plan::status(set, pods, failed, &self.context.time());
        if status != set.status() {
            let written =
                retry_on_conflict::status(&self.context.client, set, |set| set.set_status(&status)).await?;
            written.iter().for_each(|it| self.statuses.wrote(&Key::of(set), it));
        }
        Ok(next)
    }
}
