//! The identity lease of this server, and the removal of expired ones.
//!
//! Whoever wants to know which servers a cluster has looks at these leases, as upstream's servers keep them, too. What
//! always holds: the name follows from the machine, so that a server that starts again goes on with its lease; only
//! leases that say of themselves that they are a server's are removed, an hour after they were last renewed.

use crate::loopback;
use rest::options::DeleteOptions;
use rest::{Api, ApiError};
use schema::{Value, time};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How long others may take a server to be there after it was last seen to be.
const LASTS: Duration = Duration::from_secs(3600);
/// How often it is looked for leases that nobody renews.
const LOOKS: Duration = Duration::from_secs(3600);

const PLURAL: &str = "leases";

/// See the module.
pub(crate) struct OwnLease {
    name: String,
    /// This run of the server.
    holder: String,
    machine: String,
    /// When, by the world's clock, it is looked for others' again.
    looks_at: Duration,
}

impl OwnLease {
    pub fn new(machine: String, api: &Api) -> Self {
        let name = format!("{}-{}", component(api), short_hash(&machine));
        let holder = format!("{name}_{}", rest::metadata::new_uid(&api.world));
        OwnLease { name, holder, machine, looks_at: Duration::ZERO }
    }

    /// Its name, which is also how the server is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says that the server is there; now and then removes what others left.
    pub async fn keep(&mut self, api: &Arc<Api>) {
        if let Err(why) = self.renew(api).await {
            tracing::warn!(%why, lease = self.name, "the lease of the server itself cannot be renewed");
        }
        let now = api.world.elapsed();
        if now >= self.looks_at {
            self.looks_at = now.saturating_add(LOOKS);
            if let Err(why) = self.collect(api).await {
                tracing::warn!(%why, "leases of servers that are gone cannot be removed");
            }
        }
    }

    async fn renew(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let (group_version, namespace) = place(api);
        let resources = api.resources();
        let Some(resource) = resources.get(&group_version, PLURAL) else { return Ok(()) };
        let found = api.lookup(PLURAL, &namespace, &self.name);
        let name = if found.is_some() { &*self.name } else { "" };
        let mut lease = found.unwrap_or_else(Value::map);
        lease.set(&["metadata", "name"], &*self.name);
        if let Some(metadata) = lease.at_mut(&["metadata"]) {
            let labels = metadata.make_map().entry("labels").make_map();
            labels.insert(component_label(api), component(api));
            labels.insert(api.names.well_known("hostname"), &*self.machine);
        }
        lease.set(&["spec", "holderIdentity"], &*self.holder);
        lease.set(&["spec", "leaseDurationSeconds"], LASTS.as_secs() as i64);
        lease.set(&["spec", "renewTime"], time::format_micro_time(unix_micros(api)));
        let place = loopback::Place { resource, namespace: &namespace, name, subresource: "" };
        loopback::write(api, place, &lease).await.map(drop)
    }

    async fn collect(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let (group_version, namespace) = place(api);
        let resources = api.resources();
        let Some(resource) = resources.get(&group_version, PLURAL) else { return Ok(()) };
        let (label, now) = (component_label(api), unix_micros(api));
        for lease in api.list_of(PLURAL, Some(&namespace)) {
            let name = lease.text(&["metadata", "name"]);
            if lease.text(&["metadata", "labels", &label]) != component(api) || !has_run_out(&lease, now) {
                continue;
            }
            // only what was looked at: it may be renewed meanwhile
            let revision = lease.text(&["metadata", "resourceVersion"]).to_owned();
            let options = DeleteOptions { resource_version: Some(revision), ..DeleteOptions::default() };
            tracing::info!(lease = name, "a server is gone");
            match api.delete(resource, &namespace, name, &options, &loopback::itself()).await {
                Err(why) if !matches!(why.code, 404 | 409) => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }
}

fn place(api: &Api) -> (String, String) {
    (format!("{}/v1", api.names.group("coordination")), api.names.system_namespace())
}

/// What a lease is a server's by.
fn component_label(api: &Api) -> String {
    format!("{}/component", api.names.api_domain)
}

fn component(api: &Api) -> String {
    format!("{}-apiserver", api.names.prefix)
}

fn unix_micros(api: &Api) -> i64 {
    let now = api.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Whether nobody has renewed a lease for as long as it lasts; one that does not say so never was.
fn has_run_out(lease: &Value, now: i64) -> bool {
    let renewed = time::to_unix_micros(lease.text(&["spec", "renewTime"]));
    let lasts = lease.at(&["spec", "leaseDurationSeconds"]).and_then(Value::as_int);
    match (renewed, lasts) {
        (Some(renewed), Some(lasts)) => renewed.saturating_add(lasts.saturating_mul(1_000_000)) < now,
        _ => true,
    }
}

/// Half of the hash of a text, in letters and digits that names may have.
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
    fn names_are_those_that_upstream_gives() {
        assert_eq!(short_hash("vm"), "lphjr5z7h3imqn7sokpnsue3ha");
    }

    #[test]
    fn leases_run_out_when_their_time_has_passed() {
        let check = |spec: &str, expected: bool| {
            let lease = schema::decode::json_untyped(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            assert_eq!(has_run_out(&lease.value, 1_700_000_000_000_000), expected, "{spec}");
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
