//! Stateful sets: pods with names and volumes that stay theirs.
//!
//! A look at a set: its revisions and pods are claimed, the next steps are a pure function of what there is (`plan.rs`),
//! and the status says what there is when they are done. What always holds: there is one pod of a name at a time, and
//! never another before it is known to be gone; a claim is made before the pod that uses it, and outlives it.

mod identity;
mod plan;
mod retention;
mod view;

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::{Pods, slow_start};
use crate::revisions::{self, History, Revisions};
use client::events::EventType;
use client::retry_on_conflict::{self, beside};
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating, run, unless};
use futures_util::future::join_all;
use identity::LabelNames;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::ResourceExt;
use kube::api::PostParams;
use kube::core::Selector;
use plan::Plan;
use std::sync::Arc;
use std::time::Duration;
use view::View;

/// How many revisions are kept where nobody says.
const KEPT: i32 = 10;
/// How long is waited for claims that must go, of which nobody tells.
const HELD_UP: Duration = Duration::from_secs(1);

struct StatefulSets {
    context: Context,
    marks: LabelNames,
    sets: WriteTracker<StatefulSet>,
    revisions: Revisions,
    pods: Pods,
    claims: Informer<PersistentVolumeClaim>,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::default();
    let context = context.of(context.client.clone(), "statefulset-controller");
    let (sets, pods) = (context.informer::<StatefulSet>(), context.informer::<Pod>());
    let claims = context.informer::<PersistentVolumeClaim>();
    let label = context.names.well_known_under("controller", "hash");
    let revisions = Revisions::follow(&context, label, &sets, selector, &queue);
    let news = queue.clone();
    sets.listen(move |change| news.add(change.key()));
    controller_ref::follow(&pods, &sets, selector, &queue);
    sets.synced().await;
    pods.synced().await;
    claims.synced().await;
    revisions.written().informer().synced().await;
    let this = Arc::new(StatefulSets {
        marks: LabelNames::new(&context.names),
        sets: WriteTracker::new(sets),
        revisions,
        pods: Pods::new(context.clone()),
        claims,
        context,
    });
    run::run(this, queue, workers).await;
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    controller_ref::selector(set.spec.as_ref().map(|it| &it.selector))
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
        let (Some(spec), Some(selector)) = (&set.spec, selector(&set)) else {
            return Ok(Action::AwaitChange);
        };
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: None,
            looked_at: |_| true,
        };
        let is_member = |pod: &Pod| identity::ordinal(&set, pod).is_some();
        let pods = claims.claim(&*set, Some(&selector), is_member).await?;
        let work = Work { set: &set, spec, pods: &pods };
        if set.metadata.deletion_timestamp.is_some() {
            return self.watch_go(work).await;
        }
        let collisions = set.status.as_ref().and_then(|it| it.collision_count).unwrap_or(0);
        let history = self.revisions.history(&*set, &selector, &spec.template, collisions).await?;
        self.look(work, &history).await
    }
}

/// A set while it is looked at.
#[derive(Clone, Copy)]
struct Work<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    pods: &'a [Arc<Pod>],
}

impl StatefulSets {
    fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    /// Of a set that is going away the pods are counted until it is gone, and nothing else.
    async fn watch_go(&self, work: Work<'_>) -> Result<Action, Failure> {
        let status = work.set.status.clone().unwrap_or_default();
        let view = View {
            set: work.set,
            spec: work.spec,
            pods: work.pods,
            current: status.current_revision.as_deref().unwrap_or_default(),
            update: status.update_revision.as_deref().unwrap_or_default(),
            collisions: status.collision_count.unwrap_or(0),
            claim: &|key| self.claim(key),
            marks: &self.marks,
            gates: self.context.gates,
            now: self.context.time().0,
        };
        self.report(work.set, view.count()).await?;
        Ok(Action::AwaitChange)
    }

    async fn look(&self, work: Work<'_>, history: &History) -> Result<Action, Failure> {
        let stored = work.set.status.as_ref().and_then(|it| it.current_revision.as_deref());
        let current = stored.and_then(|name| history.named(name)).unwrap_or(&history.present);
        let (current_name, update_name) = (current.name_any(), history.present.name_any());
        let view = View {
            set: work.set,
            spec: work.spec,
            pods: work.pods,
            current: &current_name,
            update: &update_name,
            collisions: history.collisions,
            claim: &|key| self.claim(key),
            marks: &self.marks,
            gates: self.context.gates,
            now: self.context.time().0,
        };
        let plan = plan::plan(&view);
        let before = if current_name == update_name { None } else { revisions::template(current) };
        let acted = self.act(&view, &plan, before.as_ref().unwrap_or(&work.spec.template)).await;
        let status = if acted.is_ok() { plan.status.clone() } else { view.settle(view.count()) };
        self.report(work.set, status).await?;
        if acted? {
            // it is looked at again when what it did is seen
            return Ok(Action::Requeue(Duration::ZERO));
        }
        let is_used =
            |name: &str| name == current_name || work.pods.iter().any(|it| identity::revision(it) == name);
        let kept = work.spec.revision_history_limit.unwrap_or(KEPT);
        self.revisions.trim(work.set, history, kept, |it| is_used(&it.name_any())).await?;
        let wait = view.wait().into_iter().chain(plan.is_held_up.then_some(HELD_UP)).min();
        Ok(wait.map_or(Action::AwaitChange, Action::Requeue))
    }

    /// Does what is planned; `before` is the template of pods that are not to be updated yet. Whether something was done
    /// that can be waited for.
    async fn act(&self, view: &View<'_>, plan: &Plan, before: &PodTemplateSpec) -> Result<bool, Failure> {
        for (claim, owners) in &plan.retain {
            let change = |it: &mut PersistentVolumeClaim| it.metadata.owner_references = Some(owners.clone());
            retry_on_conflict::object(&self.context.client, &**claim, change).await?;
        }
        for pod in &plan.ended {
            let names = (Key::of(view.set), pod.name_any());
            let message = format!("StatefulSet {} is recreating failed Pod {}", names.0, names.1);
            self.context.events.tell(view.set, EventType::Warning, "RecreatingFailedPod", message);
        }
        first(join_all(plan.ended.iter().map(|pod| self.remove(view.set, pod))).await)?;
        let (_, broke) = slow_start(plan.make.len(), |at| self.make(view, plan.make[at], before)).await;
        broke.map_or(Ok(()), Err)?;
        first(join_all(plan.mend.iter().map(|pod| self.mend(view, pod))).await)?;
        first(join_all(plan.remove.iter().map(|pod| self.remove(view.set, pod))).await)?;
        Ok(plan.is_about_pods())
    }

    async fn make(&self, view: &View<'_>, ordinal: i64, before: &PodTemplateSpec) -> Result<(), Failure> {
        let pod = match view.is_updated(ordinal) {
            true => self.marks.pod(view.set, &view.spec.template, view.update, ordinal),
            false => self.marks.pod(view.set, before, view.current, ordinal),
        };
        let made = match self.provide(view.set, &pod, ordinal).await {
            Ok(()) => self.pods.make(view.set, &pod).await,
            Err(why) => Err(why),
        };
        match made {
            Ok(Some(_)) => self.tell(view.set, &pod, "create", None),
            // nothing can be made any more
            Ok(None) => return Err(Failure::Other("the namespace is going away".to_owned())),
            // somebody else's pod has the name, or one that is not gone yet
            Err(why) if why.is(409) => return Err(why),
            Err(why) => {
                self.tell(view.set, &pod, "create", Some(&why));
                return Err(why);
            }
        }
        Ok(())
    }

    /// Makes the claims of a pod that are not there yet.
    async fn provide(&self, set: &StatefulSet, pod: &Pod, ordinal: i64) -> Result<(), Failure> {
        for claim in identity::claims(set, ordinal) {
            let name = claim.name_any();
            match self.claims.get(&Key::of(&claim)) {
                Some(there) if there.metadata.deletion_timestamp.is_some() => {
                    return Err(Failure::Other(format!("pvc {name} is being deleted")));
                }
                Some(_) => continue,
                None => {}
            }
            let api = beside::<PersistentVolumeClaim>(&self.context.client, set);
            // one that is there already is not seen yet
            let made = unless(409, api.create(&PostParams::default(), &claim).await);
            let (pod, of) = (pod.name_any(), set.name_any());
            match made {
                Ok(None) => {}
                Ok(Some(_)) => {
                    let message = format!("create Claim {name} Pod {pod} in StatefulSet {of} success");
                    self.context.events.tell(set, EventType::Normal, "SuccessfulCreate", message);
                }
                Err(why) if is_terminating(&why) => return Err(why.into()),
                Err(why) => {
                    let why = Failure::from(why);
                    let error = why.message();
                    let message = format!(
                        "create Claim {name} for Pod {pod} in StatefulSet {of} failed error: {error}"
                    );
                    self.context.events.tell(set, EventType::Warning, "FailedCreate", message);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Gives a pod what it lacks.
    async fn mend(&self, view: &View<'_>, pod: &Pod) -> Result<(), Failure> {
        let Some(ordinal) = identity::ordinal(view.set, pod) else { return Ok(()) };
        self.provide(view.set, pod, ordinal).await?;
        if self.marks.is_identified(pod, view.set, ordinal) {
            return Ok(());
        }
        let change = |pod: &mut Pod| self.marks.identify(pod, view.set, ordinal);
        let written = retry_on_conflict::object(&self.context.client, pod, change).await;
        self.tell(view.set, pod, "update", written.as_ref().err());
        match written? {
            Some(written) => self.pods.written().wrote(&Key::of(view.set), &written),
            None => self.pods.written().gone(&Key::of(view.set), pod),
        }
        Ok(())
    }

    async fn remove(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Failure> {
        let removed = self.pods.remove(set, pod).await;
        if !matches!(removed, Ok(false)) {
            self.tell(set, pod, "delete", removed.as_ref().err());
        }
        removed.map(drop)
    }

    /// Tells what was done to a pod, or that it could not be done.
    fn tell(&self, set: &StatefulSet, pod: &Pod, verb: &str, failed: Option<&Failure>) {
        let (pod, of) = (pod.name_any(), set.name_any());
        let mut title = verb.to_owned();
        title[..1].make_ascii_uppercase();
        match failed {
            None => {
                let message = format!("{verb} Pod {pod} in StatefulSet {of} successful");
                self.context.events.tell(set, EventType::Normal, &format!("Successful{title}"), message);
            }
            Some(why) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {of} failed error: {}", why.message());
                self.context.events.tell(set, EventType::Warning, &format!("Failed{title}"), message);
            }
        }
    }

    /// Writes the status, if it is another than before.
    async fn report(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), Failure> {
        if plain(&status) == plain(&set.status.clone().unwrap_or_default()) {
            return Ok(());
        }
        let change = |it: &mut StatefulSet| it.status = Some(status.clone());
        let written = retry_on_conflict::status(&self.context.client, set, change).await?;
        written.iter().for_each(|it| self.sets.wrote(&Key::of(set), it));
        Ok(())
    }
}

/// What went wrong first.
fn first(answers: Vec<Result<(), Failure>>) -> Result<(), Failure> {
    answers.into_iter().collect()
}

/// The same with what is zero left out, as the server has it.
fn plain(status: &StatefulSetStatus) -> StatefulSetStatus {
    let mut plain = status.clone();
    for count in [
        &mut plain.available_replicas,
        &mut plain.collision_count,
        &mut plain.current_replicas,
        &mut plain.ready_replicas,
        &mut plain.updated_replicas,
    ] {
        *count = count.filter(|it| *it != 0);
    }
    for name in [&mut plain.current_revision, &mut plain.update_revision] {
        *name = name.take().filter(|it| !it.is_empty());
    }
    plain.conditions = plain.conditions.filter(|it| !it.is_empty());
    plain
}

#[cfg(test)]
mod tests;
