//! The deployment loop: pods of one template, which it replaces when the template changes, with one replica set per
//! template.
//!
//! A reconciliation claims the replica sets, takes the next step, which is a pure function of what exists, and writes
//! the status that follows. Always true: one step at a time, and the next only when the informer has seen this one; a
//! rollout keeps its [limits](plan) at every moment.

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
use crate::replicas::ReplicaKind;
use api::Resource;
use api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use api::core::v1::Pod;
use api::meta::v1::{DeleteOptions, ObjectMeta};
use apimachinery::labels::Selector;
use client::{
    Action, Api, Change, EventType, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating,
    retry_on_conflict, run, unless,
};
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
    annotations: RevisionAnnotations,
    pods: Informer<Pod>,
    deployments: WriteTracker<Deployment>,
    sets: WriteTracker<ReplicaSet>,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::new(&context.world);
    let context = context.of(context.client.clone(), "deployment-controller");
    let deployments = context.informer::<Deployment>();
    let (sets, pods) = (context.informer::<ReplicaSet>(), context.informer::<Pod>());
    let changed = queue.clone();
    deployments.listen(move |change| changed.add(change.key()));
    controller_ref::follow(&sets, &deployments, selector, &queue);
    controller_ref::index(&pods);
    pods.listen(queue_waiting(deployments.clone(), sets.clone(), queue.clone()));
    deployments.synced().await;
    sets.synced().await;
    pods.synced().await;
    let reconciler = Arc::new(Deployments {
        annotations: RevisionAnnotations::new(&context.names),
        context,
        pods,
        deployments: WriteTracker::new(deployments),
        sets: WriteTracker::new(sets),
    });
    run::run(reconciler, queue, workers).await;
}

fn selector(deployment: &Deployment) -> Option<Selector> {
    controller_ref::selector(deployment.spec.selector.as_deref())
}

/// Queues deployments with the strategy `Recreate`, which wait until the last old pod has finished.
fn queue_waiting(
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
        if selector.is_empty() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.record(&deployment, EventType::Warning, "SelectingAll", message);
            draft.status.observed_generation = deployment.metadata.generation;
            self.write_status(&draft, &deployment, None).await?;
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
            self.write_status(&work.draft, &deployment, None).await?;
            return Ok(Action::AwaitChange);
        }
        work.draft.pause();
        let advanced = self.advance(&mut work).await;
        // the status is written even if a part of the step failed
        self.write_status(&work.draft, &deployment, work.revision.as_ref()).await?;
        if advanced? {
            // continue when the informer has seen this step
            return Ok(Action::Requeue(Duration::ZERO));
        }
        Ok(work.draft.requeue_after(&work.limits).map_or(Action::AwaitChange, Action::Requeue))
    }
}

/// A deployment during its reconciliation.
struct Work<'a> {
    deployment: &'a Deployment,
    limits: Limits,
    sets: Sets,
    draft: Draft<'a>,
    /// The current revision of the deployment.
    revision: Option<String>,
}

impl Deployments {
    /// Takes the next step and counts pods. Returns whether there was a step.
    async fn advance(&self, work: &mut Work<'_>) -> Result<bool, Failure> {
        self.annotate_new(work).await?;
        let has_pods = |set: &ReplicaSet| {
            controller_ref::controlled(&self.pods, set).iter().any(|pod| !is_finished(pod))
        };
        let old_pods = !is_rolling(work.deployment) && work.sets.old.iter().any(|set| has_pods(set));
        let view = View {
            deployment: work.deployment,
            sets: &work.sets,
            limits: &work.limits,
            annotations: &self.annotations,
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
            Step::Cleanup(sets) => {
                for set in sets {
                    self.delete(work.deployment, &set).await?;
                }
            }
        }
        work.draft.count(&work.sets, &work.limits);
        if is_rollout {
            work.draft.progress(&work.sets, &work.limits);
        }
        Ok(is_step)
    }

    /// Puts the deployment's revision and annotations on the set that has its template.
    async fn annotate_new(&self, work: &mut Work<'_>) -> Result<(), Failure> {
        let Some(new) = work.sets.new.clone() else { return Ok(()) };
        let (deployment, next) = (work.deployment, self.annotations.next(&work.sets.old));
        let min_ready_seconds = deployment.spec.min_ready_seconds;
        let mut annotations = new.metadata.annotations.clone();
        let changed = self.annotations.revise(&mut annotations, deployment, next);
        if changed || new.spec.min_ready_seconds != min_ready_seconds {
            let change = |set: &mut ReplicaSet| {
                self.annotations.revise(&mut set.metadata.annotations, deployment, next);
                set.spec.min_ready_seconds = min_ready_seconds;
            };
            self.write(work, &new, change).await?;
        }
        if let Some(new) = &work.sets.new {
            work.revision = new.metadata.annotations.get(&self.annotations.revision).cloned();
            work.draft.found(new.name());
        }
        Ok(())
    }

    /// Changes a set. Returns whether it existed.
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
            self.annotations.size(&mut set.metadata.annotations, &limits);
            set.spec.replicas = Some(to);
        };
        let existed = self.write(work, &set, change).await?;
        let from = set.replicas();
        if existed && from != to {
            let (way, name) = (if to > from { "up" } else { "down" }, set.name());
            let message = format!("Scaled {way} replica set {name} to {to} from {from}");
            self.record(work.deployment, EventType::Normal, "ScalingReplicaSet", message);
        }
        Ok(())
    }

    async fn create(&self, work: &mut Work<'_>, replicas: i32) -> Result<(), Failure> {
        let (deployment, revision) = (work.deployment, self.annotations.next(&work.sets.old));
        let set = self.new_set(deployment, &work.limits, replicas, revision);
        let (key, name) = (Key::of(deployment), set.name());
        let api = Api::<ReplicaSet>::beside(&self.context.client, deployment);
        match api.create(&set).await {
            Ok(created) => {
                if replicas > 0 {
                    let message = format!("Scaled up replica set {name} to {replicas}");
                    self.record(deployment, EventType::Normal, "ScalingReplicaSet", message);
                }
                self.sets.wrote(&key, &created);
                work.sets.new = Some(Arc::new(created));
                work.revision = Some(revision.to_string());
                work.draft.created(name);
                Ok(())
            }
            Err(why) if why.is_conflict() => {
                let Some(existing) = api.get_opt(name).await? else { return Err(why.into()) };
                let is_own = controller_ref::is_controlled_by(&existing, deployment)
                    && sets::is_same(&existing.spec.template, &deployment.spec.template);
                if is_own {
                    // created earlier, and not in the informer yet
                    self.sets.wrote(&key, &existing);
                } else {
                    work.draft.collided();
                }
                Ok(())
            }
            // nothing can be created any more; no event either
            Err(why) if is_terminating(&why) => Err(why.into()),
            Err(why) => {
                let why = Failure::from(why);
                let message = format!("Failed to create new replica set {name:?}: {}", why.message());
                self.record(deployment, EventType::Warning, "ReplicaSetCreateError", message.clone());
                work.draft.not_created(message);
                Err(why)
            }
        }
    }

    /// A replica set with the deployment's template.
    fn new_set(&self, deployment: &Deployment, limits: &Limits, replicas: i32, revision: i64) -> ReplicaSet {
        let hash = template_hash(deployment);
        let mut template = deployment.spec.template.clone();
        template.metadata.labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = template.metadata.labels.clone();
        let mut selector = deployment.spec.selector.clone().unwrap_or_default();
        selector.match_labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: format!("{}-{hash}", deployment.name()),
                namespace: deployment.namespace().to_owned(),
                labels,
                owner_references: vec![controller_reference(deployment)],
                ..ObjectMeta::default()
            },
            spec: ReplicaSetSpec {
                replicas: Some(replicas),
                min_ready_seconds: deployment.spec.min_ready_seconds,
                selector: Some(selector),
                template,
                ..ReplicaSetSpec::default()
            },
            ..ReplicaSet::default()
        };
        self.annotations.revise(&mut set.metadata.annotations, deployment, revision);
        self.annotations.size(&mut set.metadata.annotations, limits);
        set
    }

    async fn delete(&self, deployment: &Deployment, set: &ReplicaSet) -> Result<(), Failure> {
        let preconditions = Some(client::of_uid(set.uid()).into());
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        let api = Api::<ReplicaSet>::beside(&self.context.client, set);
        unless(404, api.delete(set.name(), &options).await)?;
        self.sets.deleted(&Key::of(deployment), set);
        Ok(())
    }

    fn record(&self, deployment: &Deployment, tone: EventType, reason: &str, message: impl Into<String>) {
        self.context.events.record(deployment, tone, reason, message);
    }

    /// Writes the status and the revision if they changed.
    async fn write_status(
        &self,
        draft: &Draft<'_>,
        deployment: &Deployment,
        revision: Option<&String>,
    ) -> Result<(), Failure> {
        let previous = deployment.metadata.annotations.get(&self.annotations.revision);
        if !draft.is_changed() && (revision.is_none() || revision == previous) {
            return Ok(());
        }
        let change = |it: &mut Deployment| {
            it.status = draft.status.clone();
            if let Some(revision) = revision {
                it.metadata.annotations.insert(self.annotations.revision.clone(), revision.clone());
            }
        };
        let written = retry_on_conflict::status(&self.context.client, deployment, change).await?;
        written.iter().for_each(|it| self.deployments.wrote(&Key::of(deployment), it));
        Ok(())
    }
}
