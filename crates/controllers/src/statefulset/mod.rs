//! The stateful set loop: pods with stable names and volumes.
//!
//! A reconciliation claims revisions and pods, executes a plan, which is a pure function of what exists (`plan.rs`), and
//! writes the status that follows. Always true: there is one pod of a name at a time, and a new one only after the old
//! one is gone; a claim is created before the pod that uses it, and outlives the pod.

mod identity;
mod plan;
mod retention;
mod view;

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::{Pods, rendered, slow_start};
use crate::revisions::{self, History, Revisions};
use api::Resource;
use api::apps::v1::{StatefulSet, StatefulSetStatus};
use api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use apimachinery::labels::Selector;
use client::{
    Action, Api, EventType, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating,
    retry_on_conflict, run, unless,
};
use futures_util::future::join_all;
use identity::LabelNames;
use plan::Plan;
use std::sync::Arc;
use std::time::Duration;
use view::View;

/// The default limit of the revision history.
const HISTORY_LIMIT: i32 = 10;
/// The interval at which a set looks for stale claims, whose deletion does not queue it.
const STALE_CLAIMS_INTERVAL: Duration = Duration::from_secs(1);

struct StatefulSets {
    context: Context,
    labels: LabelNames,
    sets: WriteTracker<StatefulSet>,
    revisions: Revisions,
    pods: Pods,
    claims: Informer<PersistentVolumeClaim>,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::new(&context.world);
    let context = context.of(context.client.clone(), "statefulset-controller");
    let (sets, pods) = (context.informer::<StatefulSet>(), context.informer::<Pod>());
    let claims = context.informer::<PersistentVolumeClaim>();
    let label = context.names.well_known_under("controller", "hash");
    let revisions = Revisions::follow(&context, label, &sets, selector, &queue);
    let changed = queue.clone();
    sets.listen(move |change| changed.add(change.key()));
    controller_ref::follow(&pods, &sets, selector, &queue);
    sets.synced().await;
    pods.synced().await;
    claims.synced().await;
    revisions.written().informer().synced().await;
    let reconciler = Arc::new(StatefulSets {
        labels: LabelNames::new(&context.names),
        sets: WriteTracker::new(sets),
        revisions,
        pods: Pods::new(context.clone()),
        claims,
        context,
    });
    run::run(reconciler, queue, workers).await;
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    controller_ref::selector(set.spec.selector.as_deref())
}

impl Reconcile for StatefulSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        "statefulset"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.sets.seen(key).await?;
        self.revisions.written().seen(key).await?;
        self.pods.written().seen(key).await?;
        let Some(set) = self.sets.informer().get(key) else { return Ok(Action::AwaitChange) };
        let Some(selector) = selector(&set) else { return Ok(Action::AwaitChange) };
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: |_| true,
        };
        let is_member = |pod: &Pod| identity::ordinal(&set, pod).is_some();
        let pods = claims.claim(&*set, Some(&selector), is_member).await?;
        if set.metadata.deletion_timestamp.is_some() {
            return self.count(&set, &pods).await;
        }
        let collisions = set.status.collision_count.unwrap_or(0);
        let history = self.revisions.history(&*set, &selector, &set.spec.template, collisions).await?;
        self.advance(&set, &pods, &history).await
    }
}

impl StatefulSets {
    fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    /// Counts the pods of a set that is being deleted; nothing else is done.
    async fn count(&self, set: &StatefulSet, pods: &[Arc<Pod>]) -> Result<Action, Failure> {
        let view = View {
            set,
            pods,
            current: &set.status.current_revision,
            update: &set.status.update_revision,
            collisions: set.status.collision_count.unwrap_or(0),
            claim: &|key| self.claim(key),
            labels: &self.labels,
            gates: self.context.gates,
            now: self.context.time(),
        };
        self.write_status(set, view.count()).await?;
        Ok(Action::AwaitChange)
    }

    async fn advance(
        &self,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        history: &History,
    ) -> Result<Action, Failure> {
        let current = history.named(&set.status.current_revision).unwrap_or(&history.present);
        let (current_name, update_name) = (current.name(), history.present.name());
        let view = View {
            set,
            pods,
            current: current_name,
            update: update_name,
            collisions: history.collisions,
            claim: &|key| self.claim(key),
            labels: &self.labels,
            gates: self.context.gates,
            now: self.context.time(),
        };
        let plan = plan::plan(&view);
        let before = if current_name == update_name { None } else { revisions::template(current) };
        let acted = self.act(&view, &plan, before.as_ref().unwrap_or(&set.spec.template)).await;
        let status = if acted.is_ok() { plan.status.clone() } else { view.settle(view.count()) };
        self.write_status(set, status).await?;
        if acted? {
            // continue when the informer has seen these writes
            return Ok(Action::Requeue(Duration::ZERO));
        }
        let is_used =
            |name: &str| name == current_name || pods.iter().any(|it| identity::revision(it) == name);
        let limit = set.spec.revision_history_limit.unwrap_or(HISTORY_LIMIT);
        self.revisions.trim(set, history, limit, |it| is_used(it.name())).await?;
        let wait = view.wait().into_iter().chain(plan.is_held_up.then_some(STALE_CLAIMS_INTERVAL)).min();
        Ok(wait.map_or(Action::AwaitChange, Action::Requeue))
    }

    /// Executes a plan; `before` is the template of pods that are not updated yet. Returns whether it wrote pods.
    async fn act(&self, view: &View<'_>, plan: &Plan, before: &PodTemplateSpec) -> Result<bool, Failure> {
        for (claim, owners) in &plan.retain {
            let change = |it: &mut PersistentVolumeClaim| it.metadata.owner_references = owners.clone();
            retry_on_conflict::object(&self.context.client, &**claim, change).await?;
        }
        for pod in &plan.ended {
            let names = (Key::of(view.set), pod.name());
            let message = format!("StatefulSet {} is recreating failed Pod {}", names.0, names.1);
            self.context.events.record(view.set, EventType::Warning, "RecreatingFailedPod", message);
        }
        first(join_all(plan.ended.iter().map(|pod| self.remove(view.set, pod))).await)?;
        let (_, failed) = slow_start(plan.make.len(), |at| self.make(view, plan.make[at], before)).await;
        failed.map_or(Ok(()), Err)?;
        first(join_all(plan.mend.iter().map(|pod| self.mend(view, pod))).await)?;
        first(join_all(plan.remove.iter().map(|pod| self.remove(view.set, pod))).await)?;
        Ok(plan.is_about_pods())
    }

    async fn make(&self, view: &View<'_>, ordinal: i64, before: &PodTemplateSpec) -> Result<(), Failure> {
        let pod = match view.is_updated(ordinal) {
            true => self.labels.pod(view.set, &view.set.spec.template, view.update, ordinal),
            false => self.labels.pod(view.set, before, view.current, ordinal),
        };
        let created = async {
            self.provide(view.set, &pod, ordinal).await?;
            self.pods.make(view.set, &rendered(&pod)?).await
        };
        let created = created.await;
        match created {
            Ok(Some(_)) => self.record(view.set, &pod, "create", None),
            Ok(None) => return Err(Failure::Other("the namespace is terminating".to_owned())),
            // another object has the name, or an old pod that is not gone yet
            Err(why) if why.is(409) => return Err(why),
            Err(why) => {
                self.record(view.set, &pod, "create", Some(&why));
                return Err(why);
            }
        }
        Ok(())
    }

    /// Creates the claims of a pod that do not exist yet.
    async fn provide(&self, set: &StatefulSet, pod: &Pod, ordinal: i64) -> Result<(), Failure> {
        for claim in identity::claims(set, ordinal) {
            let name = claim.name();
            match self.claims.get(&Key::of(&claim)) {
                Some(existing) if existing.metadata.deletion_timestamp.is_some() => {
                    return Err(Failure::Other(format!("pvc {name} is being deleted")));
                }
                Some(_) => continue,
                None => {}
            }
            let api = Api::<PersistentVolumeClaim>::beside(&self.context.client, set);
            // on a conflict the claim exists, and is not in the informer yet
            let created = unless(409, api.create(&claim).await);
            let (pod, of) = (pod.name(), set.name());
            match created {
                Ok(None) => {}
                Ok(Some(_)) => {
                    let message = format!("create Claim {name} Pod {pod} in StatefulSet {of} success");
                    self.context.events.record(set, EventType::Normal, "SuccessfulCreate", message);
                }
                Err(why) if is_terminating(&why) => return Err(why.into()),
                Err(why) => {
                    let why = Failure::from(why);
                    let error = why.message();
                    let message = format!(
                        "create Claim {name} for Pod {pod} in StatefulSet {of} failed error: {error}"
                    );
                    self.context.events.record(set, EventType::Warning, "FailedCreate", message);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Restores the claims and the identity of a pod.
    async fn mend(&self, view: &View<'_>, pod: &Pod) -> Result<(), Failure> {
        let Some(ordinal) = identity::ordinal(view.set, pod) else { return Ok(()) };
        self.provide(view.set, pod, ordinal).await?;
        if self.labels.is_identified(pod, view.set, ordinal) {
            return Ok(());
        }
        let change = |pod: &mut Pod| self.labels.identify(pod, view.set, ordinal);
        let written = retry_on_conflict::object(&self.context.client, pod, change).await;
        self.record(view.set, pod, "update", written.as_ref().err());
        match written? {
            Some(written) => self.pods.written().wrote(&Key::of(view.set), &written),
            None => self.pods.written().gone(&Key::of(view.set), pod),
        }
        Ok(())
    }

    async fn remove(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Failure> {
        let deleted = self.pods.remove(set, pod).await;
        if !matches!(deleted, Ok(false)) {
            self.record(set, pod, "delete", deleted.as_ref().err());
        }
        deleted.map(drop)
    }

    /// Records an event about a write of a pod.
    fn record(&self, set: &StatefulSet, pod: &Pod, verb: &str, failed: Option<&Failure>) {
        let (pod, of) = (pod.name(), set.name());
        let mut title = verb.to_owned();
        title[..1].make_ascii_uppercase();
        match failed {
            None => {
                let message = format!("{verb} Pod {pod} in StatefulSet {of} successful");
                self.context.events.record(set, EventType::Normal, &format!("Successful{title}"), message);
            }
            Some(why) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {of} failed error: {}", why.message());
                self.context.events.record(set, EventType::Warning, &format!("Failed{title}"), message);
            }
        }
    }

    /// Writes the status if it changed.
    async fn write_status(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), Failure> {
        let mut before = set.status.clone();
        // a count of zero may be absent
        before.collision_count = before.collision_count.or(Some(0));
        if status == before {
            return Ok(());
        }
        let change = |it: &mut StatefulSet| it.status = status.clone();
        let written = retry_on_conflict::status(&self.context.client, set, change).await?;
        written.iter().for_each(|it| self.sets.wrote(&Key::of(set), it));
        Ok(())
    }
}

/// The first failure.
fn first(results: Vec<Result<(), Failure>>) -> Result<(), Failure> {
    results.into_iter().collect()
}

#[cfg(test)]
mod tests;
