//! Volumes of FlexVolume drivers: their programs on this machine make them larger.
//!
//! ```text
//! claim  Resizing ──► FileSystemResizePending ──► (none)     Resizing ──► (none)
//! volume  new size, previous size in an annotation             new size
//!                     until the agent of a pod has grown      where no file system has to grow
//!                     the file system
//! ```
//!
//! A driver without a program here has nothing to do, and its file systems have to grow.

use super::{Expander, capacity};
use crate::volumes;
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use client::claim_expansion::{self, FILE_SYSTEM_RESIZE_PENDING, RESIZING};
use client::flex_volume::{CallError, FlexSource};
use client::{Action, Api, EventType, Failure, Patch};
use serde_json::{Value, json};

const PENDING: &str = "The file system grows when a node next has the volume for a pod.";

impl Expander {
    pub(super) async fn expand_flex(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        source: &FlexSource,
    ) -> Result<Action, Failure> {
        let requested = volumes::requested(claim);
        let current = capacity(claim).cloned().unwrap_or_default();
        let size = volumes::size(&volume.spec.capacity).cloned().unwrap_or_default();
        if current >= requested && current >= size {
            self.forget_previous_size(volume).await?;
            return Ok(Action::AwaitChange);
        }
        let is_larger = size >= requested;
        if is_larger && claim_expansion::is_at_step(claim, FILE_SYSTEM_RESIZE_PENDING) {
            return Ok(Action::AwaitChange);
        }
        let claims: Api<PersistentVolumeClaim> = Api::beside(&self.context.client, claim);
        let mut begun = claim_expansion::at_step(claim, self.condition(RESIZING, ""));
        begun["metadata"]["annotations"] = json!({ &self.keys.resizer: source.driver });
        let claim = claims.patch_status(claim.name(), &Patch::merge(begun)).await?;
        let name = format!("{}/{}", claim.namespace(), claim.name());
        let expanded = async {
            if !is_larger {
                self.call_expand(source, requested.whole(), current.whole()).await?;
            }
            self.resizes_filesystem(source).await
        };
        let resizes_filesystem = match expanded.await {
            Ok(resizes) => resizes && volume.spec.volume_mode.as_deref() != Some("Block"),
            Err(why) => {
                let driver = &source.driver;
                let message = format!("error expanding volume {name:?} of plugin {driver:?}: {why}");
                self.context.events.record(&claim, EventType::Warning, "VolumeResizeFailed", message.clone());
                return Err(Failure::Other(message));
            }
        };
        let mut grown = json!({"metadata": {"uid": volume.uid()}});
        if !is_larger {
            grown["spec"] = json!({"capacity": {volumes::STORAGE: requested.to_string()}});
        }
        if resizes_filesystem && !volume.metadata.annotations.contains_key(&self.keys.previous_size) {
            grown["metadata"]["annotations"] = json!({ &self.keys.previous_size: current.to_string() });
        }
        self.patch_volume(volume, grown).await?;
        let reached = if is_larger { size } else { requested };
        let status = match resizes_filesystem {
            true => claim_expansion::at_step(&claim, self.condition(FILE_SYSTEM_RESIZE_PENDING, PENDING)),
            false => claim_expansion::finished(&claim, &reached),
        };
        claims.patch_status(claim.name(), &Patch::merge(status)).await?;
        if !resizes_filesystem {
            let message = format!("ExpandVolume succeeded for volume {name}");
            self.context.events.record(&claim, EventType::Normal, "VolumeResizeSuccessful", message);
        }
        Ok(Action::AwaitChange)
    }

    async fn call_expand(&self, source: &FlexSource, to: i64, from: i64) -> Result<(), CallError> {
        match &self.programs {
            None => Ok(()),
            Some(programs) => match programs.expand(source, to, from).await {
                Ok(()) | Err(CallError::NoDriver) => Ok(()),
                Err(why) => Err(why),
            },
        }
    }

    async fn resizes_filesystem(&self, source: &FlexSource) -> Result<bool, CallError> {
        match &self.programs {
            None => Ok(true),
            Some(programs) => match programs.capabilities(&source.driver).await {
                Ok(capabilities) => Ok(capabilities.resizes_filesystem),
                Err(CallError::NoDriver) => Ok(true),
                Err(why) => Err(why),
            },
        }
    }

    async fn forget_previous_size(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let key = &self.keys.previous_size;
        if !volume.metadata.annotations.contains_key(key) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": volume.uid(), "annotations": {key: null}}});
        self.patch_volume(volume, patch).await
    }

    async fn patch_volume(&self, volume: &PersistentVolume, patch: Value) -> Result<(), Failure> {
        let volumes: Api<PersistentVolume> = Api::beside(&self.context.client, volume);
        volumes.patch(volume.name(), &Patch::merge(patch)).await?;
        Ok(())
    }

    fn condition(&self, step: &str, message: &str) -> Value {
        let now = self.context.time().to_string();
        json!({"type": step, "status": "True", "lastTransitionTime": now, "message": message})
    }
}
