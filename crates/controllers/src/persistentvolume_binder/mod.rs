//! Claims and volumes find each other.
//!
//! ```text
//! claim ──names──► volume      both ways round the binding is complete, and is marked on the claim for good
//!   ▲                │
//!   └────refers──────┘         the volume refers to the claim first: whoever wrote that has the volume
//! ```
//!
//! What always holds: the volume is written before the claim, and both name the revision that was looked at, so that a
//! volume never has two claims, and a crash in between is mended by whoever looks next. Before something is given up for
//! lost or released the server was asked whether it is really gone. Volumes are made and removed by others: here
//! they are asked to.
//!
//! A claim that waits is looked at when something comes that may fit, and else every now and then.

mod bind;
mod binder;
mod claim;
mod free_volumes;
mod listen;
mod metrics;
mod search;
mod volume;
mod write;

pub use binder::Options;

use crate::Context;
use crate::volumes::{self, AnnotationKeys};
use binder::Binder;
use client::events::Note;
use client::{Action, Failure, Key, Queue, Reconcile, WriteTracker, run, unless};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::Api;
use metrics::OperationMetrics;
use std::sync::Arc;
use volume::VolumeDecision;

/// The loop over claims.
struct Claims(Arc<Binder>);

/// The loop over volumes.
struct Volumes {
    binder: Arc<Binder>,
    wrote: WriteTracker<PersistentVolume>,
}

pub async fn run(context: Context, options: Options) {
    let context = context.of(context.client.clone(), "persistentvolume-controller");
    let (claims, volumes) =
        (context.informer::<PersistentVolumeClaim>(), context.informer::<PersistentVolume>());
    let (classes, pods) = (context.informer::<StorageClass>(), context.informer::<Pod>());
    let binder = Arc::new(Binder {
        marks: AnnotationKeys::new(&context.names),
        operations: Arc::new(OperationMetrics::new(&context.metrics)),
        options,
        free_volumes: Arc::default(),
        claim_queue: Queue::default(),
        wrote_claims: WriteTracker::new(claims.clone()),
        wrote_volumes: WriteTracker::new(volumes.clone()),
        claims,
        volumes,
        classes,
        pods,
        context,
    });
    let volume_queue = Queue::<Key>::default();
    listen::listen(&binder, &volume_queue);
    let (metrics, names) = (&binder.context.metrics, &binder.context.names);
    metrics::show(metrics, &binder.claims, &binder.volumes, &binder.marks, names);
    tokio::join!(
        binder.claims.synced(),
        binder.volumes.synced(),
        binder.classes.synced(),
        binder.pods.synced()
    );
    let claim_queue = binder.claim_queue.clone();
    let wrote = WriteTracker::new(binder.volumes.clone());
    let of_volumes =
        run::run(Arc::new(Volumes { binder: binder.clone(), wrote }), volume_queue, run::WORKERS);
    tokio::join!(run::run(Arc::new(Claims(binder)), claim_queue, run::WORKERS), of_volumes);
}

impl Reconcile for Claims {
    type Key = Key;

    fn name(&self) -> &'static str {
        "persistentvolume-binder"
    }

    fn queue_name(&self) -> &'static str {
        "claims"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let binder = &self.0;
        binder.wrote_claims.seen(key).await?;
        binder.wrote_volumes.seen(key).await?;
        let Some(claim) = binder.claims.get(key) else { return Ok(Action::AwaitChange) };
        match binder.claim(key, &claim).await {
            // it is gone, or its volume is
            Err(why) if why.is(404) => Ok(Action::Requeue(binder.options.sync_period)),
            answer => answer,
        }
    }
}

impl Reconcile for Volumes {
    type Key = Key;

    fn name(&self) -> &'static str {
        "persistentvolume-binder"
    }

    fn queue_name(&self) -> &'static str {
        "volumes"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.wrote.seen(key).await?;
        let Some(volume) = self.binder.volumes.get(key) else { return Ok(Action::AwaitChange) };
        match self.volume(key, &volume).await {
            Err(why) if !why.is(404) => Err(why),
            _ => Ok(Action::AwaitChange),
        }
    }
}

impl Binder {
    async fn claim(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<Action, Failure> {
        use claim::Decision;
        let named = self.named(claim).await?;
        match claim::decide(claim, named.as_ref(), &self.marks) {
            Decision::Bind(volume) => self.bind(key, &volume, claim).await.map(|()| Action::AwaitChange),
            Decision::Search => self.search(key, claim).await,
            Decision::Wait(note) => self.wait(key, claim, note).await,
            Decision::Lost(note) => {
                if volumes::claim_phase(claim) != "Lost" {
                    self.claim_in(key, claim, "Lost", None).await?;
                    self.context.events.note(claim, note);
                }
                Ok(Action::AwaitChange)
            }
            Decision::Broken(why) => Err(Failure::Other(why)),
        }
    }

    /// The volume that a claim names. For one that it had already the server is asked, too.
    async fn named(&self, claim: &PersistentVolumeClaim) -> Result<Option<Arc<PersistentVolume>>, Failure> {
        let name = volumes::volume_name(claim);
        let seen = self.volumes.get(&Key::new("", name));
        if seen.is_some() || name.is_empty() || !claim.annotations().contains_key(&self.marks.bind_completed)
        {
            return Ok(seen);
        }
        let volumes: Api<PersistentVolume> = Api::all(self.context.client.clone());
        Ok(unless(404, volumes.get(name).await)?.map(Arc::new))
    }

    async fn wait(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        note: Option<Note>,
    ) -> Result<Action, Failure> {
        if let Some(note) = note {
            self.context.events.note(claim, note);
        }
        self.claim_in(key, claim, "Pending", None).await?;
        Ok(Action::Requeue(self.options.sync_period))
    }

    /// The claim that a volume refers to, if it is there and is the same. Before a volume is released for lack of it the
    /// server is asked.
    async fn holder(&self, volume: &PersistentVolume) -> Result<Option<Arc<PersistentVolumeClaim>>, Failure> {
        let Some(holder) = bind::claim_ref(volume) else { return Ok(None) };
        let (Some(namespace), Some(name)) = (&holder.namespace, &holder.name) else { return Ok(None) };
        let is_same = |claim: &PersistentVolumeClaim| claim.metadata.uid == holder.uid;
        let seen = self.claims.get(&Key::new(namespace, name)).filter(|claim| is_same(claim));
        if seen.is_some() || matches!(volumes::volume_phase(volume), "Released" | "Failed") {
            return Ok(seen);
        }
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.context.client.clone(), namespace);
        Ok(unless(404, claims.get(name).await)?.filter(is_same).map(Arc::new))
    }
}

impl Volumes {
    async fn volume(&self, key: &Key, volume: &PersistentVolume) -> Result<(), Failure> {
        let binder = &self.binder;
        let claim = binder.holder(volume).await?;
        match volume::decide(volume, claim.as_deref(), &binder.marks) {
            VolumeDecision::Free if bind::is_free(volume) => binder.wake(volume),
            VolumeDecision::Free => self.phase(key, volume, "Available").await?,
            VolumeDecision::Bound => self.phase(key, volume, "Bound").await?,
            VolumeDecision::AskClaim => claim.iter().for_each(|it| binder.claim_queue.add(Key::of(&**it))),
            VolumeDecision::Mismatch(notes) => {
                let (of_volume, of_claim) = *notes;
                binder.context.events.note(volume, of_volume);
                if let Some(claim) = claim {
                    binder.context.events.note(&*claim, of_claim);
                }
            }
            VolumeDecision::Release => self.release(key, volume).await?,
            VolumeDecision::Unbind => {
                let free = bind::unbound(volume, &binder.marks);
                let free = binder.replace_volume(&self.wrote, key, &free).await?;
                self.phase(key, &free, "Available").await?;
            }
        }
        Ok(())
    }

    async fn phase(&self, key: &Key, volume: &PersistentVolume, phase: &str) -> Result<(), Failure> {
        self.binder.volume_in(&self.wrote, key, volume, phase, "").await.map(drop)
    }

    /// What is wrong stays to be seen, so a volume that failed is not said to be released again.
    async fn release(&self, key: &Key, volume: &PersistentVolume) -> Result<(), Failure> {
        let binder = &self.binder;
        if volumes::volume_phase(volume) == "Failed" {
            return Ok(());
        }
        let released = binder.volume_in(&self.wrote, key, volume, "Released", "").await?;
        let names = &binder.context.names;
        let note = volume::not_reclaimed(volume, &binder.marks, names);
        if volume::is_to_be_deleted(volume, &binder.marks) {
            let class = binder.classes.get(&Key::new("", binder.marks.class_of_volume(volume)));
            let by = metrics::remover(class.as_deref().filter(|_| note.is_none()), names);
            binder.operations.delete(key, &by, binder.context.world.elapsed());
        }
        let Some(note) = note else { return Ok(()) };
        binder.operations.failed(key);
        binder.volume_in(&self.wrote, key, &released, "Failed", &note.message).await?;
        binder.context.events.note(&*released, note);
        Ok(())
    }
}
