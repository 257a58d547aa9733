//! Pods of owners: the parts that the loops of replica sets, jobs, daemon sets and stateful sets share.

pub mod placed;
pub mod rank;
pub mod remove;
pub mod slow_start;
pub mod state;
pub mod template;
pub mod tolerate;

pub use slow_start::slow_start;

use crate::Context;
use api::Resource;
use api::core::v1::Pod;
use api::meta::v1::ObjectMeta;
use client::{Api, EventType, Failure, Key, Rendered, WriteTracker, is_terminating, unless};

/// Creates and deletes pods for owners, with events, and tracks these writes.
pub struct Pods {
    context: Context,
    written: WriteTracker<Pod>,
}

/// A pod as the body of the requests that create it: once for all pods of a template.
pub fn rendered(pod: &Pod) -> Result<Rendered<Pod>, Failure> {
    if pod.metadata.labels.is_empty() {
        return Err(Failure::Other("unable to create pods, no labels".to_owned()));
    }
    Ok(Rendered::new(pod))
}

impl Pods {
    pub fn new(context: Context) -> Self {
        let written = WriteTracker::new(context.informer::<Pod>());
        Pods { context, written }
    }

    pub fn written(&self) -> &WriteTracker<Pod> {
        &self.written
    }

    /// Creates a pod for an owner, and records an event. `None` if the namespace is terminating: a retry would fail, too.
    pub async fn create<O: Resource>(
        &self,
        owner: &O,
        pod: &Rendered<Pod>,
    ) -> Result<Option<ObjectMeta>, Failure> {
        let created = self.make(owner, pod).await;
        match &created {
            Ok(Some(created)) => {
                let message = format!("Created pod: {}", created.name);
                self.context.events.record(owner, EventType::Normal, "SuccessfulCreate", message);
            }
            Ok(None) => {}
            Err(why @ Failure::Api(_)) => {
                let message = format!("Error creating: {}", why.message());
                self.context.events.record(owner, EventType::Warning, "FailedCreate", message);
            }
            Err(Failure::Other(_)) => {}
        }
        created
    }

    /// Creates a pod without an event.
    pub async fn make<O: Resource>(
        &self,
        owner: &O,
        pod: &Rendered<Pod>,
    ) -> Result<Option<ObjectMeta>, Failure> {
        match Api::<Pod>::beside(&self.context.client, owner).create_rendered(pod).await {
            Ok(created) => {
                self.written.wrote_version(&Key::of(owner), &created.resource_version);
                Ok(Some(created))
            }
            Err(why) if is_terminating(&why) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Deletes a pod of an owner, and records an event. Returns whether the pod existed.
    pub async fn delete<O: Resource>(&self, owner: &O, pod: &Pod) -> Result<bool, Failure> {
        let deleted = self.remove(owner, pod).await;
        match &deleted {
            Ok(true) => {
                let message = format!("Deleted pod: {}", pod.name());
                self.context.events.record(owner, EventType::Normal, "SuccessfulDelete", message);
            }
            Ok(false) => {}
            Err(why) => {
                let message = format!("Error deleting: {}", why.message());
                self.context.events.record(owner, EventType::Warning, "FailedDelete", message);
            }
        }
        deleted
    }

    /// Deletes a pod without an event. A pod of the same name but another uid stays.
    pub async fn remove<O: Resource>(&self, owner: &O, pod: &Pod) -> Result<bool, Failure> {
        let options = remove::options(pod);
        let deleted = Api::<Pod>::beside(&self.context.client, pod).delete(pod.name(), &options).await;
        let existed = match unless(404, deleted) {
            Err(why) if why.is_conflict() => false,
            result => result?.is_some(),
        };
        self.written.deleted(&Key::of(owner), pod);
        Ok(existed)
    }
}
