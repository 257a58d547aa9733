//! Deployments: pods of one template that are replaced when the template changes, through one replica set per template.
//!
//! A deployment is looked at as a whole: its replica sets are sorted out, the next step is a pure function of what there
//! is, and the status follows from what there is after it. What always holds: one step at a time, and the next only
//! when this one has been seen; a rollout keeps its [limits](plan) at every moment.

mod limits;
mod moves;
mod plan;
mod revision;
mod scale;
mod sets;
mod status;

use crate::Context;
use crate::controller_ref::{self, Claims, controller_reference};
use crate::pods::state::is_finished;
use crate::replicas::Replicated;
use client::events::EventType;
use client::retry_on_conflict::{self, beside};
use client::{
    Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating, run, unless,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Selector;
use limits::{Limits, is_rolling};
use moves::Move;
use plan::{Step, View};
use revision::RevisionAnnotations;
use sets::{HASH_LABEL, Sets, template_hash};
use status::Draft;
use std::sync::Arc;
use std::time::Duration;

struct Deployments {
    context: Context,
    marks: RevisionAnnotations,
    pods: Informer<Pod>,
    deployments: WriteTracker<Deployment>,
    sets: WriteTracker<ReplicaSet>,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::default();
    let context = context.of(context.client.clone(), "deployment-controller");
    let deployments = context.informer::<Deployment>();
    let (sets, pods) = (context.informer::<ReplicaSet>(), context.informer::<Pod>());
    let news = queue.clone();
    deployments.listen(move |change| news.add(change.key()));
    controller_ref::follow(&sets, &deployments, selector, &queue);
    controller_ref::index(&pods);
    pods.listen(awaited(deployments.clone(), sets.clone(), queue.clone()));
    deployments.synced().await;
    sets.synced().await;
    pods.synced().await;
    let this = Arc::new(Deployments {
        marks: RevisionAnnotations::new(&context.names),
        context,
        pods,
        deployments: WriteTracker::new(deployments),
        sets: WriteTracker::new(sets),
    });
    run::run(this, queue, workers).await;
}

fn selector(deployment: &Deployment) -> Option<Selector> {
    controller_ref::selector(deployment.spec.as_ref().map(|it| &it.selector))
}

/// Deployments that replace all pods at once wait until the last old one has ended.
fn awaited(
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    queue: Queue<Key>,
) -> impl Fn(&Change<'_, Pod>) {
    move |change| {
        if !change.is_deletion() && !is_finished(change.object()) {
            return;
        }
        let set =
            controller_ref::controller_key::<ReplicaSet>(&**change.object()).and_then(|key| sets.get(&key));
        let owner = set.and_then(|set| controller_ref::controller_key::<Deployment>(&*set));
        let owner = owner.and_then(|key| deployments.get(&key));
        if let Some(owner) = owner.filter(|it| !is_rolling(it)) {
            queue.add(Key::of(&*owner));
        }
    }
}

impl Reconcile for Deployments {
    type Key = Key;

    fn name(&self) -> &'static str {
        "deployment"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.deployments.seen(key).await?;
        self.sets.seen(key).await?;
        let Some(deployment) = self.deployments.informer().get(key) else { return Ok(Action::AwaitChange) };
        let Some(selector) = selector(&deployment) else { return Ok(Action::AwaitChange) };
        let mut draft = Draft::new(&deployment, self.context.time());
        if selector.selects_all() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.tell(&deployment, EventType::Warning, "SelectingAll", message);
            draft.status.observed_generation = deployment.metadata.generation;
            self.report(&draft, &deployment, None).await?;
            return Ok(Action::AwaitChange);
        }
        let claims = Claims {
            client: &self.context.client,
            written: &self.sets,
            finalizer: None,
            looked_at: |_| true,
        };
        let all = claims.claim(&*deployment, Some(&selector), |_| true).await?;
        let mut work = Work {
            limits: Limits::of(&deployment),
            sets: Sets::sorted(&deployment, all),
            revision: None,
            deployment: &deployment,
            draft,
        };
        if deployment.metadata.deletion_timestamp.is_some() {
            work.draft.count(&work.sets, &work.limits);
            self.report(&work.draft, &deployment, None).await?;
            return Ok(Action::AwaitChange);
        }
        work.draft.pause();
        let done = self.advance(&mut work).await;
        // what was begun is told even if not all of it went well
        self.report(&work.draft, &deployment, work.revision.as_ref()).await?;
        if done? {
            // it is looked at again when what it did is seen
            return Ok(Action::Requeue(Duration::ZERO));
        }
        Ok(work.draft.looks_again(&work.limits).map_or(Action::AwaitChange, Action::Requeue))
    }
}

/// A deployment while it is looked at.
struct Work<'a> {
    deployment: &'a Deployment,
    limits: Limits,
    sets: Sets,
    draft: Draft<'a>,
    /// The revision that the deployment has now.
    revision: Option<String>,
}

impl Deployments {
    /// Takes the next step and counts. Whether there was one.
    async fn advance(&self, work: &mut Work<'_>) -> Result<bool, Failure> {
        self.mark_new(work).await?;
        let is_there = |set: &ReplicaSet| {
            controller_ref::controlled(&self.pods, set).iter().any(|pod| !is_finished(pod))
        };
        let old_pods = !is_rolling(work.deployment) && work.sets.old.iter().any(|set| is_there(set));
        let view = View {
            deployment: work.deployment,
            sets: &work.sets,
            limits: &work.limits,
            marks: &self.marks,
            old_pods,
        };
        let (step, is_rollout) = plan::step(&view);
        let is_step = !matches!(step, Step::Rest);
        match step {
            Step::Rest => {}
            Step::Create(replicas) => self.create(work, replicas).await?,
            Step::Scale(moves) => {
                for one in moves {
                    self.scale(work, one).await?;
                }
            }
            Step::Forget(sets) => {
                for set in sets {
                    self.forget(work.deployment, &set).await?;
                }
            }
        }
        work.draft.count(&work.sets, &work.limits);
        if is_rollout {
            work.draft.progress(&work.sets, &work.limits);
        }
        Ok(is_step)
    }

    /// The set that has the deployment's template carries its revision and its annotations.
    async fn mark_new(&self, work: &mut Work<'_>) -> Result<(), Failure> {
        let Some(new) = work.sets.new.clone() else { return Ok(()) };
        let (deployment, next) = (work.deployment, self.marks.next(&work.sets.old));
        let least = deployment.spec.as_ref().and_then(|it| it.min_ready_seconds).unwrap_or(0);
        let mut annotations = new.annotations().clone();
        let changed = self.marks.revise(&mut annotations, deployment, next);
        if changed || new.min_ready_seconds() != least {
            let change = |set: &mut ReplicaSet| {
                self.marks.revise(set.annotations_mut(), deployment, next);
                if let Some(spec) = &mut set.spec {
                    spec.min_ready_seconds = Some(least);
                }
            };
            self.write(work, &new, change).await?;
        }
        if let Some(new) = &work.sets.new {
            work.revision = new.annotations().get(&self.marks.revision).cloned();
            work.draft.found(&new.name_any());
        }
        Ok(())
    }

    /// Changes a set; whether it was there.
    async fn write(
        &self,
        work: &mut Work<'_>,
        set: &ReplicaSet,
        change: impl Fn(&mut ReplicaSet) + Send + Sync,
    ) -> Result<bool, Failure> {
        let Some(written) = retry_on_conflict::object(&self.context.client, set, change).await? else {
            self.sets.deleted(&Key::of(work.deployment), set);
            return Ok(false);
        };
        self.sets.wrote(&Key::of(work.deployment), &written);
        work.sets.put(written);
        Ok(true)
    }

    async fn scale(&self, work: &mut Work<'_>, Move { set, to }: Move) -> Result<(), Failure> {
        let limits = work.limits;
        let change = |set: &mut ReplicaSet| {
            self.marks.size(set.annotations_mut(), &limits);
            if let Some(spec) = &mut set.spec {
                spec.replicas = Some(to);
            }
        };
        let is_there = self.write(work, &set, change).await?;
        let from = set.replicas();
        if is_there && from != to {
            let (way, name) = (if to > from { "up" } else { "down" }, set.name_any());
            let message = format!("Scaled {way} replica set {name} to {to} from {from}");
            self.tell(work.deployment, EventType::Normal, "ScalingReplicaSet", message);
        }
        Ok(())
    }

    async fn create(&self, work: &mut Work<'_>, replicas: i32) -> Result<(), Failure> {
        let (deployment, revision) = (work.deployment, self.marks.next(&work.sets.old));
        let Some(set) = self.new_set(deployment, &work.limits, replicas, revision) else { return Ok(()) };
        let (key, name) = (Key::of(deployment), set.name_any());
        let api = beside::<ReplicaSet>(&self.context.client, deployment);
        match api.create(&PostParams::default(), &set).await {
            Ok(made) => {
                if replicas > 0 {
                    let message = format!("Scaled up replica set {name} to {replicas}");
                    self.tell(deployment, EventType::Normal, "ScalingReplicaSet", message);
                }
                self.sets.wrote(&key, &made);
                work.sets.new = Some(Arc::new(made));
                work.revision = Some(revision.to_string());
                work.draft.created(&name);
                Ok(())
            }
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                let Some(there) = unless(404, api.get(&name).await)? else {
                    return Err(kube::Error::Api(answer).into());
                };
                let is_mine = controller_ref::is_controlled_by(&there, deployment)
                    && Sets::sorted(deployment, vec![Arc::new(there.clone())]).new.is_some();
                if is_mine {
                    // made before, and not seen yet
                    self.sets.wrote(&key, &there);
                } else {
                    work.draft.collided();
                }
                Ok(())
            }
            // nothing can be made any more, and nobody need be told
            Err(why) if is_terminating(&why) => Err(why.into()),
            Err(why) => {
                let why = Failure::from(why);
                let message = format!("Failed to create new replica set {name:?}: {}", why.message());
                self.tell(deployment, EventType::Warning, "ReplicaSetCreateError", message.clone());
                work.draft.not_created(message);
                Err(why)
            }
        }
    }

    /// A replica set with the deployment's template.
    fn new_set(
        &self,
        deployment: &Deployment,
        limits: &Limits,
        replicas: i32,
        revision: i64,
    ) -> Option<ReplicaSet> {
        let spec = deployment.spec.as_ref()?;
        let hash = template_hash(deployment);
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", deployment.name_any())),
                namespace: deployment.namespace(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(replicas),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        self.marks.revise(set.annotations_mut(), deployment, revision);
        self.marks.size(set.annotations_mut(), limits);
        Some(set)
    }

    async fn forget(&self, deployment: &Deployment, set: &ReplicaSet) -> Result<(), Failure> {
        let same = Preconditions { uid: set.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let api = beside::<ReplicaSet>(&self.context.client, set);
        unless(404, api.delete(&set.name_any(), &params).await)?;
        self.sets.deleted(&Key::of(deployment), set);
        Ok(())
    }

    fn tell(&self, deployment: &Deployment, tone: EventType, reason: &str, message: impl Into<String>) {
        self.context.events.tell(deployment, tone, reason, message);
    }

    /// Writes the status and the revision, if they are others than before.
    async fn report(
        &self,
        draft: &Draft<'_>,
        deployment: &Deployment,
        revision: Option<&String>,
    ) -> Result<(), Failure> {
        let marked = deployment.annotations().get(&self.marks.revision);
        if !draft.is_news() && (revision.is_none() || revision == marked) {
            return Ok(());
        }
        let change = |it: &mut Deployment| {
            it.status = Some(draft.status.clone());
            if let Some(revision) = revision {
                it.annotations_mut().insert(self.marks.revision.clone(), revision.clone());
            }
        };
        let written = retry_on_conflict::status(&self.context.client, deployment, change).await?;
        written.iter().for_each(|it| self.deployments.wrote(&Key::of(deployment), it));
        Ok(())
    }
}
