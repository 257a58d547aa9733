//! Binds claims to volumes.
//!
//! ```text
//! claim ──volumeName──► volume      with both references the binding is complete, and the claim is annotated for good
//!   ▲                     │
//!   └──────claimRef───────┘         the volume is written first: the claim that it refers to has it
//! ```
//!
//! Both writes are at the resource version that the decision was made from, so a volume never has two claims, and the
//! next reconciliation completes a binding that was interrupted. Before a claim is set to `Lost` or a volume is
//! released, the missing object is read from the server. External drivers provision and delete volumes; the binder
//! annotates claims and sets phases for them.
//!
//! A pending claim is reconciled when a volume or class that may fit appears, and every `sync_period`.

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
use crate::volumes::AnnotationKeys;
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use api::storage::v1::StorageClass;
use binder::Binder;
use client::{Action, Api, Failure, Key, Note, Queue, Reconcile, WriteTracker, run};
use metrics::OperationMetrics;
use std::sync::Arc;
use volume::VolumeDecision;

/// The reconciler of claims.
struct Claims(Arc<Binder>);

/// The reconciler of volumes.
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
        keys: AnnotationKeys::new(&context.names),
        operations: Arc::new(OperationMetrics::new(&context.metrics)),
        options,
        free_volumes: Arc::default(),
        claim_queue: Queue::new(&context.world),
        wrote_claims: WriteTracker::new(claims.clone()),
        wrote_volumes: WriteTracker::new(volumes.clone()),
        claims,
        volumes,
        classes,
        pods,
        context,
    });
    let volume_queue = Queue::<Key>::new(&binder.context.world);
    listen::listen(&binder, &volume_queue);
    let (metrics, names) = (&binder.context.metrics, &binder.context.names);
    metrics::register(metrics, &binder.claims, &binder.volumes, &binder.keys, names);
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
        match binder.reconcile_claim(key, &claim).await {
            // the claim or its volume is gone
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
        match self.reconcile_volume(key, &volume).await {
            Err(why) if !why.is(404) => Err(why),
            _ => Ok(Action::AwaitChange),
        }
    }
}

impl Binder {
    async fn reconcile_claim(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<Action, Failure> {
        use claim::Decision;
        let named = self.named_volume(claim).await?;
        match claim::decide(claim, named.as_ref(), &self.keys) {
            Decision::Bind(volume) => self.bind(key, &volume, claim).await.map(|()| Action::AwaitChange),
            Decision::Search => self.search(key, claim).await,
            Decision::Wait(note) => self.wait(key, claim, note).await,
            Decision::Lost(note) => {
                if claim.status.phase != "Lost" {
                    self.set_claim_phase(key, claim, "Lost", None).await?;
                    self.context.events.note(claim, note);
                }
                Ok(Action::AwaitChange)
            }
            Decision::Broken(why) => Err(Failure::Other(why)),
        }
    }

    /// The volume that a claim names. If its binding is complete, a missing volume is read from the server, too.
    async fn named_volume(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<Arc<PersistentVolume>>, Failure> {
        let name = &claim.spec.volume_name;
        let cached = self.volumes.get(&Key::new("", name));
        let is_bound = claim.metadata.annotations.contains_key(&self.keys.bind_completed);
        if cached.is_some() || name.is_empty() || !is_bound {
            return Ok(cached);
        }
        let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
        Ok(volumes.get_opt(name).await?.map(Arc::new))
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
        self.set_claim_phase(key, claim, "Pending", None).await?;
        Ok(Action::Requeue(self.options.sync_period))
    }

    /// The claim of a volume's `claimRef`, if it exists with the same uid. A missing claim is read from the server,
    /// too, before the volume is released.
    async fn referenced_claim(
        &self,
        volume: &PersistentVolume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Failure> {
        let Some(reference) = &volume.spec.claim_ref else { return Ok(None) };
        let (namespace, name) = (&reference.namespace, &reference.name);
        if namespace.is_empty() || name.is_empty() {
            return Ok(None);
        }
        let is_same = |claim: &PersistentVolumeClaim| claim.uid() == reference.uid;
        let cached = self.claims.get(&Key::new(namespace, name)).filter(|claim| is_same(claim));
        if cached.is_some() || matches!(&*volume.status.phase, "Released" | "Failed") {
            return Ok(cached);
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(&self.context.client, namespace);
        Ok(claims.get_opt(name).await?.filter(is_same).map(Arc::new))
    }
}

impl Volumes {
    async fn reconcile_volume(&self, key: &Key, volume: &PersistentVolume) -> Result<(), Failure> {
        let binder = &self.binder;
        let claim = binder.referenced_claim(volume).await?;
        match volume::decide(volume, claim.as_deref(), &binder.keys) {
            VolumeDecision::Free if bind::is_free(volume) => binder.offer(volume),
            VolumeDecision::Free => self.set_phase(key, volume, "Available").await?,
            VolumeDecision::Bound => self.set_phase(key, volume, "Bound").await?,
            VolumeDecision::ReconcileClaim => {
                claim.iter().for_each(|it| binder.claim_queue.add(Key::of(&**it)))
            }
            VolumeDecision::Mismatch(notes) => {
                let (of_volume, of_claim) = *notes;
                binder.context.events.note(volume, of_volume);
                if let Some(claim) = claim {
                    binder.context.events.note(&*claim, of_claim);
                }
            }
            VolumeDecision::Release => self.release(key, volume).await?,
            VolumeDecision::Unbind => {
                let free = bind::unbind_volume(volume, &binder.keys);
                let free = binder.replace_volume(&self.wrote, key, &free).await?;
                self.set_phase(key, &free, "Available").await?;
            }
        }
        Ok(())
    }

    async fn set_phase(&self, key: &Key, volume: &PersistentVolume, phase: &str) -> Result<(), Failure> {
        self.binder.set_volume_phase(&self.wrote, key, volume, phase, "").await.map(drop)
    }

    /// Reclaims a volume. One that failed keeps its phase and message.
    async fn release(&self, key: &Key, volume: &PersistentVolume) -> Result<(), Failure> {
        let binder = &self.binder;
        if volume.status.phase == "Failed" {
            return Ok(());
        }
        let released = binder.set_volume_phase(&self.wrote, key, volume, "Released", "").await?;
        let names = &binder.context.names;
        let note = volume::reclaim_failure(volume, &binder.keys, names);
        if volume::is_to_be_deleted(volume, &binder.keys) {
            let class = binder.classes.get(&Key::new("", binder.keys.class_of_volume(volume)));
            let driver = metrics::deleter(class.as_deref().filter(|_| note.is_none()), names);
            binder.operations.delete(key, &driver, binder.context.world.elapsed());
        }
        let Some(note) = note else { return Ok(()) };
        binder.operations.failed(key);
        binder.set_volume_phase(&self.wrote, key, &released, "Failed", &note.message).await?;
        binder.context.events.note(&*released, note);
        Ok(())
    }
}
