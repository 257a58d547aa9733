//! Requests of the collector: reads, deletions, and patches of metadata.

use super::decide::{Action, Propagation};
use super::graph::{FOREGROUND, ORPHAN, View};
use super::identity::{Identity, Uid};
use super::{Collector, graph};
use api::meta::v1::{DeleteOptions, ObjectMeta, PartialObjectMetadata};
use client::discovery::Resource;
use client::{Api, Failure, Patch, json_value, of_uid, unless};
use futures_util::{TryStreamExt, stream};
use serde_json::{Value, json};

/// The number of dependents that are orphaned concurrently.
const AT_ONCE: usize = 20;
/// The limit of attempts of one write after conflicts.
const TRIES: usize = 5;

/// A change of owner references.
#[derive(Clone, Copy)]
enum Relink<'a> {
    /// Removes the references to these owners.
    Drop(&'a [Uid]),
    /// Sets `blockOwnerDeletion` to false.
    Unblock,
}

impl Relink<'_> {
    /// A strategic merge patch, which merges the list by uid.
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

    /// A JSON merge patch, which replaces the whole list.
    fn merge(self, metadata: &ObjectMeta) -> Value {
        let mut references = metadata.owner_references.clone();
        match self {
            Relink::Drop(uids) => references.retain(|it| !uids.contains(&Uid::from(&*it.uid))),
            Relink::Unblock => {
                let blocking = references.iter_mut().filter(|it| it.block_owner_deletion == Some(true));
                blocking.for_each(|it| it.block_owner_deletion = Some(false));
            }
        }
        let references: Value = references.iter().map(json_value).collect();
        json!({"metadata": {
            "uid": metadata.uid, "resourceVersion": metadata.resource_version, "ownerReferences": references,
        }})
    }
}

impl Collector {
    /// The metadata of the objects beside this one.
    fn metadata_api(&self, resource: &Resource, identity: &Identity) -> Api<PartialObjectMetadata> {
        Api::metadata(&self.context.client, resource.path(&identity.namespace))
    }

    /// The metadata that the server has now; `None` if there is no such object.
    pub(super) async fn get(
        &self,
        resource: &Resource,
        identity: &Identity,
    ) -> Result<Option<ObjectMeta>, Failure> {
        let object = self.metadata_api(resource, identity).get_opt(&identity.name).await?;
        Ok(object.map(|it| it.metadata))
    }

    pub(super) async fn act(&self, item: &View, action: Action) -> Result<(), Failure> {
        match action {
            Action::Nothing => Ok(()),
            Action::Wait(blocking) => {
                blocking.into_iter().for_each(|uid| self.shared.to_delete.add(uid));
                Ok(())
            }
            Action::Finish => self.remove_finalizer(&item.identity, FOREGROUND).await,
            Action::Unlink(uids) => self.relink(item, Relink::Drop(&uids)).await,
            Action::Delete(propagation) => self.delete(item, propagation).await,
            Action::UnblockAndDelete => {
                self.relink(item, Relink::Unblock).await?;
                // the patch has changed the resource version
                let any_version = View { version: 0, ..item.clone() };
                self.delete(&any_version, Propagation::Foreground).await
            }
        }
    }

    async fn delete(&self, item: &View, propagation: Propagation) -> Result<(), Failure> {
        let identity = &item.identity;
        let resource = self.resource(&identity.of).await?;
        let api: Api<PartialObjectMetadata> =
            Api::at(&self.context.client, resource.path(&identity.namespace));
        let mut version = (item.version != 0).then(|| item.version.to_string());
        tracing::debug!(object = %identity, policy = propagation.name(), "deletes an object");
        for attempt in 1.. {
            let mut preconditions = of_uid(identity.uid.to_string());
            preconditions.resource_version = version.take();
            let options = DeleteOptions {
                propagation_policy: Some(propagation.name().to_owned()),
                preconditions: Some(Box::new(preconditions)),
                ..DeleteOptions::default()
            };
            match unless(404, api.delete(&identity.name, &options).await) {
                Err(error) if error.is(409) && attempt < TRIES => {
                    let Some(now) = self.get(&resource, identity).await? else { return Ok(()) };
                    // the decision holds if another part of the object has changed
                    if !item.is_as_in(&now) {
                        return Err(error.into());
                    }
                    version = Some(now.resource_version);
                }
                deleted => return deleted.map(drop).map_err(Failure::from),
            }
        }
        Ok(())
    }

    /// Patches the metadata of an object; one that is gone counts as patched.
    async fn patch(
        &self,
        resource: &Resource,
        identity: &Identity,
        patch: Patch,
    ) -> Result<(), client::Error> {
        unless(404, self.metadata_api(resource, identity).patch(&identity.name, &patch).await).map(drop)
    }

    async fn relink(&self, item: &View, change: Relink<'_>) -> Result<(), Failure> {
        let identity = &item.identity;
        let resource = self.resource(&identity.of).await?;
        match self.patch(&resource, identity, Patch::strategic(change.strategic(item))).await {
            // custom resources do not support strategic merge patches
            Err(error) if error.is(415) => {}
            patched => return Ok(patched?),
        }
        let Some(metadata) = self.get(&resource, identity).await? else { return Ok(()) };
        if Uid::from(&*metadata.uid) != identity.uid {
            return Ok(());
        }
        Ok(self.patch(&resource, identity, Patch::merge(change.merge(&metadata))).await?)
    }

    async fn remove_finalizer(&self, identity: &Identity, name: &str) -> Result<(), Failure> {
        let resource = self.resource(&identity.of).await?;
        for attempt in 1.. {
            let Some(metadata) = self.get(&resource, identity).await? else { return Ok(()) };
            if Uid::from(&*metadata.uid) != identity.uid || !metadata.finalizers.iter().any(|it| it == name) {
                return Ok(());
            }
            let finalizers: Vec<&String> = metadata.finalizers.iter().filter(|it| *it != name).collect();
            let patch = json!({"metadata": {
                "resourceVersion": metadata.resource_version, "finalizers": finalizers,
            }});
            match self.patch(&resource, identity, Patch::merge(patch)).await {
                Err(error) if error.is(409) && attempt < TRIES => {}
                patched => return Ok(patched?),
            }
        }
        Ok(())
    }

    /// Removes an owner from its dependents, then the owner's finalizer.
    pub(super) async fn orphan(&self, item: &View, dependents: Vec<Identity>) -> Result<(), Failure> {
        let uid = [item.identity.uid.clone()];
        let view = |it: &Identity| self.shared.graph.lock().view(&it.uid);
        let dependents = dependents.into_iter().filter_map(|it| view(&it)).map(Ok::<graph::View, Failure>);
        let uid = &uid;
        let relinked = stream::iter(dependents)
            .map_ok(|dependent| async move { self.relink(&dependent, Relink::Drop(uid)).await });
        relinked.try_buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await?;
        self.remove_finalizer(&item.identity, ORPHAN).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn a_merge_patch_replaces_all_references() {
        let reference =
            |uid: &str, name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": uid});
        let mut blocking = reference("a", "x");
        blocking["blockOwnerDeletion"] = true.into();
        let metadata: ObjectMeta = object(json!({
            "uid": "u", "resourceVersion": "7", "ownerReferences": [blocking, reference("b", "y")],
        }));
        let dropped = Relink::Drop(&[Uid::from("a"), Uid::from("c")]).merge(&metadata);
        let expected = json!({"uid": "u", "resourceVersion": "7", "ownerReferences": [reference("b", "y")]});
        assert_eq!(dropped, json!({"metadata": expected}));
        let unblocked = Relink::Unblock.merge(&metadata);
        assert_eq!(unblocked["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
        assert_eq!(unblocked["metadata"]["ownerReferences"][1], reference("b", "y"));
    }
}
