//! What the collector asks of the server.

use super::decide::{Action, Propagation};
use super::graph::{FOREGROUND, ORPHAN, View};
use super::identity::{Identity, Uid};
use super::{Collector, graph};
use crate::monitors::{Metadata, Object};
use client::discovery::Resource;
use client::request::send;
use client::{Failure, unless};
use futures_util::{TryStreamExt, stream};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::request::Request;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

/// How many dependents lose their owner at a time.
const AT_ONCE: usize = 20;
/// How often a write is tried again when somebody else was faster.
const TRIES: usize = 5;

/// How the references of an object to its owners change.
#[derive(Clone, Copy)]
enum Relink<'a> {
    Drop(&'a [Uid]),
    /// None waits for it any longer.
    Unblock,
}

impl Relink<'_> {
    /// What changes, where lists are merged by uid.
    fn strategic(self, item: &View) -> Value {
        let references: Vec<Value> = match self {
            Relink::Drop(uids) => {
                uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid.to_string()})).collect()
            }
            Relink::Unblock => {
                let blocking = item.owners.iter().filter(|(owner, _)| owner.blocks);
                blocking
                    .map(|(owner, _)| json!({"uid": owner.uid.to_string(), "blockOwnerDeletion": false}))
                    .collect()
            }
        };
        json!({"metadata": {"uid": item.identity.uid.to_string(), "ownerReferences": references}})
    }

    /// The whole list, where it can only be replaced.
    fn replaced(self, object: &Value) -> Value {
        let metadata = &object["metadata"];
        let mut references = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
        match self {
            Relink::Drop(uids) => references.retain(|it| {
                let uid = Uid::from(it["uid"].as_str().unwrap_or_default());
                !uids.contains(&uid)
            }),
            Relink::Unblock => {
                let blocking = references.iter_mut().filter(|it| it["blockOwnerDeletion"] == true);
                blocking.for_each(|it| it["blockOwnerDeletion"] = false.into());
            }
        }
        json!({"metadata": {
            "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "ownerReferences": references,
        }})
    }
}

impl Collector {
    async fn metadata<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        identity: &Identity,
    ) -> Result<Option<T>, Failure> {
        let path = resource.path(&identity.namespace);
        let request = Request::new(path).get_metadata(&identity.name, &GetParams::default());
        Ok(unless(404, send(&self.context.client, request).await)?)
    }

    /// The object as the server has it now, if it is there.
    pub(super) async fn get(
        &self,
        resource: &Resource,
        identity: &Identity,
    ) -> Result<Option<Metadata>, Failure> {
        Ok(self.metadata::<Object>(resource, identity).await?.map(|it| it.metadata))
    }

    pub(super) async fn act(&self, item: &View, action: Action) -> Result<(), Failure> {
        match action {
            Action::Nothing => Ok(()),
            Action::Wait(blocking) => {
                blocking.into_iter().for_each(|uid| self.seen.to_delete.add(uid));
                Ok(())
            }
            Action::Finish => self.remove_finalizer(&item.identity, FOREGROUND).await,
            Action::Unlink(uids) => self.relink(item, Relink::Drop(&uids)).await,
            Action::Delete(propagation) => self.delete(item, propagation).await,
            Action::UnblockAndDelete => {
                self.relink(item, Relink::Unblock).await?;
                // the patch made it another object than the one that was looked at
                let now = View { version: 0, ..item.clone() };
                self.delete(&now, Propagation::Foreground).await
            }
        }
    }

    async fn delete(&self, item: &View, propagation: Propagation) -> Result<(), Failure> {
        let identity = &item.identity;
        let resource = self.resource(&identity.of).await?;
        let path = Request::new(resource.path(&identity.namespace));
        let mut version = (item.version != 0).then(|| item.version.to_string());
        tracing::debug!(object = %identity, policy = propagation.name(), "is collected");
        for attempt in 1.. {
            let params = DeleteParams {
                propagation_policy: Some(match propagation {
                    Propagation::Orphan => PropagationPolicy::Orphan,
                    Propagation::Foreground => PropagationPolicy::Foreground,
                    Propagation::Background => PropagationPolicy::Background,
                }),
                preconditions: Some(Preconditions {
                    uid: Some(identity.uid.to_string()),
                    resource_version: version.take(),
                }),
                ..DeleteParams::default()
            };
            let request = path.delete(&identity.name, &params);
            match unless(404, send::<IgnoredAny>(&self.context.client, request).await) {
                Err(kube::Error::Api(why)) if why.code == 409 && attempt < TRIES => {
                    let Some(now) = self.get(&resource, identity).await? else { return Ok(()) };
                    // what was decided still holds if only something else has changed
                    if !item.is_as_in(&now) {
                        return Err(kube::Error::Api(why).into());
                    }
                    version = Some(now.resource_version);
                }
                deleted => return deleted.map(drop).map_err(Failure::from),
            }
        }
        Ok(())
    }

    async fn patch(
        &self,
        resource: &Resource,
        identity: &Identity,
        patch: Patch<Value>,
    ) -> Result<(), kube::Error> {
        let request = Request::new(resource.path(&identity.namespace)).patch_metadata(
            &identity.name,
            &PatchParams::default(),
            &patch,
        );
        unless(404, send::<IgnoredAny>(&self.context.client, request).await).map(drop)
    }

    async fn relink(&self, item: &View, change: Relink<'_>) -> Result<(), Failure> {
        let identity = &item.identity;
        let resource = self.resource(&identity.of).await?;
        let merged = self.patch(&resource, identity, Patch::Strategic(change.strategic(item))).await;
        match merged {
            // kinds that are not built in know no way to merge lists
            Err(kube::Error::Api(why)) if why.code == 415 => {}
            merged => return Ok(merged?),
        }
        let Some(there) = self.metadata::<Value>(&resource, identity).await? else { return Ok(()) };
        if there["metadata"]["uid"] != identity.uid.to_string() {
            return Ok(());
        }
        Ok(self.patch(&resource, identity, Patch::Merge(change.replaced(&there))).await?)
    }

    async fn remove_finalizer(&self, identity: &Identity, name: &str) -> Result<(), Failure> {
        let resource = self.resource(&identity.of).await?;
        for attempt in 1.. {
            let Some(there) = self.get(&resource, identity).await? else { return Ok(()) };
            if Uid::from(&*there.uid) != identity.uid || !there.finalizers.iter().any(|it| it == name) {
                return Ok(());
            }
            let left: Vec<&String> = there.finalizers.iter().filter(|it| *it != name).collect();
            let patch = json!({"metadata": {"resourceVersion": there.resource_version, "finalizers": left}});
            match self.patch(&resource, identity, Patch::Merge(patch)).await {
                Err(kube::Error::Api(why)) if why.code == 409 && attempt < TRIES => {}
                patched => return Ok(patched?),
            }
        }
        Ok(())
    }

    /// Its dependents lose it as their owner, and it goes.
    pub(super) async fn orphan(&self, item: &View, dependents: Vec<Identity>) -> Result<(), Failure> {
        let uid = [item.identity.uid.clone()];
        let look = |it: &Identity| self.seen.graph.lock().look(&it.uid);
        let dependents = dependents.into_iter().filter_map(|it| look(&it)).map(Ok::<graph::View, Failure>);
        let uid = &uid;
        let left = stream::iter(dependents)
            .map_ok(|dependent| async move { self.relink(&dependent, Relink::Drop(uid)).await });
        left.try_buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await?;
        self.remove_finalizer(&item.identity, ORPHAN).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_a_whole_where_they_cannot_be_merged() {
        let object = json!({"metadata": {"uid": "u", "resourceVersion": "7", "ownerReferences": [
            {"uid": "a", "name": "x", "blockOwnerDeletion": true}, {"uid": "b", "name": "y"},
        ]}});
        let dropped = Relink::Drop(&[Uid::from("a"), Uid::from("c")]).replaced(&object);
        let expected =
            json!({"uid": "u", "resourceVersion": "7", "ownerReferences": [{"uid": "b", "name": "y"}]});
        assert_eq!(dropped, json!({"metadata": expected}));
        let unblocked = Relink::Unblock.replaced(&object);
        assert_eq!(unblocked["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
        assert_eq!(unblocked["metadata"]["ownerReferences"][1], json!({"uid": "b", "name": "y"}));
    }
}
