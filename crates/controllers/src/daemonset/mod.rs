//! Daemon sets: one pod on every node that is asked for.
//!
//! A look at a set: its revisions and pods are claimed, what it has to do with each node is looked up, and the next steps
//! are a pure function of that (`plan.rs`). What always holds: pods ask for their node by name and are counted for it
//! before they are on it, so that a node never gets two because the scheduler takes its time. A node that changes costs
//! one question for each set, and only where the answer could be another.

mod affinity;
mod backoff;
mod fit;
mod plan;
mod pod;
mod status;

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::{Pods, slow_start, state};
use crate::revisions::{HASH_LABEL, History, Revisions};
use backoff::Failures;
use client::events::EventType;
use client::{
    Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, retry_on_conflict, run,
};
use fit::{Fit, Placement};
use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};
use kube::ResourceExt;
use kube::core::Selector;
use parking_lot::RwLock;
use plan::{Plan, View};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How many revisions are kept where nobody says.
const KEPT: i32 = 10;
/// How many sets are worked on at a time.
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
    let queue = Queue::<Key>::default();
    let context = context.of(context.client.clone(), "daemonset-controller");
    let (sets, pods) = (context.informer::<DaemonSet>(), context.informer::<Pod>());
    let nodes = context.informer::<Node>();
    let revisions = Revisions::follow(&context, HASH_LABEL.to_owned(), &sets, selector, &queue);
    let all = Everyone::default();
    sets.listen(all.asks(&context, queue.clone()));
    nodes.listen(all.concerned(queue.clone()));
    controller_ref::follow(&pods, &sets, selector, &queue);
    sets.synced().await;
    pods.synced().await;
    nodes.synced().await;
    revisions.written().informer().synced().await;
    let this = Arc::new(DaemonSets {
        sets: WriteTracker::new(sets),
        nodes,
        revisions,
        pods: Pods::new(context.clone()),
        failures: Failures::default(),
        context,
    });
    run::run(this, queue, WORKERS).await;
}

fn template(set: &DaemonSet) -> Option<&PodTemplateSpec> {
    set.spec.as_ref().map(|it| &it.template)
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    controller_ref::selector(set.spec.as_ref().map(|it| &it.selector))
}

/// What all sets ask of nodes, so that a node that changes need not be looked at with all that they are.
#[derive(Clone, Default)]
struct Everyone {
    asks: Arc<RwLock<HashMap<Key, Placement>>>,
}

impl Everyone {
    fn asks(&self, context: &Context, queue: Queue<Key>) -> impl Fn(&Change<'_, DaemonSet>) + use<> {
        let (asks, names) = (self.asks.clone(), context.names.clone());
        move |change| {
            match change {
                Change::Deleted(_) => drop(asks.write().remove(&change.key())),
                Change::Updated { old, new } if template(old) == template(new) => {}
                _ => drop(asks.write().insert(change.key(), Placement::of(change.object(), &names))),
            }
            queue.add(change.key());
        }
    }

    /// Sets are looked at that have something else to do with a node than before.
    fn concerned(&self, queue: Queue<Key>) -> impl Fn(&Change<'_, Node>) + use<> {
        let asks = self.asks.clone();
        move |change| {
            if let Change::Updated { old, new } = change
                && fit::is_same(old, new)
            {
                return;
            }
            for (key, asks) in &*asks.read() {
                let before = match change {
                    Change::Updated { old, .. } => asks.fit(old),
                    Change::Added(_) | Change::Deleted(_) => Fit::Not,
                };
                if before != asks.fit(change.object()) {
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
        let (Some(spec), Some(selector)) = (&set.spec, selector(&set)) else {
            return Ok(Action::AwaitChange);
        };
        if selector.selects_all() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.context.events.tell(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::AwaitChange);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let collisions = set.status.as_ref().and_then(|it| it.collision_count).unwrap_or(0);
        let history = self.revisions.history(&*set, &selector, &spec.template, collisions).await?;
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: |_| true,
        };
        let pods = claims.claim(&*set, Some(&selector), |_| true).await?;
        self.look(&set, spec, &pods, &history).await
    }
}

impl DaemonSets {
    async fn look(
        &self,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        pods: &[Arc<Pod>],
        history: &History,
    ) -> Result<Action, Failure> {
        let (asks, elapsed) = (Placement::of(set, &self.context.names), self.context.world.elapsed());
        let nodes: Vec<(Arc<Node>, Fit)> =
            self.nodes.all().into_iter().map(|node| (node.clone(), asks.fit(&node))).collect();
        let present: Vec<&str> = history.same().map(|it| self.revisions.hash(it)).collect();
        let view = View {
            set,
            spec,
            nodes: &nodes,
            pods,
            is_updated: &|pod| pod::is_updated(pod, set, |hash| present.contains(&hash)),
            pause: &|node| self.failures.pause(set, node, elapsed),
            now: self.context.time().0,
        };
        let plan = plan::plan(&view);
        let acted = self.act(set, &plan, self.revisions.hash(&history.present), elapsed).await;
        if acted.is_ok() && !plan.is_rest() {
            // it is looked at again when what it did is seen
            return Ok(Action::Requeue(Duration::ZERO));
        }
        self.report(set, status::status(&view, history.collisions)).await?;
        acted?;
        let is_used =
            |hash: &str| pods.iter().any(|it| it.labels().get(HASH_LABEL).is_some_and(|it| it == hash));
        let kept = spec.revision_history_limit.unwrap_or(KEPT);
        self.revisions.trim(set, history, kept, |it| is_used(self.revisions.hash(it))).await?;
        Ok(view.wait().into_iter().chain(plan.wait).min().map_or(Action::AwaitChange, Action::Requeue))
    }

    async fn act(&self, set: &DaemonSet, plan: &Plan, hash: &str, elapsed: Duration) -> Result<(), Failure> {
        for (node, pod) in &plan.ended {
            let key = Key::of(&**pod);
            if state::phase(pod) == "Failed" {
                self.failures.note(set, node, elapsed);
                let message = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                self.context.events.tell(set, EventType::Warning, "FailedDaemonPod", message);
            } else {
                let message =
                    format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                self.context.events.tell(set, EventType::Normal, "SucceededDaemonPod", message);
            }
        }
        let made = async {
            if plan.make.is_empty() {
                return None;
            }
            let base = pod::base(set, hash, &self.context.names)?;
            slow_start(plan.make.len(), |at| {
                let pod = pod::for_node(&base, &plan.make[at]);
                async move { self.pods.create(set, &pod).await.map(drop) }
            })
            .await
            .1
        };
        let going = plan.remove.iter().chain(plan.ended.iter().map(|(_, pod)| pod));
        let removed = join_all(going.map(|pod| self.pods.delete(set, pod)));
        let (broke, removed) = tokio::join!(made, removed);
        let broke = broke.or_else(|| removed.into_iter().find_map(Result::err));
        broke.map_or(Ok(()), Err)
    }

    /// Writes the status, if it is another than before.
    async fn report(&self, set: &DaemonSet, status: DaemonSetStatus) -> Result<(), Failure> {
        if status == status::plain(&set.status.clone().unwrap_or_default()) {
            return Ok(());
        }
        let change = |it: &mut DaemonSet| it.status = Some(status.clone());
        let written = retry_on_conflict::status(&self.context.client, set, change).await?;
        written.iter().for_each(|it| self.sets.wrote(&Key::of(set), it));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
