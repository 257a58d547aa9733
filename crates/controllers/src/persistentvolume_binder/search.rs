//! Looking for a volume for a claim, and for a claim for a volume.

use super::bind::{self, VolumeQuery};
use super::binder::Binder;
use super::claim::{self, UnboundClaim, UnboundDecision};
use super::{listen, metrics};
use crate::pods::rank;
use crate::volumes::claims;
use client::{Action, Failure, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use std::sync::Arc;

/// Which volumes a claim wants, by their labels; all where it does not say.
fn selector(claim: &PersistentVolumeClaim) -> Option<Selector> {
    match claim.spec.as_ref().and_then(|it| it.selector.clone()) {
        None => Some(Selector::default()),
        Some(given) => given.try_into().ok(),
    }
}

impl Binder {
    pub(super) async fn search(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<Action, Failure> {
        let class = self.marks.class_of_claim(claim).filter(|it| !it.is_empty());
        let class = class.and_then(|name| self.classes.get(&Key::new("", name)));
        if let Some(volume) = self.set_aside(key, claim) {
            return self.bind_found(key, &volume, claim).await;
        }
        // whoever finds a place for the pod chooses a volume that can be had there
        if !claim::waits_for_pod(class.as_deref())
            && let Some(volume) = self.take(claim)
        {
            let bound = self.bind_found(key, &volume, claim).await;
            if bound.is_err() {
                self.put_back(&volume);
            }
            return bound;
        }
        let default_class = match self.context.gates.late_default_class {
            true if self.marks.class_of_claim(claim).is_none() => {
                claim::default_class(&self.classes.all(), &self.context.names)
            }
            _ => None,
        };
        let searched = UnboundClaim {
            claim,
            class: class.as_deref(),
            default_class: default_class.as_deref(),
            pods: self.pods_without_node(key),
            provisioning: self.options.provisioning,
        };
        match searched.decide(&self.marks, &self.context.names) {
            UnboundDecision::GiveClass(class) => {
                let mut next = claim.clone();
                next.spec.get_or_insert_default().storage_class_name = Some(class);
                let given = self.replace_claim(key, &next).await;
                metrics::gave_class(&self.context.metrics, given.is_ok());
                given.map(|_| Action::AwaitChange)
            }
            UnboundDecision::Provision { by, note } => {
                self.operations.provision(key, &by, self.context.world.elapsed());
                if let Some(next) = claim::provisioned_by(claim, &by, &self.marks) {
                    self.replace_claim(key, &next).await.inspect_err(|_| self.operations.failed(key))?;
                }
                self.context.events.note(claim, note);
                Ok(Action::Requeue(self.options.sync_period))
            }
            UnboundDecision::Wait(note) => self.wait(key, claim, note).await,
        }
    }

    /// Binds what was found, which may be what somebody was asked for.
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

    /// The volume that was made for a claim, or set aside for it.
    fn set_aside(&self, key: &Key, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let own = self.volumes.by(listen::BY_CLAIM, &key.to_string());
        let own = own.into_iter().filter(|it| bind::is_bound_to(it, claim));
        own.filter(|it| bind::is_usable(it, claim, &self.marks)).min_by_key(|it| it.name_any())
    }

    fn take(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let wish = VolumeQuery::of(claim, &self.marks);
        let selector = selector(claim)?;
        let volume = |name: &str| self.volumes.get(&Key::new("", name));
        let agrees = |name: &str| volume(name).is_some_and(|it| selector.matches(it.labels()));
        volume(&self.free_volumes.lock().take(&wish, agrees)?)
    }

    /// Somebody was faster, or the write failed: what the informer knows counts again.
    fn put_back(&self, volume: &PersistentVolume) {
        let mut free_volumes = self.free_volumes.lock();
        if let Some(now) = self.volumes.get(&Key::of(volume)) {
            free_volumes.file(&now, &self.marks);
        }
    }

    fn pods_without_node(&self, key: &Key) -> Vec<String> {
        let pods = claims::users(&self.pods, key);
        let mut names: Vec<_> =
            pods.iter().filter(|it| rank::node(it).is_none()).map(|it| it.name_any()).collect();
        names.sort();
        names
    }

    /// Of the claims that a free volume fits the one that has waited for longest is looked at.
    pub(super) fn wake(&self, volume: &PersistentVolume) {
        let waiting = self.claims.by(listen::WAITING, &listen::of_class(self.marks.class_of_volume(volume)));
        let fits = |claim: &Arc<PersistentVolumeClaim>| {
            bind::is_usable(volume, claim, &self.marks)
                && selector(claim).is_some_and(|it| it.matches(volume.labels()))
        };
        let oldest = waiting
            .into_iter()
            .filter(fits)
            .min_by_key(|it| (it.creation_timestamp().map(|at| at.0), Key::of(&**it)));
        oldest.iter().for_each(|claim| self.claim_queue.add(Key::of(&**claim)));
    }
}
