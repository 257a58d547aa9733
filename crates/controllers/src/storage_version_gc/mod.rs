//! What servers say about how they store things is forgotten when they are gone.
//!
//! A server is there while its identity lease is. Records of others are removed, and with the last one the object.

use crate::Context;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::apiserverinternal::v1alpha1::{
    StorageVersion, StorageVersionCondition, StorageVersionStatus,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use std::sync::Arc;

const CONDITION: &str = "AllEncodingVersionsEqual";

struct Records {
    context: Context,
    versions: Informer<StorageVersion>,
    identity: String,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let versions = context.informer::<StorageVersion>();
    // servers keep their leases there; those of nodes change all the time
    let leases = context.informer_of::<Lease>(&context.names.system_namespace(), "");
    let news = queue.clone();
    versions.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    let identity = format!("{}/component", context.names.api_domain);
    let (news, all, label) = (queue.clone(), versions.clone(), identity.clone());
    leases.listen(move |change| {
        if change.is_deletion() && change.object().labels().contains_key(&label) {
            all.all().iter().for_each(|it| news.add(Key::of(&**it)));
        }
    });
    versions.synced().await;
    leases.synced().await;
    run::run(Arc::new(Records { context, versions, identity }), queue, 1).await;
}

impl Reconcile for Records {
    type Key = Key;

    fn name(&self) -> &'static str {
        "storage-version-gc"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(version) = self.versions.get(key) else { return Ok(Action::AwaitChange) };
        let leases: Api<Lease> =
            Api::namespaced(self.context.client.clone(), &self.context.names.system_namespace());
        let server = format!("{}-apiserver", self.context.names.prefix);
        let mut there = Vec::new();
        // asked and not looked up: a server that has just come may not have been seen
        for record in version.status.storage_versions.iter().flatten() {
            let id = record.api_server_id.as_deref().unwrap_or_default();
            let lease = if id.is_empty() { None } else { unless(404, leases.get(id).await)? };
            if lease.is_some_and(|it| it.labels().get(&self.identity) == Some(&server)) {
                there.push(record.clone());
            }
        }
        if there.len() == version.status.storage_versions.iter().flatten().count() {
            return Ok(Action::AwaitChange);
        }
        let api: Api<StorageVersion> = Api::all(self.context.client.clone());
        if there.is_empty() {
            let preconditions =
                Preconditions { uid: version.uid(), resource_version: version.resource_version() };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            unless(404, api.delete(&key.name, &params).await)?;
            return Ok(Action::AwaitChange);
        }
        let mut next = (*version).clone();
        next.status.storage_versions = Some(there);
        agree(&mut next.status, version.metadata.generation, &self.context.time());
        let body = serde_json::to_vec(&next).map_err(kube::Error::SerdeError)?;
        unless(404, api.replace_status(&key.name, &PostParams::default(), body).await)?;
        Ok(Action::AwaitChange)
    }
}

/// Says whether all servers store in the same version.
fn agree(status: &mut StorageVersionStatus, generation: Option<i64>, now: &Time) {
    let mut said = status.storage_versions.iter().flatten().map(|it| it.encoding_version.clone());
    let first = said.next().flatten();
    let common = first.filter(|first| said.all(|it| it.as_ref() == Some(first)));
    let turned = common != status.common_encoding_version;
    let (state, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    status.common_encoding_version = common;
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().find(|it| it.type_ == CONDITION && it.status == state && !turned);
    let since = old.and_then(|it| it.last_transition_time.clone());
    conditions.retain(|it| it.type_ != CONDITION);
    conditions.push(StorageVersionCondition {
        type_: CONDITION.to_owned(),
        status: state.to_owned(),
        observed_generation: generation,
        last_transition_time: since.or_else(|| Some(now.clone())),
        reason: reason.to_owned(),
        message: Some(message.to_owned()),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::chrono::DateTime;
    use serde_json::json;

    #[test]
    fn servers_agree_or_not() {
        let told = |versions: &[&str]| {
            let records: Vec<_> =
                versions.iter().map(|it| json!({"apiServerID": "a", "encodingVersion": it})).collect();
            let mut status: StorageVersionStatus =
                serde_json::from_value(json!({"storageVersions": records})).unwrap();
            agree(&mut status, Some(1), &Time(DateTime::from_timestamp(0, 0).unwrap()));
            (status.common_encoding_version, status.conditions.unwrap().remove(0).status)
        };
        assert_eq!(told(&["v1", "v1"]), (Some("v1".to_owned()), "True".to_owned()));
        assert_eq!(told(&["v1", "v2"]), (None, "False".to_owned()));
    }
}
