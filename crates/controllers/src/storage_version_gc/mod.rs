//! Removes the records of API servers that are gone from storage versions.
//!
//! A server exists while its identity lease does. With its last record a storage version is deleted.

use crate::Context;
use api::Time;
use api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition, StorageVersionStatus};
use api::coordination::v1::Lease;
use api::meta::v1::DeleteOptions;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run, unchanged, unless};
use std::sync::Arc;

const CONDITION: &str = "AllEncodingVersionsEqual";

struct Records {
    context: Context,
    versions: Informer<StorageVersion>,
    /// The key of the label that identity leases have.
    identity_label: String,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let versions = context.informer::<StorageVersion>();
    // only the namespace of servers' leases: those of nodes change all the time
    let leases = context.informer_of::<Lease>(&context.names.system_namespace(), "");
    let changed = queue.clone();
    versions.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    let identity_label = format!("{}/component", context.names.api_domain);
    let (changed, all, label) = (queue.clone(), versions.clone(), identity_label.clone());
    leases.listen(move |change| {
        if change.is_deletion() && change.object().metadata.labels.contains_key(&label) {
            all.all().iter().for_each(|it| changed.add(Key::of(&**it)));
        }
    });
    versions.synced().await;
    leases.synced().await;
    run::run(Arc::new(Records { context, versions, identity_label }), queue, 1).await;
}

impl Reconcile for Records {
    type Key = Key;

    fn name(&self) -> &'static str {
        "storage-version-gc"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(version) = self.versions.get(key) else { return Ok(Action::AwaitChange) };
        let leases: Api<Lease> =
            Api::namespaced(&self.context.client, &self.context.names.system_namespace());
        let server = format!("{}-apiserver", self.context.names.prefix);
        let mut valid = Vec::new();
        // read from the server: the informer may not have the lease of a new server yet
        for record in &version.status.storage_versions {
            let id = &record.api_server_id;
            let lease = if id.is_empty() { None } else { leases.get_opt(id).await? };
            if lease.is_some_and(|it| it.metadata.labels.get(&self.identity_label) == Some(&server)) {
                valid.push(record.clone());
            }
        }
        if valid.len() == version.status.storage_versions.len() {
            return Ok(Action::AwaitChange);
        }
        let versions: Api<StorageVersion> = Api::all(&self.context.client);
        if valid.is_empty() {
            let preconditions = Some(Box::new(unchanged(&*version)));
            let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
            unless(404, versions.delete(&key.name, &options).await)?;
            return Ok(Action::AwaitChange);
        }
        let mut next = (*version).clone();
        next.status.storage_versions = valid;
        set_common_version(&mut next.status, version.metadata.generation, self.context.time());
        unless(404, versions.replace_status(&next).await)?;
        Ok(Action::AwaitChange)
    }
}

/// Sets the version in which all servers encode, if it is the same, and its condition.
fn set_common_version(status: &mut StorageVersionStatus, generation: i64, now: Time) {
    let mut versions = status.storage_versions.iter().map(|it| &it.encoding_version);
    let first = versions.next();
    let common = first.filter(|first| versions.all(|it| it == *first)).cloned();
    let is_changed = common != status.common_encoding_version;
    let (state, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    status.common_encoding_version = common;
    let conditions = &mut status.conditions;
    let old = conditions.iter().find(|it| it.type_ == CONDITION && it.status == state && !is_changed);
    let since = old.and_then(|it| it.last_transition_time);
    conditions.retain(|it| it.type_ != CONDITION);
    conditions.push(StorageVersionCondition {
        type_: CONDITION.to_owned(),
        status: state.to_owned(),
        observed_generation: generation,
        last_transition_time: since.or(Some(now)),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..StorageVersionCondition::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn the_common_version_is_set_if_all_servers_agree() {
        let of = |versions: &[&str]| {
            let records: Vec<_> =
                versions.iter().map(|it| json!({"apiServerID": "a", "encodingVersion": it})).collect();
            let mut status: StorageVersionStatus = object(json!({"storageVersions": records}));
            set_common_version(&mut status, 1, Time(0));
            (status.common_encoding_version, status.conditions.remove(0).status)
        };
        assert_eq!(of(&["v1", "v1"]), (Some("v1".to_owned()), "True".to_owned()));
        assert_eq!(of(&["v1", "v2"]), (None, "False".to_owned()));
    }
}
