//! The identity lease of this server, and the garbage collection of expired ones.
//!
//! The leases list the servers of a cluster, as upstream's servers do. Invariants: the name is derived from
//! the hostname, so that a restarted server continues its lease; only leases labelled as those of servers are
//! deleted, an hour after their last renewal.

use crate::loopback;
use rest::options::DeleteOptions;
use rest::{Api, ApiError};
use schema::{Value, time};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Lease duration.
const LEASE_DURATION: Duration = Duration::from_secs(3600);
/// Interval of garbage collection.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3600);

const PLURAL: &str = "leases";

/// The lease of this server.
pub(crate) struct IdentityLease {
    name: String,
    /// This run of the server.
    holder: String,
    hostname: String,
    /// When the next garbage collection is due, by the world's clock.
    next_collection: Duration,
}

impl IdentityLease {
    pub fn new(hostname: String, api: &Api) -> Self {
        let name = format!("{}-{}", component(api), short_hash(&hostname));
        let holder = format!("{name}_{}", rest::metadata::new_uid(&api.world));
        IdentityLease { name, holder, hostname, next_collection: Duration::ZERO }
    }

    /// Its name, which identifies the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Renews the lease; periodically deletes expired ones.
    pub async fn maintain(&mut self, api: &Arc<Api>) {
        match self.renew(api).await {
            // a server on the same host has renewed it at the same moment
            Err(why) if why.code != 409 => {
                tracing::warn!(%why, lease = self.name, "the identity lease could not be renewed");
            }
            _ => {}
        }
        let now = api.world.elapsed();
        if now >= self.next_collection {
            self.next_collection = now.saturating_add(COLLECT_INTERVAL);
            if let Err(why) = self.delete_expired(api).await {
                tracing::warn!(%why, "expired identity leases could not be deleted");
            }
        }
    }

    async fn renew(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let (group_version, namespace) = lease_location(api);
        let resources = api.resources();
        let Some(resource) = resources.get(&group_version, PLURAL) else { return Ok(()) };
        let found = api.lookup(PLURAL, &namespace, &self.name);
        let name = if found.is_some() { &*self.name } else { "" };
        let mut lease = found.unwrap_or_else(Value::map);
        lease.set(&["metadata", "name"], &*self.name);
        if let Some(metadata) = lease.at_mut(&["metadata"]) {
            let labels = metadata.make_map().entry("labels").make_map();
            labels.insert(component_label(api), component(api));
            labels.insert(api.names.well_known("hostname"), &*self.hostname);
        }
        lease.set(&["spec", "holderIdentity"], &*self.holder);
        lease.set(&["spec", "leaseDurationSeconds"], LEASE_DURATION.as_secs() as i64);
        lease.set(&["spec", "renewTime"], time::format_micro_time(unix_micros(api)));
        let target = loopback::WriteTarget { resource, namespace: &namespace, name, subresource: "" };
        loopback::write(api, target, &lease).await.map(drop)
    }

    async fn delete_expired(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let (group_version, namespace) = lease_location(api);
        let resources = api.resources();
        let Some(resource) = resources.get(&group_version, PLURAL) else { return Ok(()) };
        let (label, now) = (component_label(api), unix_micros(api));
        for lease in api.list_of(PLURAL, Some(&namespace)) {
            let name = lease.text(&["metadata", "name"]);
            if lease.text(&["metadata", "labels", &label]) != component(api) || !has_expired(&lease, now) {
                continue;
            }
            // only in the state that was read: it may be renewed meanwhile
            let revision = lease.text(&["metadata", "resourceVersion"]).to_owned();
            let options = DeleteOptions { resource_version: Some(revision), ..DeleteOptions::default() };
            tracing::info!(lease = name, "deleted the expired identity lease of a server");
            match api.delete(resource, &namespace, name, &options, &loopback::own_user()).await {
                Err(why) if !matches!(why.code, 404 | 409) => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }
}

fn lease_location(api: &Api) -> (String, String) {
    (format!("{}/v1", api.names.group("coordination")), api.names.system_namespace())
}

/// The label that marks the leases of servers.
fn component_label(api: &Api) -> String {
    format!("{}/component", api.names.api_domain)
}

fn component(api: &Api) -> String {
    format!("{}-apiserver", api.names.prefix)
}

pub(crate) fn unix_micros(api: &Api) -> i64 {
    let now = api.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Whether a lease has expired; one without a renewal time or duration has.
pub(crate) fn has_expired(lease: &Value, now: i64) -> bool {
    let renewed = time::to_unix_micros(lease.text(&["spec", "renewTime"]));
    let duration = lease.at(&["spec", "leaseDurationSeconds"]).and_then(Value::as_int);
    match (renewed, duration) {
        (Some(renewed), Some(duration)) => renewed.saturating_add(duration.saturating_mul(1_000_000)) < now,
        _ => true,
    }
}

/// Half of the hash of a text, in base32.
fn short_hash(text: &str) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let hash = Sha256::digest(text.as_bytes());
    let mut bits =
        hash.iter().take(16).flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).peekable();
    let mut out = String::with_capacity(26);
    while bits.peek().is_some() {
        let digit = (0..5).fold(0, |digit, _| digit << 1 | bits.next().unwrap_or(0));
        out.push(DIGITS[usize::from(digit)].into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_upstream() {
        assert_eq!(short_hash("vm"), "lphjr5z7h3imqn7sokpnsue3ha");
    }

    #[test]
    fn leases_run_out_when_their_time_has_passed() {
        let check = |spec: &str, expected: bool| {
            let lease = schema::decode::json_untyped(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            assert_eq!(has_expired(&lease.value, 1_700_000_000_000_000), expected, "{spec}");
        };
        check(r#"{"renewTime":"2023-11-14T22:13:00.000000Z","leaseDurationSeconds":20}"#, false);
        check(r#"{"renewTime":"2023-11-14T22:13:00.000000Z","leaseDurationSeconds":19}"#, true);
        check(r#"{"renewTime":"2023-11-14T22:13:00.000000Z"}"#, true);
        check("{}", true);
        check(
            r#"{"renewTime":"2023-11-14T22:13:00.000000Z","leaseDurationSeconds":9223372036854775807}"#,
            false,
        );
    }
}
