//! The daemon set loop: one pod on every node that fits.
//!
//! A reconciliation claims revisions and pods, evaluates the placement on each node, and executes a plan, which is a pure
//! function of that (`plan.rs`). Always true: pods require their node by name and count for it before they are bound, so
//! a slow scheduler never causes two pods on a node. A changed node costs one evaluation for each set, and only if its
//! labels or taints changed.

mod affinity;
mod backoff;
mod fit;
mod plan;
mod pod;
mod status;

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::{Pods, rendered, slow_start, state};
use crate::revisions::{HASH_LABEL, History, Revisions};
use api::apps::v1::{DaemonSet, DaemonSetStatus};
use api::core::v1::{Node, Pod};
use apimachinery::labels::Selector;
use backoff::Failures;
use client::{
    Action, Change, EventType, Failure, Informer, Key, Queue, Reconcile, WriteTracker, retry_on_conflict, run,
};
use fit::{Fit, Placement};
use futures_util::future::join_all;
use parking_lot::RwLock;
use plan::{Plan, View};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The default limit of the revision history.
const HISTORY_LIMIT: i32 = 10;
/// The number of sets that are reconciled at a time.
const WORKERS: usize = 2;

struct DaemonSets {
    context: Context,
    sets: WriteTracker<DaemonSet>,
    nodes: Informer<Node>,
    revisions: Revisions,
    pods: Pods,
    failures: Failures,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let context = context.of(context.client.clone(), "daemonset-controller");
    let (sets, pods) = (context.informer::<DaemonSet>(), context.informer::<Pod>());
    let nodes = context.informer::<Node>();
    let revisions = Revisions::follow(&context, HASH_LABEL.to_owned(), &sets, selector, &queue);
    let placements = Placements::default();
    sets.listen(placements.update(&context, queue.clone()));
    nodes.listen(placements.queue_affected(queue.clone()));
    controller_ref::follow(&pods, &sets, selector, &queue);
    sets.synced().await;
    pods.synced().await;
    nodes.synced().await;
    revisions.written().informer().synced().await;
    let reconciler = Arc::new(DaemonSets {
        sets: WriteTracker::new(sets),
        nodes,
        revisions,
        pods: Pods::new(context.clone()),
        failures: Failures::default(),
        context,
    });
    run::run(reconciler, queue, WORKERS).await;
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    controller_ref::selector(set.spec.selector.as_deref())
}

/// The placements of all sets, against which changed nodes are evaluated, in the order in which sets are queued.
#[derive(Clone, Default)]
struct Placements {
    by_set: Arc<RwLock<BTreeMap<Key, Placement>>>,
}

impl Placements {
    fn update(&self, context: &Context, queue: Queue<Key>) -> impl Fn(&Change<'_, DaemonSet>) + use<> {
        let (by_set, names) = (self.by_set.clone(), context.names.clone());
        move |change| {
            match change {
                Change::Deleted(_) => drop(by_set.write().remove(&change.key())),
                Change::Updated { old, new } if old.spec.template == new.spec.template => {}
                _ => drop(by_set.write().insert(change.key(), Placement::of(change.object(), &names))),
            }
            queue.add(change.key());
        }
    }

    /// Queues the sets whose fit on a changed node is another.
    fn queue_affected(&self, queue: Queue<Key>) -> impl Fn(&Change<'_, Node>) + use<> {
        let by_set = self.by_set.clone();
        move |change| {
            if let Change::Updated { old, new } = change
                && fit::is_same(old, new)
            {
                return;
            }
            for (key, placement) in &*by_set.read() {
                let before = match change {
                    Change::Updated { old, .. } => placement.fit(old),
                    Change::Added(_) | Change::Deleted(_) => Fit::Not,
                };
                if before != placement.fit(change.object()) {
                    queue.add(key.clone());
                }
            }
        }
    }
}

impl Reconcile for DaemonSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        "daemonset"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.sets.seen(key).await?;
        self.revisions.written().seen(key).await?;
        self.pods.written().seen(key).await?;
        let Some(set) = self.sets.informer().get(key) else {
            self.failures.forget(key);
            return Ok(Action::AwaitChange);
        };
        let Some(selector) = selector(&set) else { return Ok(Action::AwaitChange) };
        if selector.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.context.events.record(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::AwaitChange);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let collisions = set.status.collision_count.unwrap_or(0);
        let history = self.revisions.history(&*set, &selector, &set.spec.template, collisions).await?;
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: |_| true,
        };
        let pods = claims.claim(&*set, Some(&selector), |_| true).await?;
        self.advance(&set, &pods, &history).await
    }
}

impl DaemonSets {
    async fn advance(
        &self,
        set: &DaemonSet,
        pods: &[Arc<Pod>],
        history: &History,
    ) -> Result<Action, Failure> {
        let (placement, elapsed) = (Placement::of(set, &self.context.names), self.context.world.elapsed());
        let nodes: Vec<(Arc<Node>, Fit)> =
            self.nodes.all().into_iter().map(|node| (node.clone(), placement.fit(&node))).collect();
        let present: Vec<&str> = history.same().map(|it| self.revisions.hash(it)).collect();
        let view = View {
            set,
            nodes: &nodes,
            pods,
            is_updated: &|pod| pod::is_updated(pod, set, |hash| present.contains(&hash)),
            pause: &|node| self.failures.pause(set, node, elapsed),
            now: self.context.time(),
        };
        let plan = plan::plan(&view);
        let acted = self.act(set, &plan, self.revisions.hash(&history.present), elapsed).await;
        if acted.is_ok() && !plan.is_rest() {
            // continue when the informer has seen these writes
            return Ok(Action::Requeue(Duration::ZERO));
        }
        self.write_status(set, status::status(&view, history.collisions)).await?;
        acted?;
        let is_used = |hash: &str| {
            pods.iter().any(|it| it.metadata.labels.get(HASH_LABEL).is_some_and(|it| it == hash))
        };
        let limit = set.spec.revision_history_limit.unwrap_or(HISTORY_LIMIT);
        self.revisions.trim(set, history, limit, |it| is_used(self.revisions.hash(it))).await?;
        Ok(view.wait().into_iter().chain(plan.wait).min().map_or(Action::AwaitChange, Action::Requeue))
    }

    async fn act(&self, set: &DaemonSet, plan: &Plan, hash: &str, elapsed: Duration) -> Result<(), Failure> {
        for (node, pod) in &plan.ended {
            let key = Key::of(&**pod);
            if state::phase(pod) == "Failed" {
                self.failures.note(set, node, elapsed);
                let message = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                self.context.events.record(set, EventType::Warning, "FailedDaemonPod", message);
            } else {
                let message =
                    format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                self.context.events.record(set, EventType::Normal, "SucceededDaemonPod", message);
            }
        }
        let created = async {
            if plan.make.is_empty() {
                return None;
            }
            let base = pod::base(set, hash, &self.context.names);
            slow_start(plan.make.len(), |at| {
                let pod = pod::for_node(&base, &plan.make[at]);
                async move { self.pods.create(set, &rendered(&pod)?).await.map(drop) }
            })
            .await
            .1
        };
        let surplus = plan.remove.iter().chain(plan.ended.iter().map(|(_, pod)| pod));
        let deleted = join_all(surplus.map(|pod| self.pods.delete(set, pod)));
        let (failed, deleted) = tokio::join!(created, deleted);
        let failed = failed.or_else(|| deleted.into_iter().find_map(Result::err));
        failed.map_or(Ok(()), Err)
    }

    /// Writes the status if it changed.
    async fn write_status(&self, set: &DaemonSet, status: DaemonSetStatus) -> Result<(), Failure> {
        let mut before = set.status.clone();
        // a count of zero is left out
        before.collision_count = before.collision_count.filter(|it| *it != 0);
        if status == before {
            return Ok(());
        }
        let change = |it: &mut DaemonSet| it.status = status.clone();
        let written = retry_on_conflict::status(&self.context.client, set, change).await?;
        written.iter().for_each(|it| self.sets.wrote(&Key::of(set), it));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
