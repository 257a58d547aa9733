//! Searches a volume for a claim, and a claim for a volume.

use super::bind::{self, VolumeQuery};
use super::binder::Binder;
use super::claim::{self, UnboundClaim, UnboundDecision};
use super::{listen, metrics};
use crate::volumes::claims;
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use apimachinery::labels::Selector;
use client::{Action, Failure, Key};
use std::sync::Arc;

/// The selector of a claim for labels of volumes; without one it matches all. `None` if it is invalid.
fn selector(claim: &PersistentVolumeClaim) -> Option<Selector> {
    let selector = claim.spec.selector.as_deref().cloned().unwrap_or_default();
    Selector::try_from(&selector).ok()
}

impl Binder {
    pub(super) async fn search(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<Action, Failure> {
        let class = self.keys.class_of_claim(claim).filter(|it| !it.is_empty());
        let class = class.and_then(|name| self.classes.get(&Key::new("", name)));
        if let Some(volume) = self.reserved_volume(key, claim) {
            return self.bind_found(key, &volume, claim).await;
        }
        // the scheduler chooses a volume that the pod's node can reach
        if !claim::waits_for_pod(class.as_deref())
            && let Some(volume) = self.take_free_volume(claim)
        {
            let bound = self.bind_found(key, &volume, claim).await;
            if bound.is_err() {
                self.put_back(&volume);
            }
            return bound;
        }
        let default_class = match self.context.gates.late_default_class {
            true if self.keys.class_of_claim(claim).is_none() => {
                claim::default_class(&self.classes.all(), &self.context.names)
            }
            _ => None,
        };
        let unbound = UnboundClaim {
            claim,
            class: class.as_deref(),
            default_class: default_class.as_deref(),
            pods: self.pods_without_node(key),
            provisioning: self.options.provisioning,
        };
        match unbound.decide(&self.keys, &self.context.names) {
            UnboundDecision::GiveClass(class) => {
                let mut next = claim.clone();
                next.spec.storage_class_name = Some(class);
                let written = self.replace_claim(key, &next).await;
                metrics::count_late_class(&self.context.metrics, written.is_ok());
                written.map(|_| Action::AwaitChange)
            }
            UnboundDecision::Provision { by, note } => {
                self.operations.provision(key, &by, self.context.world.elapsed());
                if let Some(next) = claim::provisioned_by(claim, &by, &self.keys) {
                    self.replace_claim(key, &next).await.inspect_err(|_| self.operations.failed(key))?;
                }
                self.context.events.note(claim, note);
                Ok(Action::Requeue(self.options.sync_period))
            }
            UnboundDecision::Wait(note) => self.wait(key, claim, note).await,
        }
    }

    /// Binds a claim to a volume, and ends its provisioning if there was one.
    async fn bind_found(
        &self,
        key: &Key,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<Action, Failure> {
        let bound = self.bind(key, volume, claim).await;
        match &bound {
            Ok(()) => self.operations.done(key, self.context.world.elapsed()),
            Err(_) => self.operations.failed(key),
        }
        bound.map(|()| Action::AwaitChange)
    }

    /// The volume that was provisioned or reserved for a claim.
    fn reserved_volume(&self, key: &Key, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let own = self.volumes.by(listen::BY_CLAIM, &key.to_string());
        let own = own.into_iter().filter(|it| bind::is_bound_to(it, claim));
        let usable = own.filter(|it| bind::is_usable(it, claim, &self.keys));
        usable.min_by(|one, other| one.name().cmp(other.name()))
    }

    fn take_free_volume(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let query = VolumeQuery::of(claim, &self.keys);
        let selector = selector(claim)?;
        let volume = |name: &str| self.volumes.get(&Key::new("", name));
        let is_selected = |name: &str| volume(name).is_some_and(|it| selector.matches(&it.metadata.labels));
        volume(&self.free_volumes.lock().take(&query, is_selected)?)
    }

    /// Undoes [`Self::take_free_volume`] after a failed write: the volume is free again if the informer has it so.
    fn put_back(&self, volume: &PersistentVolume) {
        let mut free_volumes = self.free_volumes.lock();
        if let Some(now) = self.volumes.get(&Key::of(volume)) {
            free_volumes.update(&now, &self.keys);
        }
    }

    fn pods_without_node(&self, key: &Key) -> Vec<String> {
        let pods = claims::users(&self.pods, key);
        let unscheduled = pods.iter().filter(|it| it.spec.node_name.is_empty());
        let mut names: Vec<_> = unscheduled.map(|it| it.name().to_owned()).collect();
        names.sort();
        names
    }

    /// Adds the oldest pending claim that a free volume fits to the queue.
    pub(super) fn offer(&self, volume: &PersistentVolume) {
        let pending = self.claims.by(listen::PENDING, &listen::class_key(self.keys.class_of_volume(volume)));
        let fits = |claim: &Arc<PersistentVolumeClaim>| {
            bind::is_usable(volume, claim, &self.keys)
                && selector(claim).is_some_and(|it| it.matches(&volume.metadata.labels))
        };
        let oldest = pending
            .into_iter()
            .filter(fits)
            .min_by_key(|it| (it.metadata.creation_timestamp, Key::of(&**it)));
        oldest.iter().for_each(|claim| self.claim_queue.add(Key::of(&**claim)));
    }
}
