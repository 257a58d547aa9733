//! Pods that loops make from templates and remove again: what replica sets, jobs, daemon sets and stateful sets share.

pub mod placed;
pub mod rank;
pub mod remove;
pub mod slow_start;
pub mod state;
pub mod template;
pub mod tolerate;

pub use slow_start::slow_start;

use crate::Context;
use client::events::EventType;
use client::retry_on_conflict::{NamespacedObject, beside};
use client::{Failure, Key, WriteTracker, is_terminating, unless};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};

/// Makes and removes pods in the name of owners, tells of it, and remembers it.
pub struct Pods {
    context: Context,
    written: WriteTracker<Pod>,
}

impl Pods {
    pub fn new(context: Context) -> Self {
        let written = WriteTracker::new(context.informer::<Pod>());
        Pods { context, written }
    }

    pub fn written(&self) -> &WriteTracker<Pod> {
        &self.written
    }

    /// Makes a pod for an owner, and tells of it. Nothing where the namespace is going away: what is refused then is
    /// refused for good.
    pub async fn create<O: NamespacedObject>(&self, owner: &O, pod: &Pod) -> Result<Option<Pod>, Failure> {
        let made = self.make(owner, pod).await;
        match &made {
            Ok(Some(made)) => {
                let message = format!("Created pod: {}", made.name_any());
                self.context.events.tell(owner, EventType::Normal, "SuccessfulCreate", message);
            }
            Ok(None) => {}
            Err(why @ Failure::Api(_)) => {
                let message = format!("Error creating: {}", why.message());
                self.context.events.tell(owner, EventType::Warning, "FailedCreate", message);
            }
            Err(Failure::Other(_)) => {}
        }
        made
    }

    /// The same without a word.
    pub async fn make<O: NamespacedObject>(&self, owner: &O, pod: &Pod) -> Result<Option<Pod>, Failure> {
        if pod.labels().is_empty() {
            return Err(Failure::Other("unable to create pods, no labels".to_owned()));
        }
        match beside::<Pod>(&self.context.client, owner).create(&PostParams::default(), pod).await {
            Ok(made) => {
                self.written.wrote(&Key::of(owner), &made);
                Ok(Some(made))
            }
            Err(why) if is_terminating(&why) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Removes a pod of an owner, and tells of it. Whether it was there.
    pub async fn delete<O: NamespacedObject>(&self, owner: &O, pod: &Pod) -> Result<bool, Failure> {
        let removed = self.remove(owner, pod).await;
        match &removed {
            Ok(true) => {
                let message = format!("Deleted pod: {}", pod.name_any());
                self.context.events.tell(owner, EventType::Normal, "SuccessfulDelete", message);
            }
            Ok(false) => {}
            Err(why) => {
                let message = format!("Error deleting: {}", why.message());
                self.context.events.tell(owner, EventType::Warning, "FailedDelete", message);
            }
        }
        removed
    }

    /// The same without a word.
    pub async fn remove<O: NamespacedObject>(&self, owner: &O, pod: &Pod) -> Result<bool, Failure> {
        // a pod that took its name is not meant
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let deleted = beside::<Pod>(&self.context.client, pod).delete(&pod.name_any(), &params).await;
        let is_there = match unless(404, deleted) {
            Err(kube::Error::Api(answer)) if answer.code == 409 => false,
            answer => answer?.is_some(),
        };
        self.written.deleted(&Key::of(owner), pod);
        Ok(is_there)
    }
}
