//! Pods that loops make from templates and remove again: what replica sets, jobs, daemon sets and stateful sets share.

pub mod placed;
pub mod rank;
pub mod remove;
pub mod slow_start;
pub mod state;
pub mod template;
pub mod tolerate;

pub use slow_start::slow_start;

use crate::events::Tone;
use crate::rewrite::{Kept, beside};
use crate::{Context, Failure, Key, Written, is_terminating, unless};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};

/// Makes and removes pods in the name of owners, tells of it, and remembers it.
pub struct Pods {
    context: Context,
    written: Written<Pod>,
}

impl Pods {
    pub fn new(context: Context) -> Self {
        let written = Written::new(context.informer::<Pod>());
        Pods { context, written }
    }

    pub fn written(&self) -> &Written<Pod> {
        &self.written
    }

    /// Makes a pod for an owner. Nothing where the namespace is going away: what is refused then is refused for good.
    pub async fn create<O: Kept>(&self, owner: &O, pod: &Pod) -> Result<Option<Pod>, Failure> {
        let tell = |tone, reason, message| self.context.events.tell(owner, tone, reason, message);
        if pod.labels().is_empty() {
            return Err(Failure::Other("unable to create pods, no labels".to_owned()));
        }
        match beside::<Pod>(&self.context.client, owner).create(&PostParams::default(), pod).await {
            Ok(made) => {
                tell(Tone::Normal, "SuccessfulCreate", format!("Created pod: {}", made.name_any()));
                self.written.wrote(&Key::of(owner), &made);
                Ok(Some(made))
            }
            Err(why) if is_terminating(&why) => Ok(None),
            Err(why) => {
                let why = Failure::from(why);
                tell(Tone::Warning, "FailedCreate", format!("Error creating: {}", why.message()));
                Err(why)
            }
        }
    }

    /// Removes a pod of an owner. Whether it was there.
    pub async fn delete<O: Kept>(&self, owner: &O, pod: &Pod) -> Result<bool, Failure> {
        let tell = |tone, reason, message| self.context.events.tell(owner, tone, reason, message);
        // a pod that took its name is not meant
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let deleted = beside::<Pod>(&self.context.client, pod).delete(&pod.name_any(), &params).await;
        match unless(404, deleted) {
            Ok(deleted) => {
                if deleted.is_some() {
                    tell(Tone::Normal, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any()));
                }
                self.written.deleted(&Key::of(owner), pod);
                Ok(deleted.is_some())
            }
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                self.written.deleted(&Key::of(owner), pod);
                Ok(false)
            }
            Err(why) => {
                let why = Failure::from(why);
                tell(Tone::Warning, "FailedDelete", format!("Error deleting: {}", why.message()));
                Err(why)
            }
        }
    }
}
