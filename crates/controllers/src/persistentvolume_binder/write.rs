//! Writing claims and volumes, each as it was looked at: whoever was faster is looked at first.

use super::bind;
use super::binder::Binder;
use client::retry_on_conflict::beside;
use client::{Failure, Key, WriteTracker};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use std::borrow::Cow;

fn body(object: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    Ok(serde_json::to_vec(object).map_err(kube::Error::SerdeError)?)
}

impl Binder {
    /// Writes what is missing of a binding, in an order in which it can be cut off anywhere.
    pub(super) async fn bind(
        &self,
        key: &Key,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), Failure> {
        let wrote = &self.wrote_volumes;
        let volume = match bind::volume_to(volume, claim, &self.marks) {
            None => Cow::Borrowed(volume),
            Some(next) => Cow::Owned(self.replace_volume(wrote, key, &next).await?),
        };
        let volume = self.volume_in(wrote, key, &volume, "Bound", "").await?;
        let claim = match bind::claim_to(claim, &volume, &self.marks) {
            None => Cow::Borrowed(claim),
            Some(next) => Cow::Owned(self.replace_claim(key, &next).await?),
        };
        self.claim_in(key, &claim, "Bound", Some(&volume)).await
    }

    pub(super) async fn replace_claim(
        &self,
        key: &Key,
        next: &PersistentVolumeClaim,
    ) -> Result<PersistentVolumeClaim, Failure> {
        let api = beside::<PersistentVolumeClaim>(&self.context.client, next);
        let written = api.replace(&next.name_any(), &PostParams::default(), next).await?;
        self.wrote_claims.wrote(key, &written);
        Ok(written)
    }

    pub(super) async fn claim_in(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<(), Failure> {
        if let Some(next) = bind::claim_in(claim, phase, volume).map_err(Failure::Other)? {
            let api = beside::<PersistentVolumeClaim>(&self.context.client, claim);
            let written = api.replace_status(&claim.name_any(), &PostParams::default(), body(&next)?).await?;
            self.wrote_claims.wrote(key, &written);
        }
        Ok(())
    }

    pub(super) async fn replace_volume(
        &self,
        wrote: &WriteTracker<PersistentVolume>,
        key: &Key,
        next: &PersistentVolume,
    ) -> Result<PersistentVolume, Failure> {
        let api: Api<PersistentVolume> = Api::all(self.context.client.clone());
        let written = api.replace(&next.name_any(), &PostParams::default(), next).await?;
        wrote.wrote(key, &written);
        Ok(written)
    }

    /// The volume as it is then.
    pub(super) async fn volume_in<'v>(
        &self,
        wrote: &WriteTracker<PersistentVolume>,
        key: &Key,
        volume: &'v PersistentVolume,
        phase: &str,
        message: &str,
    ) -> Result<Cow<'v, PersistentVolume>, Failure> {
        let Some(next) = bind::volume_in(volume, phase, message) else { return Ok(Cow::Borrowed(volume)) };
        let api: Api<PersistentVolume> = Api::all(self.context.client.clone());
        let written = api.replace_status(&next.name_any(), &PostParams::default(), body(&next)?).await?;
        wrote.wrote(key, &written);
        Ok(Cow::Owned(written))
    }
}
