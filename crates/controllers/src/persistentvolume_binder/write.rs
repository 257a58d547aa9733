//! Writes claims and volumes, each at the resource version that the decision was made from; a conflict is retried.

use super::bind;
use super::binder::Binder;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use client::{Api, Failure, Key, WriteTracker};
use std::borrow::Cow;

impl Binder {
    /// Writes the missing parts of a binding, in an order in which it can be interrupted at any point.
    pub(super) async fn bind(
        &self,
        key: &Key,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), Failure> {
        let wrote = &self.wrote_volumes;
        let volume = match bind::bind_volume(volume, claim, &self.keys) {
            None => Cow::Borrowed(volume),
            Some(next) => Cow::Owned(self.replace_volume(wrote, key, &next).await?),
        };
        let volume = self.set_volume_phase(wrote, key, &volume, "Bound", "").await?;
        let claim = match bind::bind_claim(claim, &volume, &self.keys) {
            None => Cow::Borrowed(claim),
            Some(next) => Cow::Owned(self.replace_claim(key, &next).await?),
        };
        self.set_claim_phase(key, &claim, "Bound", Some(&volume)).await
    }

    pub(super) async fn replace_claim(
        &self,
        key: &Key,
        next: &PersistentVolumeClaim,
    ) -> Result<PersistentVolumeClaim, Failure> {
        let claims: Api<PersistentVolumeClaim> = Api::beside(&self.context.client, next);
        let written = claims.replace(next).await?;
        self.wrote_claims.wrote(key, &written);
        Ok(written)
    }

    pub(super) async fn set_claim_phase(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<(), Failure> {
        if let Some(next) = bind::claim_in_phase(claim, phase, volume).map_err(Failure::Other)? {
            let claims: Api<PersistentVolumeClaim> = Api::beside(&self.context.client, claim);
            let written = claims.replace_status(&next).await?;
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
        let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
        let written = volumes.replace(next).await?;
        wrote.wrote(key, &written);
        Ok(written)
    }

    /// Returns the volume as it was written.
    pub(super) async fn set_volume_phase<'v>(
        &self,
        wrote: &WriteTracker<PersistentVolume>,
        key: &Key,
        volume: &'v PersistentVolume,
        phase: &str,
        message: &str,
    ) -> Result<Cow<'v, PersistentVolume>, Failure> {
        let Some(next) = bind::volume_in_phase(volume, phase, message) else {
            return Ok(Cow::Borrowed(volume));
        };
        let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
        let written = volumes.replace_status(&next).await?;
        wrote.wrote(key, &written);
        Ok(Cow::Owned(written))
    }
}
